"""Which Mlist a channel process gets next, and how many processes a channel has. Decisions alone:
no clock, no process, no file; times are monotonic seconds that the caller gives.

Rules (source: the second seed, "Queue Manager in depth"; settings: omq.services.delivery.rules):
1. more urgent first; among equals the peer with the fewest processes at it, then the one whose
   turn it is. A process prefers the peer that it served last (it has a connection), among equals
   and for `affinity_s` in a row;
2. all channels together have at most `maxchans` processes; the last `reserve_urgent` of them work
   for urgent Mlists only, `reserve_normal` more for urgent and normal ones;
3. a channel starts no process within `chan_time2_s` of the last start, none within `chan_time3_s`
   unless more Mlists wait than it has processes, and, when all of its processes have stopped, none
   within `chan_time1_s`. An urgent Mlist waits for `chan_time2_s` alone;
4. where a channel wants a process and there may be no more, the channel with the most gives one up:
   an idle one at once, another after its message; a channel that has none is given one;
5. at most `peer_concurrency` processes work for one peer, the last `peer_reserve_urgent` for urgent
   mail only; one that was down is tried by one process;
   a peer may have a limit of its own, also of messages in a time: then one comes after the other's
   time, however many processes are free (`limit_of`);
6. what waits for a fast peer is given several at a time, as many as it takes in `run_s`.

Invariants: an Mlist waits, or is with one process, or its end was told; a peer's `active` is the
number of processes that have Mlists of it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from omq.base.limits import PRIORITY_URGENT
from omq.services.delivery.mlist import Channel, Mlist, Peer
from omq.services.delivery.rules import PeerLimit, Rules

NEVER: Final = math.inf


def _as_others(peer: str) -> None:
    del peer


@dataclass(eq=False, slots=True)
class Process:
    """One process of a channel, as the scheduler sees it."""

    number: int
    channel: str
    since: float  # idle or busy, monotonic
    run: list[Mlist] = field(default_factory=list)  # what it has, in order
    last: str = ""  # the peer that it served last
    last_since: float = 0.0
    given_up: bool = False  # it ends after its message

    @property
    def busy(self) -> bool:
        """Whether it has work."""
        return bool(self.run)


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process of this channel; it is known as this number from now on."""

    process: Process


