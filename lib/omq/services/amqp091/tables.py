"""Field tables of AMQP 0-9-1 (4.2.5.5 of the standard, with the types that RabbitMQ has), so that
each value goes out as the type and the bytes that came in.

    table      size (4), then of each field: name (short string), a value
    value      type (1), then by it:
               t truth (1); b B s u I i l L whole numbers of 1, 1, 2, 2, 4, 4, 8, 8 bytes, of
               which B u i have no sign; f d floating point (4, 8); D decimal: places (1), number
               (4); T time (8); S x text and bytes, A F array and table, each with its size (4);
               V and 0 nothing

The codec of methods is another one (frames), whose values are those of Python alone: it would write
a double as a float, a whole number in the fewest bytes, and bytes not at all.

Invariants: 1. `table` of what `fields` gave is the same table, but for the order of its fields; 2.
nothing outside the bytes is read, and values nest DEPTH_MAX deep at most.

Errors: Malformed, for bytes that are no table; ValueError for a value that has no type here, which
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from omq.amqp.property_kinds import decimal_bytes, decimal_text
from omq.format.amqp_types import (
    DEPTH_MAX,
    DOUBLE,
    FLOAT,
    Array,
    Byte,
    Decimal32,
    Decimal64,
    Decimal128,
    Float,
    Int,
    Malformed,
    Short,
    Timestamp,
    Ubyte,
    Uint,
    Ushort,
)

NAME_BYTES_MAX: Final = 255
_BYTES: Final = {"t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "L": 8, "f": 4,
                 "d": 8, "D": 5, "T": 8, "V": 0, "\0": 0}
_SIZED: Final = "SxAF"
_WHOLE: Final[dict[str, tuple[bool, type[int]]]] = {
    "b": (True, Byte), "B": (False, Ubyte), "s": (True, Short), "u": (False, Ushort),
    "I": (True, Int), "i": (False, Uint), "l": (True, int), "L": (True, int)}
"""With a sign or without, and the class of the value."""
_EXACT: Final = "bBsuIilxVd"
"""What comes of these is always written back as they are."""
_CODE_OF: Final = {made: code for code, (_, made) in _WHOLE.items() if code != "L"}
_LONG: Final = (-1 << 63, 1 << 63)
_MADE_OF: Final[dict[str, Callable[[bytes], Any]]] = {
    "t": lambda raw: raw != b"\0", "x": lambda raw: raw[4:], "V": lambda _: None,
    "\0": lambda _: None, "d": lambda raw: DOUBLE.unpack(raw)[0],
    "f": lambda raw: Float(FLOAT.unpack(raw)[0])}
_DECIMALS: Final[dict[type, str]] = {
    Decimal32: "decimal32", Decimal64: "decimal64", Decimal128: "decimal128"}
_PLACES_MAX, _DIGITS_MAX = 255, 10

Field = bytes
"""A value as it lies in a table: its type and what follows that."""


def fields(raw: bytes) -> dict[str, Field]:
    """Of a table with its size; of two of one name the last one. Malformed."""
    end = _end(raw, 0, len(raw))
    if end != len(raw):
        raise Malformed("something follows a table")
    return _fields(raw, 4, end, 1)


def _fields(raw: bytes, at: int, end: int, depth: int) -> dict[str, Field]:
    found = {}
    while at < end:
        begins = at + 1
        at = begins + raw[at]
        if at >= end:
            raise Malformed("a field of a table is cut")
        try:
            name = raw[begins:at].decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed("the name of a field is not UTF-8") from None
        begins, at = at, _after(raw, at, end, depth)
        found[name] = raw[begins:at]
    return found


def _after(raw: bytes, at: int, end: int, depth: int) -> int:
    """Where the value ends that begins there. Malformed."""
    code = chr(raw[at])
    at += 1
    if code in _SIZED:
        ends = _end(raw, at, end)
        if depth >= DEPTH_MAX:
            raise Malformed("values nest too deep")
        if code == "F":
            _fields(raw, at + 4, ends, depth + 1)
        elif code == "A":
            at += 4
            while at < ends:
                at = _after(raw, at, ends, depth + 1)
    elif code in _BYTES:
        ends = at + _BYTES[code]
    else:
        raise Malformed(f"a table has no type {code!a}")
    if ends > end:
        raise Malformed("a value of a table is cut")
    return ends


def _end(raw: bytes, at: int, end: int) -> int:
    """Of what has its size before it. Malformed."""
    if at + 4 > end:
        raise Malformed("the size of a table, or of a value, is cut")
    ends = at + 4 + int.from_bytes(raw[at : at + 4], "big")
    if ends > end:
        raise Malformed("a table or a value is shorter than it says")
    return ends


def simple(given: Field) -> tuple[bool, bool, Any]:
    """Whether it is a value that a property can have (property_kinds), whether `field` makes the
    same of that again, and the value."""
    code = chr(given[0])
    if code == "S":  # the usual one
        try:
            return True, True, given[5:].decode("utf-8")
        except UnicodeDecodeError:  # bytes, for others
            return True, False, given[5:]
    known, value = _value(code, given[1:])
    return known, code in _EXACT or (known and field("", value) == given), value


def same(given: Field, made: Field) -> bool:
    """Whether `field` made this of the value of the given one: then that counts. Else a program has
    put another value since."""
    known, _, value = simple(given)
    return known and field("", value) == made


def _value(code: str, raw: bytes) -> tuple[bool, Any]:
    if code in _WHOLE:
        signed, made = _WHOLE[code]
        return True, made(int.from_bytes(raw, "big", signed=signed))
    if code == "T":
        moment = int.from_bytes(raw, "big", signed=True) * 1000
        return _LONG[0] <= moment < _LONG[1], Timestamp(moment)
    if code == "D":
        number = Decimal(int.from_bytes(raw[1:], "big", signed=True)).scaleb(-raw[0])
        return True, Decimal64(decimal_bytes("decimal64", str(number)))
    made_of = _MADE_OF.get(code)
    return (False, None) if made_of is None else (True, made_of(raw))


def table(fields_: Mapping[str, Field]) -> bytes:
    """ValueError: a name is too long."""
    out = bytearray(4)
    for name, field in sorted(fields_.items()):
        raw = name.encode("utf-8")
        if len(raw) > NAME_BYTES_MAX:
            raise ValueError(f"the name of a header has {len(raw)} bytes: AMQP 0-9-1 has "
                             f"{NAME_BYTES_MAX} for it")
        out += bytes((len(raw),)) + raw + field
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return bytes(out)


def field(name: str, value: Any) -> Field:
    """Of a value of a property of any protocol. ValueError: no type here is the same."""
    made = type(value)
    if value is None:
        return b"V"
    if made is bool:
        return b"t\x01" if value else b"t\0"
    if made in _CODE_OF and _LONG[0] <= value < _LONG[1]:
        code = _CODE_OF[made]
        return code.encode() + int(value).to_bytes(_BYTES[code], "big", signed=_WHOLE[code][0])
    if isinstance(value, int) and _LONG[0] <= value < _LONG[1]:  # ulong; milliseconds since 1970
        return b"l" + int(value).to_bytes(8, "big", signed=True)
    if made is Float:
        return b"f" + FLOAT.pack(value)
    if made is float:
        return b"d" + DOUBLE.pack(value)
    if isinstance(value, str | UUID):
        return b"S" + _sized(str(value).encode("utf-8"))
    if made in (bytes, bytearray):
        return b"x" + _sized(value)
    if made in _DECIMALS:
        return b"D" + _decimal(name, decimal_text(_DECIMALS[made], value))
    if made is list or (made is Array and value.descriptor is None):
        each = value if made is list else value.values
        return b"A" + _sized(b"".join(field(name, one) for one in each))
    if made is dict and all(isinstance(key, str) for key in value):
        return b"F" + table({str(key): field(name, one) for key, one in value.items()})
    raise _without_type(name, value)


def _sized(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def _decimal(name: str, text: str) -> bytes:
    """Places and number."""
    sign, digits, exponent = Decimal(text).as_tuple()
    if isinstance(exponent, int) and -_PLACES_MAX <= exponent <= _DIGITS_MAX:
        number: int = int("".join(map(str, digits))) * 10 ** max(0, exponent)
        if number - sign < 1 << 31 and (number or not sign):
            return bytes((max(0, -exponent),)) + (-number if sign else number).to_bytes(
                4, "big", signed=True)
    raise _without_type(name, text)


def _without_type(name: str, value: Any) -> ValueError:
    return ValueError(f"the property {name[:64]!a}: {type(value).__name__} {str(value)[:40]!a} has "
                      "no type in a table of AMQP 0-9-1")
