"""Messages that a client holds: rows of a reply as objects, their payloads, and what the client has
said of them.

A row comes from the manager, in memory that the client itself can write: it is copied first, and
its lengths and places are not trusted. A payload is valid if its CRC matches; offsets in it are
bounded by its own length.
"""

from __future__ import annotations

import os
import time
from typing import Any

from omq.base import limits
from omq.base import shim as cython
from omq.base.checksum import crc32c
from omq.base.errors import BodyUnavailable, ConnectionForked, LeaseLost
from omq.fast.reader_note import Note
from omq.format.findings import Finding
from omq.format.message import DESCRIPTOR, MAGIC, PART, VERSION, bounds
from omq.format.wire import GIVEN, REPLY, SETTLE, GivenFlag, Settlement

_GIVEN_NAMES = ("entry", "queue", "priority", "flags", "qpool", "lease", "location", "offset",
                "length", "crc", "size", "submitted", "attempts", "retries", "inline")
assert GIVEN.size == REPLY.size == 64 and GIVEN.names == _GIVEN_NAMES
assert tuple(map(GIVEN.offset, _GIVEN_NAMES)) == (0, 4, 6, 7, 8, 16, 24, 28, 32, 36, 40, 48, 56, 58,
                                                  60)
_SETTLE_NAMES = ("kind", "spare", "reason", "entry", "qpool", "lease", "argument", "reason_at",
                 "spare2")
assert SETTLE.size == 40 and SETTLE.names == _SETTLE_NAMES
assert tuple(map(SETTLE.offset, _SETTLE_NAMES)) == (0, 1, 2, 4, 8, 16, 24, 32, 36)
assert tuple(map(DESCRIPTOR.offset, ("magic", "version", "parts", "properties"))) == (0, 2, 4, 8)
_MAGIC_1, _MAGIC_2, _VERSION = MAGIC[0], MAGIC[1], VERSION
_HEAD, _PART = DESCRIPTOR.size, PART.size
_INLINE, _ROWS_MAX, _QUEUES_MAX = int(GivenFlag.INLINE), limits.BATCH_MAX, limits.QUEUES_MAX
EXTENT_BYTES_MAX = 1 << 20
"""Payloads read at once."""
_EXTENT_MAX = EXTENT_BYTES_MAX
PROMPT_S = 0.03
"""The manager looks at the note 50 ms after it answered: what is noted later nobody would see."""
_PROMPT_S = PROMPT_S
_DONE = int(Settlement.DONE)
_PACK_SETTLE, _UNPACK_ROW = SETTLE.pack, GIVEN.unpack_from
_process = os.getpid()


def in_child(maker: int) -> bool:
    """Whether this is not the process `maker`: cheaper than to ask the kernel."""
    return maker != _process


def _forked() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_forked)

Record = tuple[bytes, bytes, "Facts"]
"""A settlement that is not answered yet: its row (wire.SETTLE), its reason, its message."""


class Extent:
    """Payloads that lie back to back in one file: read with one call when the first is wanted.
    Or one that came with the hand-out (`data`). `files`: storage.payloads.PayloadReader."""

    def __init__(self, files: Any, word: cython.uint, start: cython.Py_ssize_t,
                 end: cython.Py_ssize_t, data: bytes | None = None) -> None:
        self._files, self._word, self.start, self.end, self._data = files, word, start, end, data

    def piece(self, offset: cython.Py_ssize_t, length: cython.Py_ssize_t) -> bytes | None:
        """One payload; None when the extent cannot be read (moved meanwhile: ask one by one)."""
        data = self._data
        if data is None:
            try:
                data = self._files.read(self._word, self.start, self.end - self.start)
            except BodyUnavailable:
                data = b""
            self._data = data
        at: cython.Py_ssize_t = offset - self.start
        return data[at : at + length] if data else None


