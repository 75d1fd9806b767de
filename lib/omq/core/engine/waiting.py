"""Readers that wait for messages, for each queue in the order in which they are served.

With no backlog the main reader is preferred; auxiliary ones get messages as soon as it is busy,
that is with a backlog of whatever size (seed).

Invariant: a line holds those that wait and nobody else, so its length is the number of readers that
share a backlog. Of time-outs the answered ones go when they come up, or when they are too many.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from omq.fast.waiter import Waiter

__all__ = ["FOREVER", "TIMEOUTS_MAX", "Timeouts", "Waiter", "Waiters"]

FOREVER: Final = 1 << 62
TIMEOUTS_MAX: Final = 4096  # kept before the answered ones are thrown out


@dataclass(slots=True)
class Waiters:
    """Readers waiting on one queue: the main ones go first."""

    main: deque[Waiter] = field(default_factory=deque)
    auxiliary: deque[Waiter] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self.main) + len(self.auxiliary)

    def add(self, waiter: Waiter) -> None:
        (self.auxiliary if waiter.auxiliary else self.main).append(waiter)

    def take(self) -> Waiter | None:
        """The next one."""
        line = self.main or self.auxiliary
        return line.popleft() if line else None

    def drop(self, waiter: Waiter) -> None:
        """It does not wait any more."""
        waiter.waiting = False
        (self.auxiliary if waiter.auxiliary else self.main).remove(waiter)


class Timeouts:
    """Waits that end by themselves."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Waiter]] = []
        self.turn = 0
        self.limit = TIMEOUTS_MAX

    def add(self, deadline: int, waiter: Waiter) -> None:
        """End this wait at `deadline` (monotonic ns; 0 = now)."""
        if len(self.heap) >= self.limit:
            self.heap = [item for item in self.heap if item[2].waiting]
            heapify(self.heap)
            self.limit = max(TIMEOUTS_MAX, 2 * len(self.heap))
        self.turn += 1
        heappush(self.heap, (deadline, self.turn, waiter))

    def over(self, now: int) -> list[Waiter]:
        """Those whose time is over and who still wait, each once."""
        out = []
        while self.heap and self.heap[0][0] <= now:
            waiter = heappop(self.heap)[2]
            if waiter.waiting:
                waiter.waiting = False
                out.append(waiter)
        return out

    def next(self) -> int:
        """When the next one ends."""
        while self.heap and not self.heap[0][2].waiting:
            heappop(self.heap)
        return self.heap[0][0] if self.heap else FOREVER
