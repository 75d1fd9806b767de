"""What happened on a connection, as omq.amqp tells it: links and sessions come and go.

Invariants: 1. what is attached is in `links` until either side ends it; 2. an attach that cannot be
served is answered and ended, as the standard wants it (2.6.3); 3. links that we have ended and the
client has not are counted, and so are bounded: it is for the client to end them, too; 4. what a
client says of its links is kept within the memory of its user, and what it says of itself is not.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from omq.amqp.connection import Connection
from omq.amqp.connection_events import Event, Kind
from omq.amqp.links import Receiver, Sender
from omq.amqp.session import Session as AmqpSession
from omq.amqp.states import Condition
from omq.base import events
from omq.base.clock import wall_ns
from omq.base.event_log import WARNING
from omq.format.amqp_performatives import COORDINATOR
from omq.services.amqp.connection_states import TEXT_MAX, LinkState
from omq.services.amqp.coordinator import Coordinator
from omq.services.amqp.incoming import Incoming
from omq.services.amqp.link_memory import LinkMemory
from omq.services.amqp.memory import OVERHEAD_BYTES
from omq.services.amqp.outgoing import Outgoing
from omq.services.amqp.transactions import Transactions
from omq.services.amqp.untranslatable import UNREADABLE
from omq.services.channel.greeting import asks
from omq.services.channel.receiver import ChannelLink

if TYPE_CHECKING:
    from omq.services.amqp.host import Host
    from omq.services.amqp.session import Session
    from omq.services.network.accounts import Account

TICK_S: Final = 1.0
_TICK_MIN_S: Final = 0.1
"""Whatever a client wants."""
UNAUTHORIZED: Final = "amqp:unauthorized-access"
LIMIT: Final = "amqp:resource-limit-exceeded"
DETACHED: Final = "amqp:link:detach-forced"
SAID_COST: Final = 64
"""Memory of what an attach says, by its bytes: an empty list has one, and is an object."""
_ARRIVED, _CAME, _SAID, _FLOWED = Kind.ARRIVED, Kind.CAME, Kind.SAID, Kind.FLOWED
"""A look at the class costs more."""


def tick_s(remote_idle_s: float) -> float:
    """Pause between two looks at the engine's clock. A client that ends a connection which is
    silent for `remote_idle_s` (0: it does not) must hear of us in time. An empty frame is sent when
    nothing was sent for half of it, and what was sent is taken for sent at the last look:
    with four looks there is one after three quarters at the latest."""
    return min(TICK_S, max(_TICK_MIN_S, remote_idle_s / 4)) if remote_idle_s else TICK_S


def _cost(link: Receiver | Sender) -> int:
    """Bytes that a link is reckoned at, as long as it is there."""
    return OVERHEAD_BYTES + SAID_COST * link.said_bytes


class Endpoints:
    """Of one connection; Session is the other half."""

    protocol: Final = "AMQP 1.0"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.user: Account | None = None
        self.mechanism = ""
        self.gone = False
        self.peer = ""
        self.links: dict[Receiver | Sender, Incoming | Outgoing | Coordinator | ChannelLink] = {}
        self.transactions = Transactions(self._whole)
        self.temporary: set[str] = set()  # queues of this connection
        self._engine: Connection | None = None
        self._line: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._opened = False
        self._ended: set[Receiver | Sender] = set()  # that we ended, and the client has not
        self._room: LinkMemory | None = None  # of what its links say of themselves
        self.asks = asyncio.Lock()
        self.number, self.since_ns = 0, wall_ns()

    @abstractmethod
    def kick(self) -> None: ...
    @abstractmethod
    def abort(self) -> None: ...
    @abstractmethod
    def _tick(self) -> None: ...
    @abstractmethod
    def _end_of_output(self) -> None: ...
    @abstractmethod
    def _told_failed(self, reason: str) -> None: ...
    @property
    @abstractmethod
    def _whole(self) -> Session: ...

    def _happened(self, event: Event) -> None:
        kind, link = event.kind, event.link
        if kind is _CAME:
            served = None if link is None else self.links.get(link)
            if isinstance(served, Incoming) and event.run is not None:
                served.came(event.run)
        elif kind is _SAID:
            served = None if link is None else self.links.get(link)
            if isinstance(served, Outgoing):
                served.said(event.said)
        elif kind is _ARRIVED:
            served = None if link is None else self.links.get(link)
            if not isinstance(served, Outgoing | None) and event.delivery is not None:
                served.delivered(event.delivery)
        elif kind is _FLOWED:
            if link in self.links:
                self.links[link].flowed()
        elif kind is Kind.ATTACHED and link is not None:
            self._attached(link)
        elif kind is Kind.DETACHED and link is not None:
            self._detached(link, closed=event.closed)
        elif kind is Kind.BEGUN and event.session is not None:
            settings = self.host.policy.settings
            event.session.open(settings.amqp_outgoing_bytes_max, settings.amqp_links_max - 1)
        elif kind is Kind.ENDED and event.session is not None:
            self._session_over(event.session)
        elif kind is Kind.OPENED:
            self._open()
        elif kind is Kind.CLOSED:
            self._leave()
        elif kind is Kind.FAILED and event.condition is not None:
            self._told_failed(": ".join(event.condition))
            self._hang_up_later()

    def _session_over(self, session: AmqpSession) -> None:
        session.close()
        for link in [each for each in (*self.links, *self._ended) if each.session is session]:
            self._detached(link, closed=True)

    def _open(self) -> None:
        engine = self._engine
        assert engine is not None
        if self._timer is not None:
            self._timer.cancel()
        self._opened = True
        engine.remote_properties = {}
        engine.remote_container = engine.remote_container[:TEXT_MAX]
        self._timer = asyncio.get_running_loop().call_later(
            tick_s(engine.remote_idle_s), self._tick)
        engine.open()
        if self.host.draining:
            self.goodbye()

    def _leave(self) -> None:
        engine = self._engine
        assert engine is not None
        for served in list(self.links.values()):
            served.ended()
        self._clear()
        engine.close()
        self._hang_up_later()

    def _hang_up_later(self) -> None:
        """Who does not read the last words it is sent holds what it has no longer than this."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(
                self.host.policy.settings.amqp_close_timeout_s, self.abort)

    def _attached(self, link: Receiver | Sender) -> None:
        settings = self.host.policy.settings
        if len(self.links) >= settings.amqp_links_max:
            self._refuse(link, LIMIT, "amqp_links_max links are open")
            return
        if not self._holds(link):
            self._refuse(link, LIMIT, "no room for what it says of itself: "
                         "amqp_user_memory_bytes_max, or amqp_memory_bytes_max")
            return
        try:
            link.read()
            if isinstance(link, Sender):
                self.links[link] = Outgoing(self._whole, link)
            elif link.remote_target.kind == COORDINATOR:
                self.links[link] = Coordinator(self._whole, link)
            else:
                self.links[link] = (ChannelLink if asks(link) else Incoming)(self._whole, link)
        except UNREADABLE as error:
            self._lets_go(link)
            self._refuse(link, "amqp:invalid-field", f"what it says makes no sense: {error}")

    def _holds(self, link: Receiver | Sender) -> bool:
        """Whether there is room for what it says; it is taken then."""
        if self._room is None:
            assert self.user is not None
            self._room = self.host.room(self.user.name)
        cost = _cost(link)
        if cost > self._room.left:
            return False
        self._room.hold(cost)
        return True

    def _lets_go(self, link: Receiver | Sender) -> None:
        if self._room is not None:
            self._room.release(_cost(link))

    def _clear(self) -> None:
        """No link is there any more."""
        self.links.clear()
        if self._room is not None:
            self._room.keep(0, 0)

    def _detached(self, link: Receiver | Sender, *, closed: bool) -> None:
        served = self.links.pop(link, None)
        if served is not None:
            self._lets_go(link)
            served.ended()
        else:
            self._ended.discard(link)
        if closed:
            link.close()
        else:
            link.detach()

    def drop(self, link: Receiver | Sender, condition: str, reason: str) -> None:
        """Our side ends a link."""
        served = self.links.pop(link, None)
        if served is None or self.gone:
            return
        self._lets_go(link)
        served.ended()
        link.close(Condition(condition, reason))
        self._count_ended(link)
        if condition == UNAUTHORIZED:
            self.transactions.spoil(UNAUTHORIZED, reason)
            self.unauthorized(reason)

    def _refuse(self, link: Receiver | Sender, condition: str, reason: str) -> None:
        """An attach is answered, and ended, as the standard wants it (2.6.3)."""
        link.close(Condition(condition, reason))
        self._count_ended(link)

    def _count_ended(self, link: Receiver | Sender) -> None:
        link.forget()
        self._ended.add(link)
        if len(self._ended) > self.host.policy.settings.amqp_links_max:
            self.forced(LIMIT, "amqp_links_max links were ended here, and not by the client")

    def unauthorized(self, reason: str) -> None:
        self.host.rated.event(events.AMQP_REFUSED, WARNING, self.peer, peer=self.peer,
                              user=self.user.name if self.user else "?", reason=reason)

    def recheck(self) -> None:
        """Users and rights have changed."""
        if self.user is not None and not self.host.policy.knows(self.user, self.mechanism):
            self.forced(UNAUTHORIZED, f"{self.user.name} may not come in any more")
            self.unauthorized("its user is none any more")
        for each in tuple(self.links.values()):
            each.recheck()
        self.kick()

    @property
    def told(self) -> list[LinkState]:
        """Its links, for who looks at connections."""
        return [each.told for each in self.links.values()
                if isinstance(each, Incoming | Outgoing)]

    @property
    def container(self) -> str:
        """What its client calls itself."""
        return "" if self._engine is None else self._engine.remote_container

    def goodbye(self) -> None:
        """The daemon stops: clients are asked to reconnect."""
        self.dismiss("the server is stopping: reconnect later")

    def dismiss(self, reason: str) -> None:
        """It is ended from here; its client may connect again."""
        if self._engine is None or self.gone or not self._opened:
            if self._line is not None:
                self._line.close()
            return
        self.forced("amqp:connection:forced", reason)
        self.kick()

    def dismiss_link(self, name: str, reason: str) -> bool:
        """The links that are listed with this name are ended from here, and nothing else; False:
        there is none. Its client may attach anew."""
        ended = [link for link, each in self.links.items()
                 if isinstance(each, Incoming | Outgoing) and each.told.shown_name == name]
        for link in ended:
            self.drop(link, DETACHED, reason)
        self.kick()
        return bool(ended)

    def forced(self, condition: str, reason: str) -> None:
        """Our side ends the connection; the client has a moment to do so, too."""
        engine = self._engine
        if engine is None or self._ending is not None:
            return
        for served in list(self.links.values()):
            served.ended()
        self._clear()
        engine.close(Condition(condition, reason))
        self._hang_up_later()
