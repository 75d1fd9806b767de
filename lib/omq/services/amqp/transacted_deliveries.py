"""What a link that takes has in transactions: deliveries whose outcome happens with the discharge.

A link that ends with deliveries of an open transaction keeps its reader, which holds them, until
that is over.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from omq.amqp.delivery import Outgoing
from omq.amqp.links import Sender
from omq.amqp.states import ACCEPTED_STATE
from omq.base.errors import LeaseLost, OmqError
from omq.services.amqp.browser import Browser
from omq.services.amqp.outcomes import LIGHT, Say, in_transaction
from omq.services.amqp.taker import TakenMessage, Taker
from omq.services.amqp.transactions import Taken, state_of
from omq.services.amqp.untranslatable import Untranslatable

if TYPE_CHECKING:
    from omq.ipc.client.connection import Client
    from omq.ipc.client.message import Message
    from omq.ipc.client.reader import Reader
    from omq.services.amqp.session import Session

T = TypeVar("T")


class Enrolling:
    """Of one link; Outgoing is the other half."""

    def __init__(self, session: Session, link: Sender) -> None:
        self._session, self._link = session, link
        self._taker: Taker | Browser | None = None
        self._unsettled: dict[bytes, TakenMessage] = {}  # by tag, in the order sent
        self._enrolled = 0  # of open transactions
        self._says: list[tuple[Message, Say]] = []  # settlements, and not given to a turn yet
        self._over = False

    @abstractmethod
    def room_again(self) -> None: ...

    def _enrol(self, delivery: Outgoing, given: TakenMessage) -> None:
        """The outcome is that of a transaction, and happens with it."""
        tag = delivery.tag
        try:
            name, said = state_of(delivery)
            transaction = self._session.transactions.find(name)
        except Untranslatable as error:
            self._session.drop(self._link, error.condition, error.reason)
            return
        del self._unsettled[tag]
        settled = delivery.settled
        self._enrolled += 1
        transaction.take(Taken(self, tag, given, None if settled else delivery,
                               in_transaction(said)))

    async def call(self, work: Callable[[Client, Reader], T]) -> T:
        """In the thread that has what was enrolled, behind what was said."""
        assert isinstance(self._taker, Taker)
        self._carry_out()
        return await self._taker.call(work)

    def committed(self, some: Sequence[Taken]) -> None:
        """These have happened; what else than accepted was said of them is carried out now."""
        for each in some:
            if each.say is not None:
                self._say(each.given, each.say)
            if each.delivery is not None and not self._over and not self._session.gone:
                each.delivery.update(ACCEPTED_STATE)
                each.delivery.settle()
        self._left(len(some))

    async def carried_out(self) -> None:
        """What was said of those that have happened is on the disk, so that a client which hears
        of the discharge finds it. After a manager that died before they are redelivered,
        flagged."""
        with suppress(OmqError):
            await self.call(lambda _, reader: reader.flush())

    def rolled_back(self, some: Sequence[Taken], reason: str) -> None:
        """These have not: the client's again, or failed where it has settled them."""
        for each in some:
            if each.delivery is None or self._over or self._session.gone:
                self._say(each.given, lambda message: message.fail(reason))
            else:
                self._unsettled[each.tag] = each.given
        self._left(len(some))

    def _left(self, count: int) -> None:
        self._enrolled -= count
        self._carry_out()
        if self._session.gone or self._over:
            if self._over and not self._enrolled and self._taker is not None:
                self._taker.close()
        else:
            self.room_again()  # there is room for others

    def _say(self, given: TakenMessage, say: Say) -> None:
        """`_carry_out` follows, when all that came together was heard."""
        if given.native is not None:
            self._says.append((given.native, say))

    def _carry_out(self, *, wants: bool = False) -> None:
        """What was said, in its order, by one turn; `wants`: as Taker.say has it."""
        says = self._says
        if says and self._taker is not None:
            self._says = []
            light = len(says)
            for _, say in says:
                if say not in LIGHT:
                    light = 0
                    break
            self._taker.say(partial(_carried, says), light=light, wants=wants)


def _carried(says: list[tuple[Message, Say]]) -> None:
    """In a turn."""
    for native, say in says:
        try:
            say(native)
        except LeaseLost:  # the manager took it back: it is redelivered, flagged
            continue
