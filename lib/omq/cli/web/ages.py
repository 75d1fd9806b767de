"""Histograms of ages that pages follow: of each queue one, made anew once in web_ring_period_s.

It looks at every message of the queue (60 ms for a million), so all pages that follow the queue
share it. Invariants: 1. one is made at a time; 2. what nobody asked for in that time is forgotten.
For worker threads.

Errors: ManagerUnavailable, UnknownQueue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from omq.cli.web import reading
from omq.cli.web.rendering import bar_texts
from omq.services.daemon.options import Location


def key(name: str, at: int) -> str:
    """Of the live value of a row; its bar has `:bar` after it."""
    return f"a:{name}:{at}"


class Ages:
    """See the module."""

    def __init__(self, location: Location, period_s: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._location, self._period_s, self._clock = location, period_s, clock
        self._lock = threading.Lock()
        self._made: dict[str, tuple[float, dict[str, str]]] = {}

    def live(self, name: str) -> dict[str, str]:
        """The live values of a queue's histogram."""
        with self._lock:
            now = self._clock()
            self._made = {queue: kept for queue, kept in self._made.items()
                          if now - kept[0] < self._period_s}
            if name not in self._made:
                texts = bar_texts(reading.ages(self._location, name))
                found: dict[str, str] = {}
                for at, (width, text) in enumerate(texts):
                    found |= {key(name, at): text, f"{key(name, at)}:bar": width}
                self._made[name] = now, found
            return self._made[name][1]