class Facts:
    """What a client knows of a message, as fields; what they mean says ipc.client.message. The
    others are for ipc.client.payload_facts and this module. `_wire`: its connection."""

    __slots__ = ("_body_at", "_crc", "_extent", "_flags", "_length", "_offset", "_properties_at",
                 "_raw", "_reader", "_wire", "_word", "attempts", "defers", "entry", "lease",
                 "priority", "put_time_ns", "qpool_id", "size")

    def __init__(self) -> None:
        self._reader: Any = None
        self._wire: Any = None
        self._extent: Extent | None = None
        self._raw: bytes | None = None
        self._flags = self._word = self._crc = self._offset = self._length = 0
        self._properties_at = self._body_at = 0
        self.entry = self.priority = self.attempts = self.defers = 0
        self.qpool_id = self.lease = self.size = self.put_time_ns = 0

    def _read(self) -> bytes:
        """The payload, unchecked; where it is not in an extent."""
        raise NotImplementedError

    def _damaged(self, got: int) -> Exception:
        """The error to raise for a payload with this CRC."""
        raise NotImplementedError

    def _load(self) -> bytes:
        """The payload, read and checked once."""
        raw = self._raw
        if raw is None:
            if self._reader is not None:
                self._reader.looked_into(self)
            if self._extent is not None:
                raw = self._extent.piece(self._offset, self._length)
            if raw is None:
                raw = self._read()
            got = crc32c(raw)
            if got != self._crc or not self._bounded(raw):
                raise self._damaged(got)
            self._raw = raw
        return raw

    def _bounded(self, raw: bytes) -> cython.bint:
        """Find where properties and body begin; as format.message.bounds. False: it is none."""
        if not cython.compiled:
            found = bounds(raw)
            if isinstance(found, Finding):
                return False
            self._properties_at, self._body_at = found
            return True
        size: cython.ulonglong = len(raw)
        if size < _HEAD or raw[0] != _MAGIC_1 or raw[1] != _MAGIC_2 or raw[2] > _VERSION:
            return False
        parts: cython.Py_ssize_t = raw[4] | raw[5] << 8
        properties: cython.ulonglong = raw[8] | raw[9] << 8 | raw[10] << 16
        properties += cython.cast(cython.ulonglong, raw[11]) << 24
        begin: cython.ulonglong = _HEAD + parts * _PART
        if parts > _QUEUES_MAX or begin + properties > size:
            return False
        self._properties_at, self._body_at = begin, begin + properties
        return True


class SettleRows:
    """Makes rows of settlements (wire.SETTLE)."""

    def __init__(self) -> None:
        said = memoryview(bytearray(40))
        self._said, self._s8, self._s16 = said, said, said.cast("H")
        self._s32, self._s64, self._q64 = said.cast("I"), said.cast("Q"), said.cast("q")

    def row(self, kind: cython.uint, entry: cython.uint, qpool: cython.ulonglong,
            lease: cython.ulonglong, argument: cython.longlong, length: cython.uint,
            at: cython.uint) -> bytes:
        """One of them. `length`: of its reason, `at`: where that is."""
        if not cython.compiled:
            return _PACK_SETTLE(kind, 0, length, entry, qpool, lease, argument, at, 0)
        self._s8[0], self._s16[1], self._s32[1] = kind, length, entry
        self._s64[1], self._s64[2] = qpool, lease
        self._q64[3], self._s32[8] = argument, at
        return bytes(self._said)


_settle_rows = SettleRows()


def done_rows(messages: list[Any]) -> list[Any]:
    """The rows of messages that are finished."""
    return [_settle_rows.row(_DONE, message.entry, message.qpool_id, message.lease, 0, 0, 0)
            for message in messages]


class Hold:
    """What a reader has in its hands: messages, what was said of them and not answered yet, and its
    note (None: it keeps none). `listed`: the highest lease of a list of which nothing is known yet;
    `asked`: when the last request went. `gathers`: a request follows at once, so none is sent only
    because time has passed."""

    def __init__(self, note: Note | None) -> None:
        self._maker = _process
        self._held: dict[int, Any] = {}
        self._records: list[Record] = []
        self._text_bytes = 0  # of the reasons in _records
        self._note = note
        self._work: Any = None  # what the note has as current
        self._also: dict[int, Any] = {}  # being processed at the same time, by QPoolId
        self._list = 0
        self._asked = 0.0
        self.gathers = False

    def settled(self, message: Facts, kind: cython.uint, argument: cython.longlong, text: bytes
                ) -> cython.bint:
        """The work on a message ended: recorded and noted; True: it must be sent now. LeaseLost
        when it is not held, ConnectionForked."""
        if self._maker != _process:
            raise ConnectionForked(maker=self._maker, child=os.getpid())
        if self._held.pop(message.qpool_id, None) is None:
            raise LeaseLost(qpool_id=message.qpool_id)
        row = _settle_rows.row(kind, message.entry, message.qpool_id, message.lease, argument,
                               len(text), self._text_bytes)
        self._records.append((row, text, message))
        self._text_bytes += len(text)
        note = self._note
        if note is None:
            return False
        if self._list:
            self._list = 0
            note.listed(0)
        if not note.settled(row, text):
            return True
        return not self.gathers and time.monotonic() - self._asked > _PROMPT_S

    def looked_into(self, message: Facts) -> None:
        """The program begins to work on a message of a list."""
        note = self._note
        if note is not None and message is not self._work and message.qpool_id in self._held:
            if self._list:
                self._list = 0
                note.listed(0)
            if self._work is None or self._held.get(self._work.qpool_id) is not self._work:
                self._work = message
                note.current(message.lease)
            elif self._also.get(message.qpool_id) is not message:
                self._also[message.qpool_id] = message
                note.also_in_work(message.entry, message.qpool_id, message.lease)


