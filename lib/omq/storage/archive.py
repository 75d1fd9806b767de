"""Make archive files of a retired journal file, and read the journal file back out of them.

`cut` takes a journal file's bytes apart, `write` makes `NNNNNNNNNN.omb` and `NNNNNNNNNN.oma` of the
pieces, `rebuild` puts them together again: the same bytes, whatever was damaged in them.

Invariants: 1. an archive file is never changed: it appears by rename, synced, the .omb first;
2. what `rebuild` gives has the CRC that the journal file had, or it is a Finding; 3. only frames of
valid blocks become rows; torn, void and damaged bytes are kept as extents.

In the middle of a crash: `.tmp` files, which the next run overwrites; an .omb without its .oma,
which it makes again with the same bytes.
Errors: DiskError, SpoolFull.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import zstandard

from omq.base.arrays import Rows
from omq.base.checksum import crc32c
from omq.format.archive import (
    BLOCK_BYTES,
    BODIES_MAGIC,
    EXTENT,
    FRAME_BYTES,
    HEADER,
    MAGIC,
    PLACE,
    ROW_LAYOUTS,
    SEAL,
    SKIP,
    SKIP_SEALS,
    ArchiveFlag,
    ArchiveHeader,
    Section,
    encode_seek_table,
    rows_per_block,
)
from omq.format.archive_block import seal_rows
from omq.format.findings import Finding
from omq.format.journal import BLOCK, FILE_HEADER, FRAME
from omq.storage.archive_names import names_and_parts
from omq.storage.files import write_new_file
from omq.storage.journal_scan import Block, FileScan

FRAMES_SUFFIX: Final = ".oma"
BODIES_SUFFIX: Final = ".omb"


def archive_name(number: int, suffix: str = FRAMES_SUFFIX) -> str:
    """`0000000042.oma`."""
    return f"{number:010d}{suffix}"


@dataclass(slots=True)
class Pieces:
    """What an archive is made of; rows have the layouts of format.archive.ROW_LAYOUTS."""

    uuid: bytes
    number: int
    sections: dict[Section, Rows]
    payload: list[bytes | memoryview]  # the payload stream, without the extents
    rest: list[bytes | memoryview] = field(default_factory=list)  # bytes of the extents
    epoch: int = 0
    follows_lsn: int = 0
    follows_number: int = 0
    page: int = 4096
    time_ns: int = 0
    journal_bytes: int = 0
    journal_crc: int = 0
    findings: list[Finding] = field(default_factory=list)


def cut(data: bytes, number: int, uuid: bytes, *, limit: int | None = None) -> Pieces:
    """A journal file's bytes in pieces. `limit`: LSNs above are void, as the next file says."""
    scan = FileScan(data, number, uuid, name=f"{number:010d}.jnl", limit=limit)
    blocks = list(scan)
    findings = [*scan.findings]
    places, at = np.zeros(len(blocks), PLACE.dtype), 0
    heads = [bytes(data[: FILE_HEADER.size]).ljust(FILE_HEADER.size, b"\0")]
    for i, block in enumerate(blocks):
        header = block.header
        places[i] = (header.first_lsn, block.offset, at, header.count, header.payload)
        at += header.payload
        heads.append(bytes(block.data[: BLOCK.size]))
    extents, rest = _rest(data, blocks)
    frames = [block.frames for block in blocks]
    names, parts = names_and_parts(blocks, findings)
    head = scan.header
    sections: dict[Section, Rows] = {
        Section.FRAMES: FRAME.joined(frames),
        Section.HEADS: np.frombuffer(b"".join(heads), ROW_LAYOUTS[Section.HEADS].dtype),
        Section.PLACES: places, Section.PARTS: parts, Section.NAMES: names,
        Section.EXTENTS: extents}
    return Pieces(
        uuid, number, sections, [_payload(block) for block in blocks if block.header.payload],
        rest, head.epoch if head else 0, head.follows_lsn if head else 0,
        head.follows_number if head else 0, scan.page, head.time_ns if head else 0, len(data),
        crc32c(data), findings)


def _payload(block: Block) -> memoryview:
    at = block.header.payload_at
    return block.data[at : at + block.header.payload]


