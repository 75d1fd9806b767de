"""Store files `NNNNNNNNNN.sto` and volatile files `NNNNNNNNNN.vol`: payloads outside the journal.

    file  := header page (512 bytes), entry*
    entry := entry header (32 bytes), payload, zeros to a multiple of 8

The entry header's `crc` covers its bytes 8 .. 32; `payload_crc` is the payload's own CRC-32C, as
the submitter computed it. A location names the payload, not the entry header, so that all kinds of
files are read alike; the entry header lets a scan find each payload again without any index. Behind
a sync the next entry begins on a new page: what is durable shares no sector with what is being
written. A volatile file has a header page with another magic and payloads alone: nobody ever scans
it.

In the middle of a crash: an entry above the last sync may be anything; no location names it,
because locations are journaled after the sync. Between entries there are only zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omq.base.checksum import crc32c, crc32c_rows
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout

if TYPE_CHECKING:
    from omq.base.arrays import Vector


VERSION = 1
STORE_MAGIC = b"OMQS"
VOLATILE_MAGIC = b"OMQV"
ENTRY_MAGIC = b"OMQE"
CRC_FROM = 8
HEADER_BYTES = 512
ALIGNMENT = 8

HEADER = Layout("magic:4s crc:I version:H used:H number:I uuid:16s time:q reserved:24s", 64)
ENTRY = Layout("magic:4s crc:I length:I payload_crc:I qpool:Q reserved:8s", 32)


@dataclass(frozen=True, slots=True)
class StoreHeader:
    """The header of a store or volatile file."""

    magic: bytes
    number: int
    uuid: bytes
    time_ns: int

    def encode(self) -> bytes:
        """HEADER_BYTES bytes."""
        body = HEADER.pack(self.magic, 0, VERSION, HEADER.size, self.number, self.uuid,
                           self.time_ns, b"")
        crc = crc32c(memoryview(body)[CRC_FROM:])
        return (body[:4] + crc.to_bytes(4, "little") + body[CRC_FROM:]).ljust(HEADER_BYTES, b"\0")


@dataclass(frozen=True, slots=True)
class Entry:
    """One payload in a store file; `offset` is where the payload begins."""

    qpool: int
    offset: int
    length: int
    crc: int

    @property
    def end(self) -> int:
        """Offset of the next entry, if it follows without a new page."""
        return self.offset + padded(self.length)


def padded(length: int) -> int:
    """A payload's length with its padding."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def padded_many(lengths: Vector) -> Vector:
    """The same for many."""
    return -(-lengths // ALIGNMENT) * ALIGNMENT


def decode_header(data: bytes | memoryview) -> StoreHeader | Finding:
    """The header at the start of a store or volatile file."""
    if len(data) < HEADER.size:
        return Finding(Kind.SHORT, "store file shorter than its header")
    magic, crc, version, used, number, uuid, time_ns, _ = HEADER.unpack_from(data)
    if magic not in (STORE_MAGIC, VOLATILE_MAGIC):
        return Finding(Kind.FOREIGN, "not a store file: wrong magic")
    if version > VERSION:
        return Finding(Kind.NEWER, f"store version {version}, known {VERSION}")
    if used != HEADER.size or crc32c(memoryview(data)[CRC_FROM:used]) != crc:
        return Finding(Kind.CORRUPT, "store file header fails its CRC")
    return StoreHeader(magic, number, uuid, time_ns)


def encode_entries(qpools: Vector, lengths: Vector, payload_crcs: Vector) -> bytes:
    """Entry headers, one after the other."""
    import numpy as np

    rows = np.zeros(len(qpools), dtype=ENTRY.dtype)
    rows["magic"] = np.frombuffer(ENTRY_MAGIC, dtype="V4")[0]
    rows["length"], rows["payload_crc"], rows["qpool"] = lengths, payload_crcs, qpools
    rows["crc"] = crc32c_rows(rows.tobytes(), ENTRY.size, CRC_FROM, ENTRY.size)
    return rows.tobytes()


def decode_entry(data: bytes | memoryview, offset: int) -> Entry | Finding:
    """The entry whose header lies at `offset`; the payload is not looked at."""
    view = memoryview(data)
    if len(view) - offset < ENTRY.size:
        return Finding(Kind.END if len(view) <= offset else Kind.SHORT, "end of file",
        offset=offset)
    magic, crc, length, payload_crc, qpool, _ = ENTRY.unpack_from(view, offset)
    if magic != ENTRY_MAGIC:
        empty = not any(view[offset : offset + ENTRY.size])
        return Finding(Kind.END if empty else Kind.CORRUPT, "no entry", offset=offset)
    if crc32c(view[offset + CRC_FROM : offset + ENTRY.size]) != crc:
        return Finding(Kind.CORRUPT, "entry header fails its CRC", offset=offset)
    if length > len(view) - offset - ENTRY.size:
        return Finding(Kind.SHORT, "entry longer than its file", offset=offset, length=length)
    return Entry(qpool, offset + ENTRY.size, length, payload_crc)
