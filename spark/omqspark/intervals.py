"""Rows of many files cut by a number into intervals of so many rows, without holding them.

Files that lie in the order of the number skip what is not asked for; others are read each time, so
only the time depends on how they lie.

Invariant: the intervals are apart, and have each row whose number is not null; one of a single
number may have more rows than was asked for, no other.
Errors: those of Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

BINS_BITS: Final = 16
"""Bins of a count: 2^16, half a megabyte."""
Interval = tuple[int, int]
"""The first and the last number."""
Source = tuple[ds.Dataset, str]
"""Rows, and the column that has the number."""


def scanned(rows: ds.Dataset, names: Sequence[str], test: pc.Expression | None = None
            ) -> Iterator[pa.RecordBatch]:
    """Some columns, piece by piece: few are read ahead."""
    yield from rows.scanner(list(names), filter=test, batch_readahead=2, fragment_readahead=1
                            ).to_batches()


def between(rows: ds.Dataset, column: str, part: Interval) -> pa.Table:
    """The rows of an interval."""
    return rows.to_table(filter=_within(column, part), batch_readahead=2, fragment_readahead=1)


def intervals(sources: Sequence[Source], rows_max: int) -> list[Interval]:
    """Intervals that have no more than `rows_max` rows each, of all sources together; in order."""
    low, high = None, None
    for rows, column in sources:
        for piece in scanned(rows, [column]):
            found = pc.min_max(piece[column]).as_py()
            if found["min"] is not None:
                low = found["min"] if low is None else min(low, found["min"])
                high = found["max"] if high is None else max(high, found["max"])
    return [] if low is None or high is None else _cut(sources, (low, high), rows_max)


def _cut(sources: Sequence[Source], part: Interval, rows_max: int) -> list[Interval]:
    low, high = part
    shift = max(0, (high - low).bit_length() - BINS_BITS)
    counts = np.zeros(((high - low) >> shift) + 1, "<i8")
    for rows, column in sources:
        for piece in scanned(rows, [column], _within(column, part)):
            values = piece[column].drop_null().to_numpy(zero_copy_only=False).astype("<i8")
            # Behind each other by up to 2^64: without a sign.
            place = (values.view("<u8") - np.uint64(low & (1 << 64) - 1)) >> np.uint64(shift)
            counts += np.bincount(place.astype("<i8"), minlength=len(counts))
    out: list[Interval] = []
    first: int | None = None  # of the interval that is being filled
    here = 0

    def close(last: int) -> None:
        nonlocal first, here
        if first is not None:
            out.append((first, min(last, high)))
        first, here = None, 0

    for at in np.flatnonzero(counts):
        count, begins = int(counts[at]), low + (int(at) << shift)
        if here + count > rows_max:
            close(begins - 1)
        if count > rows_max and shift:
            out += _cut(sources, (begins, min(high, begins + (1 << shift) - 1)), rows_max)
            continue
        first = begins if first is None else first
        here += count
    close(high)
    return out


def _within(column: str, part: Interval) -> pc.Expression:
    field = ds.field(column)
    return (field >= part[0]) & (field <= part[1])
