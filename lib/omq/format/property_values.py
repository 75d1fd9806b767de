"""Properties whose values are not texts: what a number, a truth, a time or bytes look like in a
message, whose properties are names and texts (format.message).

Each value is a text. The types of those that are not strings are kept in one more property:

    amqp.types   {"count":"long","due":"timestamp"}   names and kinds, JSON
    amqp.named   {"a b":["long","3"]}                 properties of foreign clients whose names no
                                                      property has: kind and text, JSON

A message whose properties are strings has neither, and its bytes are what they always were. Who
does not know a kind, or is older than this module, sees the text. Kinds are the primitive types of
AMQP 1.0 (ISO 19464 part 1, 1.6):

    boolean                     true, false                       bool
    ubyte ... ulong, byte ... long     decimal digits             int; long is Python's own
    float, double               as repr writes it                 float; double is Python's own
    decimal32, 64, 128          as decimal.Decimal writes it      str
    timestamp                   2026-11-25T18:48:28.000000Z       datetime, UTC
    binary                      hexadecimal digits                bytes
    char, symbol, uuid          itself                            str
    null                        empty                             not among the values
    encoded                     hexadecimal digits of the value in AMQP: see
                                ipc.client.remote.foreign_values

Invariants: 1. a value that was read and is put again keeps its kind (Kept...); 2. what omq itself
reads (TEXTS_ONLY) is a text, whatever its kind; 3. a text that is none of its kind is a text.

Errors: BadProperty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from omq.base.errors import BadProperty
from omq.base.names import escape, is_property_name
from omq.format import amqp_values

TYPES: Final = "amqp.types"
NAMED: Final = "amqp.named"
TEXTS_ONLY: Final = (
    "amqp.", "omq.", "mail.", "error.", "unix.", "local.", "traceparent", "tracestate")
"""How the names begin that omq itself reads."""
WHOLE: Final = {
    "ubyte": (0, 1 << 8), "ushort": (0, 1 << 16), "uint": (0, 1 << 32), "ulong": (0, 1 << 64),
    "byte": (-1 << 7, 1 << 7), "short": (-1 << 15, 1 << 15), "int": (-1 << 31, 1 << 31),
    "long": (-1 << 63, 1 << 63)}
"""Kinds of whole numbers: the least, and what is too large."""
_DECIMALS: Final = ("decimal32", "decimal64", "decimal128")
_CODES: Final = {
    0x43: "uint", 0x52: "uint", 0x70: "uint", 0x44: "ulong", 0x53: "ulong", 0x80: "ulong",
    0x50: "ubyte", 0x60: "ushort", 0x51: "byte", 0x61: "short", 0x54: "int", 0x71: "int",
    0x72: "float", 0xA3: "symbol", 0xB3: "symbol", 0xA0: "binary", 0xB0: "binary", 0x40: "null"}
_RULE: Final = "its value is a str, int, float, bool, datetime or bytes"
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)


Value = str | int | float | bool | datetime | bytes
"""What a property may be."""


class KeptInt(int):
    """A number of another kind than long."""

    kind: str


class KeptFloat(float):
    """A number of another kind than double."""

    kind: str


class KeptText(str):
    """The text of a value of a kind that Python has no type for."""

    kind: str


def texts_of(properties: Mapping[str, Any]) -> Mapping[str, str]:
    """As they lie in a message; the same where all are texts. BadProperty."""
    if all(type(value) is str for value in properties.values()):
        return properties
    found: dict[str, str] = {}
    types: dict[str, str] = {}
    for name, value in properties.items():
        kind, found[name] = said(name, value)
        if kind != "string":
            types[name] = kind
    if TYPES in found:  # a mapping to which values were added
        before = kinds(found[TYPES])
        if before is None:
            raise BadProperty(name=TYPES, rule="the types of the others, as JSON")
        types = {**before, **types}
    return typed(found, types)


def typed(texts: dict[str, str], types: Mapping[str, str]) -> dict[str, str]:
    """Texts, and of which of them there is a type."""
    if types:
        texts[TYPES] = json.dumps(types, separators=(",", ":"))
    return texts


def said(name: str, value: Any) -> tuple[str, str]:
    """(kind, text) of a value. BadProperty."""
    if isinstance(value, KeptInt | KeptFloat | KeptText):
        kind = value.kind
        return kind, repr(float(value)) if isinstance(value, KeptFloat) else (
            str(int(value)) if isinstance(value, KeptInt) else str(value))
    if isinstance(value, str):
        return "string", str(value)
    if isinstance(value, bool):
        return "boolean", "true" if value else "false"
    if isinstance(value, int):
        for kind in ("long", "ulong"):
            low, high = WHOLE[kind]
            if low <= value < high:
                return kind, str(int(value))
        raise BadProperty(name=escape(name), rule="a whole number of at most 64 bits")
    if isinstance(value, float):
        return "double", repr(float(value))
    if isinstance(value, datetime):
        try:
            return "timestamp", moment_text(value.astimezone(UTC))
        except (OverflowError, ValueError, OSError) as error:
            raise BadProperty(name=escape(name), rule="a time that this system has") from error
    if isinstance(value, bytes | bytearray | memoryview):
        return "binary", bytes(value).hex()
    raise BadProperty(name=escape(name), rule=f"{_RULE}, not {type(value).__name__}")


def moment_text(value: datetime) -> str:
    """A time in UTC; all are of one length, so that they sort as they follow each other."""
    return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


@lru_cache(maxsize=64)
def kinds(types: str) -> Mapping[str, str] | None:
    """What `amqp.types` says; None: nothing that makes sense. Not to be changed."""
    try:
        found = json.loads(types)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(type(kind) is str for kind in found.values()):
        return None
    return found


def values_of(texts: dict[str, str]) -> dict[str, Any]:
    """As a program reads them."""
    said = kinds(texts[TYPES]) if TYPES in texts else None
    if said is None:
        return texts
    return {name: value for name, text in texts.items() if name != TYPES
            and (value := _value(name, said.get(name, "string"), text)) is not None}


def _value(name: str, kind: str, text: str) -> Any:
    if kind == "string" or name.startswith(TEXTS_ONLY):
        return text
    try:
        return _known(*simple(kind, text))
    except (ValueError, OverflowError):
        return text


def simple(kind: str, text: str) -> tuple[str, str]:
    """The same, where older servers of AMQP wrote the bytes of a simple value. ValueError."""
    if kind != "encoded":
        return kind, text
    try:
        raw = bytes.fromhex(text)
        known, (value, ends) = _CODES.get(raw[0], ""), amqp_values.read(raw, 0)
    except (ValueError, IndexError):
        return kind, text
    if not known or ends != len(raw):
        return kind, text
    if isinstance(value, bytes):
        return known, value.hex()
    return known, "" if value is None else repr(value) if known == "float" else str(value)


def _known(kind: str, text: str) -> Any:
    """A value of its kind; None: null. ValueError."""
    if kind == "boolean":
        return {"true": True, "false": False}[text] if text in ("true", "false") else text
    if kind in WHOLE:
        number = whole(kind, text)
        return number if kind == "long" else _kept(KeptInt(number), kind)
    if kind in ("float", "double"):
        return float(text) if kind == "double" else _kept(KeptFloat(text), kind)
    if kind == "timestamp":
        return datetime.fromisoformat(text)
    if kind == "binary":
        return bytes.fromhex(text)
    return None if kind == "null" else _kept(KeptText(text), kind)


def _kept(value: Any, kind: str) -> Any:
    value.kind = kind
    return value


def whole(kind: str, text: str) -> int:
    """The number that such a text writes. ValueError."""
    low, high = WHOLE[kind]
    if not _WHOLE.fullmatch(text) or not low <= (number := int(text)) < high:
        raise ValueError(f"not a {kind}: {text[:40]}")
    return number


def asked(texts: Mapping[str, str], name: str) -> str | int | float | bool | None:
    """One of them, as a selector sees it: numbers and truth as such, all else as its text; None:
    there is none, or it is null."""
    text = texts.get(name)
    if text is None or TYPES not in texts:
        return text
    kind = (kinds(texts[TYPES]) or {}).get(name, "string")
    if kind == "string":
        return text
    try:
        kind, text = simple(kind, text)
        if kind in _DECIMALS:
            return int(text) if _WHOLE.fullmatch(text) else float(text)
        if kind in WHOLE or kind in ("boolean", "float", "double", "null"):
            found: int | float | bool | None = _known(kind, text)
            return found
    except ValueError:
        pass
    return text


# names that are none here


def carried(texts: Mapping[str, str]) -> Mapping[str, str]:
    """With those in `amqp.named` whose names no property has; the same where there are none."""
    foreign = {name for name in texts if not is_property_name(name)}
    if not foreign:
        return texts
    said = dict(kinds(texts.get(TYPES, "{}")) or {})
    found = {name: text for name, text in texts.items() if name not in foreign}
    named = {name: [said.pop(name, "string"), texts[name]] for name in texts if name in foreign}
    found.pop(TYPES, None)
    found = typed(found, said)
    with suppress(ValueError):  # somebody's own, who named it as we do
        named = {**uncarried(found.get(NAMED, "{}")), **named}
    found[NAMED] = json.dumps(named, separators=(",", ":"))
    return found


def uncarried(named: str) -> dict[str, list[str]]:
    """Kind and text by the names that foreign clients know. ValueError."""
    try:
        found = json.loads(named)
    except RecursionError as error:
        raise ValueError(f"{NAMED} nests too deep") from error
    if not isinstance(found, dict) or not all(
            isinstance(pair, list) and len(pair) == 2 and all(type(each) is str for each in pair)
            for pair in found.values()):
        raise ValueError(f"{NAMED} makes no sense")
    return found
