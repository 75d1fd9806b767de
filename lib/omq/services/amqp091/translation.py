"""A message of AMQP 0-9-1 as a message of omq, and back. NETWORK.md has the table.

What omq has no place for is a property named `amqp.*`, named as over AMQP 1.0 where that has the
same field, so that a message may come in by one protocol and go out by the other.

Errors: Refused, with the reply code of the standard.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from pamqp import commands, decode, encode, header

from omq.amqp.kinds import texts_in, values_out
from omq.base.errors import BadArgument, BadName, OmqError
from omq.base.names import check_queue_name
from omq.ipc.client.message import Message
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp import ids
from omq.services.amqp.ids import PREFIX
from omq.services.amqp.translation import PRIORITY_MAX, RESERVED, Terms
from omq.services.amqp.untranslatable import UNREADABLE
from omq.services.amqp091.refusals import NOT_IMPLEMENTED, PRECONDITION_FAILED, Refused

PERSISTENT: Final = 2
HEADERS: Final = PREFIX + "headers"
_TEXTS: Final = {"content_type": "content-type", "content_encoding": "content-encoding",
                 "message_type": "type", "app_id": "app-id"}
_SIMPLE: Final = (str, bool, int, float, bytes, type(None))
_CREATED: Final = PREFIX + "creation-time"
_REPLY_TO: Final = PREFIX + "reply-to"
_DELAY: Final = "x-delay"
"""As the delayed message exchange has it."""
_EXCHANGE: Final = PREFIX + "exchange"
_KEY: Final = PREFIX + "routing-key"
_TTL_MAX_MS: Final = 100 * 366 * 86_400_000


def outgoing(given: Any, body: bytes, terms: Terms, exchange: str, key: str) -> Outgoing:
    """`given`: Basic.Properties; where it was published. Refused."""
    properties: dict[str, str] = {}
    if exchange:
        properties[_EXCHANGE] = exchange
    if exchange or not is_queue_name(key):
        properties[_KEY] = key
    headers = given.headers or {}
    for name in ("CC", "BCC"):
        if name in headers:
            raise Refused(NOT_IMPLEMENTED, f"the header {name} is not there")
    for name in headers:
        if name.startswith(RESERVED):
            raise Refused(PRECONDITION_FAILED, f"a header may not be named {name}")
    try:
        simple = {name: value for name, value in headers.items() if type(value) in _SIMPLE}
        properties.update(texts_in(simple))
        if rest := {name: value for name, value in headers.items() if name not in simple}:
            properties[HEADERS] = encode.field_table(rest).hex()
        for field, name in _TEXTS.items():
            if text := getattr(given, field):
                properties[PREFIX + name] = text
        if given.timestamp is not None:
            properties[_CREATED] = repr(given.timestamp.timestamp())
        if given.user_id:
            if given.user_id != terms.user:
                raise Refused(PRECONDITION_FAILED, "user_id is not who is connected")
            properties[PREFIX + "user-id"] = terms.user
        said: dict[str, Any] = {
            "message_id": ids.kept(given.message_id or None, "message-id", properties),
            "correlation_id": ids.kept(given.correlation_id or None, "correlation-id", properties)}
        if given.reply_to:
            said.update(_reply_to(given.reply_to, properties))
        if delay := headers.get(_DELAY):
            if type(delay) is not int or not 0 < delay <= _TTL_MAX_MS:
                raise Refused(PRECONDITION_FAILED, f"{_DELAY} is no number of milliseconds")
            said["delay_s"] = delay / 1000
        if given.expiration:
            said["expiry_s"] = _expiry_s(given.expiration)
        return Outgoing(
            body=body, properties=properties,
            priority=None if given.priority is None else min(given.priority, PRIORITY_MAX),
            persistent=given.delivery_mode == PERSISTENT or len(body) > terms.threshold, **said)
    except (*UNREADABLE, BadArgument, BadName, RecursionError) as error:
        raise Refused(PRECONDITION_FAILED, f"a message that makes no sense: {error}") from error


def is_queue_name(name: str) -> bool:
    """Whether it is one as it is."""
    try:
        return bool(check_queue_name(name))
    except BadName:
        return False


def _reply_to(address: str, properties: dict[str, str]) -> dict[str, str]:
    try:
        return {"reply_to": check_queue_name(address)}
    except BadName:  # an address elsewhere
        properties[_REPLY_TO] = address
        return {}


def _expiry_s(text: str) -> float:
    """Milliseconds, in digits."""
    if not (text.isascii() and text.isdigit()):
        raise Refused(PRECONDITION_FAILED, "expiration is no number of milliseconds")
    return min(int(text[:20]), _TTL_MAX_MS) / 1000


def head_of(properties: Any, size: int) -> bytes:
    """The payload of a content's header. UNREADABLE."""
    return bytes(header.ContentHeader(0, size, properties).marshal())


def read(message: Message) -> tuple[str, str | None, bytes]:
    """The exchange and the routing key of a message that was taken (None: its queue), and the
    payload of its header. ValueError and others (UNREADABLE): who put it named properties as we
    do, and they make no sense."""
    texts = message.texts
    exchange, key = texts.pop(_EXCHANGE, ""), texts.pop(_KEY, None)
    commands.Basic.Publish(exchange=exchange, routing_key=key or "").marshal()
    return exchange, key, head_of(_properties(message, texts), len(message.body))


def _properties(message: Message, texts: dict[str, str]) -> Any:
    found: dict[str, Any] = {}
    for field, name in _TEXTS.items():
        if text := texts.pop(PREFIX + name, ""):
            found[field] = text
    if made := texts.pop(_CREATED, ""):
        found["timestamp"] = datetime.fromtimestamp(int(float(made)), UTC)
    if user := texts.pop(PREFIX + "user-id", ""):
        found["user_id"] = user
    known = message.ids
    for field, name, own in (("message_id", "message-id", known.message_id),
                             ("correlation_id", "correlation-id", known.correlation)):
        if (value := ids.given(own, name, texts)) is not None:
            found[field] = value.hex() if isinstance(value, bytes) else str(value)
    reply = texts.pop(_REPLY_TO, "") or (_reply_queue(message) if known.replies else "")
    if reply:
        found["reply_to"] = reply
    rest = texts.pop(HEADERS, "")
    headers = {name: _field(value) for name, value in values_out(texts).items()
               if not name.startswith(PREFIX)} if texts else {}
    if rest:
        headers |= decode.field_table(bytes.fromhex(rest))[1]
    if headers:
        found["headers"] = headers
    return commands.Basic.Properties(
        delivery_mode=PERSISTENT if message.persistent else 1,
        priority=min(message.priority, PRIORITY_MAX), **found)


def _field(value: Any) -> Any:
    """A value as a table of 0-9-1 has it."""
    if isinstance(value, bytes):
        return bytes(value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value if value is None else str(value)


def _reply_queue(message: Message) -> str:
    try:
        return str(message.reply_to)
    except OmqError:  # it is gone: nobody waits for the reply any more
        return ""
