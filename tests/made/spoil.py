"""Damage an archive file in a known way: one bit of one block, inside its compressed frame.

The compressed frame itself is right again afterwards, so that the block's CRC must find it.
"""

from __future__ import annotations

import zstandard

from omq.format.archive import (
    BLOCK_BYTES,
    HEADER,
    SEAL,
    SKIP,
    SKIP_SEALS,
    Section,
    encode_seek_table,
    rows_per_block,
)
from omq.format.findings import Finding
from omq.format.journal import FRAME
from omq.storage.archive import Pieces
from omq.storage.archive_file import ArchiveFile, open_archive


class Held:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def size(self) -> int:
        return len(self.data)

    def read(self, length: int, offset: int) -> bytes:
        return self.data[offset : offset + length]


def spoiled(data: bytes, pieces: Pieces) -> bytes:
    """The same archive file with one bit flipped in the second block of frames."""
    file = open_archive(Held(data), "")
    assert isinstance(file, ArchiveFile)
    assert len(pieces.sections[Section.FRAMES]) > 2 * BLOCK_BYTES // FRAME.size
    frames, seals = [], file.seals()
    assert not isinstance(seals, Finding)
    for index in range(file.frames):
        raw = file.frame(index)
        assert not isinstance(raw, Finding)
        frames.append(bytearray(raw))
    plane = rows_per_block(Section.FRAMES)
    frames[0][BLOCK_BYTES + SEAL.size + 20 * plane + 100] ^= 0x10  # byte 20 of row 100
    coder = zstandard.ZstdCompressor(level=3, write_checksum=True, write_content_size=True)
    packed = [coder.compress(bytes(frame)) for frame in frames]
    tail = SKIP.pack(SKIP_SEALS, len(seals) * SEAL.size) + seals.tobytes()
    sizes = [(len(p), len(f)) for p, f in zip(packed, frames, strict=True)]
    table = encode_seek_table([(HEADER.size, 0), *sizes, (len(tail), 0)])
    return b"".join([data[: HEADER.size], *packed, tail, table])
