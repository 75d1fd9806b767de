"""Where a message of AMQP 0-9-1 goes: by the default exchange to the queue of its routing key, by
another to those that are bound to it.

Durable queues get it by one put, all or none, which waits while one of them is full. Each temporary
queue gets a copy of its own after that, not persistent; one that is full then loses it, with an
event: a subscriber who does not read must not stop who publishes. A queue on which the user has no
right to put is not given what an exchange would take there, with an event, too.

Errors: none; fates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omq.base.errors import OmqError, QueueGone, UnknownQueue
from omq.ipc.client.ending_together import New
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp.addresses import INTERNAL, Address
from omq.services.amqp.putter import Fate, PutResult
from omq.services.amqp.targets import UNAUTHORIZED, target
from omq.services.amqp.untranslatable import Untranslatable

if TYPE_CHECKING:
    from omq.services.amqp091.directory import Temporary
    from omq.services.amqp091.session import Session

NAMES_MAX: Final = 1000
"""Queues whose names are resolved once a channel."""
NOT_FOUND: Final = "amqp:not-found"
UNROUTABLE: Final = PutResult(Fate.REFUSED, Untranslatable(NOT_FOUND, "there is no such queue"))
DROPPED: Final = PutResult(Fate.REFUSED, Untranslatable(NOT_FOUND, "no queue is bound for it"))
NOWHERE: Final = (UNROUTABLE, DROPPED)
"""By the default exchange, and by another: there is no queue for it."""


@dataclass(slots=True)
class Published:
    """One that is whole."""

    tag: int  # of its confirm; 0: nobody wants one
    exchange: str
    key: str
    mandatory: bool
    raw: bytes  # its properties, as they came
    message: Outgoing
    size: int

    @property
    def where(self) -> tuple[str, str]:
        return self.exchange, self.key


class Routing:
    """Of one channel."""

    def __init__(self, session: Session) -> None:
        self._session, self._directory = session, session.directory
        self._names: dict[str, Address] = {}

    def forget(self) -> None:
        """Rights have changed, or a queue has."""
        self._names.clear()

    async def put(self, where: tuple[str, str], batch: list[Outgoing]) -> list[PutResult]:
        """The fates of these; as put_batch tells them."""
        try:
            durable, temporary = await self.queues(where)
        except (OmqError, Untranslatable) as error:
            later = not isinstance(error, Untranslatable) or error.condition == INTERNAL
            if isinstance(error, Untranslatable) and error.condition == NOT_FOUND and not where[0]:
                return [UNROUTABLE] * len(batch)
            return [PutResult(Fate.LATER if later else Fate.REFUSED, error)] * len(batch)
        if not durable and not temporary:
            return [DROPPED] * len(batch)
        company = self._session.host.company
        if not durable and not where[0]:  # a reply, say: it waits as every message does
            return await company.put((temporary[0].queue,), self._copies(batch, temporary[0]))
        told = [PutResult(Fate.PUT)] * len(batch)
        if durable:
            told = self.judged(where, await company.put(
                durable, [(each, None) for each in batch]))
        put = [each for each, fate in zip(batch, told, strict=False) if fate.fate is Fate.PUT]
        if put:
            for each in temporary:
                await self.offer(each, put)
        return told

    def known(self, where: tuple[str, str]) -> tuple[str, ...] | None:
        """The durable queues that it goes to, if there is nobody to be asked; None: `put` knows."""
        exchange, key = where
        if exchange or self._directory.temporary(key) is not None:
            return None
        address = self._names.get(self._directory.name(key))
        return None if address is None else address.queues

    def judged(self, where: tuple[str, str], told: list[PutResult]) -> list[PutResult]:
        """Fates of what was put on durable queues, as `put` tells them."""
        if any(each.fate is Fate.REFUSED for each in told):
            self.forget()  # a queue may have gone
            return [UNROUTABLE if not where[0] and isinstance(
                each.error, UnknownQueue | QueueGone) else each for each in told]
        return told

    async def offer(self, to: Temporary, batch: list[Outgoing]) -> None:
        """Copies for one; what it does not take it has lost."""
        told = await self._session.host.company.put(
            (to.queue,), self._copies(batch, to))
        if not told or told[-1].fate is not Fate.PUT:
            why = told[-1].error if told else None
            self._session.told_refused(f"{to.queue} lost what it did not take: {why}")

    async def queues(self, where: tuple[str, str]) -> tuple[tuple[str, ...], list[Temporary]]:
        """Those that it goes to. OmqError, Untranslatable."""
        exchange, key = where
        directory = self._session.directory
        if not exchange:
            found = directory.temporary(key)
            address = await self._address(found.queue if found else directory.name(key))
            return ((), [found]) if found else (address.queues, [])
        durable: dict[str, None] = {}
        temporary: list[Temporary] = []
        for queue in await directory.routed(exchange, key):
            try:
                address = await self._address(queue)
            except Untranslatable as error:
                if error.condition == UNAUTHORIZED:
                    self._session.unauthorized(error.reason)
                elif error.condition == NOT_FOUND:
                    await directory.gone(queue)
                else:
                    raise
                continue
            if (own := directory.by_queue(queue)) is not None:
                temporary.append(own)
            else:
                durable |= dict.fromkeys(address.queues)
        return tuple(durable), temporary

    async def _address(self, queue: str) -> Address:
        found = self._names.get(queue)
        if found is None:
            found = await target(self._session, queue)
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            self._names[queue] = found
        return found

    def _copies(self, batch: list[Outgoing], to: Temporary) -> list[New]:
        """For a queue that goes with its connection: a sync for these would keep nothing."""
        threshold = self._session.host.threshold
        return [(replace(lasting(each, to), persistent=len(each.body) > threshold), None)
                for each in batch]


def lasting(message: Outgoing, to: Temporary) -> Outgoing:
    """No longer than its queue lets it."""
    return replace(message, expiry_s=sooner(message.expiry_s, to.ttl_s))


def sooner(one: float | None, other: float | None) -> float | None:
    """Of two expiries; None: never."""
    found = [each for each in (one, other) if each is not None]
    return min(found, default=None)
