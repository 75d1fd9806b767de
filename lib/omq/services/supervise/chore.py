"""A program that the embedded supervisor runs from time to time, as a timer of systemd does with
its units: omq-archive.

One run at a time; the next is due `interval_s` after the begin of the last one, and is left out
while there is nothing to do, but for one a day. Whatever happens to a run, the next one comes.

Invariants: 1. a run is a child in a session of its own, at a low priority, and is reaped by the
supervisor; 2. at a stop it is killed: such a program may be killed at any point and goes on in its
next run; 3. nothing of it can end the supervisor.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from omq.base import event_log, events
from omq.base.errors import Exit
from omq.base.event_log import EventLog
from omq.services.daemon.exit_text import exit_text
from omq.services.supervise import process_group
from omq.services.supervise.process_group import Launch

DAY_S: Final = 86_400.0
NICE: Final = 10


class Chore:
    """See the module. `interval_s` 0: never. All times are monotonic seconds."""

    def __init__(self, name: str, argv: list[str], interval_s: float, wanted: Callable[[], bool],
                 launch: Launch = process_group.launch) -> None:
        self.name, self.pid = name, 0
        self._argv, self._interval_s, self._wanted, self._launch = argv, interval_s, wanted, launch
        self._due: float | None = None  # until the first turn
        self._daily = 0.0

    def next_wakeup(self) -> float | None:
        """When `turn` has something to do; None: not by time."""
        return None if self.pid or not self._interval_s else self._due

    def turn(self, now: float, environ: dict[str, str], log: EventLog) -> None:
        """Start a run, if one is due."""
        if self.pid or not self._interval_s:
            return
        if self._due is None:
            self._due, self._daily = now + self._interval_s, now + DAY_S
        if now < self._due:
            return
        self._due = now + self._interval_s
        if now < self._daily and not self._wanted():
            return
        self._daily = now + DAY_S
        try:
            self.pid = self._launch(self._argv, environ)
        except OSError as error:
            log.event(events.FAILED, event_log.WARNING, at=self.name, reason=str(error))
            return
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self.pid, NICE)

    def on_exit(self, exit_code: int, log: EventLog, *, stopping: bool) -> None:
        """It has ended and is reaped; what it did is in its own events. That another one runs,
        or that there is no room now, is not a failure."""
        self.pid = 0
        if exit_code not in (Exit.OK, Exit.TEMPORARY) and not stopping:
            log.event(events.FAILED, event_log.WARNING, at=self.name, reason=exit_text(exit_code))

    def stop(self) -> None:
        """At the stop of the instance."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
