"""What a client may name: queues and aliases; and the filters of a source.

A name is resolved when a link is attached: what is put over the link goes to the queues that the
name stood for then, for the user's rights were asked for those (ADR 0050).

Errors: BadName, UnknownQueue; ValueError for a filter that is not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from omq.amqp.terminus import Terminus
from omq.base.errors import (
    BadName,
    BadSelector,
    NoAuthority,
    QueueGone,
    TooManyQueues,
    UnknownQueue,
)
from omq.base.names import check_queue_name
from omq.format.amqp_types import Described
from omq.format.definition import Kind
from omq.ipc.client.connection import Client
from omq.ipc.client.queues import QueueInfo
from omq.services.amqp.untranslatable import Untranslatable

INTERNAL: Final = "amqp:internal-error"
_BEFORE: Final = re.compile(r"\A(amqps?://[^/?#]*/|/(amq/)?queues?/)", re.IGNORECASE)
_SELECTORS: Final = ("apache.org:selector-filter:string", 0x0000468C00000004)


@dataclass(frozen=True, slots=True)
class Address:
    """`queues`: those that are named in a put. `rights`: those on which rights are asked for."""

    name: str
    queues: tuple[str, ...]
    rights: tuple[str, ...]
    remote: bool


def condition(error: Exception | None) -> str:
    """What AMQP calls the reason that a link cannot be, or go on."""
    if isinstance(error, Untranslatable):
        return error.condition
    if isinstance(error, UnknownQueue | BadName):
        return "amqp:not-found"
    if isinstance(error, NoAuthority):
        return "amqp:unauthorized-access"
    if isinstance(error, BadSelector | ValueError):
        return "amqp:invalid-field"
    if isinstance(error, TooManyQueues):
        return "amqp:resource-limit-exceeded"
    return "amqp:resource-deleted" if isinstance(error, QueueGone) else INTERNAL


def resolved(native: Client, address: str) -> Address:
    """In a thread of the pool. Some clients (Azure's) put the whole URL of a queue there: which
    server it is the connection has said; those of RabbitMQ /queues/NAME (of version 4), /queue/NAME
    or /amq/queue/NAME. BadName, UnknownQueue."""
    name = check_queue_name(_BEFORE.sub("", address, count=1))
    found, remote = native.resolved(name), native.is_remote(name)
    rights = tuple(_model(native.queues.show(each)) for each in found)
    return Address(name, (name,) if remote else found, rights, remote)


def _model(info: QueueInfo) -> str:
    """On what rights are asked for: of a temporary queue those on its model (ADR 0050)."""
    return info.keys["model"] if info.kind == Kind.TEMPORARY.value else info.name


def selector(source: Terminus) -> str:
    """The selector of JMS that a source asks for; "": none. ValueError."""
    wanted = ""
    for name, value in source.filter.items():
        descriptor = value.descriptor if isinstance(value, Described) else None
        if (not isinstance(value, Described) or descriptor not in _SELECTORS
                or not isinstance(value.value, str)):
            raise ValueError(f"filter {str(name)[:64]} is not known here")
        wanted = value.value
    return wanted
