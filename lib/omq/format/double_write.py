"""Double-write file `checkpoint.dw`: the images of pool records before they are written in place.

    file := header (64 bytes), slot entry (8 bytes) * count, zeros to a multiple of 512, image *
    count

`crc` is CRC-32C over everything behind it up to the last image. `generation` counts the chunks that
one pool.writer wrote; it is for people. An image is the 512 bytes of a pool record; zeros free the
slot.

In the middle of a crash: a file whose CRC is right was complete before the first record was
overwritten, so recovery writes all its images again (idempotent) and every torn record is whole. A
file whose CRC is wrong was cut while it was made: then no record had been touched. A zeroed header
says that the records are in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omq.base.checksum import crc32c
from omq.base.limits import POOL_FILES_MAX
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout
from omq.format.pool import RECORD_BYTES

VERSION = 1
MAGIC = b"OMQD"
CRC_FROM = 8
HEADER = Layout(
    "magic:4s crc:I version:H header:H count:I uuid:16s generation:Q length:Q reserved:16s", 64
)
SLOT = Layout("file:H spare:H record:I", 8)
COUNT_MAX = 16384
"""Records of one chunk: 8 MiB of images bounds memory and the space of the file."""

Image = tuple[int, int, bytes]  # file, record, 512 bytes


@dataclass(frozen=True, slots=True)
class DoubleWrite:
    """A complete double-write file."""

    generation: int
    images: list[Image]


def images_at(count: int) -> int:
    """Offset of the first image."""
    used = HEADER.size + SLOT.size * count
    return -(-used // RECORD_BYTES) * RECORD_BYTES


def encode(uuid: bytes, generation: int, images: Sequence[Image]) -> bytes:
    """The bytes of the file for up to COUNT_MAX images."""
    assert len(images) <= COUNT_MAX
    at = images_at(len(images))
    length = at + RECORD_BYTES * len(images)
    slots = b"".join(SLOT.pack(file, 0, record) for file, record, _ in images)
    head = HEADER.pack(MAGIC, 0, VERSION, HEADER.size, len(images), uuid, generation, length, b"")
    body = b"".join(((head + slots).ljust(at, b"\0"), *(image for _, _, image in images)))
    assert len(body) == length
    crc = crc32c(memoryview(body)[CRC_FROM:])
    return body[:4] + crc.to_bytes(4, "little") + body[CRC_FROM:]


def decode(data: bytes | memoryview, uuid: bytes) -> DoubleWrite | Finding:
    """The images to write again; END when there is nothing to do, TORN when it was cut."""
    view = memoryview(data)
    if len(view) < HEADER.size:
        return Finding(Kind.END if not len(view) else Kind.TORN, "double-write file is cut")
    magic, crc, version, header, count, owner, generation, length, _ = HEADER.unpack_from(view)
    if magic != MAGIC:
        empty = not any(view[: HEADER.size])
        return Finding(Kind.END if empty else Kind.TORN, "no complete double-write file")
    if version > VERSION:
        return Finding(Kind.NEWER, f"double-write version {version}, known {VERSION}")
    at = images_at(count)
    fits = header == HEADER.size and count <= COUNT_MAX
    if not fits or length != at + RECORD_BYTES * count or length > len(view):
        return Finding(Kind.TORN, "double-write lengths do not fit")
    if crc32c(view[CRC_FROM:length]) != crc:
        return Finding(Kind.TORN, "double-write file fails its CRC")
    if owner != uuid:
        return Finding(Kind.FOREIGN, "double-write file of another instance")
    images = []
    for i in range(count):
        file, _, record = SLOT.unpack_from(view, HEADER.size + i * SLOT.size)
        if file >= POOL_FILES_MAX:
            return Finding(Kind.CORRUPT, f"double-write entry {i} names pool file {file}")
        start = at + i * RECORD_BYTES
        images.append((file, record, bytes(view[start : start + RECORD_BYTES])))
    return DoubleWrite(generation, images)
