"""Back-pressure: clients wait a little so that pool.writer is never far behind.

A restart redoes what lies after the last checkpoint, and the disk holds it. Short-lived messages
cost pool.writer next to nothing, but those that live for seconds are written, cleared and their
bodies moved, which is more work than the manager has with them: under a lasting load the checkpoint
falls behind without bound. So the manager pauses between two groups, in proportion to the work of
the group before and to the worst of three strains:

    frames  behind the checkpoint, over checkpoint_lag_frames_max
    bytes   of the journal after it, over checkpoint_lag_bytes_max: a thousand large messages are
            few frames and much disk
    disk    how far free space is into the margin above the reserve, until pool.writer says that
            it can make no room: producers become slow where they would be refused

Nothing is refused, waiting requests become one larger group, and the processor goes to pool.writer.
At twice a limit the manager works a ninth of the time.

Without checkpoints a pause gains nothing: when none came for PROGRESS_S (pool.writer does not run,
or its disk is full, both of which have events of their own) there is none. A full disk on which
nothing can be retired slows nobody: there puts are refused.

Invariant: a pause is at most PAUSE_MAX_NS: watchdog, signals and operators are served.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omq.base import clock
from omq.base.settings import Settings
from omq.format.journal import FRAME

STEEPNESS: Final = 8
"""Pause, as a multiple of the work of the group before, at twice the limit."""
DISK_STEEPNESS: Final = 8
"""Strain at the reserve: the margin is two journal files, so it must tell soon."""
PAUSE_MAX_NS: Final = 100_000_000
PROGRESS_S: Final = 60


@dataclass(frozen=True, slots=True)
class LagLimits:
    """How far the checkpoint may be behind before there are pauses; 0: never."""

    frames: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Lag:
    """How it is: after the checkpoint; `room` 0 to 1: how far free space is into the margin."""

    frames: int
    bytes: int = 0
    room: float = 0.0


def lag_limits(settings: Settings) -> LagLimits:
    """Not below twice what may lie between two checkpoints while pool.writer keeps up."""
    usual = 2 * settings.checkpoint_journal_bytes_max
    return LagLimits(
        _at_least(settings.checkpoint_lag_frames_max, usual // FRAME.size),
        _at_least(settings.checkpoint_lag_bytes_max, usual + 2 * settings.journal_file_bytes))


def _at_least(limit: int, usual: int) -> int:
    return max(limit, usual) if limit else 0


class BackPressure:
    """See the module. All times are monotonic ns."""

    def __init__(self, limits: LagLimits, checkpoint_lsn: int,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self.limits = limits
        self.active = False
        self._paused_ns = 0
        self._sleep = sleep
        self._checkpoint = checkpoint_lsn
        self._stale_at = 0  # until the first checkpoint is seen

    @property
    def paused_ms(self) -> int:
        """Of all pauses so far."""
        return self._paused_ns // clock.NS_PER_MS

    def useful(self, now_ns: int) -> bool:
        """Has pool.writer taken a checkpoint lately?"""
        return now_ns < self._stale_at

    def after_group(self, lag: Lag, checkpoint_lsn: int, began_ns: int, now_ns: int) -> bool:
        """Between two groups, of which the last began at `began_ns`: pause if pool.writer is too
        far behind (of the disk the caller judges itself). True: `active` has changed."""
        if checkpoint_lsn != self._checkpoint:
            self._checkpoint = checkpoint_lsn
            self._stale_at = now_ns + PROGRESS_S * clock.NS_PER_S
        before = self.active
        strain = self._strain(lag if self.useful(now_ns) else Lag(0, 0, lag.room))
        if strain > 0:
            pause = min(int((now_ns - began_ns) * STEEPNESS * strain), PAUSE_MAX_NS)
            self._sleep(pause / clock.NS_PER_S)
            self._paused_ns += pause
            self.active = True
        elif strain < -0.5:  # each checkpoint is a leap: not over at once
            self.active = False
        return self.active != before

    def _strain(self, lag: Lag) -> float:
        """The worst of the three: 0 at a limit, 1 at twice of it, -1 with nothing behind."""
        frames, size = self.limits.frames, self.limits.bytes
        return max((lag.frames - frames) / frames if frames else -1.0,
                   (lag.bytes - size) / size if size else -1.0,
                   lag.room * DISK_STEEPNESS if lag.room else -1.0)
