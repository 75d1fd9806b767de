"""How a message came to its dead-letter queue, as message annotations of AMQP: amqp.server says
them, the Python API's remote connections read them. NETWORK.md has the table.

Names that begin with PREFIX are the server's alone: those that a submitter wrote do not get out.
The others are what clients of RabbitMQ look for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from omq.base.clock import NS_PER_MS, local_moment
from omq.format.amqp_types import Symbol, Timestamp
from omq.ipc.client.failures import Failure

CONDITION: Final = "omq:failed"
"""The error that a remote connection rejects a message with; what it describes is the reason."""
PREFIX: Final = "x-opt-failed-"
_QUEUE, _CAUSE, _REASON = PREFIX + "queue", PREFIX + "cause", PREFIX + "reason"
_ATTEMPTS, _FIRST, _LAST = PREFIX + "attempts", PREFIX + "first", PREFIX + "last"
_DEATH_QUEUE, _DEATH_REASON = "x-last-death-queue", "x-last-death-reason"
_REJECTED, _LIMIT = "rejected", "delivery_limit"  # RabbitMQ's words


def annotations_of(failure: Failure) -> dict[Any, Any]:
    """Those of a message that failed its way here; what is not known is not there."""
    found: dict[str, Any] = {
        _QUEUE: failure.queue, _CAUSE: failure.cause, _REASON: failure.reason,
        _ATTEMPTS: failure.attempts, _FIRST: _milliseconds(failure.first),
        _LAST: _milliseconds(failure.last), _DEATH_QUEUE: failure.queue,
        _DEATH_REASON: _REJECTED if failure.cause == "failed" else failure.cause and _LIMIT}
    return {Symbol(name): value for name, value in found.items() if value}


def failure_in(said: Mapping[Any, Any] | None) -> Failure | None:
    """What the annotations of a message say of it."""
    found = {str(name): value for name, value in (said or {}).items()}
    if _QUEUE not in found:
        return None
    return Failure(
        str(found[_QUEUE]), str(found.get(_CAUSE, "")), str(found.get(_REASON, "")),
        int(found.get(_ATTEMPTS, 0)),
        local_moment(int(found.get(_FIRST, 0)) * NS_PER_MS),
        local_moment(int(found.get(_LAST, 0)) * NS_PER_MS))


def _milliseconds(moment: datetime | None) -> Timestamp | None:
    return None if moment is None else Timestamp(int(moment.timestamp() * 1000))
