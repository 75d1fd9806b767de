"""Signs of life of a daemon whose start takes long: more time from the supervisor, and a status.

A start is never killed half-way while it goes on: each call asks for another start_timeout_s, at
most once a second. The watchdog begins when the daemon is ready, so it needs no pings before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omq.base import clock
from omq.services.daemon.notify import Notifier

_INTERVAL_NS: Final = clock.NS_PER_S  # often enough for people, cheap for a loop over blocks


class StartProgress:
    """Call it with what is being done, as often as wanted."""

    def __init__(
        self, notifier: Notifier, allowance_s: float, now_ns: Callable[[], int] = clock.monotonic_ns
    ) -> None:
        self._notifier = notifier
        self._allowance_s = allowance_s
        self._now_ns = now_ns
        self._due = 0

    def __call__(self, text: str) -> None:
        now = self._now_ns()
        if now < self._due:
            return
        self._due = now + _INTERVAL_NS
        self._notifier.extend(self._allowance_s)
        self._notifier.status(text)

    def step(self, text: str) -> None:
        """A new step that may take long: told at once."""
        self._due = 0
        self(text)
