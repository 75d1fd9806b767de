"""Keys of messages by a property or the group id: 64-bit hashes, 0 for a message that has none.

The value is taken as it is in the payload, its bytes; a number that was put as a number has the
digits of its text (format.property_values). Two keys with one hash count as one: who makes such
values on purpose shares a limit with them, and could have put the other's value itself.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

from omq.base.names import id_bytes
from omq.format.findings import Finding
from omq.format.message import bounds, id_hash

_COUNT_BYTES: Final = 2
_HEAD_BYTES: Final = 6  # of a property: lengths of name and value
_KNOWN_MAX: Final = 1 << 17


def property_in(payload: bytes | memoryview, name: bytes) -> bytes | None:
    """The value of a property of a payload; None: it has none of this name, or is none."""
    found = bounds(payload)
    if isinstance(found, Finding):
        return None
    data = bytes(payload[found[0] : found[1]])
    at, end = _COUNT_BYTES, len(data)
    for _ in range(int.from_bytes(data[:_COUNT_BYTES], "little")):
        begin = at + _HEAD_BYTES
        if begin > end:
            return None
        key = int.from_bytes(data[at : at + 2], "little")
        value = int.from_bytes(data[at + 2 : begin], "little")
        at = begin + key + value
        if data[begin : begin + key] == name:
            return data[begin + key : at] if at <= end else None
    return None


@lru_cache(maxsize=_KNOWN_MAX)
def key_of_value(value: bytes | None) -> int:
    """The key of a property's value."""
    if value is None:
        return 0
    return int.from_bytes(blake2b(value, digest_size=8).digest(), "little") or 1


def key_of_text(text: str, *, group: bool) -> int:
    """The key that a person writes down; "": of messages without one."""
    if not text:
        return 0
    if group:
        return id_hash(id_bytes(text) or b"")
    return key_of_value(text.encode())
