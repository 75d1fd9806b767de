"""Values of application properties as kind and text, as they lie in a message
(format.property_values), and back.

Errors: ValueError (Malformed is one) for a text that is none of its kind.

Decimals of AMQP (IEEE 754, their number in binary) as texts, and back.

Errors: ValueError for a text that is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from omq.amqp.whole_values import decoded
from omq.fast.amqp_encoding import encoded
from omq.format import property_values
from omq.format.amqp_types import (
    FLOAT,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
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
from omq.format.property_values import NAMED, TYPES, WHOLE

_KINDS: Final = {  # bytes, bits of the exponent, of the number, its digits, what is taken off
    "decimal32": (4, 8, 23, 7, 101), "decimal64": (8, 10, 53, 16, 398),
    "decimal128": (16, 14, 113, 34, 6176)}


def decimal_text(kind: str, raw: bytes) -> str:
    """A sign, an exponent, a whole number; with 11 at the beginning the number begins with 100 and
    the exponent is two bits after it."""
    size, exponent_bits, bits, digits, bias = _KINDS[kind]
    word = int.from_bytes(raw, "big")
    sign, rest = word >> (8 * size - 1), word & ((1 << (8 * size - 1)) - 1)
    if rest >> (8 * size - 5) == 0b1111:
        return ("-" if sign else "") + ("NaN" if rest >> (8 * size - 6) & 1 else "Infinity")
    if rest >> (8 * size - 3) == 0b11:
        exponent = rest >> (bits - 2) & ((1 << exponent_bits) - 1)
        number = 1 << bits | rest & ((1 << (bits - 2)) - 1)
    else:
        exponent, number = rest >> bits, rest & ((1 << bits) - 1)
    if number >= 10**digits:
        number = 0  # the standard takes it for that
    return str(Decimal((sign, tuple(map(int, str(number))), exponent - bias)))


def decimal_bytes(kind: str, text: str) -> bytes:
    """Of a text. ValueError."""
    size, _, bits, digits, bias = _KINDS[kind]
    try:
        sign, figures, exponent = Decimal(text).as_tuple()
    except InvalidOperation as error:
        raise ValueError(f"not a {kind}: {text[:40]}") from error
    top = sign << (8 * size - 1)
    if not isinstance(exponent, int):
        word = top | (0b11111 if exponent in ("n", "N") else 0b11110) << (8 * size - 6)
    else:
        number, power = int("".join(map(str, figures))), exponent + bias
        if number >= 10**digits or not 0 <= power <= 2 * bias + digits:
            raise ValueError(f"not a {kind}: {text[:40]}")
        word = top | (power << bits | number if number < 1 << bits else
                      0b11 << (8 * size - 3) | power << (bits - 2) | number & ((1 << bits - 2) - 1))
    return word.to_bytes(size, "big")


_WHOLE: Final[dict[type, str]] = {
    Ubyte: "ubyte", Ushort: "ushort", Uint: "uint", Ulong: "ulong", Byte: "byte", Short: "short",
    Int: "int", int: "long"}
_NUMBERS: Final = {kind: made for made, kind in _WHOLE.items()}
_DECIMALS: Final[dict[str, Any]] = {
    "decimal32": Decimal32, "decimal64": Decimal64, "decimal128": Decimal128}
_KIND_OF: Final = {made: kind for kind, made in _DECIMALS.items()}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def said(value: Any) -> tuple[str, str]:
    """(kind, text) of a value; "string" is one of them, "encoded" what is not a primitive."""
    kind, text = _said(value)
    if kind == "string" or (kind in _BACK and encoded(_BACK[kind](kind, text)) == encoded(value)):
        return kind, text
    return "encoded", encoded(value).hex()


def _said(value: Any) -> tuple[str, str]:
    made = type(value)
    if made is str:
        return "string", value
    if made in _WHOLE:
        return _WHOLE[made], str(int(value))
    if made is bool:
        return "boolean", "true" if value else "false"
    if made is float or made is Float:
        return "double" if made is float else "float", repr(float(value))
    if made is Timestamp:
        try:
            return "timestamp", property_values.moment_text(
                _EPOCH + timedelta(milliseconds=int(value)))
        except OverflowError:  # far from our years
            return "encoded", ""
    if made is bytes:
        return "binary", value.hex()
    if made is UUID:
        return "uuid", str(value)
    if made is Symbol or made is Char:
        return made.__name__.lower(), str(value)
    if value is None:
        return "null", ""
    if made in _KIND_OF:
        return _KIND_OF[made], decimal_text(_KIND_OF[made], value)
    return "encoded", ""


def value_of(kind: str, text: str) -> Any:
    """The value. ValueError and others."""
    return _BACK[kind](kind, text) if kind in _BACK else decoded(bytes.fromhex(text))


def _moment(_: str, text: str) -> Any:
    moment = datetime.fromisoformat(text)
    return Timestamp((moment - _EPOCH) // timedelta(milliseconds=1))


def _float(_: str, text: str) -> Any:
    """Of 32 bits."""
    return Float(FLOAT.unpack(FLOAT.pack(float(text)))[0])


_BACK: Final[dict[str, Callable[[str, str], Any]]] = {
    "boolean": lambda _, text: text == "true", "string": lambda _, text: text,
    "float": _float, "double": lambda _, text: float(text),
    "timestamp": _moment, "binary": lambda _, text: bytes.fromhex(text),
    "uuid": lambda _, text: UUID(text), "symbol": lambda _, text: Symbol(text),
    "char": lambda _, text: Char(text), "null": lambda _, text: None,
    **dict.fromkeys(WHOLE, lambda kind, text: _NUMBERS[kind](property_values.whole(kind, text))),
    **dict.fromkeys(_DECIMALS, lambda kind, text: _DECIMALS[kind](decimal_bytes(kind, text)))}


# of a message


def texts_in(given: Mapping[Any, Any]) -> dict[str, str]:
    """Application properties that came in, as they lie in a message."""
    out: dict[str, str] = {}
    types: dict[str, str] = {}
    for key, value in given.items():
        name = key if type(key) is str else str(key)
        if type(value) is str:
            out[name] = value
        else:
            types[name], out[name] = said(value)
    return dict(property_values.carried(property_values.typed(out, types)))


def values_out(texts: Mapping[str, str]) -> dict[str, Any]:
    """And as they go out. ValueError: `amqp.types` or `amqp.named` make no sense."""
    if TYPES not in texts and NAMED not in texts:
        return dict(texts)
    kinds = property_values.kinds(texts.get(TYPES, "{}"))
    if kinds is None:
        raise ValueError(f"{TYPES} makes no sense")
    found = {name: _given(kinds.get(name, "string"), text) for name, text in texts.items()
             if name not in (TYPES, NAMED)}
    if NAMED in texts:
        found |= {name: _given(kind, text)
                  for name, (kind, text) in property_values.uncarried(texts[NAMED]).items()}
    return found


def _given(kind: str, text: str) -> Any:
    """A text that is none of its kind is a text."""
    try:
        found = value_of(kind, text)
        encoded(found)  # or it would be the message that cannot be said
    except (ValueError, OverflowError):
        return text
    return found
