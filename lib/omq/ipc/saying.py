"""What the arguments of a put say, as a message: of Connection.put and of Unit.put.

Errors: BadArgument, BadRequest, UnknownQueue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from omq.base.errors import BadRequest
from omq.ipc import arguments
from omq.ipc.outgoing import Outgoing

if TYPE_CHECKING:
    from omq.ipc.client_wire import Wire


def outgoing_of(wire: Wire, queues: str | Sequence[str], body: bytes, *,
                priority: int | str | None, properties: Mapping[str, str] | None,
                persistent: bool | None, correlation_id: bytes | str, message_id: bytes | str,
                expiry_s: float | None, reply_to: str, delay_s: float, at: datetime | None,
                outgoing: Outgoing | None) -> tuple[Outgoing, tuple[str, ...]]:
    """The message, and the queues that were named beside it."""
    listed = (arguments.queue(queues),) if isinstance(queues, str) else arguments.queues(queues)
    if outgoing is not None:
        if not isinstance(outgoing, Outgoing):
            raise arguments.wrong("outgoing", outgoing, "it is an omq.Outgoing")
        if body or priority is not None or properties or persistent is not None:
            raise BadRequest(reason="what an Outgoing says is not said beside it")
        if not listed and not outgoing.queues:
            raise BadRequest(reason="a message needs a queue")
        return outgoing, listed
    if not listed:
        raise BadRequest(reason="a message needs a queue")
    facts = wire.facts(listed[0])
    return Outgoing(
        body=body, queues=listed, properties={} if properties is None else properties,
        reply_to=reply_to,
        priority=facts.priority if priority is None else arguments.priority(priority),
        persistent=facts.persistent if persistent is None else persistent,
        correlation_id=correlation_id, message_id=message_id, expiry_s=expiry_s,
        delay_s=delay_s, at=at), listed
