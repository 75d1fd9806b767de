"""The consumers and gets of one channel: begun, cancelled, bounded.

    basic.qos          global: how many all consumers of the channel may hold; else: how many each
                       one may, those too that are there (the standard's and Celery's view)
    amqp_unsettled_max bounds both, and what a client gets without acknowledging

Errors: Refused, OmqError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pamqp import commands

from omq.base.errors import OmqError
from omq.services.amqp.outcomes import released
from omq.services.amqp091 import declaring
from omq.services.amqp091.consuming import Consumer, Getter, Takes
from omq.services.amqp091.refusals import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    Refused,
    code_of,
)

if TYPE_CHECKING:
    from omq.services.amqp091.channel import Channel


class ChannelConsumers:
    """Of one channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._session = channel, channel.session
        self.prefetch = 0  # of each consumer
        self._all = 0  # of all of them
        self._names = 0
        self._consumers: dict[str, Consumer] = {}
        self._getters: dict[str, Getter] = {}

    @property
    def _most(self) -> int:
        return self._session.host.policy.settings.amqp_unsettled_max

    @property
    def may_hold(self) -> int:
        """Deliveries for consumers, besides those that are held."""
        left = self._most - len(self._channel.unacked)
        if self._all:
            left = min(left, self._all - sum(each.held for each in self._consumers.values()))
        return left

    def told(self) -> Iterator[tuple[str, str, int]]:
        """Tag, queue, messages of each consumer; without a tag: of what is got."""
        shown = self._session.directory.shown
        for tag, each in (*self._consumers.items(), *(("", each) for each in
                                                       self._getters.values())):
            yield tag, shown(each.address.queues[0]), each.taken

    def look(self) -> None:
        """There may be room for more."""
        for each in (*self._consumers.values(), *self._getters.values()):
            each.look()

    def settled(self, touched: Iterable[Takes]) -> None:
        """Of these, something is settled."""
        full = self.may_hold <= len(self._consumers)
        for each in self._consumers.values() if full or self._all else touched:
            each.look()

    def recheck(self) -> None:
        """Rights have changed."""
        host = self._session.host
        for each in (*self._consumers.values(), *self._getters.values()):
            if not host.allows(self._session, "get", each.address):
                self._channel.refuse(
                    Refused(ACCESS_REFUSED, f"no right to get on {each.address.name}"),
                    commands.Basic.Consume)
                return

    def lost(self, takes: Consumer | Getter, error: OmqError | None) -> None:
        """A taker is through by itself."""
        if isinstance(takes, Consumer):
            self._forget(takes)
            if error is None or self._session.hears_cancels:
                self._channel.send(commands.Basic.Cancel(takes.tag, nowait=True))
                return
        else:
            self._getters = {name: each for name, each in self._getters.items()
                             if each is not takes}
            if not takes.waited_for:  # the next basic.get has another
                return
        self._channel.refuse(Refused(code_of(error) if error else INTERNAL_ERROR,
                                     str(error or "read no more")), commands.Basic.Consume)

    def gone(self, consumer: Consumer) -> None:
        """Its queue is being deleted."""
        self._forget(consumer)
        if self._session.hears_cancels:
            self._channel.send(commands.Basic.Cancel(consumer.tag, nowait=True))

    def ended(self) -> None:
        """The channel is over."""
        for consumer in tuple(self._consumers.values()):
            self._forget(consumer)
            consumer.ended()
        for getter in self._getters.values():
            getter.ended()
        self._getters.clear()

    async def carried_out(self) -> None:
        """What was said of messages is on the disk."""
        for each in (*self._consumers.values(), *self._getters.values()):
            if not each.over:
                await each.call(lambda _, reader: reader.flush())

    def _forget(self, consumer: Consumer) -> None:
        session = self._session
        if self._consumers.pop(consumer.tag, None) is not None:
            gone = session.directory.left(consumer.address.name)
            if gone is not None and not (session.gone and gone.owner is session):
                session.directory.leave(gone)

    # methods

    def qos(self, what: Any) -> None:
        """basic.qos."""
        if what.prefetch_size:
            raise Refused(NOT_IMPLEMENTED, "prefetch_size is not there")
        if what.global_:
            self._all = what.prefetch_count
        else:
            self.prefetch = what.prefetch_count
        self._channel.send(commands.Basic.QosOk())
        self.look()

    async def consume(self, what: Any) -> None:
        """basic.consume."""
        session, directory = self._session, self._session.directory
        name = what.queue or self._channel.queue
        for each in what.arguments or {}:
            raise Refused(NOT_IMPLEMENTED, f"the argument {each[:64]} is not there")
        if what.no_local:
            raise Refused(NOT_IMPLEMENTED, "no_local is not there")
        own = directory.temporary(name)
        if what.exclusive and (own is None or not own.exclusive or directory.consumers(own.queue)):
            raise Refused(NOT_IMPLEMENTED, "an exclusive consumer is not there, but on an "
                          "exclusive queue")
        self._names += 1
        tag = what.consumer_tag or f"omq.{self._channel.number}.{self._names}"
        if tag in self._consumers:
            raise Refused(NOT_ALLOWED, f"the consumer tag {tag} is in use")
        address, dead = await declaring.readable(session, name)
        if self._channel.closing or session.gone:
            return
        self._counted()
        if not what.nowait:
            self._channel.send(commands.Basic.ConsumeOk(tag))
        directory.joined(address.name)
        self._consumers[tag] = Consumer(self._channel, address, dead, tag, acks=not what.no_ack)

    async def cancel(self, what: Any) -> None:
        """basic.cancel. What it was given stays its channel's; what was taken for it is back."""
        if (consumer := self._consumers.get(what.consumer_tag)) is not None:
            await consumer.cancelled()
            self._forget(consumer)
        if not what.nowait:
            self._channel.send(commands.Basic.CancelOk(what.consumer_tag))

    async def get(self, what: Any) -> None:
        """basic.get."""
        name = what.queue or self._channel.queue
        if not what.no_ack and len(self._channel.unacked) >= self._most:
            raise Refused(PRECONDITION_FAILED, f"amqp_unsettled_max ({self._most}) messages are "
                          "not acknowledged")
        getter = self._getters.get(name)
        if getter is None or getter.over:
            address, dead = await declaring.readable(self._session, name)
            if self._channel.closing or self._session.gone:
                return
            self._counted()
            getter = self._getters[name] = Getter(self._channel, address, dead)
        await getter.get(acks=not what.no_ack)

    async def recover(self, what: Any) -> None:
        """basic.recover."""
        if not what.requeue:
            raise Refused(NOT_IMPLEMENTED, "recover to the same consumer is not there")
        for takes, given in self._channel.unacked.values():
            takes.say([given], released)
            takes.held -= 1
            takes.settled()
        self._channel.unacked.clear()
        self._channel.send(commands.Basic.RecoverOk())
        self.look()

    def _counted(self) -> None:
        if not self._session.host.count_receiver(self._session.user_name):
            raise Refused(PRECONDITION_FAILED,
                          "amqp_receivers_max or amqp_user_receivers_max links are open")
