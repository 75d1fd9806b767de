"""The message as it travels: descriptor, queue parts, properties, body. Written by the submitter.

    payload := descriptor (160 bytes), part * parts, properties, body

The same bytes go from the submitter's channel into the PUT frame of the journal, later into a store
file, and back to the reader; their one CRC-32C is computed by the submitter and checked by the
reader, end to end. The queue manager copies them unread, except the parts of a message for several
queues.

Descriptor fields (those without meaning yet are kept for it: report, ...):
    magic "MD"        parts      number of queue parts after it; 0 = the one queue of the frame
    flags             Said: what its publisher said where another protocol may leave it open
    properties        bytes of the properties          body   bytes of the body, also a container's
    body_crc          CRC-32C of a container's content; 0 for an inline body
    message_id        24 bytes; zero = derived from instance and QPoolId
    correlation_id    24 bytes, zero = none               group_id  the same
    group_sequence    number in the group from 1, 0 = none; LAST_IN_GROUP with the last one's
    segment_offset    not used
    expiry            wall clock ns, 0 = never            report         report options
    reply_to, origin  queue ids, 0 = none                 item_type, encoding
    application       first 12 bytes of the putting program's name
    trace_id          16 bytes (W3C trace context)
A container's payload ends in its item reference (text, ITEM_REF) instead of the body.
Properties: count, then (key bytes, value bytes, key, value) each, UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from omq.base import limits
from omq.base.clock import NS_PER_S
from omq.base.errors import BadProperty
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout

MAGIC = b"MD"
VERSION = 1
DESCRIPTOR = Layout(
    "magic:2s version:B item_type:B parts:H flags:H properties:I body_crc:I body:Q expiry:q "
    "message_id:24s correlation_id:24s group_id:24s trace_id:16s application:12s "
    "group_sequence:I segment_offset:I report:I reply_to:H origin:H encoding:I reserved:8s",
    160,
)
_BOUNDS = Layout("magic:2s version:B item_type:B parts:H flags:H properties:I", 12)  # its start
_IDS = Struct("<q24s24s24s40xH")  # of it, for ids_of
_SAID_AT, _REPLY_AT = DESCRIPTOR.offset("flags"), DESCRIPTOR.offset("reply_to")
_IDS_AT = DESCRIPTOR.offset("expiry")
assert [DESCRIPTOR.offset(each) - _IDS_AT for each in (
    "message_id", "correlation_id", "group_id", "reply_to")] == [8, 32, 56, _IDS.size - 2]
_ID_AT, _TRACE_AT = DESCRIPTOR.offset("message_id"), DESCRIPTOR.offset("trace_id")
GROUP_AT, NUMBER_AT = DESCRIPTOR.offset("group_id"), DESCRIPTOR.offset("group_sequence")
PART = Layout("queue:H priority:B flags:B until:I", 8)
HUNDREDTH_NS = 10_000_000
_HUNDREDTHS, _MOMENT = 0x7F, 0x80  # of a part's flags
_COUNT = Layout("count:H", 2)
_PROPERTY = Layout("key:H value:I", 6)
NO_ID = bytes(24)
LAST_IN_GROUP = 1 << 31
ID_PREFIX = b"OMQ1"


class Said(IntFlag):
    """Bits of DESCRIPTOR.flags. A message of omq always has an id, a priority and a persistence;
    one that came by a protocol which leaves them open says here which of them its publisher gave,
    so that who takes it by the same protocol gets these and no others. 0: by no such protocol."""

    LEFT_OPEN = 1  # what no other bit names was not given
    ID = 2
    PRIORITY = 4
    TRANSIENT = 8  # it was given a persistence, namely this
    PERSISTENT = 16


@dataclass(frozen=True, slots=True)
class Part:
    """One queue that a new message goes on; `until` defers it (unix seconds, rounded up; 0 = not),
    and is what a restart knows. It is a moment of the wall clock, or the end of a delay."""

    queue: int
    priority: int
    flags: int = 0  # hundredths of a second that `until` is too late; 128: it is a moment
    until: int = 0

    @property
    def until_ns(self) -> int:
        """Exactly, to 10 ms."""
        late = min(self.flags & _HUNDREDTHS, 99) * HUNDREDTH_NS
        return self.until * NS_PER_S - late if self.until else 0

    @property
    def is_moment(self) -> bool:
        """`until` was said as a moment of the wall clock: it follows the clock when that is set."""
        return bool(self.flags & _MOMENT and self.until)

    @staticmethod
    def later(queue: int, priority: int, until_ns: int, *, moment: bool = False) -> Part:
        """Not before then (wall clock, 0 = at once), rounded up to 10 ms."""
        if until_ns <= 0:
            return Part(queue, priority)
        until = -(-until_ns // NS_PER_S)
        late = (until * NS_PER_S - until_ns) // HUNDREDTH_NS
        return Part(queue, priority, late | (_MOMENT if moment else 0), until)


class Descriptor(NamedTuple):
    """The fixed part of a message; see the module for the fields."""

    parts: int = 0
    properties: int = 0
    body: int = 0
    body_crc: int = 0
    item_type: int = 0
    flags: int = 0
    expiry: int = 0
    message_id: bytes = NO_ID
    correlation_id: bytes = NO_ID
    group_id: bytes = NO_ID
    trace_id: bytes = bytes(16)
    application: bytes = b""
    group_sequence: int = 0
    segment_offset: int = 0
    report: int = 0
    reply_to: int = 0
    origin: int = 0
    encoding: int = 0

    @property
    def number(self) -> int:
        """Its number in its group, from 1; 0: none."""
        return self.group_sequence & LAST_IN_GROUP - 1

    @property
    def last(self) -> bool:
        """It is the last one of its group."""
        return bool(self.group_sequence & LAST_IN_GROUP)

    def encode(self) -> bytes:
        """Its bytes."""
        return self.sized(self.parts, self.properties, self.body, self.body_crc)

    def sized(self, parts: int, properties: int, body: int, body_crc: int) -> bytes:
        """Its bytes, with these lengths."""
        return DESCRIPTOR.pack(
            MAGIC, VERSION, self.item_type, parts, self.flags, properties, body_crc,
            body, self.expiry, self.message_id, self.correlation_id, self.group_id,
            self.trace_id, self.application, self.group_sequence, self.segment_offset,
            self.report, self.reply_to, self.origin, self.encoding, b"")


@dataclass(frozen=True, slots=True)
class Payload:
    """A decoded payload: where its pieces lie inside the bytes it was decoded from."""

    descriptor: Descriptor
    parts: tuple[Part, ...]
    properties_at: int
    body_at: int
    end: int


def derived_id(uuid: bytes, qpool: int) -> bytes:
    """The message id of a message that was put without one: 24 bytes, unique to the instance."""
    return ID_PREFIX + uuid[:12] + qpool.to_bytes(8, "big")


def qpool_of(message_id: bytes, uuid: bytes) -> int:
    """The QPoolId inside a derived message id of this instance, 0 if it is not one."""
    if message_id[:16] == ID_PREFIX + uuid[:12]:
        return int.from_bytes(message_id[16:24], "big")
    return 0


def id_hash(identifier: bytes) -> int:
    """64-bit hash of a message or correlation id for the index; 0 only for no id."""
    stripped = identifier.rstrip(b"\0")
    if not stripped:
        return 0
    return int.from_bytes(blake2b(stripped, digest_size=8).digest(), "little") or 1


def group_of(payload: bytes | memoryview) -> tuple[int, int]:
    """The hash of a payload's group id, and its group_sequence; of a payload that has both."""
    group, number = group_said(payload)
    return id_hash(group), number


