"""Names for numpy's arrays in annotations: one column, or rows of a record type; and records chosen
and joined as raw bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Vector = np.ndarray[Any, np.dtype[Any]]
"""Shape (n,): numbers of one kind."""

Rows = np.ndarray[Any, np.dtype[Any]]
"""Shape (n,): records, with named fields (omq.format)."""


def distinct(values: Vector) -> Vector:
    """Each value once, in order. By way of the counts: numpy's shorter way imports masked arrays
    first, which takes a starting daemon longer than its recovery of a small spool."""
    return np.asarray(np.unique(values, return_counts=True)[0])


def picked(rows: Rows, which: Vector) -> Rows:
    """These records, by mask or by number. As raw bytes: numpy would copy them field by field."""
    return np.asarray(rows.view(f"V{rows.dtype.itemsize}")[which].view(rows.dtype))


def joined(arrays: Sequence[Rows]) -> Rows:
    """Arrays of records of one kind as one, in the same way. At least one."""
    raw = f"V{arrays[0].dtype.itemsize}"
    return np.concatenate([rows.view(raw) for rows in arrays]).view(arrays[0].dtype)
