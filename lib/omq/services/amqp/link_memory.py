"""What one link that puts has of the memory and the disk that all clients share.

Invariant: what is taken is given back by `empty` at the latest, however the link ends.
"""

from __future__ import annotations

from omq.services.amqp.memory import Memory


class LinkMemory:
    """Bytes in memory, and of bodies in files."""

    def __init__(self, memory: Memory, disk: Memory, user: str) -> None:
        self._memory, self._disk, self._user = memory, disk, user
        self._held = self._filed = 0

    @property
    def free(self) -> int:
        """Bytes of memory that there are for this user; below 0: it has too much."""
        return self._memory.free(self._user)

    @property
    def full(self) -> bool:
        """There is too much of this user already."""
        return self.free < 0 or self._disk.free(self._user) < 0

    @property
    def left(self) -> int:
        """Bytes that may be taken now without being `full`; below 0: not even none."""
        user = self._user
        return -1 if self._disk.free(user) < 0 else self._memory.free(user)

    def hold(self, size: int) -> None:
        self._held += size
        self._memory.take(self._user, size)

    def release(self, size: int) -> None:
        size = min(size, self._held)
        self._held -= size
        self._memory.give(self._user, size)

    def file(self, size: int) -> None:
        """So much is in a file now."""
        self._filed += size
        self._disk.take(self._user, size)

    def unfile(self, size: int) -> None:
        size = min(size, self._filed)
        self._filed -= size
        self._disk.give(self._user, size)

    def keep(self, held: int, filed: int) -> None:
        """Give back all but this."""
        self.release(self._held - held)
        self.unfile(self._filed - filed)
