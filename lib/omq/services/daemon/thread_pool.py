"""A few threads that do what many links want done: one piece of work at a time each.

A link that has nothing to do has none of them. Threads are started when there is work and none is
idle, up to a number, and stay.

Invariant: work that was given is done, by one thread; what it raises is the giver's to catch, for
here nobody could hear of it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final


class ThreadPool:
    """`give` from any thread, `close` from one that is none of them."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._work: deque[Callable[[], None]] = deque()
        self._changed: Final = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closing = False

    @property
    def threads(self) -> int:
        """That were started."""
        return len(self._threads)

    @property
    def spare(self) -> bool:
        """There is nobody whose work waits for a thread, and would not get one."""
        return not self._work or len(self._threads) < self._most

    def give(self, work: Callable[[], None]) -> None:
        """To be done soon, in the order given."""
        with self._changed:
            self._work.append(work)
            if len(self._work) > self._idle and len(self._threads) < self._most:
                thread = threading.Thread(target=self._serve, daemon=True,
                                          name=f"omq {self._name} {len(self._threads)}")
                self._threads.append(thread)
                thread.start()
            else:
                self._changed.notify()

    def close(self, wait_s: float) -> bool:
        """What was given is done; wait so long for that, for all threads together. False: not yet;
        the threads do not keep the process."""
        ends = time.monotonic() + wait_s
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._work or self._closing)
                self._idle -= 1
                if not self._work:
                    return
                work = self._work.popleft()
            work()
