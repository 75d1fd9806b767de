"""Archive file: a retired journal file, cut into sections and compressed; two files a number.

`NNNNNNNNNN.oma` holds the frame headers and all that analytics needs, `NNNNNNNNNN.omb` the payloads
(bodies), so that these can be dropped sooner and are never read by analytics. From both the journal
file comes back byte for byte. Both are sequences of zstd frames, so `zstd -dc` reads them:

    .oma := head, zstd frame (16 blocks = 1 MiB) *, seals, seek table
    .omb := head, zstd frame (1 MiB of the payload stream) *, seek table
    head, seals, seek table  are skippable frames of zstd

The raw bytes of an .oma are blocks of 64 KiB: block n lies at n * 65536, 16 in each zstd frame, so
a reader finds any of them by the seek table without scanning. A block (omq.format.archive_block) is
a SEAL (128 bytes), then rows of one section turned by bytes, then zeros. Sections follow each other
in the order of `Section`; each begins with a new block.

    payload stream := payloads of the journal's blocks in order, then the bytes of the extents

Seals: `crc` covers the seal from byte 8 on and the planes. First and last LSN, times, QPoolIds, a
bit for each frame type and (queue number modulo 64) say what is in the block, for readers that want
to skip it; all seals are repeated after the blocks, covered by `seals_crc` of the head.

Second level: the section HEADS keeps the journal's own block headers, whose CRC covers their
frames, so of a bad block the frames of journal blocks that are right are still believed. The zstd
frames of an .omb, which has no seals, carry a checksum of their own.

In the middle of a crash: an archive file appears by rename, whole. The .omb appears before the
.oma, and the journal file goes only when both are durable and were read back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from omq.base.arrays import Rows
from omq.base.checksum import crc32c
from omq.format import journal
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout

VERSION = 2  # 1 had whole rows in its blocks; it was never released
MAGIC = b"OMQA"
BODIES_MAGIC = b"OMQP"
SEAL_MAGIC = b"OMQL"
SKIP_HEAD, SKIP_SEALS, SKIP_SEEK = 0x184D2A50, 0x184D2A51, 0x184D2A5E  # zstd skippable frames
SEEK_MAGIC = 0x8F92EAB1  # of the zstd seekable format
BLOCK_BYTES = 65536
FRAME_BLOCKS = 16  # blocks of one zstd frame
FRAME_BYTES = BLOCK_BYTES * FRAME_BLOCKS
JOURNAL_BYTES_MAX = 8 << 30  # twice what journal_file_bytes may say
CRC_FROM = 16  # of the head: behind skippable header, magic and crc
SEAL_CRC_FROM = 8

HEADER = Layout(
    "skip:I skip_size:I magic:4s crc:I version:H used:H flags:I uuid:16s epoch:Q number:I "
    "follows_number:I first_lsn:Q last_lsn:Q follows_lsn:Q frames:Q journal_bytes:Q journal_crc:I "
    "page:I time:q time_min:q time_max:q raw:Q payload:Q rest:Q blocks_frames:I blocks_heads:I "
    "blocks_places:I blocks_parts:I blocks_names:I blocks_extents:I seals_crc:I zstd_frames:I "
    "reserved:72s",
    256,
)
SEAL = Layout(
    "magic:4s crc:I section:B spare:B row:H count:I number:I block:I uuid:16s first_lsn:Q "
    "last_lsn:Q time_min:q time_max:q qpool_min:Q qpool_max:Q queues:Q types:I reserved:12s "
    "varying:16s",
    128,
)
SKIP = Layout("magic:I size:I", 8)
SEEK = Layout("compressed:I raw:I", 8)
SEEK_FOOTER = Layout("frames:I descriptor:B magic:I", 9)
PLACE = Layout("first_lsn:Q offset:Q payload_at:Q count:I payload:I", 32)
ROW = Layout("lsn:Q qpool:Q queue:H priority:B at:B until:I reserved:8s", 32)  # of PARTS
NAME = Layout("lsn:Q kind:B at:B length:H key:I text:112s", 128)
EXTENT = Layout("offset:Q length:Q", 16)
TEXT_BYTES = 112
TEXT_PIECES_MAX = 32  # a longer text is cut


class Section(IntEnum):
    """What the rows of a block are; also their order in the file."""

    FRAMES = 0  # frame headers as in the journal (journal.FRAME)
    HEADS = 1  # the file header, then the block headers, as in the journal: 128 bytes each
    PLACES = 2  # one for each block header: where block and payloads lie
    PARTS = 3  # queues that a PUT or MOVE names in its payload
    NAMES = 4  # names and texts out of payloads
    EXTENTS = 5  # bytes of the journal file that are not a valid block: torn, damaged


class NameKind(IntEnum):
    """What a row of NAMES says; `key` is the number that it belongs to."""

    QUEUE = 1  # name of queue `key`
    READER = 2  # name of the reader with client id `key`
    TEXT = 3  # reason, evidence or command of the frame `lsn`
    PROGRAM = 4  # program that put as client `key`
    GROUP = 5  # group id, as text, of the birth `lsn`; `key` is its group_sequence (format.message)


class ArchiveFlag(IntFlag):
    """Bits of an archive's flags."""

    BODIES = 1  # an .omb was made
    DAMAGED = 2  # the journal file had damage: findings are in the archiver's event


