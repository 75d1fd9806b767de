"""Ids of AMQP as those of omq, and back.

Text that fits into an id of omq, or is one as `put` returns it, is that id, so that both sides mean
the same message by it. Others are hashed, the same way for message-id and correlation-id, and kept
in a property.

Errors: ValueError (Malformed is one) for bytes that are not a value.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final
from uuid import UUID

from omq.amqp.whole_values import decoded
from omq.base.limits import MESSAGE_ID_BYTES
from omq.fast.amqp_encoding import encoded

PREFIX: Final = "amqp."


def identifier(value: Any) -> bytes | str:
    """An id of AMQP as one of omq; b"": none."""
    if value is None or value in ("", b""):
        return b""
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        own = len(value) == 2 * MESSAGE_ID_BYTES and not set(value) - set("0123456789abcdef")
        return value if own else _short(raw)
    if isinstance(value, UUID):
        return value.bytes
    return _short(bytes(value) if isinstance(value, bytes) else str(int(value)).encode())


def _short(raw: bytes) -> bytes:
    if len(raw) <= MESSAGE_ID_BYTES and raw.rstrip(b"\0"):
        return raw
    return hashlib.sha256(raw).digest()[:MESSAGE_ID_BYTES]


def kept(value: Any, name: str, properties: dict[str, str]) -> bytes | str:
    """`identifier`; what that does not tell goes into a property."""
    found = identifier(value)
    if found:
        plain = isinstance(value, str) and (found == value or found == value.encode())
        if not (plain and str(value).isascii() and str(value).isprintable()
                and " " not in value and not value.isdigit()):
            properties[PREFIX + name] = encoded(value).hex()
    return found


def given(text: str, name: str, properties: dict[str, str]) -> Any:
    """The id as it came in; it is taken out of the properties."""
    kept = properties.pop(PREFIX + name, "")
    return decoded(bytes.fromhex(kept)) if kept else text or None