@dataclass(frozen=True, slots=True)
class Give:
    """Send these Mlists, all of one peer, to this process."""

    process: Process
    run: tuple[Mlist, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End this process: at once where it is idle, else after the message that it has."""

    process: Process


Action = Start | Give | Stop


class Scheduler:
    """See the module. `limit_of` says what a peer may have, where that is its own."""

    def __init__(self, rules: Rules, limit_of: Callable[[str], PeerLimit | None] = _as_others
                 ) -> None:
        self.rules, self._limit_of = rules, limit_of
        self._paced: list[tuple[float, int, str, Peer]] = []  # until when, which, channel
        self.channels: dict[str, Channel] = {}
        self.processes: dict[int, Process] = {}
        self.down: dict[str, float] = {}  # peers that are left alone, until when
        self.wake = NEVER  # when to decide again, whatever happens
        self._numbers = 0

    # what happens

    def add(self, mlist: Mlist) -> None:
        """An Mlist waits."""
        peer = self._channel(mlist.channel).peer(mlist.peer)
        peer.probing = mlist.peer in self.down
        peer.add(mlist)
        self._rank(mlist.channel, peer)

    def reported(self, process: Process, mlist: Mlist, spent_s: float, now: float) -> None:
        """The process is done with the first of what it has."""
        assert process.run[0] is mlist
        del process.run[0]
        peer = self.channels[mlist.channel].peers[mlist.peer]
        peer.took(spent_s)
        if not process.run:
            self._rests(process, peer, now)

    def left_out(self, process: Process, mlist: Mlist, now: float) -> None:
        """One of a run is not sent after all."""
        process.run.remove(mlist)
        if not process.run:
            self._rests(process, self.channels[mlist.channel].peers[mlist.peer], now)

    def given_back(self, process: Process, now: float) -> list[Mlist]:
        """The process is there no more, or has done no more of its run: what it had. It is the
        caller's again."""
        left, process.run = process.run, []
        if left:
            self._rests(process, self.channels[process.channel].peers[left[0].peer], now)
        return left

    def ended(self, process: Process, now: float) -> None:
        """The process is gone."""
        assert not process.run
        self.processes.pop(process.number, None)
        if not any(each.channel == process.channel for each in self.processes.values()):
            self._channel(process.channel).stopped_at = now

    def again(self, mlists: list[Mlist]) -> None:
        """These wait again, before the others."""
        for mlist in reversed(mlists):
            peer = self._channel(mlist.channel).peer(mlist.peer)
            peer.add(mlist, first=True)
            self._rank(mlist.channel, peer)

    def leave_alone(self, channel: str, name: str, until: float) -> list[Mlist]:
        """The peer is down until then: what waits for it is the caller's."""
        self.down[name] = until
        peer = self._channel(channel).peer(name)
        peer.probing = True
        taken = peer.take_all()
        self._rank(channel, peer)
        return taken

    def is_up(self, name: str) -> None:
        """The peer works, or is to be taken for one that does."""
        self.down.pop(name, None)
        for channel in self.channels.values():
            peer = channel.peers.get(name)
            if peer is not None:
                peer.probing = False
                self._rank(channel.name, peer)

    def take_back(self, channel: str, name: str) -> list[Mlist]:
        """What waits for a peer is the caller's."""
        peer = self._channel(channel).peer(name)
        taken = peer.take_all()
        self._rank(channel, peer)
        return taken

    def limits_changed(self) -> None:
        """Limits of peers are others: who was left alone for the old ones may be served."""
        self._paced.clear()
        for channel in self.channels.values():
            for peer in channel.peers.values():
                peer.paced = False
                self._rank(channel.name, peer)

    # what is to be done

    def decide(self, now: float) -> Iterator[Action]:
        """What to do now, in order; each must be done before the next is asked for. Sets `wake`."""
        self.wake = NEVER
        self._go_on(now)
        yield from self._stop_those(lambda each: each.given_up)
        for channel in sorted(self.channels.values(), key=self._busy_of):
            yield from self._assign(channel, now)
        yield from self._stop_those(lambda each: now >= each.since + self.rules.chan_idle_s)
        for channel in sorted(self.channels.values(), key=self._busy_of):
            top = channel.first()
            if top is not None:
                yield from self._grow(channel, top, now)
        for process in self.processes.values():
            if not process.busy:
                self._wake_at(process.since + self.rules.chan_idle_s)

    def _assign(self, channel: Channel, now: float) -> Iterator[Give]:
        idle = [each for each in self.processes.values()
                if each.channel == channel.name and not each.busy and not each.given_up]
        while idle:
            top = channel.first()
            if top is None or self._busy() >= self.rules.processes(top.priority):
                return
            process, peer = self._match(channel, top, idle, now)
            idle.remove(process)
            yield self._give(channel, process, peer, now)

    def _match(self, channel: Channel, top: Peer, idle: list[Process], now: float
               ) -> tuple[Process, Peer]:
        for process in idle:
            if now - process.last_since < self.rules.affinity_s:
                peer = channel.peers.get(process.last)
                if peer is not None and peer.entry and peer.key == top.key:
                    return process, peer
        for process in idle:
            if process.last == top.name:
                return process, top
        return idle[-1], top

    def _give(self, channel: Channel, process: Process, peer: Peer, now: float) -> Give:
        rules, run = self.rules, 1
        if peer.mean_s > 0.0 and not peer.probing:
            run = max(1, int(min(rules.run_messages, rules.run_s / peer.mean_s)))
        limit = self._limit_of(peer.name)
        if limit is not None and limit.pause_s:
            self._numbers += 1
            run, peer.paced = 1, True
            heapq.heappush(self._paced, (now + limit.pause_s, self._numbers, channel.name, peer))
            self._wake_at(now + limit.pause_s)
        process.run = peer.take(run)
        peer.active += 1
        if process.last != peer.name:
            process.last, process.last_since = peer.name, now
        process.since = now
        self._rank(channel.name, peer, served=True)
        return Give(process, tuple(process.run))

    def _grow(self, channel: Channel, top: Peer, now: float) -> Iterator[Action]:
        """One process more, if the rules allow it: rules 2 to 4."""
        urgent = top.priority >= PRIORITY_URGENT
        mine = [each for each in self.processes.values() if each.channel == channel.name]
        if any(not each.busy and not each.given_up for each in mine):
            return  # one waits for work: what is ready is not for it now
        most = self.rules.processes(top.priority)
        if len(self.processes) >= most or self._busy() >= most:
            yield from self._make_room(channel, len(mine), now)
            return
        rules, earliest = self.rules, channel.started_at + self.rules.chan_time2_s
        if not urgent and not mine:
            earliest = max(earliest, channel.stopped_at + rules.chan_time1_s)
        elif not urgent and not channel.waits_more_than(len(mine)):
            earliest = max(earliest, channel.started_at + rules.chan_time3_s)
        if now < earliest:
            self._wake_at(earliest)
            return
        self._numbers += 1
        channel.started_at = now
        process = Process(self._numbers, channel.name, now)
        self.processes[process.number] = process
        yield Start(process)
        yield from self._assign(channel, now)
        if channel.first() is not None and len(self.processes) < rules.maxchans:
            self._wake_at(now + rules.chan_time2_s)

    def _make_room(self, channel: Channel, mine: int, now: float) -> Iterator[Stop]:
        if any(each.given_up for each in self.processes.values()):
            return  # one is on its way out already
        counts = Counter(each.channel for each in self.processes.values())
        others = [each for each in self.processes.values() if each.channel != channel.name]
        idle = [each for each in others if not each.busy]
        rich = [each for each in others if not mine or counts[each.channel] > mine + 1]
        if idle:
            self._wake_at(now)  # its place is free at once
        if idle or rich:
            yield self._stop(idle[0] if idle else max(
                rich, key=lambda each: (counts[each.channel], -each.since)))

    def _stop_those(self, which: Callable[[Process], bool]) -> Iterator[Stop]:
        """The idle ones of which this is true."""
        for process in list(self.processes.values()):
            if not process.busy and which(process):
                yield self._stop(process)

    def _stop(self, process: Process) -> Stop:
        process.given_up = True
        return Stop(process)

    # helpers

    def _go_on(self, now: float) -> None:
        """Peers whose limit left them alone until now may be served."""
        while self._paced and self._paced[0][0] <= now:
            _, _, channel, peer = heapq.heappop(self._paced)
            peer.paced = False
            self._rank(channel, peer)
        if self._paced:
            self._wake_at(self._paced[0][0])

    def give_up_all(self) -> None:
        """Every process ends after its message: a reload, the end of the service."""
        for process in self.processes.values():
            process.given_up = True

    def _channel(self, name: str) -> Channel:
        found = self.channels.get(name)
        if found is None:
            found = self.channels[name] = Channel(name)
        return found

    def _busy(self) -> int:
        return sum(each.busy for each in self.processes.values())

    def _busy_of(self, channel: Channel) -> tuple[int, float]:
        return sum(each.busy for each in self.processes.values() if each.channel == channel.name
                   ), channel.started_at

    def _rests(self, process: Process, peer: Peer, now: float) -> None:
        peer.active -= 1
        process.since = now
        self._rank(process.channel, peer)

    def _rank(self, channel: str, peer: Peer, *, served: bool = False) -> None:
        if served:
            peer.entry = 0  # its next turn comes after the others'
        limit = 0
        if peer.count and not peer.paced:
            limit = 1 if peer.probing else self.rules.at_peer(
                peer.priority, self._limit_of(peer.name))
        self.channels[channel].rank(peer, may=peer.active < limit)

    def _wake_at(self, when: float) -> None:
        self.wake = min(self.wake, when)
