"""History goes behind pool.writer's checkpoints: by its bounds, and first of all where the disk is
short (storage.history says what stays).

The caller's `may_go` tells of bodies: a file of the archive has one only where all of its bodies
are damaged, or while a record of the pool cannot be read.
In the middle of a crash: what is left is the oldest, and goes the next time.
Errors: DiskError.
"""

from __future__ import annotations

from collections.abc import Callable

from omq.base import clock
from omq.base.errors import SpoolLocked
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.storage import history
from omq.storage.disk_usage import Free

NAME = "pool.writer"


class HistoryKeeper:
    """Of one spool."""

    def __init__(self, paths: SpoolPaths, settings: Settings, log: EventLog) -> None:
        self._paths, self._settings, self._log = paths, settings, log

    def turn(self, free: Free, may_go: Callable[[int], bool]) -> int:
        """Remove what is to go; how many bytes. Where omq-archive is at a file, the next turn."""
        removed = 0
        try:
            with history.changing(self._paths, NAME):
                bounds = history.Bounds.of(self._paths, self._settings, free.history_wanted)
                for going in history.plan(self._paths, bounds, clock.wall_ns(), may_go):
                    removed += history.remove(self._paths, going)
                    history.tell(self._log, going, short=bounds.short > 0)
        except SpoolLocked:
            pass
        return removed
