"""Bytes that are values and nothing else.

Errors: Malformed.
"""

from __future__ import annotations

from typing import Any

from omq.fast.amqp_decoding import Decoder
from omq.format.amqp_types import Malformed


def decoded(data: bytes) -> Any:
    """The value that these bytes are, all of them."""
    decoder = Decoder()
    decoder.over(data, 0, len(data))
    found = decoder.value()
    if decoder.at != decoder.end:
        raise Malformed("more than one value")
    return found


def values_in(data: bytes) -> list[bytes]:
    """The bytes of each of the values that follow each other there."""
    decoder = Decoder()
    decoder.over(data, 0, len(data))
    found: list[bytes] = []
    while decoder.at < decoder.end:
        begins = decoder.at
        decoder.skip()
        found.append(data[begins : decoder.at])
    return found
