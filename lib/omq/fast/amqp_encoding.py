"""Values of AMQP 1.0 as bytes (ISO 19464 part 1, 1.6): the other half of amqp_decoding.

Each value gets the shortest code that its type and size allow; an array gets that of its widest
element.

Errors: Malformed: not a value of AMQP, or out of the range of its type.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from omq.base import shim as cython
from omq.format import amqp_types
from omq.format.amqp_types import (
    DOUBLE,
    FLOAT,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Malformed,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

_DEPTH_MAX = amqp_types.DEPTH_MAX
_SYMBOLS_MAX = 1024
_ONE = tuple(bytes((each,)) for each in range(256))
_symbols: dict[Any, bytes] = {}
_WIDE: dict[Any, tuple[int, int, bool]] = {  # class: code, bytes, with a sign
    Ubyte: (0x50, 1, False), Ushort: (0x60, 2, False), Uint: (0x70, 4, False),
    Ulong: (0x80, 8, False), Byte: (0x51, 1, True), Short: (0x61, 2, True), Int: (0x71, 4, True),
    int: (0x81, 8, True), Timestamp: (0x83, 8, True)}
_SMALL: dict[Any, tuple[int, int, int]] = {  # class: code of one byte, from, to
    Uint: (0x52, 0, 255), Ulong: (0x53, 0, 255), Int: (0x54, -128, 127), int: (0x55, -128, 127)}
_ZERO = {Uint: 0x43, Ulong: 0x44}
_DECIMALS = {Decimal32: (0x74, 4), Decimal64: (0x84, 8), Decimal128: (0x94, 16)}
_WIDEST = amqp_types.WIDEST


def encoded(value: Any) -> bytes:
    """The bytes of a value."""
    out = bytearray()
    put(out, value, 0)
    return bytes(out)


def put(out: bytearray, value: Any, depth: cython.Py_ssize_t) -> None:
    """Append a value."""
    kind = type(value)
    if kind is str:
        text(out, value)
    elif kind is Symbol:
        out += symbol(value)
    elif value is None:
        out += _ONE[0x40]
    elif kind is bool:
        out += _ONE[0x41 if value else 0x42]
    elif kind in _WIDE:
        _whole(out, kind, value)
    elif kind is bytes or kind is bytearray or kind is memoryview:
        binary(out, bytes(value))
    elif kind is dict or kind is list or kind is tuple or kind is Described or kind is Array:
        if depth >= _DEPTH_MAX:
            raise Malformed("values nest too deep")
        _many(out, kind, value, depth)
    else:
        _other(out, kind, value)


def text(out: bytearray, value: str) -> None:
    """Append a string."""
    try:
        raw: bytes = value.encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed("a string cannot be UTF-8") from None
    sized(out, 0xA1, raw)


def binary(out: bytearray, value: bytes) -> None:
    """Append a binary."""
    sized(out, 0xA0, value)


def sized(out: bytearray, code: cython.uint, raw: bytes) -> None:
    """Append bytes after their number; `code`: the one for up to 255 of them."""
    size: cython.Py_ssize_t = len(raw)
    if size < 256:
        out += _ONE[code]
        out += _ONE[size]
    else:
        out += _ONE[code + 16]
        out += int(size).to_bytes(4, "big")
    out += raw


def symbol(value: Any) -> bytes:
    """The bytes of a symbol; the same few recur."""
    found = _symbols.get(value)
    if found is None:
        try:
            raw = value.encode("ascii")
        except UnicodeEncodeError:
            raise Malformed("a symbol is ASCII") from None
        made = bytearray()
        sized(made, 0xA3, raw)
        found = bytes(made)
        if len(raw) < 65:
            if len(_symbols) >= _SYMBOLS_MAX:
                _symbols.clear()
            _symbols[value] = found
    return found


def uint(out: bytearray, value: cython.ulonglong) -> None:
    """Append a number of 32 bits without a sign."""
    if value == 0:
        out += _ONE[0x43]
    elif value < 256:
        out += _ONE[0x52]
        out += _ONE[value]
    else:
        out += _ONE[0x70]
        out += _ONE[value >> 24 & 255]
        out += _ONE[value >> 16 & 255]
        out += _ONE[value >> 8 & 255]
        out += _ONE[value & 255]


def listed(out: bytearray, content: bytearray, count: cython.Py_ssize_t) -> None:
    """Append a list of what is encoded."""
    if count == 0:
        out += _ONE[0x45]
    else:
        _compound(out, 0xC0, content, count)


def _compound(out: bytearray, code: cython.uint, content: bytearray, count: cython.Py_ssize_t
              ) -> None:
    size: cython.Py_ssize_t = len(content)
    if size < 255 and count < 256:
        out += _ONE[code]
        out += _ONE[size + 1]
        out += _ONE[count]
    else:
        out += _ONE[code + 16]
        out += (size + 4).to_bytes(4, "big")
        out += count.to_bytes(4, "big")
    out += content


def _whole(out: bytearray, kind: Any, value: Any) -> None:
    small = _SMALL.get(kind)
    if small is not None:
        code, least, most = small
        if value == 0 and kind in _ZERO:
            out += _ONE[_ZERO[kind]]
            return
        if least <= value <= most:
            out += _ONE[code]
            out += _ONE[int(value) & 255]
            return
    _wide(out, kind, value)


def _wide(out: bytearray, kind: Any, value: Any) -> None:
    code, size, signed = _WIDE[kind]
    try:
        raw = int(value).to_bytes(size, "big", signed=signed)
    except OverflowError:
        raise Malformed(f"{str(int(value))[:40]} is out of the range of its type") from None
    out += _ONE[code]
    out += raw


def _many(out: bytearray, kind: Any, value: Any, depth: cython.Py_ssize_t) -> None:
    if kind is Described:
        out += _ONE[0x00]
        put(out, value.descriptor, depth + 1)
        put(out, value.value, depth + 1)
        return
    if kind is Array:
        _array(out, value, depth + 1)
        return
    content = bytearray()
    if kind is dict:
        for key, each in value.items():
            put(content, key, depth + 1)
            put(content, each, depth + 1)
        _compound(out, 0xC1, content, 2 * len(value))
        return
    for each in value:
        put(content, each, depth + 1)
    listed(out, content, len(value))


def _array(out: bytearray, value: Any, depth: cython.Py_ssize_t) -> None:
    code: cython.uint = _WIDEST.get(value.code, value.code)
    content = bytearray()
    if value.descriptor is not None:
        content += _ONE[0x00]
        put(content, value.descriptor, depth)
    content += _ONE[code]
    for each in value.values:
        one = bytearray()
        put(one, each, depth)
        _element(content, code, bytes(one), each)
    _compound(out, 0xE0, content, len(value.values))


def _element(out: bytearray, code: cython.uint, one: bytes, value: Any) -> None:
    """An element without its code, in the form of the widest."""
    own: cython.uint = one[0]
    if own == code:
        out += one[1:]
        return
    if _WIDEST.get(own, own) != code:
        raise Malformed("an array has values of one type")
    kind = type(value)
    if kind in _WIDE:
        made = bytearray()
        _wide(made, kind, value)
        out += made[1:]
    elif code == 0x56:
        out += _ONE[1 if value else 0]
    elif own == 0x45:
        out += b"\0\0\0\4\0\0\0\0"
    elif own < 0xC0:
        out += b"\0\0\0"
        out += one[1:]
    else:  # a size and a count, of one byte each
        out += (one[1] + 3).to_bytes(4, "big")
        out += b"\0\0\0"
        out += one[2:]


def _other(out: bytearray, kind: Any, value: Any) -> None:
    if kind is float:
        out += _ONE[0x82]
        out += DOUBLE.pack(value)
    elif kind is UUID:
        out += _ONE[0x98]
        out += value.bytes
    elif kind is Float:
        out += _ONE[0x72]
        try:
            out += FLOAT.pack(value)
        except OverflowError:
            raise Malformed("a float has 32 bits") from None
    elif kind is Char:
        if len(value) != 1:
            raise Malformed("a character is one")
        out += _ONE[0x73]
        out += ord(value).to_bytes(4, "big")
    elif kind in _DECIMALS:
        code, size = _DECIMALS[kind]
        if len(value) != size:
            raise Malformed("a decimal is not as long as it must be")
        out += _ONE[code]
        out += value
    else:
        raise Malformed(f"{kind.__name__} is not an AMQP type")
