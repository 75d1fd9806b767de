"""Old-style queue files `queues/NAME.qua` and `NAME.qub`: what was before there was a Message Pool.

    file := header (32 bytes), record (48 bytes) * count

The original's files of these names were never described; this is the form that omqconv converts:
one record for each message on the queue, a message on several queues has one in each file. The two
files hold the same records, written one after the other: where a record of `.qua` cannot be
believed, that of `.qub` counts. A record of zeros is free.

    item_ref   `~/data/0000005/000084u`: the container with the bytes of the message
    priority   0 normal, 2 urgent, 1 low        submitted, deferred   unix seconds, 0 = not deferred
`crc` is CRC-32C over the record up to it.

In the middle of a crash: at most one record of one of the two files is torn.
"""

from __future__ import annotations

from dataclasses import dataclass

from omq.base.checksum import crc32c
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout

MAGIC = b"OMQA"
VERSION = 1
HEADER = Layout("magic:4s version:H record:H count:I queue:16s reserved:4s", 32)
RECORD = Layout("item_ref:32s priority:B flags:B spare:H submitted:I deferred:I crc:I", 48)
CRC_TO = 44
COUNT_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class OldMessage:
    """A message on one old queue."""

    item_ref: str
    priority: int
    submitted: int
    deferred: int


def encode(queue: str, messages: list[OldMessage]) -> bytes:
    """A whole file; for tests, and for whoever writes such files."""
    out = [HEADER.pack(MAGIC, VERSION, RECORD.size, len(messages), queue.encode(), b"")]
    for each in messages:
        body = RECORD.pack(each.item_ref.encode(), each.priority, 0, 0, each.submitted,
                           each.deferred, 0)[:CRC_TO]
        out.append(body + crc32c(body).to_bytes(4, "little"))
    return b"".join(out)


def decode_header(data: bytes | memoryview) -> int | Finding:
    """Number of records."""
    if len(data) < HEADER.size:
        return Finding(Kind.SHORT, "old queue file shorter than its header")
    magic, version, record, count, _, _ = HEADER.unpack_from(data)
    if magic != MAGIC:
        return Finding(Kind.FOREIGN, "not an old queue file: wrong magic")
    if version > VERSION:
        return Finding(Kind.NEWER, f"old queue version {version}, known {VERSION}")
    if record != RECORD.size or count > COUNT_MAX:
        return Finding(Kind.CORRUPT, "old queue file: sizes do not fit")
    return int(count)


def decode_record(data: bytes | memoryview, number: int) -> OldMessage | Finding | None:
    """Record `number`; None when it is free."""
    at = HEADER.size + number * RECORD.size
    raw = bytes(data[at : at + RECORD.size])
    if len(raw) < RECORD.size:
        return Finding(Kind.SHORT, "the file ends in it", offset=at, record=number)
    if not any(raw):
        return None
    item_ref, priority, _, _, submitted, deferred, crc = RECORD.unpack_from(raw)
    if crc32c(raw[:CRC_TO]) != crc:
        return Finding(Kind.CORRUPT, "record fails its CRC", offset=at, record=number)
    return OldMessage(item_ref.rstrip(b"\0").decode("ascii", "replace"), priority, submitted,
                      deferred)
