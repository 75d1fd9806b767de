"""The ledger: which messages history says are alive, and where their pool records lie.

One row of numbers a message, kept by numpy over all frames; no message is decoded. It is taken
twice: at the checkpoint, to compare with the pool, and at the end, to say what can be made again.

Rows of messages that have ended stay, marked, until they are half of all, and there is room for
more: so a frame costs a search, however many are alive.

Invariants: 1. only messages whose PUT was seen are in it; 2. `ended` holds those of the QPoolIds
asked for whose end was seen; 3. a message that lies in condemned or damaged payloads is in it all
the same: whether its record can be made is shown when it is made.

Memory: 41 bytes for each message that is alive at some moment, twice that at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from omq.base.arrays import Rows, picked
from omq.core.redo.redo import ALL
from omq.format.frame_rules import mask
from omq.format.journal import FRAME, FrameFlag
from omq.format.pool import PARTS_PER_RECORD
from omq.storage.journal_scan import Block

ROW: Final = np.dtype([("qpool", "<u8"), ("born", "<u8"), ("last", "<u8"), ("record", "<u4"),
                       ("run", "<u2"), ("file", "u1")], align=True)
_NOBODY: Final = np.zeros(0, dtype="<u8")
_MAKES: Final = mask(lambda rule: rule.makes)
_CHANGES: Final = mask(lambda rule: rule.changes)
_REPLACES: Final = mask(lambda rule: rule.replaces)


class Ledger:
    """See the module."""

    def __init__(self, asked: Rows = _NOBODY) -> None:
        """`asked`: QPoolIds whose end is of interest: those that the pool holds."""
        self.lsn = 0
        self._asked = _sorted(asked.copy())
        self._ended: list[Rows] = []
        self._unsure: list[Rows] = []
        self._rows: Rows = np.zeros(0, dtype=ROW)  # sorted by qpool; the first `_used` count
        self._keys: Rows = np.zeros(0, dtype="<u8")  # their QPoolIds
        self._alive: Rows = np.zeros(0, dtype=bool)
        self._used = 0
        self._dead = 0

    @property
    def rows(self) -> Rows:
        """Messages that are alive, sorted by qpool (dtype ROW). Not to be changed."""
        self._room(0)
        return self._rows[: self._used]

    @property
    def ended(self) -> Rows:
        """See invariant 2; sorted."""
        return np.unique(np.concatenate([_NOBODY, *self._ended]))

    @property
    def unsure(self) -> Rows:
        """Messages whose end redo may still take back, with the unit of work or the request that
        it belongs to; sorted, each once."""
        return np.unique(np.concatenate([_NOBODY, *self._unsure]))

    def copy(self) -> Ledger:
        """As it is now."""
        made = Ledger(self._asked)
        made.lsn, made._ended, made._unsure = self.lsn, [*self._ended], [*self._unsure]
        rows = self.rows
        made._rows, made._keys, made._used = rows.copy(), rows["qpool"].copy(), len(rows)
        made._alive = np.ones(len(rows), dtype=bool)
        return made

    def apply(self, blocks: Iterable[Block], up_to: int | None = None, durable: int = ALL) -> None:
        """Frames of these blocks, in order, from where it stands, up to an LSN. `durable`: as in
        core.redo.redo."""
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
        kind = frames["type"]
        self._births(picked(frames, keep & _MAKES[kind]))
        self._changes(picked(frames, keep & _CHANGES[kind]))
        ends = picked(frames, keep & (frames["flags"] & FrameFlag.LAST_PART != 0))
        self._unsure.append(ends["qpool"][(ends["unit"] != 0) | (ends["lsn"] > durable)])
        self._ends(ends["qpool"].copy())

    def _births(self, puts: Rows) -> None:
        if not len(puts):
            return
        self._room(len(puts))
        new = slice(self._used, self._used + len(puts))
        made = self._rows[new]
        for name in ("qpool", "file", "record"):
            made[name] = puts[name]
        made["born"] = made["last"] = puts["lsn"]
        made["run"] = _run(puts["parts"])
        self._keys[new] = puts["qpool"]
        self._alive[new] = True
        self._used = new.stop
        # QPoolIds ascend with LSNs, but for a journal that a foreign hand has mixed.
        if not _ascends(self._keys[max(0, new.start - 1) : new.stop]):
            order = np.argsort(self._keys[: self._used], kind="stable")
            for array in (self._rows, self._keys, self._alive):
                array[: self._used] = picked(array[: self._used], order)

    def _room(self, more: int) -> None:
        """Room for some rows. Marked ones go when they are half, and when `rows` are asked for."""
        if self._dead and (not more or 2 * self._dead > self._used):
            keep = np.flatnonzero(self._alive[: self._used])
            for array in (self._rows, self._keys, self._alive):
                array[: len(keep)] = picked(array, keep)
            self._used, self._dead = len(keep), 0
        if self._used + more > len(self._rows):
            size = 2 * (self._used + more)
            for name in ("_rows", "_keys", "_alive"):
                old = getattr(self, name)
                made = np.zeros(size, dtype=old.dtype)
                made[: self._used] = old[: self._used]
                setattr(self, name, made)

    def _changes(self, changes: Rows) -> None:
        # A copy: a search in a column of frames would fetch a frame for each number.
        at, known = self._find(changes["qpool"].copy())
        # In LSN order, so the last one stays; an older one is not there (see `apply`).
        self._rows["last"][at[known]] = changes["lsn"][known]
        moves = known & _REPLACES[changes["type"]]
        if moves.any():
            where = at[moves]
            self._rows["record"][where] = changes["record"][moves]
            self._rows["run"][where] = np.maximum(1, _run(changes["parts"][moves]))

    def _ends(self, ended: Rows) -> None:
        if not len(ended):
            return
        self._ended.append(ended[places(self._asked, ended)[1]])
        at, known = self._find(ended)
        gone = _sorted(at[known])
        self._alive[gone] = False
        self._dead += len(gone)

    def _find(self, qpools: Rows) -> tuple[Rows, Rows]:
        """Index into the rows of each, and whether it is there and alive."""
        at, there = places(self._keys[: self._used], qpools)
        there[there] = self._alive[at[there]]
        return at, there

    def of(self, qpools: Rows) -> tuple[Rows, Rows]:
        """The rows of these messages, and whether they are known; shapes like `qpools`."""
        at, known = self._find(qpools)
        found = np.zeros(len(qpools), dtype=ROW)
        raw = f"V{ROW.itemsize}"
        found.view(raw)[known] = self._rows.view(raw)[at[known]]
        return found, known

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


def places(ascending: Rows, values: Rows) -> tuple[Rows, Rows]:
    """Where each value is in an ascending array, and whether it is there. Costs nothing for
    what is in the array and not asked for, unlike np.isin."""
    if not len(ascending):
        return np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=bool)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return at, np.asarray(ascending[at] == values)


def _run(parts: Rows) -> Rows:
    return np.maximum(1, -(-parts.astype(np.int64) // PARTS_PER_RECORD))


def _sorted(values: Rows) -> Rows:
    """Sorted, each once; mostly they are, and np.unique would cost more than all the rest here."""
    return values if _ascends(values) else np.unique(values)


def _ascends(values: Rows) -> bool:
    return bool((values[1:] > values[:-1]).all())
