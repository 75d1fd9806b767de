"""Values of AMQP 1.0 as Python has them (ISO 19464 part 1, 1.6), for the codec in omq.fast.

    null, boolean, long, double      None, bool, int, float
    binary, string, uuid             bytes, str, UUID
    list, map                        list, dict
    the others                       a class here: the same value, which keeps its type

Invariants: 1. a value that was decoded is encoded as the same type and value; 2. equality is that
of the value alone, as of the library's: Uint(1) == 1.

Errors: Malformed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

DEPTH_MAX: Final = 32
"""Values in values. The standard has no limit; nothing that is in use nests deeper than 8."""
DECODE_ERROR: Final = "amqp:decode-error"


class Malformed(ValueError):
    """Bytes that are no AMQP, with the condition that says so to the peer."""

    def __init__(self, reason: str, condition: str = DECODE_ERROR) -> None:
        super().__init__(reason)
        self.condition: Final = condition


class Symbol(str):
    """A text of the protocol's own, in ASCII."""

    __slots__ = ()


class Char(str):
    """One character."""

    __slots__ = ()


class Ubyte(int):
    """0 to 2^8 - 1."""

    __slots__ = ()


class Ushort(int):
    """0 to 2^16 - 1."""

    __slots__ = ()


class Uint(int):
    """0 to 2^32 - 1."""

    __slots__ = ()


class Ulong(int):
    """0 to 2^64 - 1."""

    __slots__ = ()


class Byte(int):
    """-2^7 to 2^7 - 1."""

    __slots__ = ()


class Short(int):
    """-2^15 to 2^15 - 1."""

    __slots__ = ()


class Int(int):
    """-2^31 to 2^31 - 1."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970."""

    __slots__ = ()


class Float(float):
    """A number of 32 bits; the value is what those say."""

    __slots__ = ()


class Decimal32(bytes):
    """4 bytes, IEEE 754 with a coefficient in binary."""

    __slots__ = ()


class Decimal64(bytes):
    """8 bytes."""

    __slots__ = ()


class Decimal128(bytes):
    """16 bytes."""

    __slots__ = ()


@dataclass(slots=True)
class Described:
    """A value and what says how it is to be understood."""

    descriptor: Any
    value: Any

    __hash__ = None  # type: ignore[assignment]


@dataclass(slots=True)
class Array:
    """Values of one type, whose widest code is `code`; each described by the same, if at all."""

    code: int
    values: list[Any] = field(default_factory=list)
    descriptor: Any = None

    __hash__ = None  # type: ignore[assignment]


WIDEST: Final = {
    0x43: 0x70, 0x52: 0x70, 0x44: 0x80, 0x53: 0x80, 0x54: 0x71, 0x55: 0x81, 0x41: 0x56,
    0x42: 0x56, 0xA0: 0xB0, 0xA1: 0xB1, 0xA3: 0xB3, 0xC0: 0xD0, 0x45: 0xD0, 0xC1: 0xD1,
    0xE0: 0xF0}
"""Codes of the same type, and the one which has room for all of its values."""
FLOAT: Final = struct.Struct(">f")
DOUBLE: Final = struct.Struct(">d")


def _char(raw: bytes) -> Char:
    number = int.from_bytes(raw, "big")
    if number > 0x10FFFF:
        raise Malformed("no character has such a number")
    return Char(chr(number))


CONSTANTS: Final = {0x40: None, 0x41: True, 0x42: False, 0x43: Uint(0), 0x44: Ulong(0)}
WHOLE: Final[dict[int, tuple[int, bool, Any]]] = {  # code: bytes, with a sign, class
    0x50: (1, False, Ubyte), 0x60: (2, False, Ushort), 0x70: (4, False, Uint),
    0x80: (8, False, Ulong), 0x52: (1, False, Uint), 0x53: (1, False, Ulong),
    0x51: (1, True, Byte), 0x61: (2, True, Short), 0x71: (4, True, Int), 0x81: (8, True, int),
    0x54: (1, True, Int), 0x55: (1, True, int), 0x83: (8, True, Timestamp)}
OTHER: Final[dict[int, tuple[int, Callable[[bytes], Any]]]] = {  # code: bytes, what makes it
    0x72: (4, lambda raw: Float(FLOAT.unpack(raw)[0])), 0x73: (4, _char),
    0x74: (4, Decimal32), 0x82: (8, lambda raw: DOUBLE.unpack(raw)[0]), 0x84: (8, Decimal64),
    0x94: (16, Decimal128), 0x98: (16, lambda raw: UUID(bytes=raw))}
