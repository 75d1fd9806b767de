"""Values of application properties: those of the library of AMQP as kind and text, as they lie in a
message (format.property_values), and back.

Errors: ValueError, ProtonException for a text that is none of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from proton import (
    Data,
    ProtonException,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

from omq.amqp.decimals import decimal_bytes, decimal_text
from omq.format import property_values
from omq.format.property_values import NAMED, TYPES, WHOLE

_WHOLE: Final[dict[type, str]] = {
    ubyte: "ubyte", ushort: "ushort", uint: "uint", ulong: "ulong", byte: "byte", short: "short",
    int32: "int", int: "long"}
_NUMBERS: Final = {kind: made for made, kind in _WHOLE.items()}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMALS: Final = ("decimal32", "decimal64", "decimal128")


def said(value: Any) -> tuple[str, str]:
    """(kind, text) of a value; "string" is one of them, "encoded" what is no primitive."""
    kind, text = _said(value)
    if kind == "string" or (kind in _BACK and _bytes(_BACK[kind](kind, text)) == _bytes(value)):
        return kind, text
    return "encoded", _bytes(value).hex()


def _said(value: Any) -> tuple[str, str]:
    made = type(value)
    if made is str:
        return "string", value
    if made in _WHOLE:
        return _WHOLE[made], str(int(value))
    if made is bool:
        return "boolean", "true" if value else "false"
    if made is float or made is float32:
        return "double" if made is float else "float", repr(float(value))
    if made is timestamp:
        try:
            return "timestamp", property_values.moment_text(
                _EPOCH + timedelta(milliseconds=int(value)))
        except OverflowError:  # far from our years
            return "encoded", ""
    if made is bytes or made is memoryview:
        return "binary", bytes(value).hex()
    if made is UUID:
        return "uuid", str(value)
    if made is symbol or made is char:
        return made.__name__, str(value)
    if value is None:
        return "null", ""
    if made in (decimal32, decimal64, decimal128):
        return made.__name__, _decimal(made.__name__, value)
    return "encoded", ""


def _bytes(value: Any) -> bytes:
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


def value_of(kind: str, text: str) -> Any:
    """The library's value. ValueError and others."""
    return _BACK[kind](kind, text) if kind in _BACK else decoded(bytes.fromhex(text))


def decoded(raw: bytes) -> Any:
    """A value that was encoded."""
    data = Data()
    data.decode(raw)
    data.next()
    return data.get_object()


def _moment(_: str, text: str) -> Any:
    moment = datetime.fromisoformat(text)
    return timestamp((moment - _EPOCH) // timedelta(milliseconds=1))


def _number(kind: str, text: str) -> Any:
    return _NUMBERS[kind](property_values.whole(kind, text))


def _decimal(kind: str, value: Any) -> str:
    return decimal_text(kind, bytes(value) if kind == "decimal128" else int(value).to_bytes(
        4 if kind == "decimal32" else 8, "big"))


def _undecimal(kind: str, text: str) -> Any:
    raw = decimal_bytes(kind, text)
    if kind == "decimal128":
        return decimal128(raw)
    return (decimal32 if kind == "decimal32" else decimal64)(int.from_bytes(raw, "big"))


_BACK: Final[dict[str, Callable[[str, str], Any]]] = {
    "boolean": lambda _, text: text == "true", "string": lambda _, text: text,
    "float": lambda _, text: float32(text), "double": lambda _, text: float(text),
    "timestamp": _moment, "binary": lambda _, text: bytes.fromhex(text),
    "uuid": lambda _, text: UUID(text), "symbol": lambda _, text: symbol(text),
    "char": lambda _, text: char(text), "null": lambda _, text: None,
    **dict.fromkeys(WHOLE, _number), **dict.fromkeys(_DECIMALS, _undecimal)}


# of a message


def texts_in(given: Mapping[Any, Any]) -> dict[str, str]:
    """Application properties that came in, as they lie in a message."""
    out: dict[str, str] = {}
    types: dict[str, str] = {}
    for key, value in given.items():
        name = str(key)
        kind, out[name] = ("string", value) if type(value) is str else said(value)
        if kind != "string":
            types[name] = kind
    return dict(property_values.carried(property_values.typed(out, types)))


def values_out(texts: Mapping[str, str]) -> dict[str, Any]:
    """And as they go out. ValueError: `amqp.types` or `amqp.named` make no sense."""
    said = property_values.kinds(texts.get(TYPES, "{}"))
    if said is None:
        raise ValueError(f"{TYPES} makes no sense")
    found = {name: _given(said.get(name, "string"), text) for name, text in texts.items()
             if name not in (TYPES, NAMED)}
    if NAMED in texts:
        found |= {name: _given(kind, text)
                  for name, (kind, text) in property_values.uncarried(texts[NAMED]).items()}
    return found


def _given(kind: str, text: str) -> Any:
    """A text that is none of its kind is a text."""
    try:
        return value_of(kind, text)
    except (ValueError, OverflowError, ProtonException):
        return text
