"""What the arguments of a put say, as a message: of Connection.put and of Unit.put.

Errors: BadArgument, BadRequest, UnknownQueue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from omq.base.errors import BadRequest
from omq.format.property_values import Value
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire


def without_body(wire: Wire, queues: str | Sequence[str], outgoing: Outgoing | None
                 ) -> tuple[Outgoing, tuple[str, ...], str]:
    """What a put says whose body comes otherwise: the message, the queues that were named with it,
    and the first of those that it goes on."""
    message = Outgoing() if outgoing is None else outgoing
    if not isinstance(message, Outgoing) or message.body:
        raise arguments.wrong("outgoing", message, "it is an omq.Outgoing without a body")
    message, listed = outgoing_of(wire, queues, outgoing=message)
    return message, listed, (message.queues or listed)[0]


def outgoing_of(wire: Wire, queues: str | Sequence[str], body: bytes = b"", *,
                priority: int | str | None = None, properties: Mapping[str, Value] | None = None,
                persistent: bool | None = None, correlation_id: bytes | str = b"",
                message_id: bytes | str = b"", expiry_s: float | None = None, reply_to: str = "",
                delay_s: float = 0.0, at: datetime | None = None, group_id: bytes | str = b"",
                group_sequence: int = 0, last_in_group: bool = False,
                unique_key: bytes | str | None = None,
                outgoing: Outgoing | None) -> tuple[Outgoing, tuple[str, ...]]:
    """The message, and the queues that were named with it."""
    listed = (arguments.queue(queues),) if isinstance(queues, str) else arguments.queues(queues)
    if outgoing is not None:
        if not isinstance(outgoing, Outgoing):
            raise arguments.wrong("outgoing", outgoing, "it is an omq.Outgoing")
        if body or priority is not None or properties or persistent is not None:
            raise BadRequest(reason="an Outgoing has its own attributes: do not give them as "
                                    "arguments, too")
        if not listed and not outgoing.queues:
            raise arguments.wrong("queues", queues, "it names a queue at least")
        return outgoing, listed
    if not listed:
        raise arguments.wrong("queues", queues, "it names a queue at least")
    facts = wire.facts(listed[0])
    return Outgoing(
        body=body, queues=listed, properties={} if properties is None else properties,
        reply_to=reply_to,
        priority=facts.priority if priority is None else arguments.priority(priority),
        persistent=facts.persistent if persistent is None else persistent,
        correlation_id=correlation_id, message_id=message_id, expiry_s=expiry_s,
        delay_s=delay_s, at=at, group_id=group_id, group_sequence=group_sequence,
        last_in_group=last_in_group, unique_key=unique_key), listed
