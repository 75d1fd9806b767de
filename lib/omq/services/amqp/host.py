"""What all connections of amqp.server share: policy, counts, memory, threads, native connections.

Invariants: 1. everything here but `connect` is for the event loop; 2. each count is given back by
who took it, however its connection ends; 3. what strangers can cause is logged at a bounded rate.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import omq
from omq.aio.jobs import Call
from omq.aio.lines import Lines
from omq.aio.waiter import Waiter
from omq.base import events
from omq.base.errors import NoAuthority, OmqError, TooManyQueues
from omq.base.event_log import ERROR, REPORT, WARNING
from omq.base.rated_log import RatedLog
from omq.ipc.client.connection import Client
from omq.services.amqp import two_phases
from omq.services.amqp.browser import Browser
from omq.services.amqp.connection_states import LinkState
from omq.services.amqp.joined_puts import JoinedPuts
from omq.services.amqp.link_memory import LinkMemory
from omq.services.amqp.memory import Memory
from omq.services.amqp.policy import Policy
from omq.services.amqp.putter import Fate, PutResult
from omq.services.amqp.quick_puts import QuickPuts
from omq.services.amqp.taker import Taker
from omq.services.channel.receiver import ChannelLink
from omq.services.daemon.thread_pool import ThreadPool
from omq.services.network.accounts import Account

if TYPE_CHECKING:
    from omq.services.amqp.addresses import Address
    from omq.services.daemon.daemon import DaemonContext

T = TypeVar("T")
TEMPORARY: Final = "TEMPORARY"
TURN_S: Final = 0.005
"""So long one connection is looked at, then the others have their turns; a group of puts takes
less."""
PEERS_MAX: Final = 20_000
"""Addresses whose wrong passwords are remembered."""


@dataclass(slots=True)
class _Guesses:
    began: float
    count: int = 0


class Guest(Protocol):
    """A connection, whichever AMQP it speaks. `links`: of AMQP 1.0; `busy`: something was received
    and is not on the disk."""

    host: Host
    peer: str
    user: Account | None
    gone: bool
    temporary: set[str]
    asks: asyncio.Lock
    number: int
    since_ns: int
    mechanism: str

    @property
    def container(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def told(self) -> list[LinkState]: ...
    @property
    def links(self) -> Mapping[Any, Any]: ...
    @property
    def busy(self) -> bool: ...
    def kick(self) -> None: ...
    def recheck(self) -> None: ...
    def goodbye(self) -> None: ...
    def dismiss(self, reason: str) -> None: ...
    def dismiss_link(self, name: str, reason: str) -> bool: ...
    def abort(self) -> None: ...
    def unauthorized(self, reason: str) -> None: ...


TakeOver = Callable[["Host", Guest, asyncio.Transport, bytes], None]
"""Serves a connection whose header names another version: services.amqp091.protocol_switch."""


class Host:
    """See the module."""

    def __init__(self, context: DaemonContext, policy: Policy, take_over: TakeOver,
                 connect: Callable[[], Client] | None = None) -> None:
        self.context, self.policy, self._take_over = context, policy, take_over
        settings = policy.settings
        self.rated = RatedLog(context.log, settings.event_burst, settings.event_period_s)
        self.memory = Memory(settings.amqp_memory_bytes_max, settings.amqp_user_memory_bytes_max)
        self._files = Memory(settings.amqp_files_bytes_max, settings.amqp_user_files_bytes_max)
        self.threshold = settings.container_threshold_bytes
        self.draining = False
        self.sessions: set[Guest] = set()
        self._numbers = 0  # of connections, since the start
        self.takers: set[Taker | Browser] = set()
        self.changed = asyncio.Event()
        self.older: Any = None  # the directory of AMQP 0-9-1, when there was a client of it
        self.connect = connect or self._connected
        self._users: Counter[str] = Counter()
        self._receivers: Counter[str] = Counter()
        self._temporaries: Counter[str] = Counter()
        self._strangers: Counter[str] = Counter()  # connections of an address, no user known yet
        self._puts = Lines(self.connect, settings.amqp_workers, "amqp puts")
        self._asks = Lines(self.connect, 1, "amqp questions")
        self.company = JoinedPuts(self.put, settings.amqp_batch_messages_max)
        self.quick = QuickPuts(self.connect, settings.amqp_workers,
                               settings.amqp_batch_messages_max, self._mistake)
        self.hands = ThreadPool(settings.amqp_workers, "amqp turns")
        self.channels: dict[bytes, ChannelLink] = {}  # links of channels, by their records
        self._own: dict[Guest, Lines] = {}  # temporary queues live as long as these
        self._checking = ThreadPoolExecutor(settings.submission_workers,
                                            thread_name_prefix="password")
        self._guesses: dict[str, _Guesses] = {}

    def _connected(self) -> Client:
        return omq.connect(spool=self.context.paths.root, name=self.context.program)

    # who may come in

    def admit(self, session: Guest) -> bool:
        """A connection, before a byte was read."""
        if self.draining or len(self.sessions) >= self.policy.settings.amqp_connections_max:
            self.rated.event(events.AMQP_REFUSED, WARNING, "connections", peer=session.peer,
                             user="?", reason="amqp_connections_max, or the server stops")
            session.gone = True
            return False
        if self._strangers[session.peer] >= self.policy.settings.amqp_client_waiting_max:
            self.rated.event(events.AMQP_REFUSED, WARNING, session.peer, peer=session.peer,
                             user="?", reason="amqp_client_waiting_max")
            session.gone = True
            return False
        self._strangers[session.peer] += 1
        self._numbers += 1
        session.number = self._numbers
        self.sessions.add(session)
        return True

    def joined(self, session: Guest, user: Account) -> bool:
        """Its user is known."""
        if self._users[user.name] >= self.policy.settings.amqp_user_connections_max:
            self.rated.event(events.AMQP_REFUSED, WARNING, user.name, peer=session.peer,
                             user=user.name, reason="amqp_user_connections_max")
            return False
        self._users[user.name] += 1
        self._forget_stranger(session.peer)
        return True

    def take_over(self, session: Guest, line: asyncio.Transport, rest: bytes) -> None:
        """It says by its header that it speaks AMQP 0-9-1. NotAmqp."""
        self._take_over(self, session, line, rest)

    def replaced(self, session: Guest, by: Guest) -> None:
        """It speaks AMQP 0-9-1: the same connection, looked after by another."""
        self.sessions.discard(session)
        self.sessions.add(by)
        by.number, by.since_ns = session.number, session.since_ns

    def _forget_stranger(self, peer: str) -> None:
        self._strangers[peer] -= 1
        self._strangers += Counter()  # drops the zeros

    def left(self, session: Guest) -> None:
        self.sessions.discard(session)
        if session.user is not None:
            self._users[session.user.name] -= 1
            self._users += Counter()
            self._temporaries[session.user.name] -= len(session.temporary)
            self._temporaries += Counter()
        else:
            self._forget_stranger(session.peer)
        if (own := self._own.pop(session, None)) is not None:
            asyncio.get_running_loop().run_in_executor(None, own.close)
        self.changed.set()

    async def account(self, name: str) -> Account | None:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._checking, self.policy.account, name)

    async def password_right(self, name: str, password: str) -> bool:
        users = self.policy.users
        if users is None:
            return False
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._checking, users.check, name, password)

    def may_log_in(self, peer: str) -> bool:
        """Whether a password from there is checked at all."""
        guesses, settings = self._guesses.get(peer), self.policy.settings
        if guesses is None or time.monotonic() - guesses.began > settings.smtp_client_period_s:
            return True
        return guesses.count < settings.amqp_client_logins_max

    def login_failed(self, peer: str) -> None:
        if self.may_log_in(peer) or peer not in self._guesses:
            guesses = self._guesses.get(peer)
            period_s = self.policy.settings.smtp_client_period_s
            if guesses is None or time.monotonic() - guesses.began > period_s:
                while len(self._guesses) >= PEERS_MAX:
                    self._guesses.pop(next(iter(self._guesses)))
                guesses = self._guesses[peer] = _Guesses(time.monotonic())
            guesses.count += 1

    # rights

    def allows(self, session: Guest, action: str, address: Address) -> bool:
        if session.user is None:
            return False
        if address.name in session.temporary:
            return True
        return self.policy.allows(session.user, action, address.rights)

    async def temporary_queue(self, session: Guest) -> str:
        """A queue of this connection; it goes with it. NoAuthority, TooManyQueues."""
        user = session.user
        assert user is not None
        if not self.policy.allows(user, "get", (TEMPORARY,)):
            raise NoAuthority(uid=user.uid, action="get", queue=TEMPORARY)
        async with session.asks:
            most = self.policy.settings.amqp_user_temporaries_max
            if self._temporaries[user.name] >= most:
                raise TooManyQueues(limit=most, what="temporary queues of a user")
            own = self._own.get(session)
            if own is None:
                own = self._own[session] = Lines(self.connect, 1, "amqp temporary")
            name: str = await _called(own, lambda native: native.queues.temporary())
            session.temporary.add(name)
            self._temporaries[user.name] += 1
        return name

    def temporary_gone(self, session: Guest, name: str) -> None:
        """One of its queues is deleted before it ends."""
        if name in session.temporary and session.user is not None:
            session.temporary.discard(name)
            self._temporaries[session.user.name] -= 1

    def count_receiver(self, user: str) -> bool:
        settings = self.policy.settings
        if (self._receivers.total() >= settings.amqp_receivers_max
                or self._receivers[user] >= settings.amqp_user_receivers_max):
            return False
        self._receivers[user] += 1
        return True

    def uncount_receiver(self, user: str) -> None:
        self._receivers[user] -= 1
        self._receivers += Counter()  # drops the zeros

    # work

    async def put(self, work: Callable[[Client], list[PutResult]]) -> list[PutResult]:
        try:
            told: list[PutResult] = await _called(self._puts, work)
        except OmqError as error:  # no connection to the manager: nothing was sent
            return [PutResult(Fate.LATER, error)]
        return told

    async def run(self, work: Callable[[Client], T]) -> T:
        """By one of the connections that put. OmqError."""
        found: T = await _called(self._puts, work)
        return found

    def room(self, user: str) -> LinkMemory:
        """For a link that puts, or a transaction."""
        return LinkMemory(self.memory, self._files, user)

    async def ask(self, session: Guest, work: Callable[[Client], T]) -> T:
        """One of a connection at a time: others come in between, however much it asks."""
        async with session.asks:
            found: T = await _called(self._asks, lambda native: _fresh(native, work))
        return found

    async def asked(self, work: Callable[[Client], T]) -> T:
        """The same for the server itself."""
        found: T = await _called(self._asks, lambda native: _fresh(native, work))
        return found

    def odd(self, reason: str) -> None:
        """Something that the server keeps makes no sense; it is left where it is."""
        self.rated.event(events.AMQP_REJECTED, WARNING, "odd", peer="?", user="?", reason=reason)

    def check(self) -> None:
        """Open the first connection: that nothing serves shows at the start; and end what a server
        that died has left in doubt. OmqError."""
        with self.connect() as native:
            if ended := two_phases.resolve(native):
                self.context.log.event(events.AMQP_RESOLVED, REPORT, units=ended)

    def full(self, session: Guest, queue: str, error: Exception | None) -> None:
        """A queue takes nothing now; a sender waits."""
        self.rated.event(events.AMQP_WAITS, REPORT, queue, peer=session.peer, queue=queue,
                         reason=str(error)[:200])

    def failed(self, session: Guest, error: Exception) -> None:
        """A mistake of ours in one connection."""
        self._mistake(error)
        session.abort()

    def _mistake(self, error: BaseException) -> None:
        self.rated.event(events.BUG, ERROR, "amqp",
                         traceback="".join(traceback.format_exception(error))[-1000:])

    def stir(self) -> None:
        """Memory may be free again, or a period over."""
        self.quick.stir()
        for session in tuple(self.sessions):
            for link in tuple(session.links.values()):
                link.flowed()
            session.kick()
        self.rated.flush(time.monotonic_ns())

    def close(self, wait_s: float) -> None:
        """In another thread, at the end: what was said is carried out."""
        self._checking.shutdown(wait=False, cancel_futures=True)
        ends = time.monotonic() + wait_s
        for taker in tuple(self.takers):
            taker.join(max(0.0, ends - time.monotonic()))
        self.hands.close(max(0.0, ends - time.monotonic()))
        self.quick.close(max(0.0, ends - time.monotonic()))
        for lines in (self._puts, self._asks, *self._own.values()):
            lines.close()  # their errors were told to who gave the work


def _fresh(native: Client, work: Callable[[Client], T]) -> T:
    """A name may stand for another queue since it was asked for."""
    native.forget()
    return work(native)


async def _called(lines: Lines, work: Callable[[Client], Any]) -> Any:
    waiter = Waiter()
    lines.give(Call(work, waiter))
    return await waiter.result()
