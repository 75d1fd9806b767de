"""The tree of the second seed: channels, the peers reached by each, and their Mlists.

An Mlist is the recipients of one message at one peer. It waits at its peer, by priority and then in
order of arrival, until a process of the channel takes it.

A channel finds the next peer with a heap of those that may be served: most urgent Mlist first, then
the fewest processes at the peer ("the smallest number of messages currently being processed"), then
the one that waits longest for its turn. An entry counts while its number is the peer's; any other
is thrown away when it comes up. So each step costs the logarithm of the number of peers.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

_NO_ENTRY: Final = (0, 0)
PEERS_KNOWN: Final = 20_000
"""Beyond it those with nothing to do are forgotten."""
_WEIGHT: Final = 0.2  # of the newest message in the running mean of a peer's times


@dataclass(eq=False, slots=True)
class Mlist:
    """`work` is its owner's: the message that it is of."""

    channel: str
    peer: str
    priority: int
    recipients: tuple[str, ...]
    work: Any = None
    since: float = 0.0  # monotonic


class Cause(Enum):
    """Why an Mlist waits on its queue and not here."""

    SHARE = "share"  # its peer has its share of the messages in hand
    HELD = "held"  # an operator holds the peer or the channel
    DOWN = "down"  # the peer was not reached lately
    REFUSED = "refused"  # the peer refused it for now


@dataclass(frozen=True, slots=True)
class Wait:
    """Why an Mlist was not tried, and for how long at most."""

    seconds: float
    reason: str
    cause: Cause

    @property
    def down(self) -> bool:
        """Its peer was not reached lately."""
        return self.cause is Cause.DOWN


@dataclass(eq=False, slots=True)
class Peer:
    """Who takes mail over one channel. `active`: processes that serve it now; `mean_s`: time that
    one message took lately, 0 when nothing is known."""

    name: str
    waiting: dict[int, deque[Mlist]] = field(default_factory=dict)
    count: int = 0
    active: int = 0
    probing: bool = False  # it was down: one process tries it
    paced: bool = False  # its limit leaves it alone for a while
    mean_s: float = 0.0
    entry: int = 0  # number of its entry in the heap, 0: none
    key: tuple[int, int] = _NO_ENTRY  # priority and active of that entry

    @property
    def priority(self) -> int:
        """The highest that waits. There must be one."""
        return max(self.waiting)

    def add(self, mlist: Mlist, *, first: bool = False) -> None:
        """It waits; `first`: it was taken already, and nothing came of it."""
        queue = self.waiting.setdefault(mlist.priority, deque())
        (queue.appendleft if first else queue.append)(mlist)
        self.count += 1

    def take(self, limit: int) -> list[Mlist]:
        """Up to `limit` of the most urgent ones; all of one priority."""
        priority = self.priority
        queue = self.waiting[priority]
        taken = [queue.popleft() for _ in range(min(limit, len(queue)))]
        if not queue:
            del self.waiting[priority]
        self.count -= len(taken)
        return taken

    def take_all(self) -> list[Mlist]:
        """All that wait, most urgent first."""
        taken = [each for priority in sorted(self.waiting, reverse=True)
                 for each in self.waiting[priority]]
        self.waiting.clear()
        self.count = 0
        return taken

    def took(self, spent_s: float) -> None:
        """A message took this long."""
        self.mean_s += (spent_s - self.mean_s) * (_WEIGHT if self.mean_s else 1.0)


class Channel:
    """The peers of one channel, and who of them is next."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.peers: dict[str, Peer] = {}
        self.started_at = self.stopped_at = float("-inf")  # monotonic, of a process
        self._ready: list[tuple[int, int, int, Peer]] = []
        self._numbers = 0

    def peer(self, name: str) -> Peer:
        """The peer, made when it is new."""
        found = self.peers.get(name)
        if found is None:
            found = self.peers[name] = Peer(name)
        return found

    def rank(self, peer: Peer, *, may: bool) -> None:
        """The peer changed: it has its place among those that may be served, or none."""
        if not may:
            peer.entry, peer.key = 0, _NO_ENTRY
            if len(self.peers) > PEERS_KNOWN:
                self._forget()
            return
        key = (peer.priority, peer.active)
        if peer.entry and peer.key == key:
            return
        self._numbers += 1
        peer.entry, peer.key = self._numbers, key
        heapq.heappush(self._ready, (-key[0], key[1], self._numbers, peer))

    def first(self) -> Peer | None:
        """Who is next."""
        ready = self._ready
        while ready and ready[0][3].entry != ready[0][2]:
            heapq.heappop(ready)
        return ready[0][3] if ready else None

    def waits_more_than(self, count: int) -> bool:
        """Whether more Mlists than this wait at peers that may be served."""
        left = count
        for each in self._valid():
            left -= each.count
            if left < 0:
                return True
        return False

    def _forget(self) -> None:
        """Peers of which there is nothing: only what they lately took to answer is lost."""
        self.peers = {name: peer for name, peer in self.peers.items() if peer.count or peer.active
                      or peer.paced}

    def _valid(self) -> Iterator[Peer]:
        return (peer for _, _, number, peer in self._ready if peer.entry == number)
