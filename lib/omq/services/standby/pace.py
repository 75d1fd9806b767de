"""A copy that takes no more bytes a second than it may: whoever takes waits, and the line makes the
one who sends wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

REST_MAX_S: Final = 5.0
"""At once: a primary gives up a standby that takes nothing for long."""


class Pace:
    """`bytes_a_second`; 0: as they come. What was not taken at a slow time is not made up for."""

    def __init__(self, bytes_a_second: int, monotonic: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._rate, self._now, self._sleep = bytes_a_second, monotonic, sleep
        self._free = monotonic()  # when the next byte may be taken

    def took(self, count: int) -> None:
        """So many bytes; returns when more may be taken."""
        if not self._rate:
            return
        now = self._now()
        self._free = max(self._free, now) + count / self._rate
        if self._free > now:
            self._sleep(min(self._free - now, REST_MAX_S))
