"""Transactions of one connection (ISO 19464 part 4): what they have collected, and their end.

What is put in a transaction is kept here until it is discharged; what is taken stays with the
reader of its link, as every message that is not settled. Discharged, all of it happens at once
(two_phases), or nothing: then messages whose delivery the client has settled have failed once, as
those of a unit of work, and the others are the client's as before.

A transaction can only be rolled back when something of it was refused, when it lasts too long, or
when its user has lost a right meanwhile; the answer to its discharge says so.

Invariants: 1. a transaction is over once, and belongs to the link that declared it: it is rolled
back with it; 2. what it holds of memory and disk is counted, and given back at its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from omq.amqp.delivery import Incoming, Outgoing
from omq.amqp.states import fields_of
from omq.format.amqp_types import Malformed
from omq.services.amqp.arrival import Arrived
from omq.services.amqp.link_memory import LinkMemory
from omq.services.amqp.outcomes import Say
from omq.services.amqp.taker import TakenMessage
from omq.services.amqp.untranslatable import Untranslatable

if TYPE_CHECKING:
    from omq.services.amqp.session import Session
    from omq.services.amqp.transacted_deliveries import Enrolling as Link

UNKNOWN: Final = "amqp:transaction:unknown-id"
ROLLED_BACK: Final = "amqp:transaction:rollback"
TIMED_OUT: Final = "amqp:transaction:timeout"


@dataclass(slots=True)
class Taken:
    """A delivery whose outcome belongs to a transaction; `say`: None for accepted."""

    link: Link
    tag: bytes
    given: TakenMessage
    delivery: Outgoing | None  # None: the client has settled it
    say: Say | None


@dataclass(slots=True)
class Transaction:
    """See the module."""

    name: bytes
    room: LinkMemory
    messages_max: int
    began: float = field(default_factory=time.monotonic)
    new: list[Arrived] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    condition: str = ""
    reason: str = ""

    def put(self, arrived: Arrived, queues: tuple[str, ...]) -> None:
        if self.condition:
            arrived.close()
            return
        arrived.message = replace(arrived.message, queues=queues)
        self.room.hold(arrived.size)
        self.room.file(arrived.filed)
        self.new.append(arrived)
        self._bounded()
        if self.room.full:
            self.spoil("amqp:resource-limit-exceeded", "it holds more than there is room for")

    def take(self, taken: Taken) -> None:
        self.taken.append(taken)
        self._bounded()

    def _bounded(self) -> None:
        if len(self.new) + len(self.taken) > self.messages_max:
            self.spoil(ROLLED_BACK, f"it has more than unit_messages_max ({self.messages_max}) "
                       "messages")

    def spoil(self, condition: str, reason: str) -> None:
        """It can only be rolled back; what it was to put is forgotten at once."""
        if not self.condition:
            self.condition, self.reason = condition, reason
        self.forget()

    def forget(self) -> None:
        for each in self.new:
            each.close()
        self.new = []
        self.room.keep(0, 0)

    def links(self) -> dict[Link, list[Taken]]:
        """What it took, by the link that has it."""
        found: dict[Link, list[Taken]] = {}
        for each in self.taken:
            found.setdefault(each.link, []).append(each)
        return found

    def roll_back(self, reason: str) -> None:
        """Nothing of it happens."""
        self.forget()
        for link, some in self.links().items():
            link.rolled_back(some, reason)
        self.taken = []

    def committed(self) -> None:
        """All of it has happened."""
        self.forget()
        for link, some in self.links().items():
            link.committed(some)
        self.taken = []


class Transactions:
    """Those of a connection that are open."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: dict[bytes, Transaction] = {}
        self._names = 0

    def declare(self) -> Transaction:
        """A new one. Untranslatable."""
        session, settings = self._session, self._session.host.policy.settings
        if len(self._open) >= settings.amqp_transactions_max:
            raise Untranslatable("amqp:resource-limit-exceeded",
                                 "amqp_transactions_max transactions are open")
        assert session.user is not None
        self._names += 1
        name = self._names.to_bytes(4, "big")
        made = self._open[name] = Transaction(
            name, session.host.room(session.user.name), settings.unit_messages_max)
        return made

    def find(self, name: bytes) -> Transaction:
        """Untranslatable."""
        found = self._open.get(name)
        if found is None:
            raise Untranslatable(UNKNOWN, "there is no such transaction")
        return found

    def of(self, delivery: Incoming) -> Transaction:
        """That which a delivery's state names. Untranslatable."""
        return self.find(state_of(delivery)[0])

    def end(self, name: bytes) -> Transaction:
        """It is discharged, by who asks. Untranslatable."""
        found = self.find(name)
        del self._open[name]
        return found

    def spoil(self, condition: str, reason: str,
              which: Callable[[Transaction], bool] = lambda _: True) -> None:
        """They can only be rolled back; what they took is back at once."""
        for each in tuple(self._open.values()):
            if which(each):
                each.spoil(condition, reason)
                each.roll_back(reason)

    def look(self) -> None:
        """Time passes."""
        most_s = self._session.host.policy.settings.amqp_transaction_timeout_s
        limit = time.monotonic() - most_s
        self.spoil(TIMED_OUT, f"it was open longer than amqp_transaction_timeout_s ({most_s})",
                   lambda each: each.began < limit and bool(each.taken or not each.condition))


def state_of(delivery: Incoming | Outgoing) -> tuple[bytes, Any]:
    """The name of a transaction, and the outcome, as a delivery's state says. Untranslatable."""
    try:
        found = fields_of(delivery.fields)
    except Malformed as error:
        raise Untranslatable("amqp:decode-error", f"not a transaction state: {error}") from error
    if not found or not isinstance(found[0], bytes):
        raise Untranslatable("amqp:decode-error", "not a transaction state")
    return found[0], found[1] if len(found) > 1 else None
