"""The ledger: which messages history says are alive, and where their pool records lie.

One row of numbers a message, kept by numpy over all frames; no message is decoded. It is taken
twice: at the checkpoint, to compare with the pool, and at the end, to say what can be made again.

Invariants: 1. only messages whose PUT was seen are in it; 2. `ended` holds those of the QPoolIds
asked for whose end was seen; 3. a message that lies in condemned or damaged payloads is in it all
the same: whether its record can be made is shown when it is made.

Memory: 40 bytes for each message that is alive at some moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from omq.format.journal import FRAME, FrameFlag, FrameType
from omq.format.pool import PARTS_PER_RECORD
from omq.storage.journal_scan import Block

Rows = np.ndarray[Any, np.dtype[Any]]
ROW: Final = np.dtype([("qpool", "<u8"), ("born", "<u8"), ("last", "<u8"), ("record", "<u4"),
                       ("run", "<u2"), ("file", "u1")])
_NOBODY: Final = np.zeros(0, dtype="<u8")
_CHANGES: Final = (
    FrameType.GIVE, FrameType.DONE, FrameType.MOVE, FrameType.DEFER, FrameType.POISON,
    FrameType.DELETE, FrameType.HOLD, FrameType.RELEASE, FrameType.RELEASE_GIVEN)


class Ledger:
    """See the module; `rows` (dtype ROW) is sorted by qpool."""

    def __init__(self, asked: Rows = _NOBODY) -> None:
        """`asked`: QPoolIds whose end is of interest: those that the pool holds."""
        self.rows: Rows = np.zeros(0, dtype=ROW)
        self.ended: Rows = np.zeros(0, dtype="<u8")
        self.lsn = 0
        self._asked = asked

    def copy(self) -> Ledger:
        """As it is now; `rows` are replaced, never changed, so they can be shared."""
        made = Ledger(self._asked)
        made.rows, made.ended, made.lsn = self.rows.copy(), self.ended, self.lsn
        return made

    def apply(self, blocks: Iterable[Block], up_to: int | None = None) -> None:
        """Frames of these blocks, in order, from where it stands, up to an LSN."""
        frames = FRAME.joined([block.frames for block in blocks])
        if not len(frames):
            return
        keep = ((frames["lsn"] > self.lsn) & (frames["qpool"] != 0)
                & (frames["flags"] & FrameFlag.PERSISTENT != 0))
        if up_to is not None:
            keep &= frames["lsn"] <= up_to
            self.lsn = max(self.lsn, min(up_to, int(frames["lsn"][-1])))
        else:
            self.lsn = max(self.lsn, int(frames["lsn"][-1]))
        frames = frames[keep]
        if len(frames):
            self._births(frames[frames["type"] == FrameType.PUT])
            self._changes(frames)
            self._ends(frames["qpool"][frames["flags"] & FrameFlag.LAST_PART != 0])

    def _births(self, puts: Rows) -> None:
        if not len(puts):
            return
        made = np.zeros(len(puts), dtype=ROW)
        for name in ("qpool", "file", "record"):
            made[name] = puts[name]
        made["born"] = made["last"] = puts["lsn"]
        made["run"] = _run(puts["parts"])
        rows = np.concatenate((self.rows, made))
        # QPoolIds ascend with LSNs, but for a journal that a foreign hand has mixed.
        self.rows = rows if _ascends(rows["qpool"]) else rows[np.argsort(rows["qpool"])]

    def _changes(self, frames: Rows) -> None:
        changes = frames[np.isin(frames["type"], _CHANGES)]
        at, known = self._find(changes["qpool"])
        np.maximum.at(self.rows["last"], at[known], changes["lsn"][known])
        moves = known & (changes["type"] == FrameType.MOVE)
        if moves.any():  # in LSN order: the last one stays
            where = at[moves]
            self.rows["record"][where] = changes["record"][moves]
            self.rows["run"][where] = np.maximum(1, _run(changes["parts"][moves]))

    def _ends(self, ended: Rows) -> None:
        if not len(ended):
            return
        self.ended = np.union1d(self.ended, ended[np.isin(ended, self._asked)])
        self.rows = self.rows[~np.isin(self.rows["qpool"], ended)]

    def _find(self, qpools: Rows) -> tuple[Rows, Rows]:
        """Index into `rows` of each, and whether it is there."""
        if not len(self.rows):
            return np.zeros(len(qpools), dtype=np.int64), np.zeros(len(qpools), dtype=bool)
        at = np.minimum(np.searchsorted(self.rows["qpool"], qpools), len(self.rows) - 1)
        return at, np.asarray(self.rows["qpool"][at] == qpools)

    def of(self, qpools: Rows) -> tuple[Rows, Rows]:
        """The rows of these messages, and whether they are known; shapes like `qpools`."""
        at, known = self._find(qpools)
        empty = np.zeros(len(qpools), dtype=ROW)
        empty[known] = self.rows[at[known]]
        return empty, known

    def at_slot(self, file: int, record: int) -> Rows | None:
        """The row of the message whose record, or a continuation of it, has this slot."""
        rows = self.rows
        first = rows["record"].astype(np.int64)
        mine = (rows["file"] == file) & (first <= record) & (record < first + rows["run"])
        found = np.flatnonzero(mine)
        return rows[found[-1]] if len(found) else None

    def in_file(self, file: int) -> Rows:
        """The rows of the messages of a pool file."""
        return np.asarray(self.rows[self.rows["file"] == file])


def _run(parts: Rows) -> Rows:
    return np.maximum(1, -(-parts.astype(np.int64) // PARTS_PER_RECORD))


def _ascends(values: Rows) -> bool:
    return bool((values[1:] > values[:-1]).all())
