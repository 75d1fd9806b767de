"""Read archive files: any block by the seek table, sections as numpy rows, or the journal file.

The source may be a file of the spool (storage.files.File) or anything with its `size` and `read`,
for instance an object of a store. Nothing raises on foreign bytes: a Finding says what is wrong and
everything that is right still comes out.

A file whose seek table is missing (it was cut) is walked from its start, zstd frame by zstd frame;
that is a Finding, too, for what stood after the cut is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import zstandard

from omq.base.arrays import Rows
from omq.base.checksum import crc32c
from omq.format.archive import (
    BLOCK_BYTES,
    BODIES_MAGIC,
    EXTENT,
    FRAME_BLOCKS,
    FRAME_BYTES,
    HEADER,
    MAGIC,
    ROW_LAYOUTS,
    SEAL,
    SEEK_FOOTER,
    SKIP,
    SKIP_SEALS,
    ArchiveFlag,
    ArchiveHeader,
    Section,
    decode_header,
    decode_seek_table,
    seek_table_size,
)
from omq.format.archive_block import Block, joined_rows, open_block
from omq.format.findings import Finding, Kind
from omq.format.journal import BLOCK, FILE_HEADER, FRAME

SEEK_TABLE_BYTES_MAX = 64 * 1024 * 1024


class Source(Protocol):
    """Bytes by position."""

    def size(self) -> int: ...

    def read(self, length: int, offset: int) -> bytes: ...


class ArchiveFile:
    """An archive file with a right head. `findings`: what is wrong with the rest of its frame."""

    def __init__(self, source: Source, name: str, header: ArchiveHeader, magic: bytes) -> None:
        self.source = source
        self.name = name
        self.header = header
        self.findings: list[Finding] = []
        self.whole = True  # the seek table is there
        self._bodies = magic == BODIES_MAGIC
        size = source.size()
        table = self._seek_table(size)
        if isinstance(table, Finding):
            self.whole = False
            self.findings.append(replace(table, file=name, offset=table.offset or size))
            table = self._walk(size)
        self._sizes = table["compressed"].astype("<i8")
        self._coder = zstandard.ZstdDecompressor()
        self._offsets = np.concatenate([[0], np.cumsum(self._sizes)])
        self.frames = int(np.count_nonzero(table["raw"]))  # zstd frames that are there
        if (self.whole and self.frames != self._expected()) or not self._raw_fits(table["raw"]):
            self.findings.append(Finding(Kind.CORRUPT, "seek table names other frames", name, size))

    def _expected(self) -> int:
        header = self.header
        return (-(-(header.payload + header.rest) // FRAME_BYTES) if self._bodies
                else header.zstd_frames)

    def _raw_fits(self, raw: Rows) -> bool:
        """Each zstd frame of the table is as long as its place in the file says."""
        if not self.whole:
            return True
        total = self.header.payload + self.header.rest if self._bodies else self.header.raw
        frames = raw[1 : 1 + self.frames].astype("<i8")
        ends = np.minimum((1 + np.arange(self.frames)) * FRAME_BYTES, total)
        return bool(not raw[0] and (np.cumsum(frames) == ends).all()
                    and not raw[1 + self.frames :].any())

    def _seek_table(self, size: int) -> Rows | Finding:
        end = max(0, size - SEEK_FOOTER.size)
        length = seek_table_size(self.source.read(SEEK_FOOTER.size, end))
        if isinstance(length, Finding):
            return length
        if length > min(size, SEEK_TABLE_BYTES_MAX):
            return Finding(Kind.CORRUPT, "seek table is longer than the file")
        return decode_seek_table(self.source.read(length, size - length), size)

    def _walk(self, size: int) -> Rows:
        """The frames that can be found without the table, in its form."""
        data = memoryview(self.source.read(size - HEADER.size, HEADER.size))
        found, at = [(HEADER.size, 0)], 0
        while at < len(data):
            coder = zstandard.ZstdDecompressor().decompressobj()
            window = data[at : at + 2 * FRAME_BYTES]
            try:
                out = coder.decompress(window)
            except zstandard.ZstdError:
                break
            used = len(window) - len(coder.unused_data)
            if not coder.eof or not out:
                break
            found.append((used, len(out)))
            at += used
        return np.array(found, dtype=[("compressed", "<u4"), ("raw", "<u4")])

    def frame(self, index: int) -> bytes | Finding:
        """The raw bytes of zstd frame `index`."""
        at, length = int(self._offsets[1 + index]), int(self._sizes[1 + index])
        data = self.source.read(length, at)
        try:
            if zstandard.get_frame_parameters(data).content_size > FRAME_BYTES:
                return self._finding("compressed frame claims too much", at, length)
            return self._coder.decompress(data, max_output_size=FRAME_BYTES)
        except zstandard.ZstdError as error:
            return self._finding(f"compressed frame cannot be read: {error}", at, length)

    def _finding(self, reason: str, offset: int, length: int = 0, kind: Kind = Kind.CORRUPT
                 ) -> Finding:
        return Finding(kind, reason, self.name, offset, length)

    def section_frames(self, section: Section) -> range:
        """zstd frames that hold blocks of a section."""
        first = self.header.first_block(section)
        last = first + self.header.blocks[section]
        return range(first // FRAME_BLOCKS, -(-last // FRAME_BLOCKS) if last > first else
                     first // FRAME_BLOCKS)

    def blocks(self, section: Section, frames: range | None = None, wanted: Rows | None = None
               ) -> Iterator[tuple[int, Block | Finding]]:
        """(number, block or what is wrong) of the blocks of a section in these zstd frames.
        `wanted`: a flag for each block of the file; the others are skipped."""
        first = self.header.first_block(section)
        end = first + self.header.blocks[section]
        for index in self.section_frames(section) if frames is None else frames:
            low, high = max(first, index * FRAME_BLOCKS), min(end, (index + 1) * FRAME_BLOCKS)
            chosen = [b for b in range(low, high) if wanted is None or wanted[b]]
            if not chosen:
                continue
            if index >= self.frames:  # and so are all that follow
                lost = f"blocks {low} to {end - 1} are after the cut"
                yield low, self._finding(lost, self.source.size(), kind=Kind.GAP)
                return
            raw = self.frame(index)
            if isinstance(raw, Finding):
                yield low, raw
                continue
            for block in chosen:
                found = open_block(raw, (block - index * FRAME_BLOCKS) * BLOCK_BYTES, self.header,
                                   block, section)
                if isinstance(found, Finding):
                    found = replace(found, file=self.name)
                yield block, found

    def rows(self, section: Section) -> Rows:
        """All rows of a section that can be read; what cannot is added to `findings`."""
        good = []
        for _, block in self.blocks(section):
            if isinstance(block, Finding):
                self.findings.append(block)
            else:
                good.append(block)
        return joined_rows(good, ROW_LAYOUTS[section])

    def seals(self) -> Rows | Finding:
        """All seals, from their place after the blocks: without decompressing anything."""
        length = SKIP.size + self.header.all_blocks * SEAL.size
        if not self.whole or len(self._sizes) < 1 or int(self._sizes[-1]) != length:
            return self._finding("seals are missing", self.source.size(), kind=Kind.SHORT)
        data = self.source.read(length, int(self._offsets[-2]))
        if (len(data) != length or crc32c(data[SKIP.size :]) != self.header.seals_crc
                or SKIP.unpack_from(data) != (SKIP_SEALS, length - SKIP.size)):
            return self._finding("seals fail their CRC", int(self._offsets[-2]), length)
        return SEAL.array(data, self.header.all_blocks, SKIP.size)

    def check(self) -> None:
        """Add to `findings` what is wrong outside the frame headers: every other section, the
        seals, the seek table. Whoever reads the frames as well has then looked at every byte, but
        for zeros after the rows of a block and bits that zstd does not use."""
        seals = self.seals()
        if isinstance(seals, Finding):
            self.findings.append(seals)
        for section in set(Section) - {Section.FRAMES}:
            self.rows(section)

    def stream(self) -> memoryview | Finding:
        """The payload stream of an .omb."""
        total = self.header.payload + self.header.rest
        out, at = _room(total), 0
        for index in range(self.frames):
            raw = self.frame(index)
            if isinstance(raw, Finding):
                return raw
            if at + len(raw) <= total:
                out[at : at + len(raw)] = raw
            at += len(raw)
        if at != total:
            return self._finding(f"{at} bytes of bodies, not {total}", self.source.size())
        return out


def open_archive(source: Source, name: str, magic: bytes = MAGIC) -> ArchiveFile | Finding:
    """The archive file, or why it is none: FOREIGN, NEWER, SHORT, CORRUPT head."""
    header = decode_header(source.read(HEADER.size, 0), magic)
    if isinstance(header, Finding):
        return replace(header, file=name)
    return ArchiveFile(source, name, header, magic)


def rebuild(oma: ArchiveFile, omb: ArchiveFile | None) -> memoryview | Finding:
    """The journal file, every byte as it was; a Finding if a piece is missing or is not right."""
    header = oma.header
    stream = memoryview(b"")
    if header.flags & ArchiveFlag.BODIES:
        if omb is None:
            return Finding(Kind.SHORT, "the bodies of this archive were dropped", oma.name)
        found = omb.stream()
        if isinstance(found, Finding):
            return found
        stream = found
    heads, places, frames = _of_blocks(oma)
    extents = oma.rows(Section.EXTENTS)
    out = _assembled(oma, heads, places, frames, extents, stream)
    if not isinstance(out, Finding) and crc32c(out) != header.journal_crc:
        return Finding(Kind.CORRUPT, "the rebuilt journal file has another CRC", oma.name)
    return out


def rebuild_without_bodies(oma: ArchiveFile) -> memoryview | Finding:
    """The same with zeros for payloads and for what is not a block: what the frames alone say."""
    heads, places, frames = _of_blocks(oma)
    places["payload"] = places["payload_at"] = 0  # they stay zeros
    none = np.zeros(0, EXTENT.dtype)
    return _assembled(oma, heads, places, frames, none, memoryview(b""))


def _of_blocks(oma: ArchiveFile) -> tuple[Rows, Rows, Rows]:
    """The heads, with that of the file as the first, the places and the frames of its blocks."""
    return oma.rows(Section.HEADS), oma.rows(Section.PLACES), oma.rows(Section.FRAMES)


def _assembled(oma: ArchiveFile, heads: Rows, places: Rows, frames: Rows, extents: Rows,
               stream: memoryview) -> memoryview | Finding:
    if oma.findings:
        return oma.findings[0]
    header = oma.header
    if len(heads) != len(places) + 1 or not (
            _blocks_fit(header, places, len(frames), len(stream))
            and _within(extents["offset"], extents["length"], header.journal_bytes)
            and int(extents["length"].sum()) <= max(0, len(stream) - header.payload)):
        return Finding(Kind.CORRUPT, "heads and places of its blocks do not fit", oma.name)
    out = _room(header.journal_bytes)
    head, raw = _raw(heads), _raw(frames)
    out[: FILE_HEADER.size] = head[: min(FILE_HEADER.size, header.journal_bytes)]
    at, beginning = 0, BLOCK.size
    for _, offset, payload_at, count, payload in places.tolist():
        size = count * FRAME.size
        middle = offset + BLOCK.size + size
        out[offset : offset + BLOCK.size] = head[beginning : beginning + BLOCK.size]
        out[offset + BLOCK.size : middle] = raw[at : at + size]
        out[middle : middle + payload] = stream[payload_at : payload_at + payload]
        at, beginning = at + size, beginning + BLOCK.size
    at = header.payload
    for offset, length in extents.tolist():
        out[offset : offset + length] = stream[at : at + length]
        at += length
    return out.toreadonly()


def _blocks_fit(header: ArchiveHeader, places: Rows, frames: int, stream: int) -> bool:
    """Does every block lie within the journal file, and are its frames and its payloads there?"""
    count = places["count"].astype("<u8")
    size = BLOCK.size + FRAME.size * count + places["payload"]
    return (_within(places["offset"], size, header.journal_bytes)
            and _within(places["payload_at"], places["payload"], stream)
            and int(count.sum()) <= frames)


def _within(offsets: Rows, lengths: Rows, size: int) -> bool:
    """Do all of these stretches lie within so many bytes? Their sums may be above 64 bits."""
    return bool(((offsets <= size) & (lengths <= size - np.minimum(offsets, size))).all())


def _room(size: int) -> memoryview:
    """Zeros to be written. From numpy, which asks for huge pages: of 64 MiB in pages of 4 KiB the
    first touch takes the kernel several times as long as the copy."""
    return memoryview(np.zeros(size, "u1"))  # type: ignore[arg-type]


def _raw(rows: Rows) -> memoryview:
    """Their bytes, not copied."""
    return memoryview(rows.view("u1"))  # type: ignore[arg-type]
