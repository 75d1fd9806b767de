"""What a rebuild does in bulk, because the ledger of the whole history says how it ends.

    dead           messages that have ended at the point: none of their frames matters
    plain births   messages that were put on one queue and that nothing happened to since: their
                   records go from the PUT frames straight to the new pool files, as columns

That is nearly all of a history; redo sees the rest, and whatever is not whole. An end that belongs
to a unit of work, or lies above all that was durable, may be taken back by redo (core.redo.redo),
so such messages are redo's.

Invariants: 1. such a record is what redo would make of the frame (core.redo.births makes both); 2.
its slot is its own at the end, so a slot that redo frees for an earlier owner is not cleared.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from omq.base.arrays import Rows, picked
from omq.core.redo import births as bulk
from omq.core.redo.last_requests import update_answers
from omq.core.redo.redo import Redo
from omq.core.redo.window import MAKES, Births, Window
from omq.format.double_write import Images
from omq.format.journal import FrameFlag
from omq.format.pool import RECORD_BYTES, RecordKind
from omq.format.pool_contents import Contents
from omq.storage.journal_scan import Block
from omq.storage.pool import PoolFiles
from omq.storage.pool_scan import CHUNK_RECORDS, DTYPE
from omqtools.omqrecover.ledger import Ledger, places

CHUNK: Final = 4096
"""Records made at once: 2 MiB, so that the columns stay in the processor's cache."""


class NewPool(PoolFiles):
    """Written without the double-write file: a build that is cut begins anew."""

    _complete = False

    def _stage(self, images: Images) -> None:
        self._pending = images

    def contents(self) -> Contents | None:
        """What the files hold, counted when the last of them is written; None before."""
        if not self._complete:
            return None
        self.should_hold(None)
        return super().contents()

    def write_records(self, images: Images) -> None:
        """Records in their slots, neighbours together; `settle` makes them durable."""
        for file, record, run in images.ascending().runs():
            self._open_or_make(file).write([run], (record + 1) * RECORD_BYTES, new=True)

    def settle(self) -> None:
        """Everything written so far is on the disk."""
        for file in self.files():
            self._open_or_make(file).sync()
        self._complete = True

    def locations(self) -> tuple[set[int], int]:
        """The location words of all messages, and how many messages there are. The CRC of what was
        just written is not looked at."""
        words: set[int] = set()
        count = 0
        for file in self.files():
            opened = self._open_or_make(file)
            for at in range(RECORD_BYTES, opened.size(), CHUNK_RECORDS * RECORD_BYTES):
                data = opened.read(CHUNK_RECORDS * RECORD_BYTES, at)
                rows = np.frombuffer(data, dtype=DTYPE)
                live = rows["location"][rows["kind"] == RecordKind.LIVE]
                words.update(np.unique(live).tolist())
                count += len(live)
        return words, count


class Shortcuts:
    """Takes out of windows of blocks what redo need not see."""

    def __init__(self, pool: NewPool, ledger: Ledger) -> None:
        self._pool = pool
        self._ledger = ledger
        self._unsure = ledger.unsure
        rows = ledger.rows
        plain = rows["last"] == rows["born"]
        self._slots = np.sort(rows["file"][plain].astype(np.int64) << 32 | rows["record"][plain])

    def apply(self, redo: Redo, window: list[Block], durable: int) -> int:
        """Redo the window, the rest in bulk; how many frames it had."""
        whole = Window.of(window, 0)
        if whole is None:
            return 0
        clients = dict(redo.clients)
        rows, known = self._ledger.of(whole.frames["qpool"])
        born, good = self._plain(whole, rows, known, durable)
        taken = self._dead(whole.frames, known)
        taken[born.rows[good]] = True
        redo.apply(self._rest(whole, window, taken), durable)
        # Behind redo: it may still have to read an earlier owner of the slot.
        self._write(whole, born, good)
        redo.clients = clients
        believed = whole.frames
        if redo.void:
            void = np.isin(believed["lsn"], np.array(sorted(redo.void), dtype="<u8"))
            believed = picked(believed, ~void)
        update_answers(redo.clients, believed)
        return len(whole.frames)

    def _dead(self, frames: Rows, known: Rows) -> Rows:
        """Mask of the frames of messages that have ended for certain."""
        return np.asarray(~known & (frames["qpool"] != 0)
                          & (frames["flags"] & FrameFlag.PERSISTENT != 0)
                          & ~places(self._unsure, frames["qpool"])[1])

    def guard(self, redo: Redo) -> None:
        """Before a checkpoint: what belongs to a plain birth is not cleared."""
        clears = np.fromiter(redo.clears, dtype=np.int64, count=len(redo.clears))
        redo.clears.difference_update(clears[places(self._slots, clears)[1]].tolist())

    @staticmethod
    def _plain(window: Window, rows: Rows, known: Rows, durable: int
               ) -> tuple[Births, Rows]:
        """The plain births of a window, and which of them are whole. Above `durable` one that is
        not condemns others: redo looks at them all."""
        frames = window.frames
        mine = (known & (frames["lsn"] <= durable) & MAKES[frames["type"]]
                & (frames["parts"] == 0) & (frames["unit"] == 0)
                & (frames["flags"] & FrameFlag.PERSISTENT != 0)
                & (rows["born"] == frames["lsn"]) & (rows["last"] == rows["born"]))
        born = Births.of(window, mine)
        return born, np.flatnonzero(born.good)

    def _write(self, window: Window, born: Births, good: Rows) -> None:
        for first in range(0, len(good), CHUNK):
            part = good[first : first + CHUNK]
            rows = bulk.compact_records(window, born.rows[part], born.heads[part])
            self._pool.write_records(Images(bulk.slots(rows), bulk.sealed(rows)))

    @staticmethod
    def _rest(window: Window, blocks: list[Block], taken: Rows) -> list[Block]:
        """The blocks without the frames that are done."""
        begins = np.searchsorted(window.origin, np.arange(len(blocks) + 1)).tolist()
        out = []
        for block, begin, end in zip(blocks, begins, begins[1:], strict=False):
            left = ~taken[begin:end]
            if left.all():
                out.append(block)
            elif left.any():
                out.append(block.of_frames(picked(block.frames, left)))
        return out
