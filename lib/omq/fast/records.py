"""Rows of the index and pool slots, one at a time: as core.index.slots and storage.slots take and
give them, without their calls."""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.index.slots import Slots
from omq.storage.slots import FileSlots


def take_row(rows: Slots, free: Any) -> cython.Py_ssize_t:
    """As Slots.take; there must be one. `free`: the stack of `rows`."""
    row: cython.Py_ssize_t = rows.top
    if row:
        row -= 1
        rows.top = row
        return free[row]  # type: ignore[no-any-return]
    row = rows.high
    rows.high = row + 1
    return row


def give_rows(rows: Slots, free: Any, given: Any, count: cython.Py_ssize_t) -> None:
    """As Slots.give, of the first `count` rows in `given`, one after the other."""
    top: cython.Py_ssize_t = rows.top
    i: cython.Py_ssize_t
    for i in range(count):
        free[top + i] = given[i]
    rows.top = top + count


def take_record(slots: FileSlots) -> cython.Py_ssize_t:
    """As FileSlots.alloc."""
    used: bytearray = slots.used
    freed: list[int] = slots.freed
    high: cython.Py_ssize_t = len(used)
    slot: cython.Py_ssize_t
    slots.live += 1
    while freed:
        slot = freed.pop()
        if slot < high and not used[slot]:
            used[slot] = 1
            return slot
    used.append(1)
    return high


def give_record(slots: FileSlots, slot: cython.Py_ssize_t) -> None:
    """As FileSlots.free; it must be in use."""
    used: bytearray = slots.used
    freed: list[int] = slots.freed
    high: cython.Py_ssize_t = len(used)
    slots.live -= 1
    used[slot] = 0
    if slot + 1 < high:
        freed.append(slot)
    else:
        while high and not used[high - 1]:
            high -= 1
        del used[high:]
        if not high:
            freed.clear()
