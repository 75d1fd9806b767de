"""A message of AMQP 1.0 as a message of omq, and back. NETWORK.md has the table.

What omq has no place for is a property named `amqp.*`, so that it comes out as it went in; a
message that a native program put has none of these, and comes out as one section of data.
Properties that are no strings keep their type (ipc.remote.foreign_values).

Errors: Untranslatable, with the condition of AMQP.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from proton import Message

from omq.base.clock import NS_PER_S
from omq.base.errors import BadArgument, BadName, OmqError
from omq.base.limits import AMQP_TTL_MAX_S
from omq.base.names import check_queue_name
from omq.ipc.arguments import SECONDS_MAX
from omq.ipc.browsed import Browsed
from omq.ipc.message import Message as Native
from omq.ipc.outgoing import Outgoing
from omq.ipc.remote.failure_annotations import PREFIX as PREFIX_OF_FAILURE
from omq.ipc.remote.failure_annotations import annotations_of
from omq.ipc.remote.foreign_values import decoded as value_of
from omq.ipc.remote.foreign_values import texts_in, values_out
from omq.services.amqp import ids, sections
from omq.services.amqp.ids import PREFIX
from omq.services.amqp.untranslatable import UNREADABLE, Untranslatable

ANNOTATIONS: Final = PREFIX + "annotations"
FOOTER: Final = PREFIX + "footer"
RESERVED: Final = (PREFIX, "omq.")
DELIVERY_TIME: Final = "x-opt-delivery-time"  # ms since 1970
DELIVERY_DELAY: Final = "x-opt-delivery-delay"  # ms
PRIORITY_MAX: Final = 9
HEAD_BYTES_MAX: Final = 128 * 1024
"""More than all that is beside the body of a message which omq takes."""
_TEXTS: Final = {
    "subject": "subject", "address": "to", "content_type": "content-type",
    "content_encoding": "content-encoding", "reply_to_group_id": "reply-to-group-id"}
TRANSACTIONAL: Final = 0x34
"""The state of a delivery that belongs to a transaction; there are none that it could name."""
_NO_SYMBOL: Final = "None"
"""What the library makes of a symbol that is not there."""
_TIME_MAX_S: Final = 100 * 366 * 86400


@dataclass(frozen=True, slots=True)
class Terms:
    """What a message is put under."""

    user: str
    settled: bool  # by its sender: then it is not persistent
    threshold: int  # bytes above which a body is persistent in any case


def decoded(data: bytes, terms: Terms, kind: str = "", foot: bytes = b"") -> Outgoing:
    """The message that these bytes are. `kind`: they end before its body, which is of this kind
    (sections.KINDS) and goes into a container, and before its footer. Untranslatable."""
    message = Message()
    try:
        message.decode(data)
        return _outgoing(message, terms, kind, foot or sections.footer(data))
    except UNREADABLE as error:
        raise Untranslatable("amqp:decode-error", f"no message of AMQP: {error}") from error
    except (BadArgument, BadName) as error:
        raise Untranslatable("amqp:invalid-field", str(error)) from error


def _outgoing(message: Message, terms: Terms, kind: str, foot: bytes) -> Outgoing:
    properties = _application_properties(message.properties or {})
    body = b"" if kind else _body(message, properties)
    if kind not in ("", "data"):
        properties[PREFIX + "body"] = kind
    for name, kept in _TEXTS.items():
        value = getattr(message, name)
        if value and value != _NO_SYMBOL:
            properties[PREFIX + kept] = str(value)
    user = message.user_id
    if user and bytes(user) != terms.user.encode():
        raise Untranslatable("amqp:unauthorized-access", "user-id is not who is connected")
    if user:
        properties[PREFIX + "user-id"] = terms.user
    given = ids.kept(message.id, "message-id", properties)
    correlation = ids.kept(message.correlation_id, "correlation-id", properties)
    group = ids.kept(message.group_id, "group-id", properties)
    if group and message.group_sequence:
        properties[PREFIX + "group-sequence"] = str(int(message.group_sequence))
    if message.creation_time:
        properties[PREFIX + "creation-time"] = repr(float(message.creation_time))
    if notes := {name: value for name, value in (message.annotations or {}).items()
                 if str(name) not in (DELIVERY_DELAY, DELIVERY_TIME)}:
        properties[ANNOTATIONS] = ids.encoded(notes).hex()
    if foot:
        properties[FOOTER] = foot.hex()
    return Outgoing(
        body=body, properties=properties, priority=min(int(message.priority), PRIORITY_MAX),
        persistent=(bool(message.durable) and not terms.settled) or bool(kind)
        or len(body) > terms.threshold,
        message_id=given, correlation_id=correlation, group_id=group,
        expiry_s=_expiry_s(message), reply_to=_reply_to(message.reply_to, properties),
        **_delay(message.annotations))


def _application_properties(given: dict[Any, Any]) -> dict[str, str]:
    if reserved := next((name for name in map(str, given) if name.startswith(RESERVED)), ""):
        raise Untranslatable("amqp:invalid-field", f"a property may not be named {reserved}")
    return texts_in(given)


def _body(message: Message, properties: dict[str, str]) -> bytes:
    body = message.body
    if isinstance(body, memoryview):
        body = bytes(body)
    if message.inferred and isinstance(body, bytes):
        return body
    if body is None:
        kind, raw = "null", b""
    elif type(body) is str:
        kind, raw = "string", body.encode("utf-8", "surrogatepass")
    elif isinstance(body, bytes):
        kind, raw = "binary", body
    else:
        kind, raw = ("sequence" if message.inferred else "value"), ids.encoded(body)
    properties[PREFIX + "body"] = kind
    return raw


def _expiry_s(message: Message) -> float | None:
    left: list[float] = []
    if message.ttl:
        left.append(float(message.ttl))
    if message.expiry_time:
        left.append(max(0.0, float(message.expiry_time) - time.time()))
    return min(*left, _TIME_MAX_S) if left else None


def _delay(annotations: Any) -> dict[str, Any]:
    for name, value in (annotations or {}).items():
        if str(name) == DELIVERY_DELAY:
            return {"delay_s": min(max(0, int(value)) / 1000, _TIME_MAX_S)}
        if str(name) == DELIVERY_TIME:
            # A moment, not what is left until then: it follows the clock when that is set.
            at_s = min(max(0, int(value)) / 1000, SECONDS_MAX)
            return {"at": datetime.fromtimestamp(at_s, UTC)}
    return {}


def _reply_to(address: str | None, properties: dict[str, str]) -> str:
    if not address:
        return ""
    try:
        return check_queue_name(address)
    except BadName:  # an address elsewhere, which is not ours to understand
        properties[PREFIX + "reply-to"] = address
        return ""


# the way out


def encoded(message: Native | Browsed) -> bytes:
    """A message of a queue as bytes of AMQP. BodyUnavailable, BodyDamaged; Untranslatable: who put
    it named properties as we do, and they make no sense."""
    try:
        return _encoded(message) + footer(message)
    except UNREADABLE as error:
        raise Untranslatable("amqp:decode-error", f"no message for AMQP: {error}") from error


def encoded_head(message: Native | Browsed) -> bytes | None:
    """The bytes before those of its body, which are to follow as they are; None: this body goes as
    a whole. The errors of `encoded`."""
    kind = message.texts.get(PREFIX + "body", "data")
    if kind not in sections.KINDS:
        return None
    try:
        head = _encoded(message, bodiless=True)
    except UNREADABLE as error:
        raise Untranslatable("amqp:decode-error", f"no message for AMQP: {error}") from error
    return head + sections.opening(kind, message.size)  # `footer` follows


def footer(message: Native | Browsed) -> bytes:
    """What follows the bytes of its body."""
    return sections.footer_section(bytes.fromhex(message.texts.get(FOOTER, "")))


def _encoded(message: Native | Browsed, *, bodiless: bool = False) -> bytes:
    out, properties = Message(), message.texts
    kind = properties.pop(PREFIX + "body", "data")
    out.body, out.inferred = (None, False) if bodiless else _given_body(message.body, kind)
    out.durable, out.priority = message.persistent, message.priority
    out.delivery_count = message.attempts
    out.first_acquirer = message.attempts == 0
    out.id = ids.given(message.message_id, "message-id", properties)
    out.correlation_id = ids.given(message.correlation, "correlation-id", properties)
    out.group_id = ids.given(message.group_id, "group-id", properties)
    if sequence := properties.pop(PREFIX + "group-sequence", ""):
        out.group_sequence = int(sequence)
    if expiry := message.expiry_ns:
        out.ttl = min(max(0.001, (expiry - time.time_ns()) / NS_PER_S), AMQP_TTL_MAX_S)
    made = properties.pop(PREFIX + "creation-time", "")
    out.creation_time = float(made) if made else message.put_time_ns / NS_PER_S
    if address := properties.pop(PREFIX + "reply-to", "") or _reply_queue(message):
        out.reply_to = address
    if user := properties.pop(PREFIX + "user-id", ""):
        out.user_id = user.encode()
    for name, kept in _TEXTS.items():
        if text := properties.pop(PREFIX + kept, ""):
            setattr(out, name, text)
    out.annotations = _annotations(message, properties.pop(ANNOTATIONS, "")) or None
    properties.pop(FOOTER, None)
    out.properties = values_out(properties) or None
    return bytes(out.encode())


def _annotations(message: Native | Browsed, kept: str) -> dict[Any, Any]:
    """Those that came with it, and how it failed, which is asked of the manager for messages of
    which it says that it knows."""
    found = {name: value for name, value in (value_of(bytes.fromhex(kept)) if kept else {}).items()
             if not str(name).startswith(PREFIX_OF_FAILURE)}
    failure = message.failure if message.noted else None
    return found if failure is None else {**found, **annotations_of(failure)}


def _reply_queue(message: Native | Browsed) -> str:
    try:
        return str(message.reply_to)
    except OmqError:  # it is gone: nobody waits for the reply any more
        return ""


def _given_body(body: bytes, kind: str) -> tuple[Any, bool]:
    if kind == "data":
        return body, True
    if kind == "null":
        return None, False
    if kind == "string":
        return body.decode("utf-8", "surrogatepass"), False
    if kind == "binary":
        return body, False
    return value_of(body), kind == "sequence"