ROW_LAYOUTS: Final = {
    Section.FRAMES: journal.FRAME, Section.HEADS: Layout("bytes:128s", 128), Section.PLACES: PLACE,
    Section.PARTS: ROW, Section.NAMES: NAME, Section.EXTENTS: EXTENT}


def rows_per_block(section: Section) -> int:
    """Rows of a full block."""
    return (BLOCK_BYTES - SEAL.size) // ROW_LAYOUTS[section].size


@dataclass(frozen=True, slots=True)
class ArchiveHeader:
    """The head of either file; see HEADER. `blocks`: of each section, in order."""

    uuid: bytes
    number: int
    epoch: int
    first_lsn: int
    last_lsn: int
    follows_lsn: int
    follows_number: int
    frames: int
    journal_bytes: int
    journal_crc: int
    page: int
    time_ns: int
    time_min: int
    time_max: int
    raw: int
    payload: int
    rest: int
    blocks: tuple[int, ...]
    seals_crc: int
    zstd_frames: int
    flags: int = 0

    def encode(self, magic: bytes) -> bytes:
        data = HEADER.pack(
            SKIP_HEAD, HEADER.size - SKIP.size, magic, 0, VERSION, HEADER.size, self.flags,
            self.uuid, self.epoch, self.number, self.follows_number, self.first_lsn, self.last_lsn,
            self.follows_lsn, self.frames, self.journal_bytes, self.journal_crc, self.page,
            self.time_ns, self.time_min, self.time_max, self.raw, self.payload, self.rest,
            *self.blocks, self.seals_crc, self.zstd_frames, b"")
        return data[:12] + crc32c(data[CRC_FROM:]).to_bytes(4, "little") + data[CRC_FROM:]

    @property
    def all_blocks(self) -> int:
        return sum(self.blocks)

    def first_block(self, section: Section) -> int:
        """Number of the section's first block in the file."""
        return sum(self.blocks[:section])


def decode_header(data: bytes, magic: bytes = MAGIC) -> ArchiveHeader | Finding:
    """The head of an .oma (or, by its magic, an .omb)."""
    if len(data) < HEADER.size:
        return Finding(Kind.SHORT, f"{len(data)} bytes, an archive's head has {HEADER.size}")
    (skip, skip_size, found, crc, version, used, flags, uuid, epoch, number, follows_number, first,
     last, follows, frames, journal_bytes, journal_crc, page, time_ns, time_min, time_max, raw,
     payload, rest, *blocks, seals_crc, zstd_frames, _) = HEADER.unpack_from(data)
    if found != magic:
        return Finding(Kind.FOREIGN, "not an archive file: wrong magic")
    if version != VERSION:
        return Finding(Kind.NEWER if version > VERSION else Kind.FOREIGN,
                       f"archive version {version}, known {VERSION}")
    if (skip != SKIP_HEAD or skip_size != HEADER.size - SKIP.size or used != HEADER.size
            or crc32c(data[CRC_FROM:used]) != crc):
        return Finding(Kind.CORRUPT, "archive head fails its CRC")
    header = ArchiveHeader(uuid, number, epoch, first, last, follows, follows_number, frames,
                           journal_bytes, journal_crc, page, time_ns, time_min, time_max, raw,
                           payload, rest, tuple(blocks), seals_crc, zstd_frames, flags)
    if (journal_bytes > JOURNAL_BYTES_MAX or payload + rest + frames * journal.FRAME.size
            > journal_bytes or raw != header.all_blocks * BLOCK_BYTES):
        return Finding(Kind.CORRUPT, "archive head counts more than its journal file could hold")
    return header


def encode_seek_table(sizes: list[tuple[int, int]]) -> bytes:
    """The last skippable frame: (compressed, raw) bytes of all that precedes it."""
    body = b"".join(SEEK.pack(*size) for size in sizes)
    body += SEEK_FOOTER.pack(len(sizes), 0, SEEK_MAGIC)
    return SKIP.pack(SKIP_SEEK, len(body)) + body


def seek_table_size(footer: bytes) -> int | Finding:
    """Bytes of the whole seek table, from the last 9 of the file."""
    if len(footer) < SEEK_FOOTER.size:
        return Finding(Kind.SHORT, "seek table is missing: the file is cut")
    frames, descriptor, magic = SEEK_FOOTER.unpack(footer[-SEEK_FOOTER.size :])
    if magic != SEEK_MAGIC or descriptor:
        return Finding(Kind.TORN, "seek table is missing: the file is cut or its end is damaged")
    return SKIP.size + int(frames) * SEEK.size + SEEK_FOOTER.size


def decode_seek_table(data: bytes, file_size: int) -> Rows | Finding:
    """Rows (compressed, raw); together they are as long as the file before the table."""
    size = seek_table_size(data)
    if isinstance(size, Finding):
        return size
    bad = Finding(Kind.CORRUPT, "seek table does not fit the file", offset=file_size - len(data))
    if len(data) != size or SKIP.unpack_from(data) != (SKIP_SEEK, size - SKIP.size):
        return bad
    rows = SEEK.array(data, (size - SKIP.size - SEEK_FOOTER.size) // SEEK.size, SKIP.size)
    if int(rows["compressed"].astype("<u8").sum()) != file_size - size:
        return bad
    if len(rows) and int(rows["raw"].max()) > FRAME_BYTES:
        return bad
    return rows
