"""Memory of bodies on their way in or out of omq-web: so much for all, and for each user a share.

A request is refused (ConsoleBusy) before its body is read when there is no room for it; a body that
a get would give goes by its link instead of inline. Invariants: 1. what is taken is given back by
who took it, whatever its end; 2. there is never more taken than there is. For any thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from omq.base.errors import ConsoleBusy


class Budget:
    """Bytes: `most` of all users, `user_most` of one."""

    def __init__(self, most: int, user_most: int) -> None:
        self._most, self._user_most = most, user_most
        self._lock = threading.Lock()
        self._of: Counter[str] = Counter()
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    def take(self, user: str, size: int) -> bool:
        """Whether there was room."""
        with self._lock:
            if (self._taken + size > self._most or self._of[user] + size > self._user_most):
                return False
            self._taken += size
            self._of[user] += size
            return True

    def give(self, user: str, size: int) -> None:
        with self._lock:
            self._taken -= size
            self._of[user] -= size
            if not self._of[user]:
                del self._of[user]

    @contextmanager
    def room(self, user: str, size: int) -> Iterator[None]:
        """For a request meanwhile. ConsoleBusy."""
        if not self.take(user, size):
            raise ConsoleBusy(what=f"no memory for a request of {size} bytes besides the others "
                              "(web_memory_bytes_max, web_user_memory_bytes_max)", seconds=1)
        try:
            yield
        finally:
            self.give(user, size)
