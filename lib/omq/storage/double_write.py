"""The double-write file of the pool: chunks of records before they are written in place, each with
what the pool files hold once it is (omq.format.double_write).

Invariants: 1. `stage` returns when the chunk is durable; 2. the table of the chunk before it is not
touched; a chunk that could not be written uses up no number, so this holds for the next one, too.

In the middle of a crash: see the format. A file of format 1 is replaced, as a whole, when its chunk
is in place.

Errors: DiskError (latched), SpoolFull from `stage`.
"""

from __future__ import annotations

from typing import Final

from omq.base.paths import SpoolPaths
from omq.format.double_write import (
    HEADER,
    PAGE,
    DoubleWrite,
    Images,
    Standing,
    decode,
    encode,
    encode_settled,
    standing,
)
from omq.format.findings import Finding
from omq.format.pool_contents import Contents
from omq.storage.files import File, open_file, write_new_file

NAME: Final = "checkpoint.dw"


class DoubleWriteFile:
    """See the module. `generation`: of the last chunk that is in place or staged."""

    def __init__(self, paths: SpoolPaths, uuid: bytes) -> None:
        self.generation = 0
        self._path = paths.msgpool / NAME
        self._uuid = uuid
        self._file: File | None = None
        self._staged: tuple[int, int] | None = None  # generation and checkpoint of the last chunk
        self._stands = Standing()

    def stage(self, images: Images, checkpoint: int, contents: Contents) -> None:
        """Make a chunk durable; `contents`: of the pool files once it is in place. SpoolFull."""
        file = self._open()
        generation = self.generation + 1
        for offset, pieces in encode(self._uuid, generation, images, checkpoint, contents):
            file.write(pieces, offset, new=True)
        file.sync_all(new=True)
        self.generation = generation
        self._staged = generation, checkpoint

    def settled(self) -> None:
        """The last chunk is in place. Not synced: if the old header comes back, recovery writes
        what is there already."""
        if self._staged is not None:
            self._open().write([encode_settled(self._uuid, *self._staged)], 0, new=True)

    def read(self) -> tuple[DoubleWrite | Finding, Standing]:
        """At a start, with the file settled: the chunk to write again, or why there is none; and
        what the pool files may hold with that in place (format.double_write.standing)."""
        file = self._open()
        file.settle()
        data = file.read(file.size(), 0)
        found, stands = decode(data, self._uuid), standing(data, self._uuid)
        self._stands = stands
        self.generation = max((table.generation for table in stands.tables), default=0)
        if isinstance(found, DoubleWrite):
            self.generation = found.generation
        return found, stands

    def go_on_from(self, contents: Contents) -> None:
        """The pool files hold this. The table of a chunk that was cut while it was made does not
        count: the next chunk takes its number, so that the table before it stays."""
        tables = self._stands.tables
        if not self._stands.sure and tables and self.generation == tables[0].generation:
            mine = [table.generation for table in tables if table.contents == contents]
            self.generation = max(mine, default=tables[0].generation - 1)

    def replace_old(self) -> None:
        """Make an empty file of this format in the place of one of format 1; its chunk is in
        place."""
        file = self._open()
        magic, _, version, *_ = HEADER.unpack_from(file.read(HEADER.size, 0).ljust(HEADER.size,
                                                                                 b"\0"))
        if any(magic) and version == 1:
            file.close()
            self._file = self._new()

    def _open(self) -> File:
        if self._file is None:
            try:
                self._file = open_file(self._path, "pool", write=True)
            except FileNotFoundError:
                self._file = self._new()
        return self._file

    def _new(self) -> File:
        return write_new_file(self._path, [bytes(PAGE)], "pool")

    def close(self) -> None:
        """Let go of it."""
        if self._file is not None:
            self._file.close()
            self._file = None
