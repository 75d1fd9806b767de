"""A link over which a client declares and discharges transactions (ISO 19464 part 4, 4.2, 4.3).

    declare     declared, with the name of a new transaction; a global one is not implemented
    discharge   accepted when all of it is on the disk, or nothing of it happens as was asked;
                rejected with amqp:transaction:rollback when it could not be

Its end rolls back what it has declared and nobody has discharged. Where nobody knows whether a
transaction happened (its manager hung at the last step) the connection ends without an answer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from omq.amqp.delivery import Incoming
from omq.amqp.links import Receiver
from omq.amqp.states import ACCEPTED_STATE, Condition, declared, rejected
from omq.amqp.whole_values import decoded
from omq.base.errors import OmqError
from omq.fast.amqp_message import Sections
from omq.format.amqp_performatives import DECLARE, DISCHARGE, number
from omq.format.amqp_types import Described, Malformed
from omq.services.amqp import two_phases
from omq.services.amqp.targets import destination, own_target
from omq.services.amqp.transactions import ROLLED_BACK, Transaction
from omq.services.amqp.untranslatable import Untranslatable

if TYPE_CHECKING:
    from omq.services.amqp.session import Session

_BYTES_MAX: Final = 4096
_CREDIT: Final = 10


class Coordinator:
    """See the module."""

    def __init__(self, session: Session, link: Receiver) -> None:
        self._session, self._link = session, link
        self._parts = bytearray()
        self._mine: set[bytes] = set()  # declared here, and not discharged
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False
        link.source, link.target = link.remote_source, link.remote_target
        link.open()
        link.flow(_CREDIT)

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def flowed(self) -> None:
        """Nothing waits for credit here."""

    room_again = recheck = flowed

    def delivered(self, delivery: Incoming) -> None:
        if delivery.aborted or self._over or not delivery.readable:
            self._parts.clear()
            delivery.settle()
            return
        while chunk := self._link.recv():
            self._parts += chunk[: _BYTES_MAX + 1 - len(self._parts)]
        if delivery.partial:
            return
        data, self._parts = bytes(self._parts), bytearray()
        self._link.advance()
        self._link.flow(1)
        try:
            self._asked(delivery, data)
        except Untranslatable as error:
            delivery.update(rejected(error.condition, error.reason))
            delivery.settle()

    def _asked(self, delivery: Incoming, data: bytes) -> None:
        what, fields = _read(data)
        if what == DECLARE:
            if fields and fields[0] is not None:
                raise Untranslatable("amqp:not-implemented", "a transaction of several hosts")
            made = self._session.transactions.declare()
            self._mine.add(made.name)
            delivery.update(declared(made.name))
            delivery.settle()
            return
        if what != DISCHARGE or not fields or not isinstance(fields[0], bytes):
            raise Untranslatable("amqp:not-allowed", "neither declare nor discharge")
        transaction = self._session.transactions.end(fields[0])
        self._mine.discard(transaction.name)
        fails = len(fields) > 1 and bool(fields[1])
        task = asyncio.get_running_loop().create_task(
            self._discharge(delivery, transaction, fails=fails))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _discharge(self, delivery: Incoming, transaction: Transaction, *, fails: bool
                         ) -> None:
        try:
            refused = await self._ended(transaction, fails=fails)
        except two_phases.LOST as error:
            transaction.roll_back(str(error))  # what its readers have still
            self._session.forced("amqp:internal-error", f"the outcome is not known: {error}")
            self._session.kick()
            return
        except Exception as error:
            transaction.roll_back("a mistake of the server")
            self._session.host.failed(self._session, error)
            return
        if self._session.gone or self._over:
            return
        delivery.update(ACCEPTED_STATE if refused is None else rejected(*refused))
        delivery.settle()
        self._session.kick()

    async def _ended(self, transaction: Transaction, *, fails: bool) -> Condition | None:
        if fails:
            transaction.roll_back("the transaction was rolled back")
            return None
        if transaction.condition:
            transaction.roll_back(transaction.reason)
            return Condition(transaction.condition, transaction.reason)
        try:
            await self._placed(transaction)
            await two_phases.commit(self._session.host, transaction)
        except Untranslatable as error:
            transaction.roll_back(error.reason)
            return Condition(error.condition, error.reason)
        except two_phases.LOST:
            raise
        except OmqError as error:
            transaction.roll_back(str(error))
            return Condition(ROLLED_BACK, str(error))
        said = [link for link, some in transaction.links().items()
                if any(each.say is not None for each in some)]
        transaction.committed()
        for link in said:
            await link.carried_out()
        return None

    async def _placed(self, transaction: Transaction) -> None:
        """What came over a link without an address goes where it says itself. Untranslatable."""
        found: dict[str, tuple[str, ...]] = {}
        for each in transaction.new:
            if not each.message.queues:
                name = destination(each.message)
                if name not in found:
                    found[name] = (await own_target(self._session, name)).queues
                each.message = replace(each.message, queues=found[name])

    def ended(self) -> None:
        """The link is over."""
        if self._over:
            return
        self._over = True
        for name in self._mine:
            with suppress(Untranslatable):  # another link of the connection has discharged it
                self._session.transactions.end(name).roll_back("its link has ended")
        self._mine.clear()

    cut = ended


def _read(data: bytes) -> tuple[int, list[Any]]:
    """(what it is, its fields). Untranslatable."""
    message = Sections()
    try:
        if len(data) > _BYTES_MAX:
            raise Malformed("it is too long")
        message.read(data, _BYTES_MAX)
        body = decoded(message.body) if message.kind == "value" else None
    except Malformed as error:
        raise Untranslatable("amqp:decode-error",
                             f"neither declare nor discharge: {error}") from error
    if not isinstance(body, Described) or not isinstance(body.value, list):
        raise Untranslatable("amqp:not-allowed", "neither declare nor discharge")
    return number(body.descriptor), body.value
