"""What a client says of a message that it was given, as what is done with the message.

Errors: what Message has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from omq.amqp.delivery import Outgoing
from omq.amqp.states import condition_of, fields_of
from omq.format.amqp_performatives import ACCEPTED, MODIFIED, REJECTED, RELEASED, number
from omq.format.amqp_types import Described, Malformed
from omq.ipc.client.remote.failure_annotations import CONDITION

if TYPE_CHECKING:
    from omq.ipc.client.message import Message

Say = Callable[["Message"], None]
LINE_BROKE: Final = "the connection broke off"
TERMINAL: Final = (ACCEPTED, REJECTED, RELEASED, MODIFIED)


def done(message: Message) -> None:
    message.done()


def released(message: Message) -> None:
    message.release()


LIGHT: Final = (done, released)
"""These are recorded, and travel with the next request."""


def broke(message: Message) -> None:
    message.fail(LINE_BROKE)


def outcome(delivery: Outgoing) -> Say:
    """What the client's outcome means."""
    state = delivery.outcome
    if state == ACCEPTED:
        return done
    if state == REJECTED:
        reason = _reason(delivery.fields)
        return lambda message: message.fail(reason)
    if state == MODIFIED and _failed(delivery.fields):
        return lambda message: message.fail("modified: delivery failed")
    return released


def _failed(raw: bytes) -> bool:
    try:
        return any(fields_of(raw)[:2])
    except Malformed:
        return False


def _reason(raw: bytes) -> str:
    try:
        fields = fields_of(raw)
        condition = condition_of(fields[0] if fields else None)
    except Malformed:
        return "rejected, with a reason that cannot be read"
    return "rejected" if condition is None else _words(*condition)


def _words(condition: str, description: str) -> str:
    """What a program gave to `fail` is the reason as it is."""
    return description if condition == CONDITION else f"{condition}: {description}"


def in_transaction(outcome: Any) -> Say | None:
    """The outcome of a transactional state; None: accepted, which happens with the transaction."""
    if not isinstance(outcome, Described):
        return released
    what = number(outcome.descriptor)
    fields = outcome.value if isinstance(outcome.value, list) else []
    if what == ACCEPTED:
        return None
    if what == REJECTED:
        reason = "rejected"
        try:
            condition = condition_of(fields[0] if fields else None)
        except Malformed:
            reason = "rejected, with a reason that cannot be read"
        else:
            reason = "rejected" if condition is None else _words(*condition)
        return lambda message: message.fail(reason)
    if what == MODIFIED and any(fields[:2]):
        return lambda message: message.fail("modified: delivery failed")
    return released
