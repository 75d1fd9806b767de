"""A request as its handlers see it: the numbers of a wire.REQUEST."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Request:
    """A request whose client and token are right. (Not frozen: that would triple its cost.)"""

    operation: int
    priority: int
    flags: int
    queue: int
    count: int
    length: int
    sequence: int
    size: int
    crc: int
    correlation: int
    want: int
    argument: int
    parts: int
    expiry: int
