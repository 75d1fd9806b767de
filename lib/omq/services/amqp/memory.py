"""Memory of messages on their way in: so much for all clients, and for each user a share of it.

Invariants: 1. what is taken is given back by who took it; 2. who has taken more than there was
gives it back at once: the bound is passed by one chunk of a frame, not more.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

OVERHEAD_BYTES: Final = 2048
"""Of a transfer that waits, besides its bytes: many empty ones are a load as well."""


class Memory:
    """Bytes, reckoned as they came in."""

    def __init__(self, most: int, user_most: int) -> None:
        self._left, self._user_most = most, user_most
        self._users: Counter[str] = Counter()

    def free(self, user: str) -> int:
        """What this user may still take; below 0: it has too much."""
        left, own = self._left, self._user_most - self._users.get(user, 0)
        return left if left < own else own

    def take(self, user: str, size: int) -> None:
        self._left -= size
        self._users[user] += size

    def give(self, user: str, size: int) -> None:
        self._left += size
        self._users[user] -= size
        if not self._users[user]:
            del self._users[user]
