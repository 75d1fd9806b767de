"""The outcome that a client gets for a message that it has put.

    put                          accepted
    its queue does not take it   rejected, with the reason; an event, too
    nobody knows                 modified, delivery-failed: it may be on the queue, so who sends it
                                 again must know that
    no room for it here          released: the same again, later
    in a transaction             the transaction's state, with accepted as what comes of it (4.4.2)

What was sent settled has nobody who could be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omq.amqp.delivery import Incoming
from omq.amqp.states import (
    ACCEPTED_STATE,
    FAILED_STATE,
    RELEASED_STATE,
    in_transaction,
    rejected,
)
from omq.base import events
from omq.base.errors import MessageTooLong, OmqError, UnknownQueue
from omq.base.event_log import WARNING
from omq.services.amqp.putter import Fate, PutResult
from omq.services.amqp.untranslatable import Untranslatable

if TYPE_CHECKING:
    from omq.services.amqp.session import Session

NO_ROOM: Final = ("no room now (amqp_memory_bytes_max, amqp_files_bytes_max, those of a user, or "
                  "the disk)")


class PutOutcomes:
    """Of one link."""

    def __init__(self, session: Session, user: str) -> None:
        self._session, self._user = session, user

    def told(self, delivery: Incoming, fate: PutResult) -> None:
        if fate.fate is Fate.PUT:
            delivery.say(ACCEPTED_STATE)
        elif fate.fate is Fate.IN_DOUBT:
            delivery.say(FAILED_STATE)
        else:
            self.rejected(delivery, _condition(fate.error), str(fate.error))

    def rejected(self, delivery: Incoming, condition: str, reason: str) -> None:
        self.refused(reason)
        delivery.update(rejected(condition, reason))
        delivery.settle()

    def no_room(self, delivery: Incoming) -> None:
        self.refused(NO_ROOM)
        delivery.update(RELEASED_STATE)
        delivery.settle()

    def in_transaction(self, delivery: Incoming, name: bytes) -> None:
        """Its outcome comes with the end of the transaction."""
        delivery.update(in_transaction(name))
        delivery.settle()

    def refused(self, reason: str) -> None:
        session = self._session
        session.host.rated.event(events.AMQP_REJECTED, WARNING, session.peer, peer=session.peer,
                                 user=self._user, reason=reason[:200])


def _condition(error: OmqError | Untranslatable | None) -> str:
    if isinstance(error, Untranslatable):
        return error.condition
    if isinstance(error, MessageTooLong):
        return "amqp:link:message-size-exceeded"
    return "amqp:not-found" if isinstance(error, UnknownQueue) else "amqp:precondition-failed"
