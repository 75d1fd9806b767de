"""The return lane of a queue: READY messages that are not in their chain, those that go first on
top (core.engine.lanes). Of the fast path's types, for a late turn in a group pushes and pops
(ADR 0231).

A heap. Compiled, an item is 16 bytes in one buffer: its sequence, its entry, and how far its
priority is below the highest. Interpreted it is a tuple, which Python's own heap is quickest with.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from omq.base import limits
from omq.base import shim as cython

_HIGHEST, _ROOM = limits.PRIORITIES - 1, 64
_PUSH, _POP = heappush, heappop


class Lane:
    """See the module. An item is (-priority, sequence, entry); `count`: how many there are."""

    def __init__(self) -> None:
        self.count = 0
        self._items: list[tuple[int, int, int]] = []  # interpreted
        self._said = bytearray()
        self._make_room(_ROOM)

    def __len__(self) -> int:
        return self.count

    def push(self, priority: cython.uint, sequence: cython.ulonglong, entry: cython.uint) -> None:
        """One more, at its place."""
        at: cython.Py_ssize_t = self.count
        below: cython.uint = _HIGHEST - priority
        self.count = at + 1
        if not cython.compiled:
            _PUSH(self._items, (-priority, sequence, entry))
            return
        if at == self._room:
            self._make_room(2 * at)
        above: cython.Py_ssize_t
        while at:
            above = (at - 1) // 2
            if not self._goes_before(below, sequence, above):
                break
            self._move(above, at)
            at = above
        self._put(at, below, sequence, entry)

    def entry(self) -> cython.Py_ssize_t:
        """Of the first item; there must be one."""
        if not cython.compiled:
            return self._items[0][2]
        return self._i32[2]

    def sequence(self) -> cython.ulonglong:
        """The same item's."""
        if not cython.compiled:
            return self._items[0][1]
        return self._i64[0]

    def drop(self) -> None:
        """The first item; there must be one."""
        if not self.count:
            raise IndexError("an empty lane")
        last: cython.Py_ssize_t = self.count - 1
        self.count = last
        if not cython.compiled:
            _POP(self._items)
            return
        sequence: cython.ulonglong = self._i64[2 * last]
        entry: cython.uint = self._i32[4 * last + 2]
        below: cython.uint = self._i32[4 * last + 3]
        at: cython.Py_ssize_t = 0
        under: cython.Py_ssize_t = 1
        while under < last:
            if under + 1 < last and self._goes_before(
                    self._i32[4 * under + 7], self._i64[2 * under + 2], under):
                under += 1
            if self._goes_before(below, sequence, under):
                break
            self._move(under, at)
            at = under
            under = 2 * at + 1
        if last:
            self._put(at, below, sequence, entry)
        elif self._room > _ROOM:
            self._make_room(_ROOM)

    def first(self) -> Any:
        """The item that goes first; there must be one."""
        return self.items()[0] if not cython.compiled else self._item(0)

    def items(self) -> list[Any]:
        """All of them, in the order of the heap."""
        if not cython.compiled:
            return self._items
        return [self._item(i) for i in range(self.count)]

    def _item(self, i: cython.Py_ssize_t) -> Any:
        priority: cython.Py_ssize_t = _HIGHEST
        priority -= self._i32[4 * i + 3]
        return -priority, self._i64[2 * i], self._i32[4 * i + 2]

    def _goes_before(self, below: cython.uint, sequence: cython.ulonglong, i: cython.Py_ssize_t
                     ) -> cython.bint:
        other: cython.uint = self._i32[4 * i + 3]
        return below < other or (below == other and sequence < self._i64[2 * i])

    def _move(self, i: cython.Py_ssize_t, to: cython.Py_ssize_t) -> None:
        self._i64[2 * to], self._i64[2 * to + 1] = self._i64[2 * i], self._i64[2 * i + 1]

    def _put(self, at: cython.Py_ssize_t, below: cython.uint, sequence: cython.ulonglong,
             entry: cython.uint) -> None:
        self._i64[2 * at] = sequence
        self._i32[4 * at + 2], self._i32[4 * at + 3] = entry, below

    def _make_room(self, count: cython.Py_ssize_t) -> None:
        """For so many items; those that are there stay."""
        made = bytearray(16 * count)
        if self.count:
            made[: len(self._said)] = self._said
        said = memoryview(made)
        self._room, self._said = count, made
        self._i32, self._i64 = said.cast("I"), said.cast("Q")