def group_said(payload: bytes | memoryview) -> tuple[bytes, int]:
    """The group id itself, all 24 bytes, and the group_sequence."""
    group = bytes(payload[GROUP_AT : GROUP_AT + len(NO_ID)])
    return group, int.from_bytes(payload[NUMBER_AT : NUMBER_AT + 4], "little")


def id_of(payload: bytes | memoryview) -> bytes:
    """The message id in a payload's descriptor, all 24 bytes."""
    return bytes(payload[_ID_AT : _ID_AT + len(NO_ID)])


def memory_of(payload: bytes | memoryview) -> tuple[int, bytes]:
    """What the memory of an id says (core.engine.duplicates): hash of the queue's name, the id."""
    return int.from_bytes(payload[_TRACE_AT : _TRACE_AT + 8], "little"), id_of(payload)


def parts_in(payload: bytes | memoryview, count: int) -> list[Part]:
    """The first `count` queue parts after the descriptor; fewer where the payload is shorter."""
    room = (len(payload) - DESCRIPTOR.size) // PART.size
    return [Part(*PART.unpack_from(payload, DESCRIPTOR.size + i * PART.size))
            for i in range(min(count, room))]


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Properties as bytes; BadProperty when over a limit."""
    if not properties:
        return b""
    out = [_COUNT.pack(len(properties))]
    for key, value in properties.items():
        raw, text = key.encode(), value.encode()
        if not raw or len(raw) > limits.PROPERTY_NAME_BYTES_MAX:
            raise BadProperty(name=key, rule=f"1 to {limits.PROPERTY_NAME_BYTES_MAX} bytes")
        out += (_PROPERTY.pack(len(raw), len(text)), raw, text)
    data = b"".join(out)
    if len(data) > limits.PROPERTIES_BYTES_MAX:
        raise BadProperty(name="(all)", rule=f"together {limits.PROPERTIES_BYTES_MAX} bytes")
    return data


def decode_properties(data: bytes | memoryview) -> dict[str, str] | Finding:
    """The properties in exactly these bytes."""
    if not data:
        return {}
    view = memoryview(data)
    if len(view) < _COUNT.size:
        return Finding(Kind.SHORT, "properties cut")
    (count,) = _COUNT.unpack_from(view)
    at, out = _COUNT.size, {}
    for _ in range(count):
        if len(view) - at < _PROPERTY.size:
            return Finding(Kind.SHORT, "properties cut")
        key, value = _PROPERTY.unpack_from(view, at)
        at += _PROPERTY.size
        if key + value > len(view) - at:
            return Finding(Kind.CORRUPT, "property longer than its bytes")
        name = bytes(view[at : at + key]).decode("utf-8", "replace")
        out[name] = bytes(view[at + key : at + key + value]).decode("utf-8", "replace")
        at += key + value
    return out


def pack_parts(parts: Sequence[Part]) -> bytes:
    """The queues of a message, or of a MOVE, one after another."""
    return b"".join(PART.pack(part.queue, part.priority, part.flags, part.until) for part in parts)


def encode(descriptor: Descriptor, parts: Sequence[Part], properties: bytes,
           body: bytes | memoryview, size: int = -1, body_crc: int = 0) -> bytes:
    """A payload; `size` is the body's length where the body here is an item reference."""
    head = descriptor.sized(len(parts), len(properties), len(body) if size < 0 else size, body_crc)
    return b"".join((head, pack_parts(parts) if parts else b"", properties, body))