def _rest(data: bytes, blocks: list[Block]) -> tuple[Rows, list[bytes | memoryview]]:
    """What no valid block and not the head of the file explains, and is not zeros."""
    rows, pieces, at = [], [], FILE_HEADER.size
    ends = [(b.offset, b.payload_at + b.header.payload) for b in blocks]
    for start, end in [*ends, (len(data), len(data))]:
        gap = np.frombuffer(data, "u1", max(0, start - at), min(at, len(data)))
        used = np.flatnonzero(gap)
        if len(used):
            first, last = at + int(used[0]), at + int(used[-1]) + 1
            rows.append((first, last - first))
            pieces.append(memoryview(data)[first:last])
        at = end
    return np.array(rows, dtype=EXTENT.dtype), list(pieces)


def encode(pieces: Pieces, level: int) -> tuple[ArchiveHeader, list[bytes], list[bytes]]:
    """(head, buffers of the .oma, buffers of the .omb)"""
    raw: list[bytes] = []
    counts: list[int] = []
    for section in Section:
        rows, step = pieces.sections[section], rows_per_block(section)
        counts.append(-(-len(rows) // step))
        for first in range(0, len(rows), step):
            raw.append(seal_rows(pieces.uuid, pieces.number, len(raw), section,
                                 rows[first : first + step]))
    seals = b"".join(block[: SEAL.size] for block in raw)
    frames = _compressed(b"".join(raw), level, checked=False)
    stream = b"".join([*pieces.payload, *pieces.rest])
    bodies = _compressed(stream, level, checked=True)
    rows = pieces.sections[Section.FRAMES]
    flags = ArchiveFlag.BODIES if stream else 0
    if pieces.findings:
        flags |= ArchiveFlag.DAMAGED
    rest = sum(map(len, pieces.rest))
    known = len(rows) > 0
    header = ArchiveHeader(
        pieces.uuid, pieces.number, pieces.epoch, int(rows["lsn"][0]) if known else 0,
        int(rows["lsn"][-1]) if known else 0, pieces.follows_lsn, pieces.follows_number, len(rows),
        pieces.journal_bytes, pieces.journal_crc, pieces.page, pieces.time_ns,
        int(rows["time"].min()) if known else 0, int(rows["time"].max()) if known else 0,
        len(raw) * BLOCK_BYTES, len(stream) - rest, rest, tuple(counts), crc32c(seals), len(frames),
        int(flags))
    tail = SKIP.pack(SKIP_SEALS, len(seals)) + seals
    table = encode_seek_table([(HEADER.size, 0), *_sizes(frames, header.raw), (len(tail), 0)])
    oma = [header.encode(MAGIC), *frames, tail, table]
    sizes = _sizes(bodies, len(stream))
    omb = [header.encode(BODIES_MAGIC), *bodies, encode_seek_table([(HEADER.size, 0), *sizes])]
    return header, oma, omb


def _compressed(raw: bytes, level: int, *, checked: bool) -> list[bytes]:
    """zstd frames; `checked`: with zstd's checksum, for what no seal covers."""
    coder = zstandard.ZstdCompressor(level=level, write_checksum=checked, write_content_size=True)
    view = memoryview(raw)
    return [coder.compress(view[at : at + FRAME_BYTES]) for at in range(0, len(raw), FRAME_BYTES)]


def _sizes(frames: list[bytes], raw: int) -> list[tuple[int, int]]:
    return [(len(frame), min(FRAME_BYTES, raw - i * FRAME_BYTES)) for i, frame in enumerate(frames)]


def write(directory: Path, pieces: Pieces, *, level: int, bodies: bool) -> ArchiveHeader:
    """Both files (the .omb only if there is something in it and `bodies`), durable when this
    returns. DiskError, SpoolFull."""
    header, oma, omb = encode(pieces, level)
    if bodies and header.flags & ArchiveFlag.BODIES:
        write_new_file(directory / archive_name(pieces.number, BODIES_SUFFIX), [b"".join(omb)]
                       ).close()
    write_new_file(directory / archive_name(pieces.number), [b"".join(oma)]).close()
    return header
