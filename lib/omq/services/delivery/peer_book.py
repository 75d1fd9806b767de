"""What is known of peers beyond the scheduler's tree: which are down (shared, outlives restarts),
and which has more in hand than its share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omq.base import clock, events
from omq.base.event_log import WARNING
from omq.base.limits import PRIORITY_URGENT
from omq.services.delivery.mlist import Cause, Mlist, Wait
from omq.services.delivery.peer_states import Down, PeerStates

if TYPE_CHECKING:
    from omq.services.delivery.deferred import Aside
    from omq.services.delivery.scheduler import Scheduler
    from omq.services.readers.service import ServiceContext

_SHARE: Final = 4  # a peer may hold this part of what is free of the window


class PeerBook:
    """Of one dispatcher."""

    def __init__(self, context: ServiceContext, scheduler: Scheduler, aside: Aside) -> None:
        self._scheduler, self._aside = scheduler, aside
        self._configure(context)

    def _configure(self, context: ServiceContext) -> None:
        settings = context.settings
        self._log = context.log
        self._put_off_s_max = float(settings.qmgr_put_off_s_max)
        self._probe_s = float(settings.unix_connect_timeout_s + settings.unix_reply_timeout_s)
        self.states = PeerStates(
            context.paths.run / f"{context.conf.name}.peers.json", settings.unix_retry_step_s,
            settings.unix_retry_max_s, self._probe_s)

    def forget(self, context: ServiceContext) -> None:
        """A reload: every peer is tried now."""
        self._configure(context)
        self.states.forget()
        self.refresh()

    def refresh(self) -> None:
        """What others have changed: a peer that is down no more for them is none for us."""
        down = self.states.down
        for name in [each for each in self._scheduler.down if each not in down]:
            self._scheduler.is_up(name)

    def wait(self, mlist: Mlist, free: int, now: float, *, called: bool) -> Wait | None:
        """Why a new Mlist is not to be taken in now; None: it is. `called`: it was called back, or
        is one of several of its message: there is room for it."""
        state = self.states.down.get(mlist.peer)
        if state is not None:
            left_s = self._left_s(state)
            if left_s > 0.0 and not self._probed(mlist):
                return Wait(left_s, f"{mlist.peer} was not reached lately: {state.reason}",
                            Cause.DOWN)
            self._scheduler.down[mlist.peer] = min(now, self._scheduler.down.get(mlist.peer, now))
        if called or mlist.priority >= PRIORITY_URGENT:
            return None
        return self._too_many(mlist, free, now)

    def _left_s(self, state: Down) -> float:
        """How long the peer is left alone. A time that is farther off than any pause is over."""
        left_s = (state.retry_ns - clock.wall_ns()) / clock.NS_PER_S
        return left_s if 0.0 < left_s <= self.states.longest_s else 0.0

    def left_alone(self) -> frozenset[str]:
        """The peers that are down, and are not to be tried yet."""
        return frozenset(name for name, state in self.states.down.items()
                         if self._left_s(state) > 0.0)

    def share(self, free: int) -> int:
        """How many Mlists of a peer may wait here, with so many free places in the window."""
        return max(2 * self._scheduler.rules.peer_concurrency, free // _SHARE)

    def waits_here(self, where: tuple[str, str]) -> int:
        """How many of this channel and peer do."""
        channel = self._scheduler.channels.get(where[0])
        peer = channel.peers.get(where[1]) if channel else None
        return peer.count if peer else 0

    def _probed(self, mlist: Mlist) -> bool:
        """Whether one of ours tries it just now: the others wait here for what comes of it."""
        channel = self._scheduler.channels.get(mlist.channel)
        peer = channel.peers.get(mlist.peer) if channel else None
        return peer is not None and peer.probing and peer.active > 0

    def _too_many(self, mlist: Mlist, free: int, now: float) -> Wait | None:
        where = mlist.channel, mlist.peer
        count = self.waits_here(where)
        if count < self.share(free) and not self._aside.has_share(where, now):
            return None
        return Wait(self._put_off_s_max, f"{mlist.peer} has {count} messages to take first",
                    Cause.SHARE)

    def begins(self, mlist: Mlist) -> None:
        """An Mlist is about to be sent: where its peer was down, this is the one that tries."""
        if mlist.peer in self._scheduler.down:
            self.states.waits(mlist.peer, clock.wall_ns())

    def reached(self, mlist: Mlist) -> None:
        """Its peer works."""
        if mlist.peer in self._scheduler.down:
            self._scheduler.is_up(mlist.peer)
        self.states.reached(mlist.peer)

    def failed(self, mlist: Mlist, reason: str, now: float) -> tuple[Wait, list[Mlist]]:
        """Its peer could not be reached: how long it is left alone; what waited for it. Processes
        that tried it side by side have failed once, together."""
        if self._scheduler.down.get(mlist.peer, now) > now:
            return self.wait_of(mlist, now), self._scheduler.take_back(mlist.channel, mlist.peer)
        pause_s = self.states.failed(mlist.peer, clock.wall_ns(), reason)
        self._log.event(events.GATEWAY_NO_PEER, WARNING, peer=mlist.peer, reason=reason,
                        pause_s=pause_s)
        rest = self._scheduler.leave_alone(mlist.channel, mlist.peer, now + pause_s)
        return Wait(pause_s, reason, Cause.DOWN), rest

    def wait_of(self, mlist: Mlist, now: float) -> Wait:
        """How long an Mlist of a peer that is down waits."""
        until = self._scheduler.down.get(mlist.peer, now)
        state = self.states.down.get(mlist.peer)
        reason = state.reason if state else "it was not reached"
        return Wait(max(0.0, until - now), f"{mlist.peer} was not reached lately: {reason}",
                    Cause.DOWN)
