"""Messages as the requests that put them carry them: their frame headers, and many at once that
consist only of bodies, or differ only in these and in their groups; and the ids of the messages
that were put.
"""

from __future__ import annotations

from typing import Any

from omq.base import limits
from omq.base import shim as cython
from omq.base.checksum import crc32c
from omq.base.names import id_bytes
from omq.format.journal import FRAME, FrameType
from omq.format.message import (
    DESCRIPTOR,
    GROUP_AT,
    LAST_IN_GROUP,
    NUMBER_AT,
    Descriptor,
    said_of,
)
from omq.format.wire import PutFlag

if cython.compiled:
    from cython.cimports.omq.fast.copied import start_of as _start_of
    from cython.cimports.omq.fast.crc32c import crc32c_after as _crc32c_after
    from cython.cimports.omq.fast.crc32c import has_crc32c as _has_crc32c
else:
    from omq.base.shim import crc32c_after as _crc32c_after
    from omq.base.shim import has_crc32c as _has_crc32c
    from omq.base.shim import start_of as _start_of

assert tuple(map(FRAME.offset, (
    "type", "priority", "flags", "queue", "size", "length", "crc", "offset", "parts", "lease",
    "correlation", "argument"))) == (0, 1, 2, 4, 32, 40, 44, 48, 62, 72, 96, 104)
_PUT, _NORMAL, _PERSISTENT = int(FrameType.PUT), limits.PRIORITY_NORMAL, 1
_SIZE, _BATCH_MAX, _HEAD = FRAME.size, limits.BATCH_MAX, DESCRIPTOR.size
_GROUPED, _ID, _LAST = int(PutFlag.GROUPED), limits.MESSAGE_ID_BYTES, LAST_IN_GROUP
_BODY_AT, _GROUP_AT, _NUMBER_AT = DESCRIPTOR.offset("body"), GROUP_AT, NUMBER_AT
assert _BODY_AT < _GROUP_AT < _NUMBER_AT and _GROUP_AT + _ID <= _NUMBER_AT
assert (_BODY_AT, _GROUP_AT, _NUMBER_AT, _ID, _HEAD) == (16, 80, 132, 24, 160)
_MARK = 32
_SHORT = 4096
"""The library's function is quicker with more bytes than that, which it sums in three streams."""
_OWN_SUM = bool(_has_crc32c())
_PLAIN = Descriptor().encode()
_PACK_HEAD = FRAME.pack
_HEADS_MAX = 256
_heads: dict[int, Any] = {}


def plain_head(size: cython.Py_ssize_t) -> tuple[bytes, int]:
    """What precedes a body of so many bytes in the payload of a message that has nothing but
    a body, and its CRC-32C, to be continued."""
    known = _heads.get(size)
    if known is None:
        said = int(size).to_bytes(8, "little")
        head = b"".join((_PLAIN[:_BODY_AT], said, _PLAIN[_BODY_AT + 8 :]))
        known = head, crc32c(head)
        if len(_heads) >= _HEADS_MAX:
            _heads.clear()
        _heads[size] = known
    return known


def bodies_of(messages: list[Any], kind: type, queue: str, size_max: cython.Py_ssize_t
              ) -> list[Any] | None:
    """The bodies of messages that say nothing else: bytes, and objects of this `kind`
    (ipc.wire.outgoing.Outgoing) for this queue, persistent and of normal priority where they say
    so. None: one of them is more, or has more bytes."""
    out: list[Any] = []
    size: cython.Py_ssize_t
    described: cython.bint
    for message in messages:
        body = message
        described = type(message) is kind
        if described:
            if not _only_a_body(message, queue):
                return None
            body = message.body
        if type(body) is not bytes:
            return None
        size = len(body)
        if size > size_max:
            return None
        out.append(body)
    return out


def alike_bodies(messages: list[Any], kind: type, queue: str, size_max: cython.Py_ssize_t
                 ) -> list[Any] | None:
    """The bodies of objects of this `kind` that share one mapping of properties, or have none,
    priority, persistence and what they leave open, and say nothing else but a group. None: they do
    not, or one has more bytes."""
    same: cython.bint = bool(messages) and type(messages[0]) is kind
    if not same:
        return None
    first = messages[0]
    properties, priority, persistent = first.properties, first.priority, first.persistent
    said = first.said
    out: list[Any] = []
    size: cython.Py_ssize_t
    for message in messages:
        same = type(message) is kind
        if (not same or message.priority != priority or message.persistent != persistent
                or message.said != said or not _at_once(message, queue)):
            return None
        if message.properties is not properties and (message.properties or properties):
            return None
        body = message.body
        size = len(body)
        if size > size_max:
            return None
        out.append(body)
    return out


