"""Counters and names in the index, as copies; without numpy, for a client may have none.

Names come out as printable ASCII, whatever bytes the tables hold.
"""

from __future__ import annotations

from omq.base.names import escape
from omq.format.index import (
    COUNTERS_AT,
    QUEUE_NAME_BYTES,
    READER_NAME_BYTES,
    Counter,
    IndexLayout,
)


def counter(buffer: memoryview, which: Counter) -> int:
    """One counter."""
    at = COUNTERS_AT + 8 * which
    return int.from_bytes(buffer[at : at + 8], "little")


def high(buffer: memoryview, which: Counter, capacity: int) -> int:
    """Rows of a table that were ever used."""
    return min(counter(buffer, which), capacity)


def of_queues(buffer: memoryview, layout: IndexLayout) -> list[str]:
    """Names by queue number; `#n` where there is none."""
    at, count = layout.queue_names, high(buffer, Counter.QUEUES_HIGH, layout.queues)
    return [_name(buffer, at + number * QUEUE_NAME_BYTES, QUEUE_NAME_BYTES) or f"#{number}"
            for number in range(count)]


def of_reader(buffer: memoryview, layout: IndexLayout, reader: int) -> str:
    """As it named itself; the caller has bounded its number."""
    return _name(buffer, layout.reader_names + reader * READER_NAME_BYTES, READER_NAME_BYTES)


def _name(buffer: memoryview, at: int, width: int) -> str:
    raw = bytes(buffer[at : at + width]).rstrip(b"\0")
    return escape(raw.decode("ascii", "backslashreplace"))
