"""The pool records that redo holds in arrays until they are written, or shown.

Two kinds, both of messages on one queue: births, and records that the pool
holds and of which little has changed (`load`). They are kept as rows of births.COMPACT, a
third of a record; a record becomes whole when somebody asks for it or a checkpoint writes it.

Invariants: 1. QPoolIds ascend over the births, as the manager gives them in the journal; a birth
that would break that is not taken; 2. a message is held once; 3. a row that was popped or dropped
is dead and never comes out again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

import numpy as np

from omq.base.arrays import Rows, picked
from omq.core.redo import births as bulk
from omq.format.double_write import Image

Edit = Callable[[Rows, Rows, Rows], None]
"""Changes rows of an array: the array, the rows in it, and which of the asked messages they are."""


class _Rows:
    """Arrays of records, and which of their rows are alive."""

    def __init__(self) -> None:
        self.chunks: list[Rows] = []
        self.alive: list[Rows] = []

    def add(self, rows: Rows) -> None:
        self.chunks.append(rows)
        self.alive.append(np.ones(len(rows), dtype=bool))

    def ended(self, chunk: int, at: Rows) -> None:
        self.alive[chunk][at] = False


class _Births(_Rows):
    """Arrays whose QPoolIds ascend: found by search."""

    def __init__(self) -> None:
        super().__init__()
        self._qpools: list[Rows] = []  # the same column again: a search wants it in one piece
        self._first: list[int] = []  # QPoolId of the first row of each chunk

    @property
    def last(self) -> int:
        return int(self._qpools[-1][-1]) if self._qpools else 0

    def add(self, rows: Rows) -> None:
        super().add(rows)
        self._qpools.append(rows["qpool"].copy())
        self._first.append(int(rows["qpool"][0]))

    def find(self, qpool: int) -> tuple[int, int] | None:
        """Chunk and row of a living one."""
        chunk = bisect_right(self._first, qpool) - 1
        if chunk < 0:
            return None
        column = self._qpools[chunk]
        at = int(np.searchsorted(column, qpool))
        if at == len(column) or int(column[at]) != qpool or not self.alive[chunk][at]:
            return None
        return chunk, at

    def located(self, qpools: Rows) -> Iterator[tuple[int, Rows, Rows]]:
        """The living ones of these, by chunk: rows in it, and which of `qpools` they are."""
        chunks = np.searchsorted(np.array(self._first, dtype="<u8"), qpools, side="right") - 1
        for chunk in np.flatnonzero(np.bincount(chunks[chunks >= 0])).tolist():
            mine, column = np.flatnonzero(chunks == chunk), self._qpools[chunk]
            at = np.minimum(np.searchsorted(column, qpools[mine]), len(column) - 1)
            there = (column[at] == qpools[mine]) & self.alive[chunk][at]
            yield chunk, at[there], mine[there]


class _Loaded(_Rows):
    """Arrays in any order: found by a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, int] = {}  # QPoolId -> chunk << 32 | row
        self._bounds: list[tuple[int, int]] = []  # lowest and highest QPoolId of each chunk

    def add(self, rows: Rows) -> None:
        first = len(self.chunks) << 32
        super().add(rows)
        self._bounds.append((int(rows["qpool"].min()), int(rows["qpool"].max())))
        self._places.update(zip(rows["qpool"].tolist(), range(first, first + len(rows)),
                                strict=True))

    def find(self, qpool: int) -> tuple[int, int] | None:
        place = self._places.get(qpool)
        return None if place is None else (place >> 32, place & 0xFFFFFFFF)

    def located(self, qpools: Rows) -> Iterator[tuple[int, Rows, Rows]]:
        low, high = (int(qpools.min()), int(qpools.max())) if len(qpools) else (1, 0)
        if not any(begin <= high and low <= end for begin, end in self._bounds):
            return  # as good as always: bodies move in the order of their messages
        get = self._places.get
        places = np.array([get(qpool, -1) for qpool in qpools.tolist()], dtype=np.int64)
        which = np.flatnonzero(places >= 0)
        chunks, at = places[which] >> 32, places[which] & 0xFFFFFFFF
        for chunk in np.flatnonzero(np.bincount(chunks)).tolist():
            mine = chunks == chunk
            yield chunk, at[mine], which[mine]

    def ended(self, chunk: int, at: Rows) -> None:
        super().ended(chunk, at)
        for qpool in self.chunks[chunk]["qpool"][at].tolist():
            del self._places[qpool]


