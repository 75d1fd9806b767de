"""Who programs are, remembered for a moment: a look at the accounts of the host for each of a
thousand requests a second would cost more than the requests.

Invariant: what an account loses it has lost KNOWN_S later; what omq.conf, tokens or authority.conf
take away, at the reload. For the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from omq.cli.web.caller import Caller

KNOWN_S: Final = 1.0
_KNOWN_MAX: Final = 4096
Key = tuple[str, str, str]
"""Account, token, address."""


class Callers:
    """See the module."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: dict[Key, tuple[float, Caller | None]] = {}

    async def find(self, key: Key, look: Callable[[], Awaitable[Caller | None]]) -> Caller | None:
        """As it was looked up at most KNOWN_S ago."""
        now = self._clock()
        known = self._of.get(key)
        if known is None or known[0] <= now:
            found = await look()
            if len(self._of) >= _KNOWN_MAX:
                self._of.clear()
            known = self._of[key] = (now + KNOWN_S, found)
        return known[1]

    def forget(self) -> None:
        """At a reload."""
        self._of.clear()
