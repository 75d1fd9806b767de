"""Frames of AMQP 1.0 (ISO 19464 part 2, 2.3 and 2.7) that came, one after the other.

    frame     size (4, big endian), offset of its body in words, type 0, channel (2)
    body      a performative: a described list; a transfer's is followed by its payload; or nothing

`transfer`, `flow` and `disposition` are read flat, into numbers of `Frames`; the fields of the
others are a list, as from amqp_decoding. An absent field is -1 or None. Fields that may be wrong
without ending the connection stay bytes, decoded by whoever uses them: source, target and
properties of an attach, and the fields of a delivery's state (`outcome` says which state).

`run` reads on from a transfer as long as whole messages of its link follow.

Invariants: 1. of the input at most one frame is kept, and that is at most `size_max` bytes; 2.
`next` leaves nothing of a frame before it in the numbers that go with the performative; 3. `run`
takes nothing of a frame that is not of the run: `next` reads that one, or raises for it.

Errors: Malformed, with amqp:connection:framing-error for bytes that are not a frame.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.fast.amqp_decoding import Decoder
from omq.format.amqp_performatives import NAMES
from omq.format.amqp_types import Malformed

_ATTACH, _FLOW, _TRANSFER, _DISPOSITION = 0x12, 0x13, 0x14, 0x15
_FRAMING = "amqp:connection:framing-error"
_HEAD = 8
_TAG_BYTES_MAX = 32
_MASK = 0xFFFFFFFF


class Frames:
    """What came on a connection behind its header."""

    def __init__(self, size_max: cython.Py_ssize_t) -> None:
        self._d = Decoder()
        self._size_max = size_max
        self._parts: list[bytes] = []
        self._data = b""
        self._at = self._have = self._wanted = 0
        self.channel = 0
        self.code = -1
        self.fields: list[Any] | None = None
        self._none()

    def _none(self) -> None:
        self.handle = self.delivery_id = self.last_id = self.message_format = -1
        self.role = self.settled = self.more = self.aborted = self.resume = self.batchable = -1
        self.next_incoming = self.incoming_window = self.next_outgoing = -1
        self.outgoing_window = self.delivery_count = self.credit = self.available = -1
        self.drain = self.echo = self.outcome = -1
        self.tag: bytes | None = None
        self.state = b""
        self.payload = b""

    def feed(self, data: bytes) -> None:
        """More came; `next` gives the frames in it."""
        self._parts.append(data)
        self._have += len(data)

    def next(self) -> cython.bint:
        """Whether there is a whole frame; its numbers are here then. Malformed."""
        if self._have < _HEAD or self._have < self._wanted:
            return False
        if self._parts:
            self._parts.insert(0, self._data[self._at :] if self._at else self._data)
            self._data, self._parts, self._at = b"".join(self._parts), [], 0
        d = self._d
        d.over(self._data, self._at, len(self._data))
        size: cython.ulonglong = d.number(4)
        if size < _HEAD or size > cython.cast(cython.ulonglong, self._size_max):
            raise Malformed(f"a frame of {int(size)} bytes", _FRAMING)
        if size > cython.cast(cython.ulonglong, self._have):
            self._wanted = cython.cast(cython.Py_ssize_t, size)
            return False
        length: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, size)
        offset: cython.Py_ssize_t = 4 * d.byte()
        kind: cython.uint = d.byte()
        if offset < _HEAD or offset > length or kind != 0:
            raise Malformed("a frame of another type, or with a head that is none", _FRAMING)
        self.channel = d.number(2)
        d.over(self._data, self._at + offset, self._at + length)
        self._at += length
        self._have -= length
        self._wanted = 0
        self._body(d)
        if not self._have:
            self._data, self._at = b"", 0
        return True

    def run(self, most: cython.Py_ssize_t, bytes_max: cython.Py_ssize_t, known: dict[int, Any]
            ) -> tuple[list[Any], list[Any]]:
        """Tags and payloads of the transfer that `next` has read and of those after it, `most` at
        most, as far as they are of one link, settled or not as the first is, each a message that
        is whole in its frame, with neither a state nor more than `bytes_max` bytes of payload, and
        each has the number after that of the one before it, which is not among those `known`. The
        first is not looked at; the numbers here are those of the last frame that was."""
        tags: list[Any] = [self.tag]
        payloads: list[Any] = [self.payload]
        channel: cython.uint = self.channel
        handle: cython.longlong = self.handle
        settled: cython.longlong = self.settled
        number: cython.longlong = self.delivery_id
        at: cython.Py_ssize_t
        have: cython.Py_ssize_t
        fits: cython.bint
        while len(payloads) < most:
            data, at, have = self._data, self._at, self._have
            number = number + 1 & _MASK
            try:
                fits = self.next()
            except Malformed:  # it is met again, when all before it has been looked at
                fits = False
            if fits:
                fits = (self.code == _TRANSFER and self.channel == channel
                        and self.handle == handle and self.delivery_id == number
                        and self.tag is not None and self.settled == settled and self.more != 1
                        and self.aborted != 1 and self.outcome < 0
                        and 0 < len(self.payload) <= bytes_max and number not in known)
            if not fits:
                self._data, self._at, self._have, self._wanted = data, at, have, 0
                break
            tags.append(self.tag)
            payloads.append(self.payload)
        return tags, payloads

    def _body(self, d: Decoder) -> None:
        self.fields = None
        if d.at == d.end:
            self.code = -1
            return
        code: cython.longlong = d.descriptor()
        if code < 0:
            code = NAMES.get(d.named, -1)
        if code < 0x10 or code > 0x18:
            raise Malformed("not a performative")
        self.code = code
        i: cython.Py_ssize_t
        count: cython.Py_ssize_t
        ends: cython.Py_ssize_t = d.end
        if code < _FLOW or code > _DISPOSITION:
            self.fields = []
            for i in range(d.fields()):
                if code == _ATTACH and (i == 5 or i == 6 or i == 13):
                    self.fields.append(d.cut_out())
                else:
                    self.fields.append(d.value(1))
            if d.at != d.stop:
                raise Malformed("a performative is longer than its fields")
        else:
            self._none()
            count = d.fields()
            d.end = d.stop
            if code == _TRANSFER:
                self._transfer(d, count)
            elif code == _DISPOSITION:
                self._disposition(d, count)
            else:
                self._flow(d, count)
            if d.at != d.stop:
                raise Malformed("a performative is longer than its fields")
            d.end = ends
            if code == _TRANSFER:
                self.payload = d.data[d.at : ends]
                return
        if d.at != ends:
            raise Malformed("something follows a performative")

    def _transfer(self, d: Decoder, count: cython.Py_ssize_t) -> None:
        i: cython.Py_ssize_t
        for i in range(count):
            if i == 0:
                self.handle = self._uint(d)
            elif i == 1:
                self.delivery_id = self._uint(d)
            elif i == 2:
                self._tag(d)
            elif i == 3:
                self.message_format = self._uint(d)
            elif i == 4:
                self.settled = self._bool(d)
            elif i == 5:
                self.more = self._bool(d)
            elif i == 7:
                self._state(d)
            elif i == 8:
                self.resume = self._bool(d)
            elif i == 9:
                self.aborted = self._bool(d)
            elif i == 10:
                self.batchable = self._bool(d)
            else:
                d.skip()
        if self.handle < 0:
            raise Malformed("a transfer has no handle")

    def _disposition(self, d: Decoder, count: cython.Py_ssize_t) -> None:
        i: cython.Py_ssize_t
        for i in range(count):
            if i == 0:
                self.role = self._bool(d)
            elif i == 1:
                self.delivery_id = self._uint(d)
            elif i == 2:
                self.last_id = self._uint(d)
            elif i == 3:
                self.settled = self._bool(d)
            elif i == 4:
                self._state(d)
            elif i == 5:
                self.batchable = self._bool(d)
            else:
                d.skip()
        if self.role < 0 or self.delivery_id < 0:
            raise Malformed("a disposition has no role, or no first")
        if self.last_id < 0:
            self.last_id = self.delivery_id

    def _flow(self, d: Decoder, count: cython.Py_ssize_t) -> None:
        i: cython.Py_ssize_t
        for i in range(count):
            if i == 0:
                self.next_incoming = self._uint(d)
            elif i == 1:
                self.incoming_window = self._uint(d)
            elif i == 2:
                self.next_outgoing = self._uint(d)
            elif i == 3:
                self.outgoing_window = self._uint(d)
            elif i == 4:
                self.handle = self._uint(d)
            elif i == 5:
                self.delivery_count = self._uint(d)
            elif i == 6:
                self.credit = self._uint(d)
            elif i == 7:
                self.available = self._uint(d)
            elif i == 8:
                self.drain = self._bool(d)
            elif i == 9:
                self.echo = self._bool(d)
            else:
                d.skip()
        if self.incoming_window < 0 or self.next_outgoing < 0 or self.outgoing_window < 0:
            raise Malformed("a flow has no windows")

    def _uint(self, d: Decoder) -> cython.longlong:
        code: cython.uint = d.byte()
        if code == 0x52:
            return d.byte()
        if code == 0x70:
            return cython.cast(cython.longlong, d.number(4))
        if code == 0x43:
            return 0
        if code == 0x40:
            return -1
        raise Malformed("a number of 32 bits was to come")

    def _bool(self, d: Decoder) -> cython.longlong:
        code: cython.uint = d.byte()
        if code == 0x41:
            return 1
        if code == 0x42:
            return 0
        if code == 0x40:
            return -1
        if code == 0x56:
            truth: cython.uint = d.byte()
            if truth < 2:
                return truth
        raise Malformed("a boolean was to come")

    def _tag(self, d: Decoder) -> None:
        code: cython.uint = d.byte()
        if code == 0xA0:
            self.tag = d.raw(d.number(1))
        elif code == 0xB0:
            self.tag = d.raw(d.number(4))
        elif code != 0x40:
            raise Malformed("a binary was to come")
        if self.tag is not None and len(self.tag) > _TAG_BYTES_MAX:
            raise Malformed("a delivery tag has at most 32 bytes")

    def _state(self, d: Decoder) -> None:
        if d.at < d.end and d.data[d.at] == 0x40:
            d.at += 1
            return
        code: cython.longlong = d.descriptor()
        if code < 0:
            code = NAMES.get(d.named, 0)
        self.outcome = code
        if d.at < d.end and d.data[d.at] == 0x45:  # most have no fields
            d.at += 1
            return
        self.state = d.cut_out()
