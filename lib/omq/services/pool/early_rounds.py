"""When pool.writer must not wait for its interval: a queue was cleared, its disk is wanted back.

The manager says up to which LSN it has deleted (Counter.SPACE_WANTED). A checkpoint that covers it
is taken at once, and a round of bodies after it; what is seen empty there goes in the next ones
(omq.services.pool.bodies says why it takes two). Nothing else is done than at a checkpoint of its
time, so the crash argument is the same: only its time is another.

Who clears often does not have checkpoints taken without end: PAUSE_NS lies between the end of a
hurry and the next.
"""

from __future__ import annotations

from typing import Final

from omq.base import clock
from omq.format.index import Counter
from omq.services.pool.live_index import LiveIndex

ROUNDS_MIN: Final = 3
"""Of one hurry: a file is seen empty, a checkpoint covers that, the file goes."""
ROUNDS_MAX: Final = 20
"""Where that takes longer: the manager was busy, and a round could not look at its index."""
PAUSE_NS: Final = clock.NS_PER_S


class Hurry:
    """See the module."""

    def __init__(self) -> None:
        self._served = 0  # LSN that was wanted last
        self._left = 0  # rounds
        self._not_before = 0  # monotonic ns

    def is_due(self, index: LiveIndex, *, pending: bool) -> bool:
        """Whether a checkpoint and its round are to be taken now. `pending`: a file was seen
        empty."""
        if self._left:
            self._left -= 1
            if not pending and self._left < ROUNDS_MAX - ROUNDS_MIN:
                self._left = 0
            if not self._left:
                self._not_before = clock.monotonic_ns() + PAUSE_NS
            return self._left > 0
        now, wanted = clock.monotonic_ns(), index.counter(Counter.SPACE_WANTED)
        if (wanted <= self._served or index.counter(Counter.DURABLE_LSN) < wanted
                or now < self._not_before):
            return False
        self._served, self._left = wanted, ROUNDS_MAX
        return True
