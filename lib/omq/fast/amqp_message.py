"""The sections of a message of AMQP 1.0 (ISO 19464 part 3, 3.2), out of bytes and into them.

    header 0x70, delivery annotations 0x71 (for one hop: passed over), message annotations 0x72,
    properties 0x73, application properties 0x74, then the body: data 0x75, one or more, whose bytes
    are one body; sequences 0x76, one or more; or one value 0x77; footer 0x78

Invariants: 1. a body that is neither data, a string nor a binary is not decoded: it is checked just
as strictly, and kept as bytes; 2. the sections before and after the body are at most `head_max`
bytes, so the objects made of them are bounded.

Errors: Malformed.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.fast.amqp_decoding import Decoder
from omq.fast.amqp_encoding import listed, put, text, uint
from omq.format.amqp_performatives import NAMES
from omq.format.amqp_types import Malformed

_HEADER, _DELIVERY, _ANNOTATIONS, _PROPERTIES = 0x70, 0x71, 0x72, 0x73
_APPLICATION, _DATA, _SEQUENCE, _VALUE, _FOOTER = 0x74, 0x75, 0x76, 0x77, 0x78
_PROPERTIES_MAX = 13
_PRIORITY = 4
_ONE = tuple(bytes((each,)) for each in range(256))
_WHOLE_HEAD_MAX = 512


class Sections:
    """A message that came. `kind`: data, sequence, value, or "" for none; `body`: bytes of data, or
    a value encoded (several sequences: the lists, one after the other); `footer`: its map."""

    def __init__(self) -> None:
        self._d = Decoder()
        self._begin()

    def _begin(self) -> None:
        self.durable = self.first_acquirer = False
        self.priority = _PRIORITY
        self.ttl = self.delivery_count = 0
        self.annotations: dict[Any, Any] | None = None
        self.properties: list[Any] | None = None
        self.application: dict[Any, Any] | None = None
        self.kind = ""
        self.body = self.footer = b""

    def read(self, data: bytes, head_max: cython.Py_ssize_t) -> None:
        """All of these bytes."""
        self._begin()
        d = self._d
        d.over(data, 0, len(data))
        last: cython.longlong = 0
        parts: list[bytes] = []
        beside: cython.Py_ssize_t = 0
        while d.at < d.end:
            begins: cython.Py_ssize_t = d.at
            code: cython.longlong = d.descriptor()
            if code < 0:
                code = NAMES.get(d.named, -1)
            if code < _HEADER or code > _FOOTER:
                raise Malformed("not a section of a message")
            if code < last or (code == last and code != _DATA and code != _SEQUENCE) or (
                    _DATA <= last < _FOOTER and code < _FOOTER and code != last):
                raise Malformed("the sections of a message are not in order")
            last = code
            if _DATA <= code < _FOOTER:
                self._body(d, code, parts)
                continue
            value_at: cython.Py_ssize_t = d.at
            d.skip()
            beside += d.at - begins
            if beside > head_max:
                raise Malformed("more is around the body than a message may have")
            self._section(d, code, value_at)
        if parts:
            self.body = parts[0] if len(parts) == 1 else b"".join(parts)

    def _body(self, d: Decoder, code: cython.longlong, parts: list[Any]) -> None:
        at: cython.Py_ssize_t = d.at
        if code == _DATA:
            self.kind = "data"
            first: cython.uint = d.byte()
            if first == 0xA0:
                parts.append(d.raw(d.number(1)))
            elif first == 0xB0:
                parts.append(d.raw(d.number(4)))
            else:
                raise Malformed("a section of data is a binary")
            return
        self.kind = "value" if code == _VALUE else "sequence"
        d.skip()
        if code == _SEQUENCE and d.data[at] != 0x45 and d.data[at] != 0xC0 and d.data[at] != 0xD0:
            raise Malformed("a section of a sequence is a list")
        parts.append(d.data[at : d.at])

    def _section(self, d: Decoder, code: cython.longlong, at: cython.Py_ssize_t) -> None:
        ends: cython.Py_ssize_t = d.at
        if code == _DELIVERY:
            return
        d.at = at
        if code == _HEADER:
            self._header(d)
        elif code == _FOOTER:
            first: cython.uint = d.byte()
            if first != 0xC1 and first != 0xD1:
                raise Malformed("a footer is a map")
            self.footer = d.data[at:ends]
        else:
            found: Any = d.value()
            kind: Any = list if code == _PROPERTIES else dict
            if type(found) is not kind:
                raise Malformed("a section has no such value")
            if code == _ANNOTATIONS:
                self.annotations = found
            elif code == _APPLICATION:
                self.application = found
            elif len(found) > _PROPERTIES_MAX:
                raise Malformed("there are no such properties")
            else:
                self.properties = found
        d.at = ends

    def _header(self, d: Decoder) -> None:
        found = d.value()
        if type(found) is not list or len(found) > 5:
            raise Malformed("a header is a list of 5")
        i: cython.Py_ssize_t
        for i in range(len(found)):
            value = found[i]
            if value is None:
                continue
            if type(value) is not bool if i == 0 or i == 3 else not isinstance(value, int):
                raise Malformed("a field of the header is of another type")
            if i == 0:
                self.durable = value
            elif i == 1:
                self.priority = min(max(0, value), 255)
            elif i == 2:
                self.ttl = min(max(0, value), 4294967295)
            elif i == 3:
                self.first_acquirer = value
            else:
                self.delivery_count = min(max(0, value), 4294967295)


def head(durable: cython.bint, priority: cython.uint, ttl: cython.ulonglong,
         first_acquirer: cython.bint, delivery_count: cython.ulonglong,
         annotations: dict[Any, Any], properties: list[Any], application: dict[Any, Any]) -> bytes:
    """What precedes a body. `ttl` in milliseconds, 0: none."""
    made = bytearray()
    made += b"\x41\x50" if durable else b"\x42\x50"
    made += _ONE[priority]
    if ttl:
        uint(made, ttl)
    else:
        made += b"\x40"
    made += b"\x41" if first_acquirer else b"\x42"
    uint(made, delivery_count)
    out = bytearray(b"\x00\x53\x70")
    listed(out, made, 5)
    if annotations:
        out += b"\x00\x53\x72"
        put(out, annotations, 0)
    count: cython.Py_ssize_t = len(properties)
    while count > 0 and properties[count - 1] is None:
        count -= 1
    if count:
        content = bytearray()
        i: cython.Py_ssize_t
        for i in range(count):
            each = properties[i]
            if each is None:
                content += b"\x40"
            elif type(each) is str:
                text(content, each)
            else:
                put(content, each, 1)
        out += b"\x00\x53\x73"
        listed(out, content, count)
    if application:
        out += b"\x00\x53\x74"
        put(out, application, 0)
    return bytes(out)


def body_at(data: bytes) -> cython.Py_ssize_t:
    """Where the bytes of the body begin that these of a message end with, as its only section of
    data; -1: it is another one, or much is before its body. Nothing before it is judged."""
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = len(data)
    while at + 5 <= size and at < _WHOLE_HEAD_MAX and data[at] == 0 and data[at + 1] == 0x53:
        section: cython.uint = data[at + 2]
        code: cython.uint = data[at + 3]
        if section == _DATA:
            if code == 0xA0:
                return at + 5 if at + 5 + data[at + 4] == size else -1
            if code != 0xB0 or at + 8 > size:
                return -1
            long: cython.Py_ssize_t = (data[at + 4] << 24 | data[at + 5] << 16 | data[at + 6] << 8
                                       | data[at + 7])
            return at + 8 if at + 8 + long == size else -1
        if section > _APPLICATION:
            return -1
        if code == 0xC0 or code == 0xC1:
            at += 5 + data[at + 4]
        elif code == 0x45:
            at += 4
        else:
            return -1
    return -1


def data_section(body: bytes) -> bytes:
    """A body of data."""
    size: cython.Py_ssize_t = len(body)
    if size < 256:
        return b"\x00\x53\x75\xa0" + bytes((size,)) + body
    return b"\x00\x53\x75\xb0" + int(size).to_bytes(4, "big") + body