class Marks:
    """What messages say of their groups, as descriptors have it: of each the 24 bytes of the
    group's id, zeros where it has none, and the 4 of its number there."""

    def __init__(self, count: cython.Py_ssize_t) -> None:
        said = memoryview(bytearray(_MARK * count))
        self._s8, self._s32, self._s64 = said, said.cast("I"), said.cast("Q")

    def note(self, i: cython.Py_ssize_t, group: bytes, number: cython.uint) -> None:
        """Message `i` is of this group."""
        k: cython.Py_ssize_t
        assert len(group) <= _ID
        for k in range(len(group)):
            self._s8[_MARK * i + k] = group[k]
        self._s32[8 * i + 6] = number

    def has(self, i: cython.Py_ssize_t) -> cython.bint:
        """Message `i` is of a group."""
        return bool(self._s64[4 * i] or self._s64[4 * i + 1] or self._s64[4 * i + 2])


def marks_of(messages: list[Any]) -> Any:
    """The Marks of messages; None: none of them has a group."""
    count: cython.Py_ssize_t = len(messages)
    i: cython.Py_ssize_t
    number: cython.uint
    marks: Marks | None = None
    for i in range(count):
        message = messages[i]
        said = message.group_id
        if said:
            if marks is None:
                marks = Marks(count)
            number = message.group_sequence
            if message.last_in_group:
                number |= _LAST
            group: Any = id_bytes(said) if isinstance(said, str) else bytes(said)
            marks.note(i, group, number)
    return marks


class Descriptors:
    """Makes what precedes the bodies of messages that share all but these and their groups.
    `pattern`: as Batch.take has it; `crc`: the CRC-32C of what was made last."""

    def __init__(self, pattern: bytes) -> None:
        made = memoryview(bytearray(pattern.ljust(len(pattern) + 7 & ~7)))
        self._size, self.crc = len(pattern), 0
        self._m8, self._m32, self._m64 = made, made.cast("I"), made.cast("Q")

    def of(self, size: cython.ulonglong, marks: Marks | None, i: cython.Py_ssize_t) -> bytes:
        """Of a body of so many bytes, of the group that `marks` has for message `i`."""
        self._m64[2] = size
        if marks is not None:
            self._m64[10], self._m64[11] = marks._s64[4 * i], marks._s64[4 * i + 1]
            self._m64[12], self._m32[33] = marks._s64[4 * i + 2], marks._s32[8 * i + 6]
        made: bytes = _start_of(self._m8, self._size)
        self.crc = _sum(made, 0)
        return made


def _sum(data: bytes, crc: cython.uint) -> cython.uint:
    """The CRC-32C of it, continued from `crc`."""
    if _OWN_SUM and len(data) <= _SHORT:
        found: cython.uint = _crc32c_after(crc, data)
    else:
        found = crc32c(data, crc)
    return found


def group_mark(group: bytes, number: cython.uint) -> bytes:
    """The id of a group and a number in it, as a descriptor has them."""
    return group.ljust(_ID, b"\0") + int(number).to_bytes(4, "little")


def _only_a_body(message: Any, queue: str) -> cython.bint:
    priority, persistent = message.priority, message.persistent
    if ((priority is not None and priority != _NORMAL)
            or (persistent is not None and not persistent) or message.properties
            or message.said):
        return False
    return _at_once(message, queue) and not message.group_id


def _at_once(message: Any, queue: str) -> cython.bint:
    queues = message.queues
    if queues and (len(queues) != 1 or queues[0] != queue):
        return False
    return not (message.correlation_id or message.message_id
                or message.expiry_s is not None or message.reply_to or message.delay_s
                or message.at is not None)


class Heads:
    """Makes frame headers with what a submitter says; the manager fills in the rest."""

    def __init__(self) -> None:
        head = memoryview(bytearray(_SIZE))
        self._head, self._b8, self._b16 = head, head, head.cast("H")
        self._b32, self._b64, self._q64 = head.cast("I"), head.cast("Q"), head.cast("q")
        self._b8[0] = _PUT

    def plain(self, queue: cython.uint, priority: cython.uint, flags: cython.uint,
              size: cython.ulonglong, length: cython.uint, crc: cython.uint, offset: cython.uint
              ) -> bytes:
        """Of a message that says no more than its body."""
        return self.full(queue, priority, flags, size, length, crc, offset, 0, 0, 0, 0)

    def full(self, queue: cython.uint, priority: cython.uint, flags: cython.uint,
             size: cython.ulonglong, length: cython.uint, crc: cython.uint, offset: cython.uint,
             parts: cython.uint, key: cython.ulonglong, correlation: cython.ulonglong,
             expiry: cython.longlong) -> bytes:
        """Of any message."""
        if not cython.compiled:
            return _PACK_HEAD(_PUT, priority, flags, queue, 0, 0, 0, 0, size, length, crc, offset,
                              0, 0, 0, 0, parts, 0, 0, key, 0, 0, correlation, expiry, 0, 0, 0, 0)
        self._b8[1], self._b16[1], self._b16[2] = priority, flags, queue
        self._b64[4], self._b32[10], self._b32[11], self._b32[12] = size, length, crc, offset
        self._b16[31], self._b64[9] = parts, key
        self._b64[12], self._q64[13] = correlation, expiry
        made: bytes = _start_of(self._b8, _SIZE)
        return made


