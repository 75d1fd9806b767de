"""Wrong passwords, and for whom none is checked for a while.

Counted in web_logins_period_s: web_logins_max for one name from one source (an address, or on
loopback an account: services.network.source), FACTOR times that from one source for all names, and
for one name from all sources. Where somebody logged in before, only the first counts for him: who
guesses from elsewhere, or at other names, does not keep him out. What is remembered is bounded; the
oldest give way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

KNOWN_MAX: Final = 20_000
"""Sources, names and pairs that are remembered, and as many that were right."""
FACTOR: Final = 10
_TOKEN: Final = "\0token"
"""In the place of a name: no form can send it."""
Key = tuple[str, str]


class LoginFailures:
    """See the module. For the event loop."""

    def __init__(self, most: int, period_s: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.period_s = most, period_s
        self._clock = clock
        self._known: dict[Key, tuple[float, int]] = {}  # began, how many
        self._been: dict[Key, None] = {}  # source and name of logins that were right

    def wait_s(self, source: str, name: str) -> tuple[float, str]:
        """How long until a password is checked again, and of whom there were too many; 0: now."""
        found = max((self._left(key, most), told)
                    for key, most, told in self._limits(source, name))
        return found if found[0] else (0.0, "")

    def count(self, source: str, name: str) -> None:
        """A password is going to be checked: it is wrong until it was right, so that many at once
        are counted before the first is answered."""
        for key in self._keys(source, name):
            now = self._clock()
            began, count = self._known.pop(key, (now, 0))
            if now - began > self.period_s:
                began, count = now, 0
            _make_room(self._known)
            self._known[key] = began, count + 1

    def right(self, source: str, name: str) -> None:
        """It was right; what was wrong before it stays counted."""
        for key in self._keys(source, name):
            if key in self._known:
                began, count = self._known[key]
                self._known[key] = began, count - 1
        self._been.pop((source, name), None)
        _make_room(self._been)
        self._been[source, name] = None

    def wrong_token(self, source: str) -> float:
        """A token that is not known: how long its source has to wait."""
        wait_s, _ = self.wait_s(source, _TOKEN)
        self.count(source, _TOKEN)
        return wait_s

    @staticmethod
    def _keys(source: str, name: str) -> tuple[Key, ...]:
        several = ((source, ""), (source, name))
        return several if name == _TOKEN else (*several, ("", name))

    def _limits(self, source: str, name: str) -> Iterator[tuple[Key, int, str]]:
        yield (source, name), self.most, "for this name from there"
        if (source, name) not in self._been:
            yield (source, ""), FACTOR * self.most, "from there"
            yield ("", name), FACTOR * self.most, "for this name"

    def _left(self, key: Key, most: int) -> float:
        began, count = self._known.get(key, (0.0, 0))
        left = began + self.period_s - self._clock()
        return left if count >= most and left > 0 else 0.0


def _make_room(kept: dict[Key, object] | dict[Key, tuple[float, int]] | dict[Key, None]) -> None:
    while len(kept) >= KNOWN_MAX:
        del kept[next(iter(kept))]
