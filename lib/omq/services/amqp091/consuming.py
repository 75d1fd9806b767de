"""What a channel takes: one consumer, or the gets of one queue. Each has a taker, as a link of AMQP 1.0.

`unacked` of the channel are its deliveries that nobody has settled; a consumer holds at most its
prefetch of them (0: amqp_unsettled_max).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from pamqp import commands

from omq.base.errors import OmqError
from omq.services.amqp.addresses import Address
from omq.services.amqp.outcomes import done, released
from omq.services.amqp.taker import Given
from omq.services.amqp091.taking import Content, ContentTaker

if TYPE_CHECKING:
    from omq.services.amqp091.channel import Channel


class Takes:
    """Of one queue; an Ear of its taker."""

    def __init__(self, channel: Channel, address: Address) -> None:
        self._channel, self._session, self.address = channel, channel.session, address
        host = channel.session.host
        self._taken = self._bytes = 0  # since the beginning
        self.held = 0  # not settled
        self.over = False
        self.taker = ContentTaker(host.connect, address.queues[0], "", host.policy.settings, self,
                                  host.hands)
        host.takers.add(self.taker)

    def say(self, given: Given, say: Any) -> None:
        """A settlement; what the manager has taken back meanwhile comes again."""
        self.taker.settle(given, say)

    def began(self) -> None:
        self.look()

    def look(self) -> None:
        """Take as much as is wanted, and as the line carries."""

    def settled(self) -> None:
        """One that it held is not held any more."""

    def ended(self) -> None:
        """What is said already is carried out; the rest is back."""
        if not self.over:
            self.over = True
            self.taker.close()

    def _room(self) -> int:
        settings = self._session.host.policy.settings
        return max(0, settings.amqp_outgoing_bytes_max - self._session.waiting_bytes)

    def _sent(self, given: Content, *, acks: bool) -> int:
        """Its delivery tag."""
        self._taken += 1
        self._bytes += len(given.data)
        if not acks:
            self.say(given, done)
            return self._channel.tag()
        self.held += 1
        return self._channel.hold(self, given)

    def ended_by(self, error: Exception | None) -> None:
        """The taker is through."""
        host = self._session.host
        host.takers.discard(self.taker)
        host.uncount_receiver(self._session.user_name)
        if not self.over and not self._session.gone:
            self.over = True
            self._channel.lost(self, error if isinstance(error, OmqError) else None)


class Consumer(Takes):
    """Of basic.consume."""

    def __init__(self, channel: Channel, address: Address, tag: str, prefetch: int, *,
                 acks: bool) -> None:
        self.tag, self._acks = tag, acks
        self._most, self._cancelled = prefetch, False
        super().__init__(channel, address)

    def look(self) -> None:
        if self.over or self._cancelled or self._session.gone:
            return
        most = self._session.host.policy.settings.amqp_unsettled_max
        if self._acks:
            most = min(most, self._most or most)
            most = min(most - self.held, self._channel.may_hold)
        self.taker.want(self._taken + max(0, most), self._bytes + self._room())

    async def cancelled(self) -> None:
        """No more is taken for it; when what was given to it is settled, it ends."""
        self._cancelled = True
        self.taker.put_back()
        await self.taker.call(lambda native, reader: None)
        self.settled()

    def settled(self) -> None:
        """It may be over now."""
        if self._cancelled and not self.held:
            self.ended()

    def took(self, messages: list[Given], *, drained: bool) -> None:
        channel = self._channel
        for given in messages:
            assert isinstance(given, Content)
            if self.over or self._cancelled or self._session.gone:
                self.say(given, released)
                continue
            tag = self._sent(given, acks=self._acks)
            channel.send_content(commands.Basic.Deliver(
                self.tag, tag, given.redelivered, "", self.address.name), given.properties,
                given.data)
        self.look()


class Getter(Takes):
    """Of basic.get: one after the other."""

    def __init__(self, channel: Channel, address: Address) -> None:
        self._asked: deque[bool] = deque()  # whether it acknowledges
        self._begun = self._looking = False
        self._answered = asyncio.Event()
        super().__init__(channel, address)

    async def get(self, *, acks: bool) -> None:
        """One that is there now; until it is answered, so that answers keep the order of gets."""
        self._asked.append(acks)
        self._answered.clear()
        self.look()
        await self._answered.wait()

    def began(self) -> None:
        self._begun = True
        self.look()

    def look(self) -> None:
        if self._asked and self._begun and not self._looking and not self.over:
            self._looking = True
            self.taker.want(self._taken + 1, self._bytes + max(1, self._room()), draining=True)

    def took(self, messages: list[Given], *, drained: bool) -> None:
        for given in messages:
            assert isinstance(given, Content)
            if self.over or self._session.gone or not self._asked:
                self.say(given, released)
                continue
            tag = self._sent(given, acks=self._asked.popleft())
            self._channel.send_content(commands.Basic.GetOk(
                tag, given.redelivered, "", self.address.name, 0), given.properties, given.data)
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
