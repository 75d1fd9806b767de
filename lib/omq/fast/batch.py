"""Messages that consist only of bodies, or differ only in these, as a PUT_MANY carries them; and
the ids of the messages that were put.
"""

from __future__ import annotations

from typing import Any

from omq.base import limits
from omq.base import shim as cython
from omq.base.checksum import crc32c
from omq.format.journal import FRAME, FrameType
from omq.format.message import DESCRIPTOR, Descriptor

assert tuple(map(FRAME.offset, ("type", "priority", "flags", "queue", "size", "length", "crc",
                                "offset"))) == (0, 1, 2, 4, 32, 40, 44, 48)
_PUT, _NORMAL, _PERSISTENT = int(FrameType.PUT), limits.PRIORITY_NORMAL, 1
_SIZE, _BATCH_MAX, _HEAD = FRAME.size, limits.BATCH_MAX, DESCRIPTOR.size
_BODY_AT = DESCRIPTOR.offset("body")
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
    """The bodies of objects of this `kind` that share one mapping of properties, priority and
    persistence, and say nothing else. None: they do not, or one has more bytes."""
    same: cython.bint = bool(messages) and type(messages[0]) is kind
    if not same:
        return None
    first = messages[0]
    properties, priority, persistent = first.properties, first.priority, first.persistent
    out: list[Any] = []
    size: cython.Py_ssize_t
    for message in messages:
        same = type(message) is kind
        if (not same or message.properties is not properties
                or message.priority != priority or message.persistent != persistent
                or not _alone(message, queue)):
            return None
        body = message.body
        size = len(body)
        if size > size_max:
            return None
        out.append(body)
    return out


def _only_a_body(message: Any, queue: str) -> cython.bint:
    priority, persistent = message.priority, message.persistent
    if ((priority is not None and priority != _NORMAL)
            or (persistent is not None and not persistent) or message.properties):
        return False
    return _alone(message, queue)


def _alone(message: Any, queue: str) -> cython.bint:
    queues = message.queues
    if queues and (len(queues) != 1 or queues[0] != queue):
        return False
    return not (message.correlation_id or message.message_id
                or message.expiry_s is not None or message.reply_to or message.delay_s
                or message.at is not None or message.group_id)


class Batch:
    """The bodies of one request: `count` of them, `length` bytes of payloads; `data` is what
    is in the channel."""

    def __init__(self) -> None:
        self.count = self.length = 0
        self.data = b""
        head = memoryview(bytearray(_SIZE))
        self._head, self._b8, self._b16 = head, head, head.cast("H")
        self._b32, self._b64 = head.cast("I"), head.cast("Q")
        self._b8[0], self._b8[1], self._b16[1] = _PUT, _NORMAL, _PERSISTENT

    def take(self, queue: cython.uint, messages: list[Any], start: cython.Py_ssize_t,
             room: cython.Py_ssize_t, priority: cython.uint = _NORMAL,
             flags: cython.uint = _PERSISTENT, pattern: bytes = b"") -> cython.Py_ssize_t:
        """Those from `start` on, as many as fit `room` bytes and a request; how many those are.
        `pattern`: what precedes each body where that is more than a descriptor which says
        nothing: a descriptor, to which the size of the body is added, and properties."""
        count: cython.Py_ssize_t = 0
        own: cython.Py_ssize_t = len(pattern) if pattern else _HEAD
        heads_of: dict[Any, Any] = {}
        known: Any
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
            if not pattern:
                known = plain_head(size)
            else:
                known = heads_of.get(size)
                if known is None:
                    said = int(size).to_bytes(8, "little")
                    made = b"".join((pattern[:_BODY_AT], said, pattern[_BODY_AT + 8 :]))
                    known = heads_of[size] = made, crc32c(made)
            crc = crc32c(body, known[1])
            bodies.append(known[0])
            bodies.append(body)
            heads.append(self._frame(queue, priority, flags, own, size, crc, total))
            total += own + size
            count += 1
        self.count, self.length = count, total
        self.data = b"".join(heads + bodies)
        return count

    def _frame(self, queue: cython.uint, priority: cython.uint, flags: cython.uint,
               own: cython.Py_ssize_t, size: cython.Py_ssize_t, crc: cython.uint,
               offset: cython.Py_ssize_t) -> bytes:
        """A frame header with what the submitter says; the manager fills in the rest."""
        if not cython.compiled:
            return _PACK_HEAD(_PUT, priority, flags, queue, 0, 0, 0, 0, size, own + size,
                              crc, offset, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        self._b8[1], self._b16[1] = priority, flags
        self._b16[2], self._b64[4], self._b32[10] = queue, size, own + size
        self._b32[11], self._b32[12] = crc, offset
        return bytes(self._head)


def id_texts(prefix: str, first: cython.ulonglong, count: cython.Py_ssize_t) -> list[Any]:
    """The ids of so many messages, of which `first` is the first QPoolId."""
    i: cython.Py_ssize_t
    out: list[Any] = []
    for i in range(count):
        out.append(prefix + f"{first + i:016x}")
    return out
