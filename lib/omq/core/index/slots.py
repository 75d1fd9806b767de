"""Free slots of a table: which row the next message or entry gets.

A stack of freed rows, else the high-water mark: O(1) whatever was freed before, in bulk by numpy.
Rows at or above the mark were never used, so scans stop there. Private to the manager, rebuilt at a
start.
"""

from __future__ import annotations

import numpy as np

from omq.base.arrays import Vector


class Slots:
    """Free slots of a table: a stack of freed ones, else the high-water mark. O(1), bulk in
    numpy."""

    __slots__ = ("capacity", "high", "stack", "top", "v_stack")

    def __init__(self, capacity: int, high: int = 0) -> None:
        self.capacity = capacity
        self.high = high
        self.v_stack: Vector = np.empty(capacity, dtype="<u4")
        self.stack = memoryview(self.v_stack)  # type: ignore[arg-type]
        self.top = 0

    @property
    def used(self) -> int:
        return self.high - self.top

    @property
    def free(self) -> int:
        return self.capacity - self.high + self.top

    def take(self) -> int:
        """One slot; -1 when there is none."""
        if self.top:
            self.top -= 1
            return int(self.stack[self.top])
        if self.high < self.capacity:
            self.high += 1
            return self.high - 1
        return -1

    def give(self, slot: int) -> None:
        self.stack[self.top] = slot
        self.top += 1

    def give_many(self, slots: Vector) -> None:
        count = len(slots)
        self.v_stack[self.top : self.top + count] = slots
        self.top += count
