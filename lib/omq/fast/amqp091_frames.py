"""Frames of AMQP 0-9-1 that came, one after the other (2.3 and 4.2 of the standard).

    frame     type (method 1, header 2, body 3, heart-beat 8), channel (2), size (4), payload, 0xCE
    method    class (2), number (2), arguments
    header    class (2), weight (2), size of the body (8), flags and properties

basic.publish and basic.ack are read flat, into fields of `Frames`; `kind` is the number of the
method then. For every other frame `kind` is the frame's type, and `payload` has its bytes: for a
method those of the whole frame, for the library that decodes it; for a header those of its
properties with their flags.

Invariants: 1. of the input at most one frame is kept, and that is at most `most` bytes; 2.
`next` leaves nothing of the frame before it in the fields that go with the kind.

Errors: Malformed, with FRAMING for bytes that are not a frame.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.format.amqp_types import Malformed

FRAMING = "frame"
PUBLISH, ACK = 0x3C0028, 0x3C0050
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
OVERHEAD = 8
_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_PUBLISH, _ACK, _BASIC = 0x3C0028, 0x3C0050, 60
_FRAMING = FRAMING
_HEAD, _OVERHEAD, _END = 7, 8, 0xCE


class Frames:
    """What came on a connection behind its header. `most`: bytes of one frame."""

    def __init__(self, most: cython.Py_ssize_t) -> None:
        self.most = most
        self._parts: list[bytes] = []
        self._data = b""
        self._at = self._have = self._wanted = self._stop = 0
        self._exchange_bytes = self._key_bytes = b""
        self.kind = self.channel = self.size = 0
        self.exchange = self.key = ""
        self.mandatory = self.immediate = self.multiple = False
        self.tag = self.body_size = 0
        self.payload = b""

    def feed(self, data: bytes) -> None:
        """More came; `next` gives the frames in it."""
        self._parts.append(data)
        self._have += len(data)

    def next(self) -> cython.bint:
        """Whether there is a whole frame; its fields are here then. Malformed."""
        if self._have < _HEAD or self._have < self._wanted:
            return False
        if self._parts:
            self._parts.insert(0, self._data[self._at :] if self._at else self._data)
            self._data, self._parts, self._at = b"".join(self._parts), [], 0
        at: cython.Py_ssize_t = self._at
        size: cython.ulonglong = self._number(at + 3, 4)
        if size + _OVERHEAD > cython.cast(cython.ulonglong, self.most):
            raise Malformed(f"a frame of {int(size)} bytes", _FRAMING)
        whole: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, size) + _OVERHEAD
        if whole > self._have:
            self._wanted = whole
            return False
        data = self._data
        if data[at + whole - 1] != _END:
            raise Malformed("a frame without its end", _FRAMING)
        self.kind = data[at]
        self.channel = cython.cast(cython.uint, self._number(at + 1, 2))
        self.size = whole - _OVERHEAD
        self._wanted = 0
        self._at += whole
        self._have -= whole
        self._stop = at + whole - 1
        if self.kind == _BODY:
            self.payload = data[at + _HEAD : self._stop]
        elif self.kind == _METHOD:
            self._method(at + _HEAD)
        elif self.kind == _HEADER:
            self._header(at + _HEAD)
        elif self.kind != _HEARTBEAT:
            raise Malformed(f"a frame of type {self.kind}", _FRAMING)
        if not self._have:
            self._data, self._at = b"", 0
        return True

    def _method(self, at: cython.Py_ssize_t) -> None:
        if self._stop - at < 4:
            raise Malformed("a method is cut")
        number: cython.ulonglong = self._number(at, 4)
        if number == _PUBLISH:
            self._publish(at + 4)
        elif number == _ACK:
            if self._stop - at != 13:
                raise Malformed("basic.ack has another size")
            self.tag = self._number(at + 4, 8)
            self.multiple = self._data[at + 12] & 1 == 1
        else:
            self.payload = self._data[at - _HEAD : self._stop + 1]
            return
        self.kind = cython.cast(cython.uint, number)

    def _publish(self, at: cython.Py_ssize_t) -> None:
        exchange: bytes = self._short(at + 2)  # after a ticket that nobody has any more
        key: bytes = self._short(at + 3 + len(exchange))
        bits: cython.Py_ssize_t = at + 4 + len(exchange) + len(key)
        if bits != self._stop - 1:
            raise Malformed("basic.publish has another size")
        if exchange != self._exchange_bytes:  # the same few recur
            self.exchange, self._exchange_bytes = _text(exchange), exchange
        if key != self._key_bytes:
            self.key, self._key_bytes = _text(key), key
        self.mandatory = self._data[bits] & 1 == 1
        self.immediate = self._data[bits] >> 1 & 1 == 1

    def _header(self, at: cython.Py_ssize_t) -> None:
        if self._stop - at < 14:
            raise Malformed("a header is cut")
        if self._number(at, 2) != _BASIC:
            raise Malformed("a header of another class than basic")
        self.body_size = self._number(at + 4, 8)
        self.payload = self._data[at + 12 : self._stop]

    def _short(self, at: cython.Py_ssize_t) -> bytes:
        """The bytes of a short string."""
        if at >= self._stop:
            raise Malformed("a short string is cut")
        ends: cython.Py_ssize_t = at + 1 + self._data[at]
        if ends > self._stop:
            raise Malformed("a short string is cut")
        return self._data[at + 1 : ends]

    def _number(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.ulonglong:
        """`size` bytes that are there, big endian."""
        found: cython.ulonglong = 0
        ends: cython.Py_ssize_t = at + size
        data = self._data
        while at < ends:
            found = (found << 8) | data[at]
            at += 1
        return found


def _text(raw: bytes) -> Any:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("a short string is not UTF-8") from None