class Rows:
    """Makes the messages of a reply. `owner`: who has them in hand, a Hold or what has its
    `looked_into`; `held`: where they are noted by their QPoolId; `message`: their class, a child of
    Facts."""

    def __init__(self, owner: Any, held: dict[int, Any], wire: Any, files: Any, message: type
                 ) -> None:
        self._owner, self._held = owner, held
        self._wire, self._files, self._message = wire, files, message
        self._make_room(1)

    def _make_room(self, count: cython.Py_ssize_t) -> None:
        """For so many rows, of our own: what is read here nobody else writes."""
        self._room = count
        rows = memoryview(bytearray(64 * count))
        self._rows, self._b8, self._b16 = rows, rows, rows.cast("H")
        self._b32, self._b64, self._q64 = rows.cast("I"), rows.cast("Q"), rows.cast("q")

    def take(self, reply: Any, count: cython.Py_ssize_t, by_files: cython.bint
             ) -> list[Any]:
        """The first `count` rows after the head of `reply`, now held. `by_files`: payloads are
        read from the spool's files; else what did not come with the reply is asked for."""
        out: list[Any] = []
        held: dict[int, Any] = self._held
        count = min(count, _ROWS_MAX)
        if count > self._room:
            self._make_room(count)
        self._rows[: 64 * count] = reply[64 : 64 + 64 * count]
        last: Extent | None = None
        room: cython.Py_ssize_t = 0
        inline: cython.Py_ssize_t
        end: cython.Py_ssize_t
        i: cython.Py_ssize_t
        for i in range(count):
            message: Facts = self._message()
            inline = self._fill(message, i)
            end = message._offset
            end += message._length
            if message._flags & _INLINE:
                message._extent = Extent(None, 0, message._offset, end, bytes(
                    reply[inline : inline + message._length]))
            elif by_files and count > 1:
                if (last is None or last._word != message._word or last.end != message._offset
                        or message._length > room):
                    last = Extent(self._files, message._word, message._offset, message._offset)
                    room = _EXTENT_MAX
                last.end = end
                room -= message._length
                message._extent = last
            held[message.qpool_id] = message
            out.append(message)
        return out

    def _fill(self, message: Facts, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Its fields from row `i`; where its payload lies in the reply, if it came with it."""
        message._reader, message._wire = self._owner, self._wire
        if not cython.compiled:
            (message.entry, _, message.priority, message._flags, message.qpool_id, message.lease,
             message._word, message._offset, message._length, message._crc, message.size,
             message.put_time_ns, message.attempts, message.defers, inline
             ) = _UNPACK_ROW(self._rows, 64 * i)
            return inline  # type: ignore[no-any-return]
        at8: cython.Py_ssize_t = 8 * i
        at4: cython.Py_ssize_t = 16 * i
        at2: cython.Py_ssize_t = 32 * i
        message.entry = self._b32[at4]
        message.priority, message._flags = self._b8[64 * i + 6], self._b8[64 * i + 7]
        message.qpool_id, message.lease = self._b64[at8 + 1], self._b64[at8 + 2]
        message._word, message._offset = self._b32[at4 + 6], self._b32[at4 + 7]
        message._length, message._crc = self._b32[at4 + 8], self._b32[at4 + 9]
        message.size, message.put_time_ns = self._b64[at8 + 5], self._q64[at8 + 6]
        message.attempts, message.defers = self._b16[at2 + 28], self._b16[at2 + 29]
        return self._b32[at4 + 15]
