"""What a client is told of a message that it has put.

    put                          accepted
    its queue does not take it   rejected, with the reason; an event, too
    nobody knows                 modified, delivery-failed: it may be on the queue, so who sends it
                                 again must know that
    no room for it here          released: the same again, later
    in a transaction             the transaction's state, with accepted as what comes of it (4.4.2)

What was sent settled has nobody who could be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proton import Condition, Delivery, Described, ulong

from omq.base import events
from omq.base.errors import MessageTooLong, OmqError, UnknownQueue
from omq.base.event_log import WARNING
from omq.services.amqp.putter import Fate, Told
from omq.services.amqp.translation import TRANSACTIONAL
from omq.services.amqp.untranslatable import Untranslatable

if TYPE_CHECKING:
    from omq.services.amqp.session import Session

NO_ROOM: Final = ("no room now (amqp_memory_bytes_max, amqp_files_bytes_max, those of a user, or "
                  "the disk)")


class Answers:
    """Of one link."""

    def __init__(self, session: Session, user: str) -> None:
        self._session, self._user = session, user

    def told(self, delivery: Any, fate: Told, *, settled: bool) -> None:
        if fate.fate is Fate.PUT:
            if not settled:
                delivery.update(Delivery.ACCEPTED)
        elif fate.fate is Fate.IN_DOUBT:
            if not settled:
                delivery.local.failed = True
                delivery.update(Delivery.MODIFIED)
        else:
            self.rejected(delivery, _condition(fate.error), str(fate.error), settled=settled)
            return
        delivery.settle()

    def rejected(self, delivery: Any, condition: str, reason: str, *, settled: bool) -> None:
        self.refused(reason)
        if not settled:
            delivery.local.condition = Condition(condition, reason)
            delivery.update(Delivery.REJECTED)
        delivery.settle()

    def no_room(self, delivery: Any, *, settled: bool) -> None:
        self.refused(NO_ROOM)
        if not settled:
            delivery.update(Delivery.RELEASED)
        delivery.settle()

    def in_transaction(self, delivery: Any, name: bytes) -> None:
        """What becomes of it is said with the end of the transaction."""
        delivery.local.data = [name, Described(ulong(Delivery.ACCEPTED), [])]
        delivery.update(TRANSACTIONAL)
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
