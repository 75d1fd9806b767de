"""Pool slots of single messages: as storage.slots takes and gives them, without its calls."""

from __future__ import annotations

from omq.base import shim as cython
from omq.storage.slots import FileSlots


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
