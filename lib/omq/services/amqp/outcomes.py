"""What a client says of a message that it was given, as what is done with the message.

Errors: what Message has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from proton import Condition, Delivery, Described

from omq.ipc.remote.failure_annotations import CONDITION
from omq.services.amqp.untranslatable import UNREADABLE

if TYPE_CHECKING:
    from omq.ipc.message import Message

Say = Callable[["Message"], None]
LINE_BROKE: Final = "the connection broke off"
TERMINAL: Final = (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)


def done(message: Message) -> None:
    message.done()


def released(message: Message) -> None:
    message.release()


def broke(message: Message) -> None:
    message.fail(LINE_BROKE)


def outcome(delivery: Any, state: Any) -> Callable[[Message], None]:
    """What an outcome means; it is read now, for the engine forgets it."""
    if state == Delivery.ACCEPTED:
        return done
    if state == Delivery.REJECTED:
        reason = _reason(delivery)
        return lambda message: message.fail(reason)
    if state == Delivery.MODIFIED and (delivery.remote.failed or delivery.remote.undeliverable):
        return lambda message: message.fail("modified: delivery failed")
    return released


def _reason(delivery: Any) -> str:
    try:
        condition: Condition | None = delivery.remote.condition
    except UNREADABLE:
        return "rejected, with a reason that cannot be read"
    if condition is None:
        return "rejected"
    return _words(str(condition.name), str(condition.description or ""))


def _words(condition: str, description: str) -> str:
    """What a program gave to `fail` is the reason as it is."""
    return description if condition == CONDITION else f"{condition}: {description}"


def in_transaction(outcome: Any) -> Say | None:
    """The outcome of a transactional state; None: accepted, which happens with the transaction."""
    if not isinstance(outcome, Described):
        return released
    what = outcome.descriptor
    fields = outcome.value if isinstance(outcome.value, list) else []
    if what in (Delivery.ACCEPTED, "amqp:accepted:list"):
        return None
    if what in (Delivery.REJECTED, "amqp:rejected:list"):
        error = fields[0] if fields else None
        said = error.value if isinstance(error, Described) else None
        reason = "rejected"
        if isinstance(said, list):
            reason = _words(*(str(each or "") for each in (*said, "", "")[:2]))
        return lambda message: message.fail(reason)
    if what in (Delivery.MODIFIED, "amqp:modified:list") and any(fields[:2]):
        return lambda message: message.fail("modified: delivery failed")
    return released
