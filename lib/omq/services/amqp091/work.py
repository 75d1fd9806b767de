"""The transaction of a channel (tx): what is published and acknowledged in it happens at tx.commit,
with one sync, or nothing does.

It is committed as one of AMQP 1.0 (services.amqp.two_phases): with what was taken from one queue as
one unit of work, from several by two phases, which a death leaves in doubt and the next start ends.
nack and reject are carried out after it. Rolled back, what is published is forgotten, and what was
acknowledged is unacknowledged again.

Errors: OmqError: nothing of it happened. Those of two_phases.LOST: nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omq.services.amqp import two_phases
from omq.services.amqp.arrival import Arrived
from omq.services.amqp.taker import TakenMessage
from omq.services.amqp.transactions import Taken, Transaction
from omq.services.amqp.untranslatable import Untranslatable
from omq.services.amqp091.refusals import PRECONDITION_FAILED, Refused
from omq.services.amqp091.routing import NOT_FOUND, Published

if TYPE_CHECKING:
    from omq.ipc.client.message import Message
    from omq.services.amqp091.channel import Channel
    from omq.services.amqp091.consuming import Takes

Settled = tuple[int, "Takes", TakenMessage, "Callable[[Message], None] | None"]
"""Delivery tag, who took it, what it is; None: acknowledged."""


class Work:
    """See the module; one from tx.select, or the last end, to the next. Nothing is added to one
    that is being committed."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._most = channel.session.host.policy.settings.unit_messages_max
        self.new: list[Published] = []
        self.settled: list[Settled] = []

    def put(self, new: Published) -> None:
        """Refused: it is too much."""
        self._bounded()
        self.new.append(new)

    def settle(self, tag: int, takes: Takes, given: TakenMessage,
               say: Callable[[Message], None] | None) -> None:
        """Refused: it is too much."""
        self._bounded()
        self.settled.append((tag, takes, given, say))

    def _bounded(self) -> None:
        if len(self.new) + len(self.settled) >= self._most:
            raise Refused(PRECONDITION_FAILED, "a transaction has more than unit_messages_max "
                          f"({self._most}) messages")

    async def commit(self) -> None:
        """See the module. Refused, OmqError."""
        channel = self._channel
        host = channel.session.host
        unit = Transaction(b"", host.room(channel.session.user_name), self._most)
        returned = []
        for each in self.new:
            queues = await self._queues(each)
            if queues:
                unit.new.append(Arrived(replace(each.message, queues=queues), None, 0, 0))
            else:
                returned.append(each)
        for _, takes, given, say in self.settled:
            unit.taken.append(Taken(takes, b"", given, None, say))  # type: ignore[arg-type]
        await two_phases.commit(host, unit)
        for each in returned:
            channel.publishing.returned(each)
        for _, takes, given, say in self.settled:
            if say is not None:
                takes.say([given], say)
            takes.held -= 1
            takes.settled()
        self._end()

    async def _queues(self, each: Published) -> tuple[str, ...]:
        """Where it goes; (): nowhere. Refused."""
        try:
            durable, temporary = await self._channel.publishing.routing.queues(each.where)
        except Untranslatable as error:
            if error.condition == NOT_FOUND and not each.exchange:
                return ()
            raise
        return (*durable, *(each.queue for each in temporary))

    def roll_back(self) -> list[tuple[int, Takes, TakenMessage]]:
        """Nothing of it happens; what is unacknowledged again."""
        again = [(tag, takes, given) for tag, takes, given, _ in self.settled]
        self._end()
        return again

    def _end(self) -> None:
        self._channel.publishing.release(self.new)
        self.new, self.settled = [], []

    def lost(self, takes: Any) -> None:
        """Who took these is through."""
        self.settled = [each for each in self.settled if each[1] is not takes]