def bounds(data: bytes | memoryview) -> tuple[int, int] | Finding:
    """(start of the properties, start of the body) of a payload: what reading a body needs, at a
    fraction of the cost of `decode`."""
    if len(data) < DESCRIPTOR.size:
        return Finding(Kind.SHORT, f"{len(data)} bytes, a descriptor has {DESCRIPTOR.size}")
    magic, version, _, parts, _, properties = _BOUNDS.unpack_from(data)
    if magic != MAGIC:
        return Finding(Kind.CORRUPT, "not a message: wrong magic")
    if version > VERSION:
        return Finding(Kind.NEWER, f"message version {version}, known {VERSION}")
    properties_at = DESCRIPTOR.size + parts * PART.size
    if parts > limits.QUEUES_MAX or properties_at + properties > len(data):
        return Finding(Kind.CORRUPT, "message lengths do not fit")
    return properties_at, properties_at + properties


def ids_of(data: bytes) -> tuple[int, bytes, bytes, bytes, int]:
    """Of a payload whose bounds are right: when it ends, the ids of message, correlation and group,
    and the queue for replies."""
    found: tuple[int, bytes, bytes, bytes, int] = _IDS.unpack_from(data, _IDS_AT)
    return found


def replies_of(data: bytes) -> bool:
    """Of the same: whether there is a queue for replies."""
    return data[_REPLY_AT] != 0 or data[_REPLY_AT + 1] != 0


def said_of(data: bytes) -> int:
    """Of the same: its `Said`."""
    return data[_SAID_AT] | data[_SAID_AT + 1] << 8


def decode(data: bytes | memoryview) -> Payload | Finding:
    """Descriptor and bounds of a payload. The body is not copied."""
    view = memoryview(data)
    if len(view) < DESCRIPTOR.size:
        return Finding(Kind.SHORT, f"{len(view)} bytes, a descriptor has {DESCRIPTOR.size}")
    (magic, version, item_type, parts, flags, properties, body_crc, body, expiry, message_id,
     correlation_id, group_id, trace_id, application, group_sequence, segment_offset, report,
     reply_to, origin, encoding, _) = DESCRIPTOR.unpack_from(view)
    if magic != MAGIC:
        return Finding(Kind.CORRUPT, "not a message: wrong magic")
    if version > VERSION:
        return Finding(Kind.NEWER, f"message version {version}, known {VERSION}")
    properties_at = DESCRIPTOR.size + parts * PART.size
    body_at = properties_at + properties
    if parts > limits.QUEUES_MAX or body_at > len(view):
        return Finding(Kind.CORRUPT, "message lengths do not fit")
    listed = tuple(Part(*PART.unpack_from(view, DESCRIPTOR.size + i * PART.size))
                   for i in range(parts))
    descriptor = Descriptor(parts, properties, body, body_crc, item_type, flags, expiry, message_id,
                            correlation_id, group_id, trace_id, application.rstrip(b"\0"),
                            group_sequence, segment_offset, report, reply_to, origin, encoding)
    return Payload(descriptor, listed, properties_at, body_at, len(view))
