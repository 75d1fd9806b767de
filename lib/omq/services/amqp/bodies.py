"""Bodies of AMQP as those of omq, and back: data is the body; of a value that is a string or a
binary its bytes are; of any other value, and of sequences, the encoding. The property `amqp.body`
says which (NETWORK.md).

Errors: ValueError (Malformed is one).
"""

from __future__ import annotations

from typing import Final

from omq.amqp.whole_values import decoded as value_of
from omq.amqp.whole_values import values_in
from omq.fast.amqp_encoding import encoded as encoded_value
from omq.fast.amqp_message import Sections, data_section
from omq.services.amqp.ids import PREFIX

_VALUE: Final = b"\x00\x53\x77"
_SEQUENCE_SECTION: Final = b"\x00\x53\x76"
_NULL: Final = 0x40
_STRINGS: Final = (0xA1, 0xB1)
_BINARIES: Final = (0xA0, 0xB0)
_LISTS: Final = (0x45, 0xC0, 0xD0)


def body(message: Sections, properties: dict[str, str]) -> bytes:
    """Of a message that came; its kind goes into `properties` unless it is data. ValueError."""
    kind, raw = message.kind or "null", message.body
    if kind == "data":
        return raw
    if kind == "value":
        kind, raw = _value(raw)
    properties[PREFIX + "body"] = kind
    return raw


def _value(raw: bytes) -> tuple[str, bytes]:
    """The body that a value is: its kind, and its bytes; of what is neither text nor bytes, those
    of its encoding."""
    code = raw[0]
    if code == _NULL:
        return "null", b""
    if code in _STRINGS:
        return "string", value_of(raw).encode("utf-8")
    if code in _BINARIES:
        return "binary", value_of(raw)
    return "value", raw


def section(body: bytes, kind: str) -> bytes:
    """The sections of a body that goes out. ValueError: it is none of its kind."""
    if kind == "data":
        return data_section(body)
    if kind == "null":
        return _VALUE + b"\x40"
    if kind == "string":
        return _VALUE + encoded_value(body.decode("utf-8"))
    if kind == "binary":
        return _VALUE + encoded_value(body)
    values = values_in(body)  # who put it may be a native program: nothing is taken for granted
    if kind == "sequence" and all(each[0] in _LISTS for each in values):
        return b"".join(_SEQUENCE_SECTION + each for each in values)
    if kind != "value" or len(values) != 1:
        raise ValueError(f"a body of the kind {kind[:32]} is not this")
    return _VALUE + body
