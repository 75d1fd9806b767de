"""A message of AMQP 0-9-1 as a message of omq, and back. NETWORK.md has the table.

What omq has no place for is a property named `amqp.*`, named as over AMQP 1.0 where that has the
same field, so that a message may come in by one protocol and go out by the other.

Errors: Refused, with the reply code of the standard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pamqp import commands

from omq.amqp.property_kinds import texts_in, values_out
from omq.base.errors import BadArgument, BadName, OmqError
from omq.base.names import check_queue_name
from omq.fast import amqp091_properties as properties
from omq.format.message import Said
from omq.ipc.client.message import Message
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp import ids
from omq.services.amqp.ids import PREFIX
from omq.services.amqp.translation import PRIORITY_MAX, RESERVED, Terms
from omq.services.amqp.untranslatable import UNREADABLE
from omq.services.amqp091 import tables
from omq.services.amqp091.refusals import NOT_IMPLEMENTED, PRECONDITION_FAILED, Refused

PERSISTENT: Final = 2
HEADERS: Final = PREFIX + "headers"
_TEXTS: Final = {"content_type": "content-type", "content_encoding": "content-encoding",
                 "message_type": "type", "app_id": "app-id"}
_CREATED: Final = PREFIX + "creation-time"
_REPLY_TO: Final = PREFIX + "reply-to"
_EXPIRATION: Final = PREFIX + "expiration"
_UNSAID: Final = 256
"""A priority that is not said."""
_LEFT_OPEN, _ID, _PRIORITY, _TRANSIENT, _PERSISTENT = (int(each) for each in (
    Said.LEFT_OPEN, Said.ID, Said.PRIORITY, Said.TRANSIENT, Said.PERSISTENT))
_DELAY: Final = "x-delay"
"""As the delayed message exchange has it."""
_EXCHANGE: Final = PREFIX + "exchange"
_KEY: Final = PREFIX + "routing-key"
_HEADER: Final = b"\x00\x3c\x00\x00"
_TTL_MAX_MS: Final = 100 * 366 * 86_400_000


def outgoing(raw: bytes, body: bytes, terms: Terms, exchange: str, key: str) -> Outgoing:
    """`raw`: properties as they came; where it was published. Refused; Malformed."""
    given = properties.read(raw)
    texts: dict[str, str] = {}
    if exchange:
        texts[_EXCHANGE] = exchange
    if exchange or not is_queue_name(key):
        texts[_KEY] = key
    headers = tables.fields(given["headers"]) if "headers" in given else {}
    for name in ("CC", "BCC"):
        if name in headers:
            raise Refused(NOT_IMPLEMENTED, f"the header {name} is not there")
    for name in headers:
        if name.startswith(RESERVED):
            raise Refused(PRECONDITION_FAILED, f"a header may not be named {name}")
    try:
        simple: dict[str, Any] = {}
        rest: dict[str, tables.Field] = {}
        for name, header in headers.items():
            known, exact, value = tables.simple(header)
            if known:
                simple[name] = value
            if not exact:  # it comes back as it was, whatever others see of it
                rest[name] = header
        if simple:
            texts.update(texts_in(simple))
        if rest:
            texts[HEADERS] = tables.table(rest).hex()
        for field, name in _TEXTS.items():
            if text := given.get(field):
                texts[PREFIX + name] = text
        if (made := given.get("timestamp")) is not None:
            texts[_CREATED] = repr(float(made))
        if user := given.get("user_id"):
            if user != terms.user:
                raise Refused(PRECONDITION_FAILED, "user_id is not who is connected")
            texts[PREFIX + "user-id"] = terms.user
        said: dict[str, Any] = {
            "message_id": ids.kept(given.get("message_id") or None, "message-id", texts),
            "correlation_id": ids.kept(given.get("correlation_id") or None, "correlation-id",
                                       texts)}
        if reply := given.get("reply_to"):
            said.update(_reply_to(reply, texts))
        delay: Any = simple.get(_DELAY, rest.get(_DELAY))
        if delay:
            if not isinstance(delay, int) or delay is True or not 0 < delay <= _TTL_MAX_MS:
                raise Refused(PRECONDITION_FAILED, f"{_DELAY} is not a number of milliseconds")
            said["delay_s"] = int(delay) / 1000
        if expiration := given.get("expiration"):
            said["expiry_s"] = _expiry_s(expiration)
            texts[_EXPIRATION] = expiration
        priority = given.get("priority")
        return Outgoing(
            body=body, properties=texts,
            priority=None if priority is None else min(priority, PRIORITY_MAX),
            persistent=given.get("delivery_mode") == PERSISTENT or len(body) > terms.threshold,
            said=_said_of(given), **said)
    except (*UNREADABLE, BadArgument, BadName, RecursionError) as error:
        raise Refused(PRECONDITION_FAILED, f"a message that makes no sense: {error}") from error


def _said_of(given: dict[str, Any]) -> int:
    """What of it a consumer is to get again, although a message of omq always has it."""
    mode = given.get("delivery_mode")
    return (_LEFT_OPEN | (_ID if given.get("message_id") else 0)
            | (0 if given.get("priority") is None else _PRIORITY)
            | (0 if mode is None else _PERSISTENT if mode == PERSISTENT else _TRANSIENT))


def is_queue_name(name: str) -> bool:
    """Whether it is one as it is."""
    try:
        return bool(check_queue_name(name))
    except BadName:
        return False


def _reply_to(address: str, texts: dict[str, str]) -> dict[str, str]:
    try:
        return {"reply_to": check_queue_name(address)}
    except BadName:  # an address elsewhere
        texts[_REPLY_TO] = address
        return {}


def _expiry_s(text: str) -> float:
    """Milliseconds, in digits."""
    if not (text.isascii() and text.isdigit()):
        raise Refused(PRECONDITION_FAILED, "expiration is not a number of milliseconds")
    return min(int(text[:20]), _TTL_MAX_MS) / 1000


def head_again(raw: bytes, size: int) -> bytes:
    """The payload of the header of a content that goes back to who published it."""
    return _HEADER + size.to_bytes(8, "big") + raw


@dataclass(frozen=True, slots=True)
class WrittenProperties:
    """What the properties of a message say, without what is its own. `exchange`, `key`: where it
    was published; `key` None: on its queue. `message_id`, `correlation_id`: None, as in the
    message. `flags`, `first`, `last`: for amqp091_properties.head."""

    exchange: str
    key: str | None
    message_id: str | None
    correlation_id: str | None
    reply_to: str
    expiration: str
    flags: int
    first: bytes
    last: bytes


def said(texts: dict[str, str]) -> WrittenProperties:
    """`texts` are the caller's own. ValueError and others (UNREADABLE): who put it named properties
    as we do, and they make no sense."""
    exchange, key = texts.pop(_EXCHANGE, ""), texts.pop(_KEY, None)
    commands.Basic.Publish(exchange=exchange, routing_key=key or "").marshal()
    found: dict[str, Any] = {}
    for field, name in _TEXTS.items():
        if text := texts.pop(PREFIX + name, ""):
            found[field] = text
    if made := texts.pop(_CREATED, ""):
        found["timestamp"] = int(float(made))
    if user := texts.pop(PREFIX + "user-id", ""):
        found["user_id"] = user
    message_id, correlation_id = _kept("message-id", texts), _kept("correlation-id", texts)
    reply_to, expiration = texts.pop(_REPLY_TO, ""), texts.pop(_EXPIRATION, "")
    for each in (message_id, correlation_id, reply_to, expiration):
        properties.short(each or "")
    rest = texts.pop(HEADERS, "")
    headers = {name: tables.field(name, value) for name, value in values_out(texts).items()
               if not name.startswith(PREFIX)} if texts else {}
    if rest:
        headers |= {name: field for name, field in tables.fields(bytes.fromhex(rest)).items()
                    if name not in headers or tables.same(field, headers[name])}
    if headers:
        found["headers"] = tables.table(headers)
    return WrittenProperties(exchange, key, message_id, correlation_id, reply_to,
                             expiration, *properties.written(found))


def _kept(name: str, texts: dict[str, str]) -> str | None:
    value = ids.given("", name, texts)
    return None if value is None else value.hex() if isinstance(value, bytes) else str(value)


def head_of(message: Message, what: WrittenProperties) -> bytes:
    """The payload of its header: what its publisher said, if that was by this protocol, and
    otherwise all that is known. UNREADABLE."""
    known, open_ = message.ids, message.said
    mode, priority = (PERSISTENT if message.persistent else 1), min(message.priority, PRIORITY_MAX)
    message_id = known.message_id if what.message_id is None else what.message_id
    if open_ & _LEFT_OPEN:
        mode = PERSISTENT if open_ & _PERSISTENT else 1 if open_ & _TRANSIENT else 0
        priority = priority if open_ & _PRIORITY else _UNSAID
        message_id = message_id if open_ & _ID else ""
    return properties.head(
        message.size, mode, priority, what.flags, what.first, what.last,
        known.correlation if what.correlation_id is None else what.correlation_id,
        what.reply_to or (_reply_queue(message) if known.replies else ""),
        message_id, what.expiration)


def _reply_queue(message: Message) -> str:
    try:
        return str(message.reply_to)
    except OmqError:  # it is gone: nobody waits for the reply any more
        return ""
