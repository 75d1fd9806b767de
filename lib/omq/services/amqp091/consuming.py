"""What a channel takes: one consumer, or the gets of one queue. Each has a taker, as a link of 1.0.

`unacked` of the channel are its deliveries that nobody has settled; a consumer holds at most its
prefetch of them (0: amqp_unsettled_max).
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from pamqp import commands

from omq.base.errors import ConnectionClosed, OmqError
from omq.fast.amqp091_properties import short
from omq.ipc.client.message import Message
from omq.services.amqp.addresses import Address
from omq.services.amqp.outcomes import done, released
from omq.services.amqp.taker import TakenMessage
from omq.services.amqp091.taking import Content, ContentTaker, rejected

if TYPE_CHECKING:
    from omq.ipc.client.connection import Client
    from omq.ipc.client.reader import Reader
    from omq.services.amqp091.channel import Channel

T = TypeVar("T")


class Takes:
    """Of one queue; an Ear of its taker. `dead_letter`: its queue's, "" for none."""

    def __init__(self, channel: Channel, address: Address, dead_letter: str) -> None:
        self._channel, self._session, self.address = channel, channel.session, address
        self._dead_letter = dead_letter
        host = channel.session.host
        self.taken = self._bytes = 0  # since the beginning
        self.held = 0  # not settled
        self.over = self._through = False
        self.taker = ContentTaker(host.connect, address.queues[0], host.policy.settings, self,
                                  host.hands, self._session.frame_max)
        host.takers.add(self.taker)
        self._session.directory.takes(self)

    def say(self, some: list[TakenMessage], say: Callable[[Message], None]) -> None:
        """A settlement; what the manager has taken back meanwhile returns."""
        if not self._through:  # else its queue was deleted with what its client speaks of
            self.taker.settle(some, say)

    def rejected(self, message: Message) -> None:
        """basic.reject without requeue; for a turn."""
        rejected(message, self._dead_letter)

    async def call(self, work: Callable[[Client, Reader], T]) -> T:
        """In the turn that has what was taken; for two_phases."""
        return await self.taker.call(work)

    def began(self) -> None:
        self.look()

    def look(self) -> None:
        """Take as much as is wanted, and as the line carries."""

    def settled(self) -> None:
        """One that it held is not held any more."""

    @abstractmethod
    def took(self, messages: list[TakenMessage], *, drained: bool) -> None: ...
    @abstractmethod
    def lost(self, error: OmqError | None) -> None: ...

    def ended(self) -> None:
        """What the client has said already is carried out; the rest is back."""
        if not self.over:
            self.over = True
            self.taker.close()

    async def in_hand(self) -> set[int]:
        """QPoolIds of what was taken for it and is not settled."""
        with suppress(ConnectionClosed):  # it is through, and all is back
            return await self.taker.call(lambda _, reader: reader.in_hand)
        return set()

    async def give_up(self) -> None:
        """Its queue is to be deleted: nothing more is taken, and what it holds is back, on the
        disk. What its client still says of that is heard, and changes nothing."""
        if not self.over:
            self.over = True
            self._gives_up()
            self.say(self._channel.given_up(self), released)
            self.taker.put_back()
        with suppress(ConnectionClosed):  # it is through
            await self.taker.call(_nothing)  # what was on its way has come by then, and is back
            await self.taker.call(lambda _, reader: reader.flush())
        self.taker.close()

    def _gives_up(self) -> None:
        """Its client hears of it."""

    def _room(self) -> int:
        settings = self._session.host.policy.settings
        return max(0, settings.amqp_outgoing_bytes_max - self._session.waiting_bytes)

    def _sent(self, given: Content, *, acks: bool) -> int:
        """Its delivery tag."""
        if not acks:
            self.say([given], done)
            return self._channel.tag()
        self.held += 1
        return self._channel.hold(self, given)

    def _arrived(self, given: TakenMessage) -> None:
        self.taken += 1
        self._bytes += len(given.data)

    def _where(self, given: Content) -> tuple[str, str]:
        """Exchange and routing key."""
        said = given.said
        key = self._session.directory.shown(self.address.name) if said.key is None else said.key
        return said.exchange, key

    def ended_by(self, error: Exception | None) -> None:
        """The taker is through."""
        host = self._session.host
        self._through = True
        self._session.directory.took(self)
        host.takers.discard(self.taker)
        host.uncount_receiver(self._session.user_name)
        if not self.over and not self._session.gone:
            self.over = True
            self._channel.lost(self)
            self.lost(error if isinstance(error, OmqError) else None)


