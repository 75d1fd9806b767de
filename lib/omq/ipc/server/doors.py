"""Doors: the control connections of clients, and whose turn it is.

A door is either polled by the doorkeeper's thread or waits in the ring for the main loop, never
both: nothing is read from it until its last line has been taken. So a door can take memory for one
line and one read at most, and a client that sends too much blocks on its own socket.

The ring gives turns to users first, then to the doors of each: a user with a thousand doors gets no
more than one with a single door. What a user may cost in one group is measured in time (`Turn`),
so that one costly question counts as much as many cheap ones.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from omq.base import clock

LINE_BYTES_MAX: Final = 256 * 1024
READ_BYTES: Final = 65536
BYTE_NS: Final = 10
"""A byte of a request counts besides its processor time: writing it takes as long at 100 MB/s."""
USERS_A_TURN: Final = 5
"""A group spends at most this many users' shares on doors; the others come first in the next."""


@dataclass(slots=True, eq=False)
class Door:
    """One control connection."""

    connection: socket.socket
    uid: int = -1
    received: bytearray = field(default_factory=bytearray)
    pidfd: int = -1
    registered: bool = False
    waiting: bool = False  # in the ring
    ended: bool = False  # the other side closed it, its process ended, or its time is over
    closed: bool = False
    bad: int = 0  # lines that no client of ours says
    descriptor: int = -1  # came with the question that is next

    def take_line(self) -> bytes | None:
        """The next whole line without its end."""
        end = self.received.find(b"\n")
        if end < 0:
            return None
        line = bytes(self.received[:end])
        del self.received[: end + 1]
        return line

    def keep(self, came: list[int]) -> None:
        """Descriptors that came in: one, and only of a registered client; others are closed."""
        for each in came:
            if self.closed or not self.registered or self.descriptor >= 0:
                os.close(each)
            else:
                self.descriptor = each

    def take_descriptor(self) -> int:
        """What came with the question that is next; the caller closes it. -1: nothing."""
        descriptor, self.descriptor = self.descriptor, -1
        return descriptor


class Ring:
    """Doors that wait for the main loop: round robin over users, then over their doors. Filled by
    the doorkeeper's thread as well, hence the lock. `users`: those with a door that waits."""

    def __init__(self) -> None:
        self.users: deque[int] = deque()
        self._doors: dict[int, deque[Door]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Users with a door that waits."""
        return len(self.users)

    def add(self, door: Door) -> None:
        """At the end of its user's doors; nothing if it waits already."""
        with self._lock:
            if door.waiting:
                return
            door.waiting = True
            doors = self._doors.get(door.uid)
            if doors is None:
                doors = self._doors[door.uid] = deque()
                self.users.append(door.uid)
            doors.append(door)

    def take(self, turn: Turn) -> Door | None:
        """The next door of the next user who has something left of the turn."""
        with self._lock:
            for _ in range(len(self.users)):
                uid = self.users.popleft()
                if turn.has_spent(uid):
                    self.users.append(uid)
                    continue
                doors = self._doors[uid]
                door = doors.popleft()
                if doors:
                    self.users.append(uid)
                else:
                    del self._doors[uid]
                door.waiting = False
                return door
        return None


class Turn:
    """What the users have cost in one group. `share_ns` each; one door is served in any case."""

    def __init__(self, share_ns: int) -> None:
        self._share_ns = share_ns
        self._spent: dict[int, int] = {}
        self._began = self._last = clock.monotonic_ns()

    def has_spent(self, uid: int) -> bool:
        """Whether this user has had its share."""
        return self._spent.get(uid, 0) >= self._share_ns

    def charge(self, uid: int, size: int = 0) -> None:
        """The time since the last charge, and `size` bytes to be written, are this user's."""
        now = clock.monotonic_ns()
        self._spent[uid] = self._spent.get(uid, 0) + now - self._last + size * BYTE_NS
        self._last = now

    @property
    def over(self) -> bool:
        """The requests on the queue wait: enough for this group."""
        return self._last - self._began >= USERS_A_TURN * self._share_ns
