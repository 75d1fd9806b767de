"""Messages of the Python API as bytes of AMQP, and back: what omq.services.amqp.translation is for
the server's side. NETWORK.md has the table.

Errors: NotRemote for what AMQP has no place for; BadArgument.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

from proton import Message, ProtonException, symbol

from omq.base import limits, names
from omq.base.clock import NS_PER_MS, NS_PER_S
from omq.base.errors import BadProperty, BodyDamaged, NotRemote
from omq.format.property_values import values_of
from omq.ipc.client.failures import Failure
from omq.ipc.client.remote.failure_annotations import failure_in
from omq.ipc.client.remote.foreign_values import texts_in, values_out
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

NORMAL: Final = 4


@dataclass(frozen=True, slots=True)
class Content:
    """What a message says of itself."""

    body: bytes
    properties: dict[str, Any]  # as of a Message
    texts: dict[str, str]
    message_id: str
    correlation: str
    reply_to: str
    group_id: str
    priority: int
    persistent: bool
    attempts: int
    expiry_ns: int
    put_time_ns: int
    failure: Failure | None


def encoded(message: Outgoing) -> tuple[str, bytes]:
    """(id, bytes). A message without an id is given one here: only so it is known to both."""
    if message.group_sequence or message.last_in_group:
        raise NotRemote(what="group_sequence", instead="number the messages in a property")
    out = Message(body=message.body, inferred=True)
    out.durable = message.persistent is not False
    out.priority = NORMAL if message.priority is None else message.priority
    identifier = (secrets.token_hex(limits.MESSAGE_ID_BYTES) if message.message_id in (b"", "")
                  else _text(message.message_id, "message_id"))
    out.id = identifier
    if message.correlation_id not in (b"", ""):
        out.correlation_id = _text(message.correlation_id, "correlation_id")
    if message.group_id not in (b"", ""):
        out.group_id = _text(message.group_id, "group_id")
    if message.expiry_s is not None:
        out.ttl = max(0.001, message.expiry_s)
    if message.reply_to:
        out.reply_to = message.reply_to
    if message.at is not None:
        until_ns = arguments.moment(message.at, "at")
        out.annotations = {symbol("x-opt-delivery-time"): max(0, until_ns) // NS_PER_MS}
    elif message.delay_s:
        out.annotations = {symbol("x-opt-delivery-delay"): int(message.delay_s * 1000)}
    try:
        out.properties = values_out(message.properties) or None
    except ValueError as error:
        raise BadProperty(name="amqp.types", rule=str(error)) from error
    return identifier, bytes(out.encode())


def _text(given: bytes | str, argument: str) -> str:
    """An id as the text by which both sides know it."""
    return names.message_id_text(
        arguments.identifier(given, argument).ljust(limits.MESSAGE_ID_BYTES, b"\0"))


def decoded(data: bytes) -> Content:
    """BodyDamaged."""
    message = Message()
    try:
        message.decode(data)
        return _content(message)
    except (ProtonException, ValueError, TypeError) as error:
        raise BodyDamaged(qpool_id=0, where=f"what the server sent ({error})", expected=0, got=0
                          ) from error


def _content(message: Any) -> Content:
    body = message.body
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    texts = texts_in(message.properties or {})
    expiry = time.time_ns() + int(message.ttl * NS_PER_S) if message.ttl else 0
    return Content(
        body=b"" if body is None else bytes(body),
        properties=values_of(texts.copy()), texts=texts,
        message_id=str(message.id or ""), correlation=str(message.correlation_id or ""),
        reply_to=message.reply_to or "", group_id=message.group_id or "",
        priority=int(message.priority), persistent=bool(message.durable),
        attempts=int(message.delivery_count), expiry_ns=expiry,
        put_time_ns=int((message.creation_time or 0) * NS_PER_S),
        failure=failure_in(message.annotations))
