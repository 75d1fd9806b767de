"""Wrong passwords: beyond web_logins_max of one address, or for one name, none is checked for a
while. Names and addresses are bounded; the oldest give way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

KNOWN_MAX: Final = 20_000
"""Addresses and names that are remembered."""


class Guesses:
    """See the module. For the event loop."""

    def __init__(self, most: int, period_s: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.period_s = most, period_s
        self._clock = clock
        self._known: dict[str, tuple[float, int]] = {}  # began, how many

    def wait_s(self, *keys: str) -> float:
        """How long until a password is checked for all of these again; 0: now."""
        return max((self._left(key) for key in keys), default=0.0)

    def count(self, *keys: str) -> None:
        """A password is going to be checked: it is wrong until it was right, so that many at once
        are counted before the first is answered."""
        now = self._clock()
        for key in keys:
            began, count = self._known.pop(key, (now, 0))
            if now - began > self.period_s:
                began, count = now, 0
            while len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            self._known[key] = began, count + 1

    def right(self, *keys: str) -> None:
        """It was right; what was wrong before it stays counted."""
        for key in keys:
            if key in self._known:
                began, count = self._known[key]
                self._known[key] = began, count - 1

    def _left(self, key: str) -> float:
        began, count = self._known.get(key, (0.0, 0))
        left = began + self.period_s - self._clock()
        return left if count >= self.most and left > 0 else 0.0
