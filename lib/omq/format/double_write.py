"""Double-write file `checkpoint.dw`: the images of pool records before they are written in place,
and what the pool files hold once they are.

    file  := header (64 bytes), zeros to 4096, table 0 (4096 bytes), table 1 (4096 bytes), chunk
    chunk := slot entry (8 bytes) * count, zeros to a multiple of 512, image * count
    table := table header (64 bytes), row of a pool file (32 bytes, format.pool_contents) * files

`generation` counts the chunks. Chunk n writes table n % 2: what every pool file holds when chunk n
is in place. `crc` of the header is CRC-32C over the header after it, that table, and the chunk. An
image is the 512 bytes of a pool record; zeros free the slot. `checkpoint` is the generation of the
poolctrl slot that will count when the checkpoint is over: a poolctrl that is as far says what the
files hold itself, and nothing here is to be written any more.

In the middle of a crash: a file whose CRC is right was complete before the first record was
overwritten, so recovery writes all its images again (idempotent), every torn record is whole, and
the files hold what its table says. A file whose CRC is wrong was cut while it was made: then no
record had been touched, and the files hold what the OTHER table says, which was left alone. After
the last chunk the header is marked as settled, not synced: it only saves writing it again.

Version 1 had no tables; its chunk stood right after the header. It is read, and replaced.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.base.checksum import crc32c
from omq.base.limits import POOL_FILES_MAX
from omq.format import pool_contents
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout
from omq.format.pool import RECORD_BYTES
from omq.format.pool_contents import Contents, decode_rows, encode_rows

VERSION = 2
MAGIC = b"OMQD"
TABLE_MAGIC = b"OMQK"
CRC_FROM = 8
HEADER = Layout(
    "magic:4s crc:I version:H header:H count:I uuid:16s generation:Q length:Q checkpoint:Q "
    "settled:I spare:I", 64
)
TABLE = Layout(
    "magic:4s crc:I version:H files:H spare:I uuid:16s generation:Q checkpoint:Q reserved:16s", 64
)
PAGE: Final = 4096  # of the header, and of a table
CHUNK_AT: Final = 3 * PAGE
assert TABLE.size + POOL_FILES_MAX * pool_contents.ROW.size <= PAGE
SLOT = Layout("file:H spare:H record:I", 8)
COUNT_MAX = 16384
"""Records of one chunk: 8 MiB of images bounds memory and the space of the file."""

Image = tuple[int, int, bytes]  # file, record, 512 bytes
FREE: Final = bytes(RECORD_BYTES)


@dataclass(frozen=True, slots=True)
class Images:
    """Images of pool records as arrays: `slots` (int64, shape (n,)) is file << 32 | record, `data`
    (uint8, shape (n, 512)) the records; zeros free the slot."""

    slots: Vector
    data: Vector

    @staticmethod
    def of(images: Iterable[Image]) -> Images:
        listed = list(images)
        slots = np.array([file << 32 | record for file, record, _ in listed], dtype=np.int64)
        data = np.frombuffer(b"".join(image for _, _, image in listed), dtype="u1")
        return Images(slots, data.reshape(len(listed), RECORD_BYTES))

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[Image]:
        for slot, image in zip(self.slots.tolist(), self.data, strict=True):
            yield slot >> 32, slot & 0xFFFFFFFF, image.tobytes()

    def part(self, first: int, last: int) -> Images:
        return Images(self.slots[first:last], self.data[first:last])

    def ascending(self) -> Images:
        """In the order of their slots; of two for one slot the later one stays behind."""
        if bool((self.slots[:-1] <= self.slots[1:]).all()):
            return self
        order = np.argsort(self.slots, kind="stable")
        return Images(self.slots[order], self.data[order])

    def runs(self) -> Iterator[tuple[int, int, memoryview]]:
        """Neighbours together: (file, first record, the bytes of all of them). For `ascending`."""
        if not len(self):
            return
        apart = (np.diff(self.slots) != 1) | (self.slots[1:] & 0xFFFFFFFF == 0)  # the next file's
        breaks = (np.flatnonzero(apart) + 1).tolist()
        for first, end in itertools.pairwise([0, *breaks, len(self)]):
            file, record = divmod(int(self.slots[first]), 1 << 32)
            yield file, record, _raw(self.data[first:end])

    def changes(self) -> dict[tuple[int, int], bytes | None]:
        """(file, record) -> 512 bytes, None for a slot that is freed."""
        return {(file, record): None if image == FREE else image for file, record, image in self}


@dataclass(frozen=True, slots=True)
class Table:
    """What the pool files hold when chunk `generation` is in place."""

    generation: int
    checkpoint: int
    contents: Contents


@dataclass(frozen=True, slots=True)
class DoubleWrite:
    """A complete double-write file. `after`, `before`: the pool files with the chunk in place, and
    without it; None: not known."""

    generation: int
    images: Images
    checkpoint: int = 0
    after: Table | None = None
    before: Table | None = None


def _raw(data: Vector) -> memoryview:
    """The bytes of an array, not copied when they lie together."""
    return memoryview(np.ascontiguousarray(data).reshape(-1))  # type: ignore[arg-type]


def _entries_bytes(count: int) -> int:
    return -(-SLOT.size * count // RECORD_BYTES) * RECORD_BYTES


def table_at(generation: int) -> int:
    """Offset of the table of a chunk."""
    return PAGE * (1 + generation % 2)


def encode(uuid: bytes, generation: int, images: Images, checkpoint: int, contents: Contents
           ) -> list[tuple[int, list[bytes | memoryview]]]:
    """What to write for up to COUNT_MAX images: (offset, pieces one after the other). The records
    are not copied, and the other table is not touched."""
    count = len(images)
    assert count <= COUNT_MAX
    slots = np.zeros(count, dtype=SLOT.dtype)
    slots["file"], slots["record"] = images.slots >> 32, images.slots & 0xFFFFFFFF
    entries = slots.tobytes().ljust(_entries_bytes(count), b"\0")
    data = _raw(images.data)
    table = _encode_table(uuid, generation, checkpoint, contents)
    length = CHUNK_AT + len(entries) + len(data)
    head = HEADER.pack(MAGIC, 0, VERSION, HEADER.size, count, uuid, generation, length,
                       checkpoint, 0, 0)
    crc = crc32c(data, crc32c(entries, crc32c(table, crc32c(head[CRC_FROM:]))))
    page = (head[:4] + crc.to_bytes(4, "little") + head[CRC_FROM:]).ljust(PAGE, b"\0")
    if generation % 2:
        return [(0, [page]), (table_at(generation), [table, entries, data])]
    return [(0, [page, table]), (CHUNK_AT, [entries, data])]


def _encode_table(uuid: bytes, generation: int, checkpoint: int, contents: Contents) -> bytes:
    head = TABLE.pack(TABLE_MAGIC, 0, VERSION, len(contents), 0, uuid, generation, checkpoint, b"")
    made = head + encode_rows(contents)
    crc = crc32c(made[CRC_FROM:])
    return (made[:4] + crc.to_bytes(4, "little") + made[CRC_FROM:]).ljust(PAGE, b"\0")


def encode_settled(uuid: bytes, generation: int, checkpoint: int) -> bytes:
    """The header once chunk `generation` is in place."""
    head = HEADER.pack(MAGIC, 0, VERSION, HEADER.size, 0, uuid, generation, 0, checkpoint, 1, 0)
    return head[:4] + crc32c(head[CRC_FROM:]).to_bytes(4, "little") + head[CRC_FROM:]


def decode(data: bytes | memoryview, uuid: bytes) -> DoubleWrite | Finding:
    """The images to write again; END when there is nothing to do, TORN when it was cut."""
    view = memoryview(data)
    if len(view) < HEADER.size:
        return Finding(Kind.END if not len(view) else Kind.TORN, "double-write file is cut")
    (magic, crc, version, header, count, owner, generation, length, checkpoint, settled, _
     ) = HEADER.unpack_from(view)
    if magic != MAGIC:
        empty = not any(view[: HEADER.size])
        return Finding(Kind.END if empty else Kind.TORN, "no complete double-write file")
    if version > VERSION:
        return Finding(Kind.NEWER, f"double-write version {version}, known {VERSION}")
    if settled:
        if crc32c(view[CRC_FROM : HEADER.size]) != crc:
            return Finding(Kind.TORN, "double-write header fails its CRC")
        return Finding(Kind.END, "its chunk is in place")
    at = HEADER.size if version == 1 else CHUNK_AT
    images_at = -(-(at + SLOT.size * count) // RECORD_BYTES) * RECORD_BYTES
    fits = header == HEADER.size and count <= COUNT_MAX
    if not fits or length != images_at + RECORD_BYTES * count or length > len(view):
        return Finding(Kind.TORN, "double-write lengths do not fit")
    found = crc32c(view[CRC_FROM : HEADER.size])
    if version > 1:
        found = crc32c(view[table_at(generation) : table_at(generation) + PAGE], found)
    if crc32c(view[at:length], found) != crc:
        return Finding(Kind.TORN, "double-write file fails its CRC")
    if owner != uuid:
        return Finding(Kind.FOREIGN, "double-write file of another instance")
    slots = SLOT.array(view, count, at)
    wrong = np.flatnonzero(slots["file"] >= POOL_FILES_MAX)
    if len(wrong):
        i = int(wrong[0])
        return Finding(Kind.CORRUPT, f"double-write entry {i} names pool file {slots['file'][i]}")
    images = np.frombuffer(view, "u1", RECORD_BYTES * count, images_at)
    places = slots["file"].astype(np.int64) << 32 | slots["record"]
    tables = {table.generation: table for table in _tables(view, uuid)} if version > 1 else {}
    return DoubleWrite(generation, Images(places, images.reshape(count, RECORD_BYTES)), checkpoint,
                       tables.get(generation), tables.get(generation - 1))


@dataclass(frozen=True, slots=True)
class Standing:
    """What the pool files may hold, as the double-write file says it, the likeliest first. `sure`:
    it is the only table; else a chunk was being written, and its own table may be on the disk
    already while the files hold what they did before it."""

    tables: list[Table] = field(default_factory=list)
    sure: bool = False


def standing(data: bytes | memoryview, uuid: bytes) -> Standing:
    """With the chunk in place, if there is a complete one; else by the header and the tables."""
    view = memoryview(data)
    tables = sorted(_tables(view, uuid), key=lambda table: -table.generation)
    found = decode(view, uuid)
    if isinstance(found, DoubleWrite):
        return Standing([found.after] if found.after is not None else [], sure=True)
    generation = HEADER.unpack_from(view)[6] if len(view) >= HEADER.size else 0
    if found.kind is Kind.END and generation:  # a settled header
        return Standing([table for table in tables if table.generation == generation], sure=True)
    return Standing(tables)


def _tables(view: memoryview, uuid: bytes) -> Iterator[Table]:
    """The tables that are whole and of this instance."""
    for at in (PAGE, 2 * PAGE):
        if len(view) < at + PAGE:
            return
        magic, crc, version, files, _, owner, generation, checkpoint, _ = TABLE.unpack_from(
            view, at)
        used = TABLE.size + pool_contents.ROW.size * files
        if magic != TABLE_MAGIC or version > VERSION or used > PAGE or owner != uuid \
                or crc32c(view[at + CRC_FROM : at + used]) != crc:
            continue
        contents = decode_rows(view, files, at + TABLE.size)
        if contents is not None and table_at(generation) == at:
            yield Table(generation, checkpoint, contents)
