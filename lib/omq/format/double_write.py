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

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

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
Vector = np.ndarray[Any, np.dtype[Any]]
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
class DoubleWrite:
    """A complete double-write file."""

    generation: int
    images: Images


def _raw(data: Vector) -> memoryview:
    """The bytes of an array, not copied when they lie together."""
    return memoryview(np.ascontiguousarray(data).reshape(-1))  # type: ignore[arg-type]


def images_at(count: int) -> int:
    """Offset of the first image."""
    used = HEADER.size + SLOT.size * count
    return -(-used // RECORD_BYTES) * RECORD_BYTES


def encode(uuid: bytes, generation: int, images: Images) -> list[bytes | memoryview]:
    """The file for up to COUNT_MAX images, as pieces to write one behind the other: the records are
    not copied."""
    count = len(images)
    assert count <= COUNT_MAX
    at = images_at(count)
    slots = np.zeros(count, dtype=SLOT.dtype)
    slots["file"], slots["record"] = images.slots >> 32, images.slots & 0xFFFFFFFF
    data = _raw(images.data)
    head = HEADER.pack(MAGIC, 0, VERSION, HEADER.size, count, uuid, generation,
                       at + RECORD_BYTES * count, b"")
    head = (head + slots.tobytes()).ljust(at, b"\0")
    crc = crc32c(data, crc32c(head[CRC_FROM:]))
    return [head[:4] + crc.to_bytes(4, "little") + head[CRC_FROM:], data]


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
    slots = SLOT.array(view, count, HEADER.size)
    wrong = np.flatnonzero(slots["file"] >= POOL_FILES_MAX)
    if len(wrong):
        i = int(wrong[0])
        return Finding(Kind.CORRUPT, f"double-write entry {i} names pool file {slots['file'][i]}")
    images = np.frombuffer(view, "u1", RECORD_BYTES * count, at).reshape(count, RECORD_BYTES)
    places = slots["file"].astype(np.int64) << 32 | slots["record"]
    return DoubleWrite(generation, Images(places, images))
