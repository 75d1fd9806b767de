"""Plain births in bulk: messages that were put on one queue and that nothing happened to since.

In a rebuild they are most of what is alive. The ledger of the whole history says which they are;
their records go from the PUT frames straight to the new pool files, as columns, and redo never
sees them. Everything else, and whatever is not whole, is redo's.

Invariants: 1. such a record is what redo would make of the frame (core.births makes both); 2. its
slot is its own at the end, so a slot that redo frees for an earlier owner is not cleared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from omq.core import births as bulk
from omq.core.answers import update_answers
from omq.core.redo import Redo
from omq.core.redo_window import Births, Frames, Window
from omq.format.double_write import Images
from omq.format.journal import FrameFlag, FrameType
from omq.format.pool import RECORD_BYTES, RecordKind
from omq.storage.journal_scan import Block
from omq.storage.pool import PoolFiles
from omq.storage.pool_scan import CHUNK_RECORDS, DTYPE
from omqrecover.ledger import Ledger

CHUNK: Final = 4096
"""Records made at once: 2 MiB, so that the columns stay in the processor's cache."""


class NewPool(PoolFiles):
    """Written without the double-write file: a build that is cut begins anew."""

    def _stage(self, images: Images) -> None:
        self._pending = images

    def write_records(self, images: Images) -> None:
        """Records in their slots, neighbours together; `settle` makes them durable."""
        for file, record, run in images.ascending().runs():
            self._open_or_make(file).write([run], (record + 1) * RECORD_BYTES, new=True)

    def settle(self) -> None:
        """Everything written so far is on the disk."""
        for file in self.files():
            self._open_or_make(file).sync()

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


class PlainBirths:
    """Takes the plain births out of windows of blocks and writes their records."""

    def __init__(self, pool: NewPool, ledger: Ledger) -> None:
        self._pool = pool
        self._ledger = ledger
        rows = ledger.rows[ledger.rows["last"] == ledger.rows["born"]]
        self._slots = set((rows["file"].astype(np.int64) << 32 | rows["record"]).tolist())

    def apply(self, redo: Redo, window: list[Block], durable: int) -> int:
        """Redo the window, the plain births in bulk; how many frames it had."""
        whole = Window.of(window, 0)
        if whole is None:
            return 0
        clients = dict(redo.clients)
        born, good = self._plain(whole, durable)
        taken = np.zeros(len(whole.frames), dtype=bool)
        taken[born.rows[good]] = True
        redo.apply(self._rest(whole, window, taken), durable)
        # Behind redo: it may still have to read an earlier owner of the slot.
        self._write(whole, born, good)
        redo.clients = clients
        void = np.isin(whole.frames["lsn"], np.array(sorted(redo.void), dtype="<u8"))
        update_answers(redo.clients, whole.frames[~void])
        return len(whole.frames)

    def guard(self, redo: Redo) -> None:
        """Before a checkpoint: what belongs to a plain birth is not cleared."""
        redo.clears = {slot for slot in redo.clears if slot[0] << 32 | slot[1] not in self._slots}

    def _plain(self, window: Window, durable: int) -> tuple[Births, Frames]:
        """The plain births of a window, and which of them are whole. Above `durable` one that is
        not condemns others: redo looks at them all."""
        frames = window.frames
        rows, known = self._ledger.of(frames["qpool"])
        mine = (known & (frames["lsn"] <= durable) & (frames["type"] == FrameType.PUT)
                & (frames["parts"] == 0) & (frames["unit"] == 0)
                & (frames["flags"] & FrameFlag.PERSISTENT != 0)
                & (rows["born"] == frames["lsn"]) & (rows["last"] == rows["born"]))
        born = Births.of(window, mine)
        return born, np.flatnonzero(born.good)

    def _write(self, window: Window, born: Births, good: Frames) -> None:
        for first in range(0, len(good), CHUNK):
            part = good[first : first + CHUNK]
            rows = bulk.compact_records(window, born.rows[part], born.heads[part])
            self._pool.write_records(Images(bulk.slots(rows), bulk.sealed(rows)))

    @staticmethod
    def _rest(window: Window, blocks: list[Block], taken: Frames) -> list[Block]:
        """The blocks without the frames that are done."""
        begins = np.searchsorted(window.origin, np.arange(len(blocks) + 1)).tolist()
        out = []
        for block, begin, end in zip(blocks, begins, begins[1:], strict=False):
            left = ~taken[begin:end]
            if left.all():
                out.append(block)
            elif left.any():
                out.append(replace(block, frames=block.frames[left]))
        return out