def change_rows(rows: Rows, at: Rows, which: Rows, lsns: Rows, edit: Edit) -> None:
    """Change these rows by the frames with these LSNs, `which` of them each; a record that is not
    older stays as it is."""
    older = rows["lsn"][at] < lsns[which]
    at, which = at[older], which[older]
    edit(rows, at, which)
    rows["lsn"][at] = lsns[which]


class HeldRecords:
    """See the module. `len` counts what is alive."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._births, self._loaded = _Births(), _Loaded()
        self._count = 0

    def take(self, rows: Rows, chosen: Rows) -> Rows:
        """Keep the records (COMPACT) of births where `chosen` is true; mask of those that were
        taken: all of them, unless QPoolIds do not ascend."""
        qpools = rows["qpool"]
        before = np.maximum.accumulate(np.where(chosen, qpools, 0))
        taken: Rows = chosen & (qpools > self._births.last)
        taken[1:] &= qpools[1:] > before[:-1]
        if taken.any():
            self._births.add(rows if taken.all() else picked(rows, taken))
            self._count += int(np.count_nonzero(taken))
        return taken

    def load(self, rows: Rows) -> None:
        """Keep records (COMPACT) that the pool holds; none of their messages is held yet."""
        if len(rows):
            self._loaded.add(rows)
            self._count += len(rows)

    def change(self, qpools: Rows, lsns: Rows, edit: Edit) -> Rows:
        """Change what is held of these messages by a frame each, with these LSNs; a record that is
        not older stays as it is. Mask of those that are held."""
        held = np.zeros(len(qpools), dtype=bool)
        for kind in (self._births, self._loaded):
            for chunk, at, which in kind.located(qpools):
                held[which] = True
                change_rows(kind.chunks[chunk], at, which, lsns, edit)
        return held

    def pop(self, qpool: int) -> tuple[Image, bool] | None:
        """Take a record out, whole; whether the pool holds it."""
        for kind in (self._births, self._loaded):
            found = kind.find(qpool)
            if found is not None:
                chunk, at = found
                image = bulk.image(kind.chunks[chunk][at])
                kind.ended(chunk, np.array([at]))
                self._count -= 1
                return image, kind is self._loaded
        return None

    def drop(self, qpools: Rows) -> tuple[Rows, Rows]:
        """Forget these, of which none is named twice; masks of those that were births, and of those
        that the pool holds."""
        masks = []
        for kind in (self._births, self._loaded):
            dropped = np.zeros(len(qpools), dtype=bool)
            for chunk, at, which in kind.located(qpools):
                kind.ended(chunk, at)
                dropped[which] = True
            self._count -= int(np.count_nonzero(dropped))
            masks.append(dropped)
        return masks[0], masks[1]

    def rows(self) -> Iterator[Rows]:
        """The living rows, in arrays."""
        for kind in (self._births, self._loaded):
            for rows, alive in zip(kind.chunks, kind.alive, strict=True):
                if alive.any():
                    yield rows if alive.all() else picked(rows, alive)

    def qpools(self) -> Rows:
        """The QPoolIds of the living rows."""
        return np.concatenate([np.zeros(0, "<u8"), *(rows["qpool"] for rows in self.rows())])

    def slots(self) -> Rows:
        """Where the living rows go: int64, file << 32 | record, in the order of `rows`."""
        return np.concatenate([np.zeros(0, np.int64), *map(bulk.slots, self.rows())])

    def images(self) -> Iterator[Image]:
        """The living records, whole."""
        for rows in self.rows():
            yield from bulk.images(rows)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, qpool: object, /) -> bool:
        return isinstance(qpool, int) and (self._births.find(qpool) is not None
                                           or self._loaded.find(qpool) is not None)
