"""Where the body of a message lies in its bytes (ISO 19464 part 3, 3.2), so that a large one can go
on in pieces while it comes, and be sent in pieces.

    section    0x00, descriptor (0x53 and its number, or 0x80 and 8 bytes), value
    head       0x70 header ... 0x74 application properties: a list or map, with its size
    body       0x75 data: binary; 0x77 value: here a binary or a string; 0x76 and others: as a whole
    after it  more data sections, which are one body; 0x78 footer, a map

Errors: Untranslatable for what cannot be a message.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Final

from omq.services.amqp.untranslatable import Untranslatable

DATA: Final = 0x75
VALUE: Final = 0x77
_FOOTER: Final = 0x78
_LAST_OF_HEAD: Final = 0x74
_FOOTERS: Final = (bytes((0x00, 0x53, _FOOTER)), b"\x00\x80" + _FOOTER.to_bytes(8, "big"))
_BINARY, _STRING = 0xB0, 0xB1
_SHORT: Final = 0x10
"""So much less is the code of a binary or string whose length is one byte."""
_OPENING_MAX: Final = 15
"""Bytes of a section before its body: 10 of a descriptor, a code, 4 of a length."""
FOOT_BYTES_MAX: Final = 64 * 1024
_SIZES: Final = {0x45: 0, 0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}
"""Codes of lists and maps, and how many bytes say how long they are."""
_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
"""By the upper half of a code: bytes after it. The others say in 1 (an even one) or 4 bytes how
many there are."""
_DEPTH_MAX: Final = 16
KINDS: Final = {"data": (DATA, _BINARY), "binary": (VALUE, _BINARY), "string": (VALUE, _STRING)}
"""Bodies that go in pieces, by their name in `amqp.body`."""


@dataclass(frozen=True, slots=True)
class Place:
    """Of a body: `at` begins its section, `begins` its bytes, of which there are `size`."""

    at: int
    begins: int
    size: int
    kind: str


def opening(kind: str, size: int) -> bytes:
    """What precedes the bytes of a body."""
    section, code = KINDS[kind]
    return bytes((0x00, 0x53, section, code)) + size.to_bytes(4, "big")


def body_place(data: bytes | bytearray) -> Place | None:
    """Where the body is that these first bytes of a message begin; None: it has none that goes in
    pieces, or more bytes are wanted."""
    at = 0
    while (found := _descriptor(data, at)) is not None:
        section, value = found
        if value >= len(data):
            return None
        if section > _LAST_OF_HEAD:
            return _body(data, at, section, value)
        width = _SIZES.get(data[value])
        if width is None or value + 1 + width > len(data):
            return None
        at = value + 1 + width + int.from_bytes(data[value + 1 : value + 1 + width], "big")
    return None


def _descriptor(data: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """(section, where its value begins)."""
    if at + 3 > len(data) or data[at] != 0x00:
        return None
    if data[at + 1] == 0x53:
        return data[at + 2], at + 3
    if data[at + 1] == 0x80 and at + 10 <= len(data):
        return int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
    return None


def _body(data: bytes | bytearray, at: int, section: int, value: int) -> Place | None:
    for kind, (wanted, code) in KINDS.items():
        width = {code: 4, code - _SHORT: 1}.get(data[value], 0)
        begins = value + 1 + width
        if width and section == wanted and begins <= len(data):
            return Place(at, begins, int.from_bytes(data[value + 1 : begins], "big"), kind)
    return None


class Rest:
    """The bytes behind `place.begins`: `take` tells which of them are the body's."""

    def __init__(self, place: Place) -> None:
        self._kind, self._left = place.kind, place.size
        self._behind = bytearray()
        self._utf8 = codecs.getincrementaldecoder("utf-8")() if place.kind == "string" else None

    def take(self, chunk: bytes) -> bytes:
        """Untranslatable."""
        out, view, at = bytearray(), memoryview(chunk), 0  # a chunk may have thousands of sections
        while at < len(view):
            if self._left:
                part = view[at : at + self._left]
                at += len(part)
                self._left -= len(part)
                self._check(part, final=self._left == 0)
                out += part
                continue
            opening_at = len(self._behind)
            if self._kind == "data" and opening_at < _OPENING_MAX:
                self._behind += view[at : at + _OPENING_MAX - opening_at]
                at += len(self._behind) - opening_at
                if (more := self._more()) is not None:
                    at -= len(self._behind) - more.begins  # what is after the opening is its body
                    self._left = more.size
                    self._behind.clear()
                continue
            self._behind += view[at:]
            at = len(view)
            if len(self._behind) > FOOT_BYTES_MAX:
                raise Untranslatable("amqp:decode-error", "too much follows the body")
        return bytes(out)

    def _more(self) -> Place | None:
        found = body_place(self._behind)
        return found if found is not None and found.at == 0 and found.kind == "data" else None

    def _check(self, body: memoryview, *, final: bool) -> None:
        if self._utf8 is not None:
            try:
                self._utf8.decode(bytes(body), final)
            except UnicodeDecodeError as error:
                raise Untranslatable("amqp:decode-error", f"not a string: {error}") from error

    def end(self) -> bytes:
        """Its footer, as of `footer`; whether that was all of it. Untranslatable."""
        found = footer(self._behind)
        if self._left or (self._behind and not found):
            raise Untranslatable("amqp:decode-error", "the body is not as long as it says")
        return found


def footer(data: bytes | bytearray) -> bytes:
    """The bytes of the map in the footer of a message; empty: it has none."""
    if not any(each in data for each in _FOOTERS):  # it is seldom there
        return b""
    at = 0
    while (found := _descriptor(data, at)) is not None:
        section, value = found
        try:
            at = _behind(data, value)
        except IndexError:
            break
        if section == _FOOTER:
            return bytes(data[value:at]) if at == len(data) else b""
    return b""


def footer_section(value: bytes) -> bytes:
    """What ends a message that has one."""
    return _FOOTERS[0] + value if value else b""


def _behind(data: bytes | bytearray, at: int, depth: int = 0) -> int:
    """Where a value ends. IndexError: not here."""
    code = data[at]
    if code == 0x00:  # a described one
        if depth >= _DEPTH_MAX:
            raise IndexError
        return _behind(data, _behind(data, at + 1, depth + 1), depth + 1)
    at += 1
    if (width := _WIDTHS.get(code >> 4)) is None:
        said = 4 if code >> 4 & 1 else 1
        width = said + int.from_bytes(data[at : at + said], "big")
    if at + width > len(data):
        raise IndexError
    return at + width
