"""Values and sections of AMQP 1.0 as bytes (ISO 19464 part 1, 1.6; part 3, 3.2), as far as messages
of channels have them: a channel says the same few of them of every message, and the library's way,
value by value through its C interface, took more processor time than all the rest of a message.

    section   0x00, 0x53 and its number (or 0x80 and 8 bytes), value
    value     a code, whose upper half says how long it is, then its bytes

Invariants: 1. what is written here the library reads as the same, and the other way round (tests
compare them); 2. no bytes from elsewhere cost more than their length, none nest deeper than
DEPTH_MAX, and what is wrong with them is a ValueError or an IndexError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION, DATA, FOOTER = (
    0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x78)
DEPTH_MAX: Final = 4
NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
_FIXED: Final = {  # code: how it is read
    0x50: ">B", 0x51: ">b", 0x60: ">H", 0x61: ">h", 0x70: ">I", 0x71: ">i", 0x72: ">f",
    0x80: ">Q", 0x81: ">q", 0x82: ">d", 0x83: ">q", 0x52: ">B", 0x53: ">B", 0x54: ">b",
    0x55: ">b"}
_READ: Final = {code: (struct.Struct(form).unpack_from, struct.calcsize(form))
                for code, form in _FIXED.items()}
_CONSTANTS: Final = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}


class Symbol(str):
    """A text of the protocol's own, which is not a string."""

    __slots__ = ()


# writing


def _sized(short: bytes, long: bytes, data: bytes) -> bytes:
    size = len(data)
    if size < 256:
        return b"%b%c%b" % (short, size, data)
    return b"%b%b%b" % (long, size.to_bytes(4, "big"), data)


def text(value: str) -> bytes:
    """A string. UnicodeEncodeError."""
    return _sized(b"\xa1", b"\xb1", value.encode())


@cache
def symbol(value: str) -> bytes:
    """One of those that are ours to say: there are few of them."""
    return _sized(b"\xa3", b"\xb3", value.encode("ascii"))


def uint(value: int) -> bytes:
    """OverflowError: it is not a number of 32 bits."""
    return b"\x43" if not value else b"\x52%c" % value if value < 256 else (
        b"\x70" + value.to_bytes(4, "big"))


def long(value: int) -> bytes:
    if 0 <= value < 128:
        return b"\x55%c" % value
    return b"\x81" + value.to_bytes(8, "big", signed=True)


def items(values: Iterable[bytes]) -> bytes:
    """A list of what is encoded."""
    some = [*values]
    return _compound(b"\xc0", b"\xd0", len(some), b"".join(some)) if some else b"\x45"


def pairs(values: Mapping[bytes, bytes]) -> bytes:
    """A map of what is encoded."""
    return _compound(b"\xc1", b"\xd1", 2 * len(values),
                     b"".join([each for pair in values.items() for each in pair]))


def annotation_map(values: Mapping[str, bytes]) -> bytes:
    """A map of what is encoded, by symbols."""
    return pairs({symbol(name): value for name, value in values.items()})


def _compound(short: bytes, long_: bytes, count: int, data: bytes) -> bytes:
    size = len(data)
    if size < 255 and count < 256:
        return b"%b%c%c%b" % (short, size + 1, count, data)
    return b"%b%b%b%b" % (long_, (size + 4).to_bytes(4, "big"), count.to_bytes(4, "big"), data)


def section(number: int, value: bytes) -> bytes:
    return b"\x00\x53%c%b" % (number, value)


def data_section(body: bytes) -> bytes:
    return b"\x00\x53\x75" + _sized(b"\xa0", b"\xb0", body)


# reading


def sections(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each, in their order. ValueError, IndexError."""
    at, end = 0, len(data)
    while at < end:
        if data[at] != 0x00:
            raise ValueError("a section has no descriptor")
        if data[at + 1] == 0x53:
            number, at = data[at + 2], at + 3
        elif data[at + 1] == 0x80 and at + 10 <= end:
            number, at = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
        else:
            raise ValueError("the descriptor of a section is not a number")
        value, at = read(data, at)
        yield number, value


def read(data: bytes, at: int, depth: int = 0) -> tuple[Any, int]:
    """The value there, and where the next one begins. ValueError, IndexError."""
    code = data[at]
    at += 1
    if code == 0xA1 or code == 0xA3:  # most values are short texts
        ends = at + 1 + data[at]
        if ends > len(data):
            raise ValueError("a text is cut")
        return (data[at + 1 : ends].decode() if code == 0xA1
                else _symbol(data[at + 1 : ends])), ends
    if code in _CONSTANTS:
        return _CONSTANTS[code], at
    if (fixed := _READ.get(code)) is not None:
        unpack, size = fixed
        if at + size > len(data):
            raise ValueError("a number is cut")
        return unpack(data, at)[0], at + size
    kind = code >> 4
    if kind in (0xC, 0xD):
        return _compounded(data, at, code, depth)
    if code in (0xA0, 0xB0, 0xB1, 0xB3):
        return _variable(data, at, code)
    if code == 0x45:
        return [], at
    if code == 0x56 and data[at] < 2:
        return data[at] == 1, at + 1
    raise ValueError(f"no message of a channel has a value of type {code:#04x}")


@lru_cache(maxsize=64)
def _symbol(raw: bytes) -> Symbol:
    return Symbol(raw.decode("ascii"))


def _variable(data: bytes, at: int, code: int) -> tuple[Any, int]:
    begins = at + (1 if code < 0xB0 else 4)
    ends = begins + int.from_bytes(data[at:begins], "big")
    if ends > len(data) or begins > len(data):
        raise ValueError("a text is cut")
    raw, kind = data[begins:ends], code & 0xF
    return raw if kind == 0 else raw.decode() if kind == 1 else Symbol(raw.decode("ascii")), ends


def _compounded(data: bytes, at: int, code: int, depth: int) -> tuple[Any, int]:
    width = 1 if code < 0xD0 else 4
    begins = at + 2 * width
    ends = at + width + int.from_bytes(data[at : at + width], "big")
    count = int.from_bytes(data[at + width : begins], "big")
    if ends > len(data) or begins > ends or count > ends - begins or depth >= DEPTH_MAX:
        raise ValueError("a list or map is cut, or too deep")
    found, at = [], begins
    for _ in range(count):
        value, at = read(data, at, depth + 1)
        found.append(value)
    if at != ends:
        raise ValueError("a list or map is not as long as it says")
    if code & 0xF == 0:
        return found, ends
    if code & 0xF != 1 or count % 2:
        raise ValueError("a map is none")
    try:
        return dict(zip(found[::2], found[1::2], strict=True)), ends
    except TypeError as error:  # a list as a key
        raise ValueError("a key of a map is none") from error
