"""What names mean to clients of AMQP 0-9-1: temporary queues by the names that their clients have
given them, exchanges, bindings. One for all connections of amqp.server.

A durable queue of a client is that of omq whose name it has, or is given (omq.tasks.names), so that
Celery finds by this way what it put by the other. A temporary one goes with the connection that
declared it; its bindings are in memory alone and go with it.

Invariant: one change at a time (`_changing`); exchanges are read before they are used.

Errors: OmqError; Refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from omq.base.errors import BadName, OmqError
from omq.base.names import check_queue_name
from omq.format.index import EntryState
from omq.ipc.client.connection import Client
from omq.services.amqp.untranslatable import Untranslatable
from omq.services.amqp091 import exchanges
from omq.services.amqp091.exchange_changes import Change, carry_out, removed
from omq.services.amqp091.exchanges import Exchanges
from omq.services.amqp091.refusals import LOCKED, PRECONDITION_FAILED, Refused
from omq.tasks.names import queue_name

if TYPE_CHECKING:
    from omq.services.amqp.host import Host
    from omq.services.amqp091.consuming import Takes
    from omq.services.amqp091.session import Session

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Temporary:
    """A queue that goes with its connection. `ttl_s` of its messages; None: for ever."""

    name: str  # its client's
    queue: str  # of omq
    owner: Session
    exclusive: bool
    auto_delete: bool
    ttl_s: float | None


def directory_of(host: Host) -> Directory:
    """The one of this server."""
    if host.older is None:
        host.older = Directory(host)
    found: Directory = host.older
    return found


class Directory:
    """See the module. For the event loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._temporaries: dict[str, Temporary] = {}
        self._queues: dict[str, Temporary] = {}  # the same by the queue of omq
        self._consumers: Counter[str] = Counter()  # of clients of AMQP 0-9-1, by queue of omq
        self._takes: dict[str, set[Takes]] = {}  # the same, and those who get
        self._changing = asyncio.Lock()
        self.exchanges = Exchanges()

    # names

    def name(self, text: str) -> str:
        """The queue of omq that a client means, unless it is a temporary one."""
        try:
            return check_queue_name(text)
        except BadName:
            return queue_name(text)

    def temporary(self, text: str) -> Temporary | None:
        return self._temporaries.get(text)

    def by_queue(self, queue: str) -> Temporary | None:
        return self._queues.get(queue)

    def shown(self, queue: str) -> str:
        """What its client calls it."""
        found = self._queues.get(queue)
        return found.name if found else queue

    # temporary queues

    async def made(self, session: Session, name: str, *, exclusive: bool, auto_delete: bool,
                   ttl_s: float | None) -> Temporary:
        """It is there then; "": the server chooses its name. OmqError, Refused."""
        async with self._changing:
            if (found := self._temporaries.get(name)) is not None:
                self.locked(session, found)
                if (found.exclusive, found.auto_delete, found.ttl_s) != (
                        exclusive, auto_delete, ttl_s):
                    raise Refused(PRECONDITION_FAILED, f"{name} is there, and another than this")
                return found
            queue = await self._host.temporary_queue(session)
            if session.gone:
                raise Refused(LOCKED, "its connection has ended")
            made = Temporary(name or queue, queue, session, exclusive, auto_delete, ttl_s)
            self._temporaries[made.name] = self._queues[queue] = made
        return made

    def locked(self, session: Session, found: Temporary) -> None:
        """Refused: it is another connection's own."""
        if found.exclusive and found.owner is not session:
            raise Refused(LOCKED, f"{found.name} is another connection's own")

    def consumers(self, queue: str) -> int:
        return self._consumers[queue]

    def joined(self, queue: str) -> None:
        """It has a consumer more."""
        self._consumers[queue] += 1

    def left(self, queue: str) -> Temporary | None:
        """One less; the queue, if that was its last one and it is to go with that."""
        self._consumers[queue] -= 1
        if self._consumers[queue]:
            return None
        del self._consumers[queue]
        found = self._queues.get(queue)
        return found if found is not None and found.auto_delete else None

    def takes(self, who: Takes) -> None:
        """One more has a queue open."""
        self._takes.setdefault(who.address.queues[0], set()).add(who)

    def took(self, who: Takes) -> None:
        """Its taker is through."""
        queue = who.address.queues[0]
        self._takes[queue].discard(who)
        if not self._takes[queue]:
            del self._takes[queue]

    async def others_hold(self, session: Session, queue: str) -> bool:
        """Whether who is not a client of AMQP 0-9-1 has some of it in hand. It is looked at twice:
        what clients of this protocol have settled between both looks was theirs, and is gone."""
        theirs: set[int] = await self._host.ask(session, lambda native: _in_hand(native, queue))
        for each in tuple(self._takes.get(queue, ())):
            theirs -= await each.in_hand()
        if theirs:
            theirs &= await self._host.ask(session, lambda native: _in_hand(native, queue))
        return bool(theirs)

    async def let_go(self, queue: str) -> None:
        """It is to be deleted: clients of AMQP 0-9-1 lose what they hold of it."""
        await asyncio.gather(*(each.give_up() for each in tuple(self._takes.get(queue, ()))))

    async def ended(self, found: Temporary) -> None:
        """It is deleted before its connection ends. OmqError."""
        if self._queues.get(found.queue) is not found:
            return
        self._lost([found])
        self._host.temporary_gone(found.owner, found.queue)
        await self.let_go(found.queue)

        def delete(native: Client) -> None:
            native.queues.clear(found.queue, reason="deleted by its client")
            native.queues.delete(found.queue, force=True, reason="deleted by its client")

        await self._host.ask(found.owner, delete)

    def leave(self, found: Temporary) -> None:
        """`ended`, by itself: its last consumer has gone."""
        found.owner.run(self._leave(found))

    async def _leave(self, found: Temporary) -> None:
        try:
            await self.ended(found)
        except OmqError as error:  # it goes with its connection, at the latest
            self._host.odd(f"{found.queue} was not deleted: {error}")

    def forget(self, session: Session) -> None:
        """A connection has ended, and its queues with it."""
        self._lost([each for each in self._queues.values() if each.owner is session])

    def _lost(self, some: Iterable[Temporary]) -> None:
        """Together: the table is gone through once, and all connections wait meanwhile."""
        queues = {each.queue for each in some}
        if not queues:
            return
        for each in queues:
            del self._temporaries[self._queues.pop(each).name]
        table = self.exchanges
        # What is durable and auto_delete stays: its end is a question to the manager.
        for change in removed(table, table.of_queues(queues), durable_too=False):
            change.apply()
        table.changed()

    # exchanges

    async def routed(self, exchange: str, key: str) -> tuple[str, ...]:
        """Queues of omq. Untranslatable: there is no such exchange, or nobody may publish to it;
        OmqError."""
        await self.read()
        found = self.exchanges.routed(exchange, key)
        if found is None:
            raise Untranslatable("amqp:not-found", f"the exchange {exchange[:64]} is not there")
        if self.exchanges.known[exchange].internal:
            raise Untranslatable("amqp:unauthorized-access", f"the exchange {exchange[:64]} is "
                                 "internal")
        return found

    async def read(self) -> None:
        """Exchanges are there, if any."""
        if not self.exchanges.loaded:
            async with self._changing:
                await self._load()

    def read_again(self) -> None:
        """Somebody else may have changed them (omq definitions): before they are used next."""
        self.exchanges.loaded = False

    async def _load(self) -> None:
        table = self.exchanges
        if table.loaded:
            return
        found = await self._ask(exchanges.load)
        orphans = table.take(found)
        if None in found:
            self._host.odd(f"{found.count(None)} messages on {exchanges.QUEUE} make no sense")
        if orphans:
            await self._ask(lambda native: exchanges.drop(native, orphans))

    async def change(self, what: Callable[[Exchanges], list[Change]]) -> None:
        """`what` says what is to change, or refuses it (Refused); then it is so. OmqError."""
        async with self._changing:
            await self._load()
            changes = what(self.exchanges)
            kept = [each for each in changes if each.record is not None]
            try:
                if kept:
                    await self._ask(lambda native: carry_out(native, kept))
            except OmqError:
                self.exchanges.loaded = False  # some of it may be on the disk
                raise
            for each in changes:
                each.apply()
            self.exchanges.changed()

    async def gone(self, queue: str) -> None:
        """A durable queue was deleted, and is bound still."""
        await self.change(lambda table: removed(table, table.of_queues({queue})))

    async def _ask(self, work: Callable[[Client], T]) -> T:
        return await self._host.asked(work)


def _in_hand(native: Client, queue: str) -> set[int]:
    """QPoolIds of what readers have of it."""
    return {row.qpool_id for row in native.browse(queue) if row.state is EntryState.ACTIVE}
