"""Events that a stranger can cause as often as he likes: the first ones are logged, then counted.

For each event and cause (a uid, say) the first `burst` within `period_s` are logged as they come.
Of the others one line tells the number when the period is over: with the next event, or at `flush`,
which an owner that knows when calls by itself (`due`). Causes are bounded: beyond CAUSES_MAX they
count together.

Callable from several threads.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from omq.base import clock
from omq.base.event_log import EventLog, FieldValue, Level
from omq.base.events import Event

CAUSES_MAX: Final = 256
NEVER: Final = 1 << 62
OTHERS: Final = "others"


@dataclass(slots=True)
class _Window:
    """One event of one cause within one period."""

    event: Event
    level: Level
    ends: int  # monotonic ns
    count: int = 0


class RatedLog:
    """See the module."""

    def __init__(self, log: EventLog, burst: int, period_s: int) -> None:
        self._log = log
        self._burst = burst
        self._period_s = period_s
        self._windows: dict[tuple[int, object], _Window] = {}  # the first to end stands first
        self._lock = threading.Lock()

    @property
    def due(self) -> int:
        """When the next flush has something to do, monotonic ns."""
        first = next(iter(self._windows.values()), None)
        return first.ends if first is not None else NEVER

    def event(self, event: Event, level: Level, cause: object, /, **fields: FieldValue) -> None:
        """Tell or count it."""
        self.flush(clock.monotonic_ns())
        with self._lock:
            if len(self._windows) >= CAUSES_MAX and (event.number, cause) not in self._windows:
                cause = OTHERS
            window = self._windows.get((event.number, cause))
            if window is None:
                ends = clock.monotonic_ns() + self._period_s * clock.NS_PER_S
                window = self._windows[event.number, cause] = _Window(event, level, ends)
            window.count += 1
            if window.count > self._burst:
                return
        self._log.event(event, level, **fields)

    def flush(self, now: int) -> None:
        """At `now` (monotonic ns): the counts of all periods that are over."""
        over = []
        with self._lock:
            for key, window in list(self._windows.items()):
                if window.ends <= now:
                    over.append((key[1], window))
                    del self._windows[key]
        for cause, window in over:
            if window.count > self._burst:
                self._log.event(window.event, window.level, cause=str(cause),
                                repeated=window.count - self._burst, seconds=self._period_s)
