"""Store files of a standby: each payload where its primary has put it.

The primary's pool.writer appends (storage.store); a RELOCATE frame names file and offset, and a
standby writes its own copy of the payload there. Between the entries lie those of messages that
have ended by then, and the zeros of the primary's pages, so a file here may have holes: they read
as zeros, as space between entries does.

Invariants: 1. what `write` has taken counts behind `sync`; 2. the same payload may be written at
its place again; 3. no entry is written over one that a location names: the primary never used a
place twice.

In the middle of a crash: unsynced entries are garbage that no pool record names yet; the redo that
writes them is done again.

Errors: DiskError (latched); SpoolFull while a file is made.
"""

from __future__ import annotations

import numpy as np

from omq.base import clock
from omq.base.paths import SpoolPaths
from omq.format.store import ALIGNMENT, ENTRY, STORE_MAGIC, StoreHeader, encode_entries
from omq.storage.files import File, open_file, write_new_file
from omq.storage.store import file_name


class StoreCopy:
    """See the module."""

    def __init__(self, paths: SpoolPaths, uuid: bytes) -> None:
        self._paths, self._uuid = paths, uuid
        self._files: dict[int, File] = {}  # written to since the last sync

    def write(self, number: int, offset: int, qpool: int, payload: bytes, crc: int) -> None:
        """A payload to `offset` of store file `number`, with its entry header before it."""
        assert offset >= ENTRY.size
        head = encode_entries(np.array([qpool]), np.array([len(payload)]), np.array([crc]))
        self._file(number).write([head, payload, bytes(-len(payload) % ALIGNMENT)],
                                 offset - ENTRY.size)

    def _file(self, number: int) -> File:
        file = self._files.get(number)
        if file is None:
            path = self._paths.store / file_name(number)
            try:
                file = open_file(path, "store", write=True)
            except FileNotFoundError:
                header = StoreHeader(STORE_MAGIC, number, self._uuid, clock.wall_ns())
                file = write_new_file(path, [header.encode()], "store")
            self._files[number] = file
        return file

    def sync(self) -> None:
        """Everything that was written is on the disk."""
        for file in self._files.values():
            file.sync_all()
        self.close()

    def close(self) -> None:
        """Close the files; what was not synced does not count."""
        for file in self._files.values():
            file.close()
        self._files.clear()