_heads_of_frames = Heads()


def head_of(encoded: Any, offset: cython.uint) -> bytes:
    """The frame header of an encoded message (ipc.wire.outgoing.Encoded); its payload begins at
    `offset` of those of its request."""
    payload: bytes = encoded.payload
    return _heads_of_frames.full(
        encoded.queue, encoded.priority, encoded.flags, encoded.size, len(payload), encoded.crc,
        offset, encoded.parts, encoded.key, encoded.correlation, encoded.expiry)


def part_bytes(rows: list[Any], new: list[Any]) -> tuple[bytes, int]:
    """A request, or a part of one: `rows` of bytes, the frame headers of encoded messages, their
    payloads; and how many bytes of it are payloads."""
    pieces: list[Any] = list(rows)
    at: cython.Py_ssize_t = 0
    for encoded in new:
        pieces.append(head_of(encoded, at))
        at += len(encoded.payload)
    for encoded in new:
        pieces.append(encoded.payload)
    return b"".join(pieces), at


class Batch:
    """The bodies of one request: `count` of them, `length` bytes of payloads; `data` is what
    is in the channel."""

    def __init__(self) -> None:
        self.count = self.length = 0
        self.data = b""

    def take(self, queue: cython.uint, messages: list[Any], start: cython.Py_ssize_t,
             room: cython.Py_ssize_t, priority: cython.uint = _NORMAL,
             flags: cython.uint = _PERSISTENT, pattern: bytes = b"",
             marks: Marks | None = None) -> cython.Py_ssize_t:
        """Those from `start` on, as many as fit `room` bytes and a request; how many those are.
        `pattern`: what precedes each body where that is more than a descriptor which says
        nothing: a descriptor, to which the size of the body is added, and properties. `marks`: of
        all messages, for their descriptors. A message with neither properties nor a group that
        leaves nothing open has a descriptor that says nothing."""
        count: cython.Py_ssize_t = 0
        own: cython.Py_ssize_t = len(pattern) if pattern else _HEAD
        bare: cython.bint = own == _HEAD and (not pattern or said_of(pattern) == 0)
        described: Descriptors = Descriptors(pattern if pattern else _PLAIN)
        known: Any
        grouped: cython.bint
        said: cython.uint
        total: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        crc: cython.uint
        i: cython.Py_ssize_t
        heads: list[Any] = []
        bodies: list[Any] = []
        for i in range(start, len(messages)):
            body: bytes = messages[i]
            size = len(body)
            if count == _BATCH_MAX or total + (count + 1) * _SIZE + own + size > room:
                break
            grouped = marks is not None and marks.has(i)
            if bare and not grouped:
                known = plain_head(size)
                bodies.append(known[0])
                crc = known[1]
            else:
                bodies.append(described.of(size, marks, i))
                crc = described.crc
            said = flags | _GROUPED if grouped else flags
            crc = _sum(body, crc)
            bodies.append(body)
            heads.append(_heads_of_frames.plain(queue, priority, said, size, own + size, crc,
                                                total))
            total += own + size
            count += 1
        self.count, self.length = count, total
        self.data = b"".join(heads + bodies)
        return count


def headed(pattern: bytes, size: cython.Py_ssize_t, mark: bytes) -> tuple[bytes, int]:
    """What precedes a body of so many bytes, and its CRC-32C, to be continued; see Batch.take."""
    parts: list[Any] = [pattern[:_BODY_AT], int(size).to_bytes(8, "little")]
    if mark:
        parts += [pattern[_BODY_AT + 8 : _GROUP_AT], mark[:_ID],
                  pattern[_GROUP_AT + _ID : _NUMBER_AT], mark[_ID:], pattern[_NUMBER_AT + 4 :]]
    else:
        parts.append(pattern[_BODY_AT + 8 :])
    made: bytes = b"".join(parts)
    return made, crc32c(made)


def id_texts(prefix: str, first: cython.ulonglong, count: cython.Py_ssize_t) -> list[Any]:
    """The ids of so many messages, of which `first` is the first QPoolId."""
    i: cython.Py_ssize_t
    out: list[Any] = []
    for i in range(count):
        out.append(prefix + f"{first + i:016x}")
    return out
