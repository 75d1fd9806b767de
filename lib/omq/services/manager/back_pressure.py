"""Back-pressure: clients wait a little so that pool.writer is never far behind.

A restart redoes what lies behind the last checkpoint. Short-lived messages cost pool.writer next to
nothing, but those that live for seconds are written, cleared and their bodies moved, which is more
work than the manager has with them: under a lasting load the checkpoint falls behind without bound.
So, from `checkpoint_lag_frames_max` frames on, the manager pauses between two groups: in proportion
to the work of the group before and to how far behind the checkpoint is. Nothing is refused, waiting
requests become one larger group, and the processor goes to pool.writer. At twice the limit the
manager works a ninth of the time.

Without checkpoints a pause gains nothing: when none came for PROGRESS_S (pool.writer does not run,
or its disk is full, both of which have events of their own) there is none.

Invariant: a pause is at most PAUSE_MAX_NS: watchdog, signals and operators are served.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from omq.base import clock
from omq.base.settings import Settings
from omq.format.journal import FRAME

STEEPNESS: Final = 8
"""Pause, as a multiple of the work of the group before, at twice the limit."""
PAUSE_MAX_NS: Final = 100_000_000
PROGRESS_S: Final = 60


def lag_limit(settings: Settings) -> int:
    """Frames behind the checkpoint from which on there are pauses; 0: never. Not below twice what
    may lie between two checkpoints while pool.writer keeps up."""
    if not settings.checkpoint_lag_frames_max:
        return 0
    usual = settings.checkpoint_journal_bytes_max // FRAME.size
    return max(settings.checkpoint_lag_frames_max, 2 * usual)


class BackPressure:
    """See the module. `limit` in frames; 0: never. All times are monotonic ns."""

    def __init__(self, limit: int, checkpoint_lsn: int,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self.limit = limit
        self.active = False
        self._paused_ns = 0
        self._sleep = sleep
        self._checkpoint = checkpoint_lsn
        self._stale_at = 0  # until the first checkpoint is seen

    @property
    def paused_ms(self) -> int:
        """Of all pauses so far."""
        return self._paused_ns // clock.NS_PER_MS

    def after_group(self, last_lsn: int, checkpoint_lsn: int, began_ns: int, now_ns: int) -> bool:
        """Between two groups, of which the last began at `began_ns`: pause if pool.writer is too
        far behind. True: `active` has changed."""
        if checkpoint_lsn != self._checkpoint:
            self._checkpoint = checkpoint_lsn
            self._stale_at = now_ns + PROGRESS_S * clock.NS_PER_S
        if not self.limit:
            return False
        before, useful = self.active, now_ns < self._stale_at
        over = last_lsn - checkpoint_lsn - self.limit
        if over > 0 and useful:
            pause = min((now_ns - began_ns) * STEEPNESS * over // self.limit, PAUSE_MAX_NS)
            self._sleep(pause / clock.NS_PER_S)
            self._paused_ns += pause
            self.active = True
        elif over < -self.limit // 2 or not useful:  # each checkpoint is a leap: not over at once
            self.active = False
        return self.active != before
