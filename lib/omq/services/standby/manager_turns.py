"""Does the queue manager turn? The keeper of a lease looks at the beat in its index: who speaks to
it again and again, as the keeper does, makes a manager that is well turn as often.

A manager that stands still (a disk that does not answer, SIGSTOP) acknowledges nothing, and its
keeper is well: if that renewed the lease, nobody would serve for as long as it lasts.

Invariant: only time in which this process itself went on counts, STEP_NS at most between two looks;
so a host that was stopped as a whole makes no manager look hung.

Errors: none: without a manager there is nothing to report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omq.base import clock
from omq.base.paths import SpoolPaths
from omq.format.index import Counter
from omq.services.pool.durable_look import DurableLook

STEP_NS: Final = clock.NS_PER_S


class ManagerTurns:
    """See the module."""

    def __init__(self, paths: SpoolPaths, monotonic_ns: Callable[[], int] = clock.monotonic_ns
                 ) -> None:
        self._index, self._now = DurableLook(paths), monotonic_ns
        self._seen = (0, 0)  # the manager's epoch, and its beat
        self._still_ns = 0
        self._looked = monotonic_ns()

    def still_s(self) -> float:
        """For so long the manager that runs has not turned; 0: it has, or none runs."""
        now = self._now()
        self._index.look()
        index = self._index.index
        seen = (0, 0) if index is None else (index.epoch, index.counter(Counter.BOOT_BEAT))
        if index is None or seen != self._seen:
            self._seen, self._still_ns = seen, 0
        else:
            self._still_ns += min(max(0, now - self._looked), STEP_NS)
        self._looked = now
        return self._still_ns / clock.NS_PER_S

    def close(self) -> None:
        """Let go of the index."""
        self._index.close()
