"""The numbers of queues, and their rows in the tables.

A number is used again only when none is left that was never used, the one that is free longest
first, and not while a message has it as its origin: an operator could send that one back there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from omq.base import limits
from omq.base.arrays import Rows
from omq.base.errors import TooManyQueues
from omq.core.engine.state import FIRST_QUEUE, Core
from omq.format.index import Counter, ReaderFlag


class QueueRows:
    """See the module."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._high = FIRST_QUEUE  # the lowest number that was never used
        self._free: deque[int] = deque()

    def start(self, taken: Iterable[int]) -> None:
        """These numbers are queues. What messages come from was a queue's, whatever is left of
        it."""
        known = set(taken)
        self._high = max(FIRST_QUEUE, int(self._origins().max(initial=0)) + 1,
                         *(number + 1 for number in known))
        self._free = deque(n for n in range(FIRST_QUEUE, self._high) if n not in known)

    def unknown(self, taken: Iterable[int]) -> list[int]:
        """Numbers that messages are on, and that are no queue's."""
        t = self._core.t
        high = t.entries.high
        counts = np.bincount(t.v["e_queue"][:high][t.v["e_state"][:high] != 0])
        return sorted(set(np.flatnonzero(counts).tolist()) - set(taken))

    def choose(self) -> int:
        """The number for a new queue; `take` makes it so. TooManyQueues."""
        if self._high < min(self._core.t.layout.queues, limits.QUEUES_MAX):
            return self._high
        origins = self._origins()
        for number in self._free:
            if not np.any(origins == number):
                return number
        raise TooManyQueues(limit=limits.NAMED_QUEUES_MAX, what="queues")

    def _origins(self) -> Rows:
        """Where messages come from."""
        t = self._core.t
        return t.v["m_origin"][: t.messages.high]

    def take(self, number: int) -> int:
        """It is a queue's from now on."""
        if number >= self._high:
            self._high = number + 1
        else:
            self._free.remove(number)
        return number

    def give(self, number: int) -> None:
        """The queue is gone: nobody knows its row any more. It is empty."""
        core, t = self._core, self._core.t
        for name, column in t.v.items():
            if name.startswith("q_"):
                width = len(column) // t.layout.queues
                column[number * width : (number + 1) * width] = 0
        t.set_queue_name(number, "")
        core.lanes.pop(number, None)
        core.runnable.discard(number)
        core.triggered.discard(number)
        del core.rules[number]
        self._free.append(number)

    def free_now(self) -> tuple[int, deque[int]]:
        """For `back_to`."""
        return self._high, deque(self._free)

    def back_to(self, free: tuple[int, deque[int]]) -> None:
        """As it was: what was taken since is refused."""
        self._high, self._free = free

    def readers(self, number: int) -> int:
        """How many read this queue."""
        t = self._core.t
        high = int(t.counters[Counter.READERS_HIGH])
        return int(np.count_nonzero((t.v["r_queue"][:high] == number) & (
            t.v["r_flags"][:high] & int(ReaderFlag.READS) != 0)))
