"""A message of AMQP 1.0 as a message of omq, and back. NETWORK.md has the table.

What omq has no place for is a property named `amqp.*`, so that it comes out as it went in; a
message that a native program put has none of these, and comes out as one section of data.
Properties that are not strings keep their type (amqp.property_kinds).

Errors: Untranslatable, with the condition of AMQP.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from omq.amqp.property_kinds import texts_in, values_out
from omq.amqp.whole_values import decoded as value_of
from omq.base.clock import NS_PER_S
from omq.base.errors import BadArgument, BadName, OmqError
from omq.base.limits import AMQP_TTL_MAX_S
from omq.base.names import check_queue_name
from omq.fast.amqp_encoding import encoded as encoded_value
from omq.fast.amqp_message import Sections, body_at, head
from omq.format.amqp_types import Malformed, Symbol, Timestamp, Uint
from omq.ipc.client.browsed import Browsed
from omq.ipc.client.message import Message as Native
from omq.ipc.client.remote.failure_annotations import PREFIX as PREFIX_OF_FAILURE
from omq.ipc.client.remote.failure_annotations import annotations_of
from omq.ipc.wire.arguments import SECONDS_MAX
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp import bodies, ids, sections
from omq.services.amqp.ids import PREFIX
from omq.services.amqp.untranslatable import UNREADABLE, Untranslatable

ANNOTATIONS: Final = PREFIX + "annotations"
FOOTER: Final = PREFIX + "footer"
RESERVED: Final = (PREFIX, "omq.")
DELIVERY_TIME: Final = "x-opt-delivery-time"  # ms since 1970
DELIVERY_DELAY: Final = "x-opt-delivery-delay"  # ms
PRIORITY_MAX: Final = 9
HEAD_BYTES_MAX: Final = 128 * 1024
"""More than all that a message which omq takes has besides its body."""
PATTERNS_MAX: Final = 64
"""That are remembered of a link: each is at most 512 bytes, and what was made of them."""
(_ID, _USER, _TO, _SUBJECT, _REPLY_TO, _CORRELATION, _CONTENT_TYPE, _CONTENT_ENCODING, _EXPIRY,
 _CREATED, _GROUP, _SEQUENCE, _REPLY_GROUP) = range(13)
_FIELDS: Final = 13
_TEXTS: Final = {
    _SUBJECT: PREFIX + "subject", _TO: PREFIX + "to", _CONTENT_TYPE: PREFIX + "content-type",
    _CONTENT_ENCODING: PREFIX + "content-encoding",
    _REPLY_GROUP: PREFIX + "reply-to-group-id"}
_SYMBOLS: Final = (_CONTENT_TYPE, _CONTENT_ENCODING)
_NS_PER_MS: Final = 1_000_000
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
    message = Sections()
    try:
        message.read(bytes(data), HEAD_BYTES_MAX)
        return _outgoing(message, terms, kind, foot or message.footer)
    except UNREADABLE as error:
        raise Untranslatable("amqp:decode-error", f"not an AMQP message: {error}") from error
    except (BadArgument, BadName) as error:
        raise Untranslatable("amqp:invalid-field", str(error)) from error


class Patterns:
    """Messages of one sender. What says the same before its body as one before is not read again:
    `decoded` makes the same of the same bytes, but of a time that is left."""

    def __init__(self, user: str, threshold: int) -> None:
        self._terms = [Terms(user, settled=each, threshold=threshold) for each in (False, True)]
        self._known: dict[tuple[bytes, bool], Outgoing] = {}

    def message(self, data: bytes, *, settled: bool) -> Outgoing:
        """As `decoded`. Untranslatable."""
        made, body = self.parts(data, settled=settled)
        return made if body is None else made.with_body(body)

    def parts(self, data: bytes, *, settled: bool) -> tuple[Outgoing, bytes | None]:
        """The same message; or a pattern, the same object for all that say the same, and a body.
        Untranslatable."""
        terms = self._terms[settled]
        at = body_at(data)
        if at < 0 or len(data) - at > terms.threshold:
            return decoded(data, terms), None
        # Before a body are 5 bytes of its section, or 8: then the fifth is its code, 0xB0.
        said = data[: at - (8 if data[at - 5] else 5)], settled
        pattern = self._known.get(said)
        if pattern is not None:
            return pattern, data[at:]
        made = decoded(data, terms)
        if made.expiry_s is None and not made.message_id and not made.correlation_id:
            if len(self._known) >= PATTERNS_MAX:
                self._known.clear()
            self._known[said] = made.with_body(b"")
        return made, None


def _outgoing(message: Sections, terms: Terms, kind: str, foot: bytes) -> Outgoing:
    properties = _application_properties(message.application) if message.application else {}
    body = b"" if kind else bodies.body(message, properties)
    if kind not in ("", "data"):
        properties[PREFIX + "body"] = kind
    said = _said(message.properties, terms, properties) if message.properties else {}
    notes = message.annotations
    if notes:
        if kept := {name: value for name, value in notes.items()
                    if str(name) not in (DELIVERY_DELAY, DELIVERY_TIME)}:
            properties[ANNOTATIONS] = encoded_value(kept).hex()
        said.update(_delay(notes))
    if foot:
        properties[FOOTER] = foot.hex()
    expires = said.pop("expires", None)
    if message.ttl or expires:
        said["expiry_s"] = _expiry_s(message.ttl, expires)
    return Outgoing(
        body=body, properties=properties, priority=min(message.priority, PRIORITY_MAX),
        persistent=(message.durable and not terms.settled) or bool(kind)
        or len(body) > terms.threshold, **said)


def _said(fields: list[Any], terms: Terms, properties: dict[str, str]) -> dict[str, Any]:
    """What the section of properties says, for Outgoing; what has no place there goes into
    `properties`. `expires`: milliseconds since 1970."""
    fields = [*fields, *[None] * (_FIELDS - len(fields))]
    for place, name in _TEXTS.items():
        if (value := fields[place]) is not None:
            properties[name] = _text(value)
    if user := fields[_USER]:
        if not isinstance(user, bytes) or user != terms.user.encode():
            raise Untranslatable("amqp:unauthorized-access", "user-id is not who is connected")
        properties[PREFIX + "user-id"] = terms.user
    found: dict[str, Any] = {
        "message_id": ids.kept(fields[_ID], "message-id", properties),
        "correlation_id": ids.kept(fields[_CORRELATION], "correlation-id", properties),
        "group_id": ids.kept(fields[_GROUP], "group-id", properties)}
    if fields[_SEQUENCE]:  # 0 is what it is where nobody says it
        properties[PREFIX + "group-sequence"] = str(int(fields[_SEQUENCE]))
    if (created := fields[_CREATED]) is not None:
        properties[PREFIX + "creation-time"] = said = repr(int(created) / 1000)
        if round(float(said) * 1000) != created:
            raise Malformed("a creation-time that no clock has")
    if fields[_EXPIRY]:
        found["expires"] = int(fields[_EXPIRY])
    if address := fields[_REPLY_TO]:
        found["reply_to"] = _reply_to(_text(address), properties)
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Malformed("a property is not text")
    return str(value)


def _application_properties(given: dict[Any, Any]) -> dict[str, str]:
    if reserved := next((name for name in map(str, given) if name.startswith(RESERVED)), ""):
        raise Untranslatable("amqp:invalid-field", f"a property may not be named {reserved}")
    return texts_in(given)


def _expiry_s(ttl_ms: int, expires_ms: int | None) -> float:
    left: list[float] = []
    if ttl_ms:
        left.append(ttl_ms / 1000)
    if expires_ms:
        left.append(max(0.0, expires_ms / 1000 - time.time()))
    return min(*left, _TIME_MAX_S)


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
        return _encoded(message)
    except UNREADABLE as error:
        raise Untranslatable("amqp:decode-error", f"cannot be an AMQP message: {error}") from error


def encoded_head(message: Native | Browsed) -> bytes | None:
    """The bytes before those of its body, which are to follow as they are; None: this body goes as
    a whole. The errors of `encoded`."""
    kind = message.texts.get(PREFIX + "body", "data")
    if kind not in sections.KINDS:
        return None
    try:
        head = _encoded(message, bodiless=True)
    except UNREADABLE as error:
        raise Untranslatable("amqp:decode-error", f"cannot be an AMQP message: {error}") from error
    return head + sections.opening(kind, message.size)  # `footer` follows


def footer(message: Native | Browsed) -> bytes:
    """What follows the bytes of its body."""
    return sections.footer_section(bytes.fromhex(message.texts.get(FOOTER, "")))


def _encoded(message: Native | Browsed, *, bodiless: bool = False) -> bytes:
    texts = message.texts if message.properties_bytes else {}
    attempts = message.attempts
    fields: list[Any] = [None] * _FIELDS
    kind, notes, foot = "data", "", ""
    if texts and any(name.startswith(PREFIX) for name in texts):
        kind = texts.pop(PREFIX + "body", "data")
        notes = texts.pop(ANNOTATIONS, "")
        foot = texts.pop(FOOTER, "")
        _fields(fields, texts)
    known = message.ids
    if texts:
        fields[_ID] = ids.given(known.message_id, "message-id", texts)
        fields[_CORRELATION] = ids.given(known.correlation, "correlation-id", texts)
        fields[_GROUP] = ids.given(known.group_id, "group-id", texts)
    else:  # as `given` has it where no property says more
        fields[_ID] = known.message_id or None
        fields[_CORRELATION], fields[_GROUP] = known.correlation or None, known.group_id or None
    if fields[_CREATED] is None:
        fields[_CREATED] = Timestamp(message.put_time_ns // _NS_PER_MS)
    if known.replies and fields[_REPLY_TO] is None:
        fields[_REPLY_TO] = _reply_queue(message) or None
    ttl = 0
    if known.expiry_ns:
        left_s = min(max(0.001, (known.expiry_ns - time.time_ns()) / NS_PER_S), AMQP_TTL_MAX_S)
        ttl = int(left_s * 1000)
    made: bytes = head(
        message.persistent, min(message.priority, PRIORITY_MAX), ttl, attempts == 0, attempts,
        _annotations(message, notes) if notes or message.noted else {}, fields,
        values_out(texts) if texts else {})
    if bodiless:
        return made
    made += bodies.section(message.body, kind)
    return made + sections.footer_section(bytes.fromhex(foot)) if foot else made


def _fields(fields: list[Any], texts: dict[str, str]) -> None:
    """Properties of ours that stand for fields of AMQP go there."""
    if sequence := texts.pop(PREFIX + "group-sequence", ""):
        number = int(sequence)  # of clients that take it for one with a sign, too
        fields[_SEQUENCE] = Uint(number if number >= 0 else number + (1 << 32))
    if made := texts.pop(PREFIX + "creation-time", ""):
        fields[_CREATED] = Timestamp(round(float(made) * 1000))
    if address := texts.pop(PREFIX + "reply-to", ""):
        fields[_REPLY_TO] = address
    if user := texts.pop(PREFIX + "user-id", ""):
        fields[_USER] = user.encode()
    texts.pop(PREFIX + "expiration", "")  # of AMQP 0-9-1: the ttl says what is left of it
    for place, name in _TEXTS.items():
        if (text := texts.pop(name, None)) is not None:
            fields[place] = Symbol(text) if place in _SYMBOLS else text


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
