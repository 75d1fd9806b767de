"""The records of new messages that redo holds until they are written, or shown.

    RecordImages     QPoolId -> whole record with its CRC, for a checkpoint
    CompactRecords   rows of COMPACT in arrays, without CRC, for who only looks: a third of the
                     memory and of the time; a record becomes whole when somebody asks for it

Both hold the births of redo_window.Births.plain. Invariants of CompactRecords: 1. QPoolIds ascend
over all rows, as they do in the journal; rows that would not are refused by `take` (an assert: the
manager gives them in order); 2. a row that was popped is dead and never comes out again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from omq.base.checksum import crc32c
from omq.core import births as bulk
from omq.core.redo_window import Births, Frames, Window
from omq.format.double_write import Image
from omq.format.pool import CRC_FROM, RECORD_BYTES, Message

Changed = dict[int, Message | None]


class NewRecords(Protocol):
    """What redo does with them."""

    def take(self, window: Window, births: Births, chosen: Frames) -> None: ...
    def pop(self, qpool: int, default: None, /) -> Image | None: ...
    def values(self) -> Iterable[Image]: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[int]: ...
    def __contains__(self, qpool: object, /) -> bool: ...


class RecordImages(dict[int, Image]):
    """See the module."""

    def take(self, window: Window, births: Births, chosen: Frames) -> None:
        self.update(bulk.images(window, births, chosen))


class CompactRecords:
    """See the module. `rows` gives what is alive."""

    def __init__(self) -> None:
        self._chunks: list[Frames] = []
        self._alive: list[Frames] = []
        self._first: list[int] = []  # QPoolId of the first row of each chunk

    def take(self, window: Window, births: Births, chosen: Frames) -> None:
        index = np.flatnonzero(chosen)
        for first in range(0, len(index), bulk.CHUNK):
            part = index[first : first + bulk.CHUNK]
            rows = bulk.compact_records(window, births.rows[part], births.heads[part])
            qpools = rows["qpool"]
            last = int(self._chunks[-1]["qpool"][-1]) if self._chunks else 0
            assert int(qpools[0]) > last, "QPoolIds ascend in the journal"
            assert bool((qpools[:-1] < qpools[1:]).all()), "QPoolIds ascend in the journal"
            self._chunks.append(rows)
            self._alive.append(np.ones(len(rows), dtype=bool))
            self._first.append(int(qpools[0]))

    def pop(self, qpool: int, default: None, /) -> Image | None:
        found = self._find(qpool)
        if found is None:
            return default
        chunk, at = found
        self._alive[chunk][at] = False
        return whole(self._chunks[chunk][at])

    def _find(self, qpool: int) -> tuple[int, int] | None:
        chunk = bisect_right(self._first, qpool) - 1
        if chunk < 0:
            return None
        column = self._chunks[chunk]["qpool"]
        at = int(np.searchsorted(column, qpool))
        if at == len(column) or int(column[at]) != qpool or not self._alive[chunk][at]:
            return None
        return chunk, at

    def rows(self) -> Iterator[Frames]:
        """The living rows, in arrays of births.CHUNK at most."""
        for rows, alive in zip(self._chunks, self._alive, strict=True):
            if alive.any():
                yield rows if alive.all() else rows[alive]

    def values(self) -> Iterator[Image]:
        return (whole(row) for rows in self.rows() for row in rows)

    def clear(self) -> None:
        self._chunks.clear()
        self._alive.clear()
        self._first.clear()

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(alive)) for alive in self._alive)

    def __iter__(self) -> Iterator[int]:
        return (qpool for rows in self.rows() for qpool in rows["qpool"].tolist())

    def __contains__(self, qpool: object, /) -> bool:
        return isinstance(qpool, int) and self._find(qpool) is not None


def whole(row: np.void) -> Image:
    """The record that a checkpoint would write for a row."""
    raw = bytearray(row.tobytes())
    raw[4:CRC_FROM] = crc32c(bytes(raw[CRC_FROM:])).to_bytes(4, "little")
    return int(row["file"]), int(row["record"]), bytes(raw.ljust(RECORD_BYTES, b"\0"))
