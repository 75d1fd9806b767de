"""The records of new messages that redo holds until they are written, or shown.

They are kept as rows of births.COMPACT, a third of a record, in arrays; a record becomes whole when
somebody asks for it or a checkpoint writes it. What is kept are births of redo_window.Births.plain.

Invariants: 1. QPoolIds ascend over all rows, as the manager gives them in the journal; a birth that
would break that is not taken; 2. a row that was popped is dead and never comes out again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from omq.core import births as bulk
from omq.core.redo_window import Births, Frames, Window
from omq.format.double_write import Image


class NewRecords:
    """See the module. `len` counts what is alive."""

    def __init__(self) -> None:
        self._chunks: list[Frames] = []
        self._alive: list[Frames] = []
        self._qpools: list[Frames] = []  # the same column again: a search wants it in one piece
        self._first: list[int] = []  # QPoolId of the first row of each chunk
        self._count = 0

    def take(self, window: Window, births: Births, chosen: Frames) -> Frames:
        """Keep the births where `chosen` is true; mask of those that were taken: all of them,
        unless QPoolIds do not ascend."""
        qpools = window.frames["qpool"][births.rows]
        last = int(self._qpools[-1][-1]) if self._qpools else 0
        before = np.maximum.accumulate(np.where(chosen, qpools, 0))
        taken: Frames = chosen & (qpools > last)
        taken[1:] &= qpools[1:] > before[:-1]
        index = np.flatnonzero(taken)
        for first in range(0, len(index), bulk.CHUNK):
            part = index[first : first + bulk.CHUNK]
            rows = bulk.compact_records(window, births.rows[part], births.heads[part])
            self._chunks.append(rows)
            self._alive.append(np.ones(len(rows), dtype=bool))
            self._qpools.append(rows["qpool"].copy())
            self._first.append(int(rows["qpool"][0]))
        self._count += len(index)
        return taken

    def pop(self, qpool: int) -> Image | None:
        """Take a record out, whole."""
        found = self._find(qpool)
        if found is None:
            return None
        chunk, at = found
        self._alive[chunk][at] = False
        self._count -= 1
        return bulk.image(self._chunks[chunk][at])

    def drop(self, qpools: Frames) -> Frames:
        """Forget these, of which none is named twice; mask of those that were there."""
        dropped = np.zeros(len(qpools), dtype=bool)
        chunks = np.searchsorted(np.array(self._first, dtype="<u8"), qpools, side="right") - 1
        for chunk in np.unique(chunks[chunks >= 0]).tolist():
            mine, column = np.flatnonzero(chunks == chunk), self._qpools[chunk]
            at = np.minimum(np.searchsorted(column, qpools[mine]), len(column) - 1)
            there = (column[at] == qpools[mine]) & self._alive[chunk][at]
            self._alive[chunk][at[there]] = False
            dropped[mine[there]] = True
        self._count -= int(np.count_nonzero(dropped))
        return dropped

    def _find(self, qpool: int) -> tuple[int, int] | None:
        chunk = bisect_right(self._first, qpool) - 1
        if chunk < 0:
            return None
        column = self._qpools[chunk]
        at = int(np.searchsorted(column, qpool))
        if at == len(column) or int(column[at]) != qpool or not self._alive[chunk][at]:
            return None
        return chunk, at

    def rows(self) -> Iterator[Frames]:
        """The living rows, in arrays of births.CHUNK at most."""
        for rows, alive in zip(self._chunks, self._alive, strict=True):
            if alive.any():
                yield rows if alive.all() else rows[alive]

    def qpools(self) -> Frames:
        """The QPoolIds of the living rows, ascending."""
        return np.concatenate([np.zeros(0, "<u8"), *(rows["qpool"] for rows in self.rows())])

    def slots(self) -> Frames:
        """Where the living rows go: int64, file << 32 | record, in the order of `rows`."""
        return np.concatenate([np.zeros(0, np.int64), *map(bulk.slots, self.rows())])

    def images(self) -> Iterator[Image]:
        """The living records, whole."""
        for rows in self.rows():
            yield from bulk.images(rows)

    def clear(self) -> None:
        self._chunks.clear()
        self._alive.clear()
        self._qpools.clear()
        self._first.clear()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, qpool: object, /) -> bool:
        return isinstance(qpool, int) and self._find(qpool) is not None
