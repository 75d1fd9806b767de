"""Admission: how many connections a user may have, registered or not, and all users together.

The spool's owner and root are not limited by themselves: they can end the manager anyway. All other
users share what is left: `clients_reserved` places are kept free of them, so that the daemons and
an operator always find one. A caller is a connection that has not registered yet; it has
`register_timeout_s` for that.

    descriptors = 4 for each client + 1 for each caller + DESCRIPTORS_OF_ITS_OWN

Those of a client: its connection, its process, and of a large body (ipc.server.large_bodies) one
that has come in and one that is being copied.

Invariant: who was counted in by `enter` is counted out once by `leave`, whatever it was then.

Errors: TooManyConnections, TooManyOfUser, TooManyClients.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from omq.base.errors import OmqError, TooManyClients, TooManyConnections, TooManyOfUser
from omq.base.settings import Settings
from omq.ipc.server.doors import Door

DESCRIPTORS_OF_A_CLIENT: Final = 4
DESCRIPTORS_OF_ITS_OWN: Final = 128
"""Journal, store, pool and archive files, logs, locks, sockets of its own: some 40 at most, and as
many again for a new journal file or a larger cache of files at any moment."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Connections; see the keys of omq.conf with these names."""

    clients_max: int
    clients_per_uid_max: int
    clients_reserved: int
    callers_max: int
    callers_per_uid_max: int

    @classmethod
    def of(cls, settings: Settings, clients_max: int) -> Limits:
        """From omq.conf; `clients_max` may be lower than configured
        (services.manager.descriptors)."""
        return cls(clients_max, settings.clients_per_uid_max,
                   min(settings.clients_reserved, clients_max // 2), settings.callers_max,
                   settings.callers_per_uid_max)


def descriptors_needed(clients_max: int, callers_max: int) -> int:
    """What the manager may have open at once: callers of the owner are as many again."""
    return DESCRIPTORS_OF_A_CLIENT * clients_max + 2 * callers_max + DESCRIPTORS_OF_ITS_OWN


class Admission:
    """Counts by user. `owners`: uids that no limit by user concerns. Called from the doorkeeper's
    thread (refusal, enter) and from the main loop (the rest), hence the lock."""

    def __init__(self, limits: Limits, owners: Iterable[int]) -> None:
        self.limits = limits
        self._owners = frozenset(owners)
        self._callers: Counter[int] = Counter()
        self._clients: Counter[int] = Counter()
        self._lock = threading.Lock()

    def refusal(self, uid: int) -> OmqError | None:
        """Why this user may not have another connection that is not registered; None: it may."""
        limits, ours = self.limits, uid in self._owners
        if not ours and self._callers[uid] >= limits.callers_per_uid_max:
            return TooManyConnections(uid=uid, limit=limits.callers_per_uid_max,
                                      key="callers_per_uid_max")
        if self._count(self._callers, ours=ours) >= limits.callers_max:
            return TooManyConnections(uid=uid, limit=limits.callers_max, key="callers_max")
        return None

    def enter(self, door: Door) -> None:
        """A connection that is not registered yet."""
        with self._lock:
            self._callers[door.uid] += 1

    def check_client(self, uid: int) -> None:
        """Whether this user may register one more client."""
        limits, ours = self.limits, uid in self._owners
        if not ours and self._clients[uid] >= limits.clients_per_uid_max:
            raise TooManyOfUser(uid=uid, limit=limits.clients_per_uid_max)
        room = limits.clients_max - (0 if ours else limits.clients_reserved)
        if ours and sum(self._clients.values()) >= room:
            raise TooManyClients(limit=room)
        if not ours and (self._count(self._clients, ours=False) >= room
                         or sum(self._clients.values()) >= limits.clients_max):
            raise TooManyClients(limit=room)

    def registered(self, door: Door) -> None:
        """A caller has become a client."""
        with self._lock:
            self._take(self._callers, door.uid)
            self._clients[door.uid] += 1
            door.registered = True

    def leave(self, door: Door) -> None:
        """A connection is closed."""
        with self._lock:
            self._take(self._clients if door.registered else self._callers, door.uid)

    def _count(self, counts: Counter[int], *, ours: bool) -> int:
        with self._lock:
            return sum(n for uid, n in counts.items() if (uid in self._owners) is ours)

    @staticmethod
    def _take(counts: Counter[int], uid: int) -> None:
        counts[uid] -= 1
        if not counts[uid]:
            del counts[uid]
