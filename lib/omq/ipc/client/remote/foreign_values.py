"""Values of application properties between a message (format.property_values) and Proton: what they
are says omq.amqp.property_kinds, and both sides read what the other encodes.

Errors: ValueError, ProtonException for a text that is none of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proton import Data

from omq.amqp import property_kinds, whole_values
from omq.fast.amqp_encoding import encoded


def said(value: Any) -> tuple[str, str]:
    """(kind, text) of a value; "string" is one of them, "encoded" what is not a primitive."""
    raw = _bytes(value)
    kind, text = property_kinds.said(whole_values.decoded(raw))
    return (kind, text) if kind != "encoded" else (kind, raw.hex())


def value_of(kind: str, text: str) -> Any:
    """The library's value. ValueError and others."""
    return decoded(encoded(property_kinds.value_of(kind, text)))


def texts_in(given: Mapping[Any, Any]) -> dict[str, str]:
    """Application properties that came in, as they lie in a message."""
    return property_kinds.texts_in({
        str(key): value if type(value) is str else whole_values.decoded(_bytes(value))
        for key, value in given.items()})


def values_out(texts: Mapping[str, str]) -> dict[str, Any]:
    """And as they go out. ValueError: `amqp.types` or `amqp.named` make no sense."""
    return {name: value if type(value) is str else decoded(encoded(value))
            for name, value in property_kinds.values_out(texts).items()}


def decoded(raw: bytes) -> Any:
    """A value that was encoded."""
    data = Data()
    data.decode(raw)
    data.next()
    value = data.get_object()
    return bytes(value) if type(value) is memoryview else value


def _bytes(value: Any) -> bytes:
    data = Data()
    data.put_object(value)
    return bytes(data.encode())