class Consumer(Takes):
    """Of basic.consume. `late`: what was taken and waits until its channel may hold more."""

    def __init__(self, channel: Channel, address: Address, dead_letter: str, tag: str, *,
                 acks: bool) -> None:
        self.tag, self._acks = tag, acks
        self._said_tag, self._said_where = short(tag), short("") + short("")
        self._exchange = self._key = ""
        self._cancelled = False
        self._late: deque[Content] = deque()
        super().__init__(channel, address, dead_letter)

    def look(self) -> None:
        if self.over or self._cancelled or self._session.gone:
            return
        self._pour()
        most = self._session.host.policy.settings.amqp_unsettled_max
        if self._acks:
            reading = self._channel.reading
            most = min(most, reading.prefetch or most)
            most = min(most - self.held, reading.may_hold) - len(self._late)
        self.taker.want(self.taken + max(0, most), self._bytes + self._room())

    def lost(self, error: OmqError | None) -> None:
        self._channel.reading.lost(self, error)

    async def cancelled(self) -> None:
        """No more is taken for it; when what was given to it is settled, it ends."""
        self._cancelled = True
        self._give_back()
        self.taker.put_back()
        await self.taker.call(_nothing)
        self.settled()

    def settled(self) -> None:
        """It may be over now."""
        if self._cancelled and not self.held:
            self.ended()

    def ended(self) -> None:
        self._give_back()
        super().ended()

    def _gives_up(self) -> None:
        self._give_back()
        if not self._cancelled:
            self._channel.reading.gone(self)

    def _give_back(self) -> None:
        while self._late:
            self.say([self._late.popleft()], released)

    def took(self, messages: list[TakenMessage], *, drained: bool) -> None:
        for given in messages:
            assert isinstance(given, Content)
            self._arrived(given)
            if self.over or self._cancelled or self._session.gone:
                self.say([given], released)
            else:
                self._late.append(given)
        self.look()

    def _pour(self) -> None:
        """A prefetch is shared by the consumers of a channel if its client wants that."""
        channel = self._channel
        left = channel.reading.may_hold if self._acks else len(self._late)
        while self._late and left > 0:
            left -= 1
            given = self._late.popleft()
            tag = self._sent(given, acks=self._acks)
            exchange, key = self._where(given)
            if exchange != self._exchange or key != self._key:
                self._exchange, self._key = exchange, key
                self._said_where = short(exchange) + short(key)
            channel.deliver(self._said_tag, tag, given, self._said_where)
            given.data = given.head = b""  # it is held, perhaps for long


class Getter(Takes):
    """Of basic.get: one after the other."""

    def __init__(self, channel: Channel, address: Address, dead_letter: str) -> None:
        self._asked: deque[bool] = deque()  # whether it acknowledges
        self._begun = self._looking = False
        self._answered = asyncio.Event()
        super().__init__(channel, address, dead_letter)

    @property
    def waited_for(self) -> bool:
        """Somebody wants to hear of it."""
        return bool(self._asked)

    async def get(self, *, acks: bool) -> None:
        """One that is there now; until it is answered, so that answers keep the order of gets."""
        self._asked.append(acks)
        self._answered.clear()
        self.look()
        await self._answered.wait()

    def lost(self, error: OmqError | None) -> None:
        self._channel.reading.lost(self, error)

    def _gives_up(self) -> None:
        if self._asked:
            self._asked.popleft()
            self._channel.send(commands.Basic.GetEmpty())
        self._answered.set()

    def began(self) -> None:
        self._begun = True
        self.look()

    def look(self) -> None:
        if self._asked and self._begun and not self._looking and not self.over:
            self._looking = True
            self.taker.want(self.taken + 1, self._bytes + max(1, self._room()), draining=True)

    def took(self, messages: list[TakenMessage], *, drained: bool) -> None:
        for given in messages:
            assert isinstance(given, Content)
            self._arrived(given)
            if self.over or self._session.gone or not self._asked:
                self.say([given], released)
                continue
            tag = self._sent(given, acks=self._asked.popleft())
            self._channel.send_content(commands.Basic.GetOk(
                tag, given.redelivered, *self._where(given), 0), given.head, given.data)
            given.data = given.head = b""
            self._looking = False
            self._answered.set()
        if drained and self._looking:
            self._looking = False
            if self._asked:
                self._asked.popleft()
                self._channel.send(commands.Basic.GetEmpty())
                self._answered.set()
        self.look()

    def ended(self) -> None:
        self._answered.set()
        super().ended()

    def ended_by(self, error: Exception | None) -> None:
        self._answered.set()
        super().ended_by(error)


def _nothing(native: Client, reader: Reader) -> None:
    """For `call`: what was said before is carried out."""
