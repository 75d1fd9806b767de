"""Values of AMQP for the tests of the codec: ours, and those of Proton that are the same."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import proton
from hypothesis import strategies as st

from omq.format.amqp_types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

_PROTON: dict[type, Any] = {
    Ubyte: proton.ubyte, Ushort: proton.ushort, Uint: proton.uint, Ulong: proton.ulong,
    Byte: proton.byte, Short: proton.short, Int: proton.int32, Timestamp: proton.timestamp,
    Symbol: proton.symbol, Char: proton.char, Float: proton.float32,
    Decimal128: proton.decimal128}
_KINDS = {0x50: proton.Data.UBYTE, 0x70: proton.Data.UINT, 0x80: proton.Data.ULONG,
          0x81: proton.Data.LONG, 0xB0: proton.Data.BINARY, 0xB1: proton.Data.STRING,
          0xB3: proton.Data.SYMBOL, 0x98: proton.Data.UUID, 0x71: proton.Data.INT}


def theirs(value: Any) -> Any:
    """The same of Proton."""
    kind = type(value)
    if kind is list:
        return [theirs(each) for each in value]
    if kind is dict:
        return {theirs(key): theirs(each) for key, each in value.items()}
    if kind is Described:
        return proton.Described(theirs(value.descriptor), theirs(value.value))
    if kind is Array:
        return proton.Array(proton.UNDESCRIBED, _KINDS[value.code], *map(theirs, value.values))
    if kind in (Decimal32, Decimal64):
        made = proton.decimal32 if kind is Decimal32 else proton.decimal64
        return made(int.from_bytes(value, "big"))
    return _PROTON[kind](value) if kind in _PROTON else value


def their_bytes(value: Any) -> bytes:
    """As Proton's C library encodes its value."""
    data = proton.Data()
    data.put_object(theirs(value))
    return bytes(data.encode())


def read_by_them(raw: bytes) -> tuple[bytes, str]:
    """A value as Proton's C library decodes it: encoded by it again, and as it shows it."""
    data = proton.Data()
    assert data.decode(raw) == len(raw)
    return bytes(data.encode()), data.format()


def whole(kind: Any, bits: int, *, signed: bool = False) -> st.SearchStrategy[Any]:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    near = st.sampled_from(sorted({least, least + 1, 0, 1, 127, 128 & most, 255 & most, most}))
    return (near | st.integers(least, most)).map(kind)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
SYMBOLS = st.text(st.characters(max_codepoint=127, exclude_characters="\0"), max_size=80
                  ).map(Symbol)
ULONGS = whole(Ulong, 64)
PLAIN = st.one_of(
    st.none(), st.booleans(), whole(Ubyte, 8), whole(Ushort, 16), whole(Uint, 32), ULONGS,
    whole(Byte, 8, signed=True), whole(Short, 16, signed=True), whole(Int, 32, signed=True),
    whole(int, 64, signed=True), whole(Timestamp, 64, signed=True),
    st.floats(allow_nan=False), st.floats(allow_nan=False, width=32).map(Float),
    st.characters(exclude_categories=["Cs"]).map(Char), st.binary(max_size=300),
    TEXT, SYMBOLS, st.binary(min_size=16, max_size=16).map(lambda raw: UUID(bytes=raw)),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128))
KEYS = TEXT | SYMBOLS | ULONGS
ARRAYS = st.one_of(*[st.lists(each, max_size=5).map(
    lambda values, code=code: Array(code, values)) for code, each in (  # type: ignore[misc]
        (0x70, whole(Uint, 32)), (0x80, ULONGS), (0x81, whole(int, 64, signed=True)),
        (0xB1, TEXT), (0xB3, SYMBOLS), (0xB0, st.binary(max_size=300)),
        (0x50, whole(Ubyte, 8)), (0x71, whole(Int, 32, signed=True)))])
VALUES = st.recursive(
    PLAIN | ARRAYS,
    lambda each: st.one_of(
        st.lists(each, max_size=4), st.dictionaries(KEYS, each, max_size=4),
        st.builds(Described, SYMBOLS | ULONGS, each)), max_leaves=12)
