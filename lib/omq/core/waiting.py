"""Readers that wait for messages, for each queue in the order in which they are served.

With no backlog the main reader is preferred; auxiliary ones get messages as soon as it is busy,
that is with a backlog of whatever size (seed).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from omq.core.state import Party


@dataclass(slots=True, eq=False)
class Waiter:
    """A reader that waits for messages; `deadline` in monotonic ns."""

    party: Party
    queue: int
    want: int
    sequence: int
    deadline: int
    auxiliary: bool
    waiting: bool = True


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
        """The next one that still waits."""
        for line in (self.main, self.auxiliary):
            while line:
                waiter = line.popleft()
                if waiter.waiting:
                    return waiter
        return None
