"""Containers of a standby: the files that its primary's messages name, before the blocks that name
them.

Pieces of one container come in order, from 0 on; its last one says so by its end. It is whole and
synced, with its directories, when `sync` returns, and the standby's mark moves after that: no
block that counts here names a container that is not here.

Invariants: 1. a reference has exactly the form of storage.containers before any path is made of it,
and nothing is opened outside of the spool; 2. one that is here already is written again from 0: its
primary sends it when a connection was lost in between.

In the middle of a crash: a part of a container that no message names, or one whose block is above
the mark: both are written again, or are what omscan calls an orphan.

Errors: StreamBroken; DiskError (latched); SpoolFull: what was begun is removed.
"""

from __future__ import annotations

from pathlib import Path

from omq.base.errors import BadItemRef, SpoolFull, StreamBroken
from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.containers import REF_BYTES, open_again
from omq.storage.files import File


class ContainerCopy:
    """See the module."""

    def __init__(self, paths: SpoolPaths, peer: str = "the primary") -> None:
        self._paths, self._peer = paths, peer
        self._file: File | None = None
        self._ref = ""
        self._offset = 0
        self._directories: set[Path] = set()  # with a new name that is not synced

    def write(self, ref: bytes, offset: int, data: bytes | memoryview, size: int) -> None:
        """The next piece of a container of `size` bytes."""
        name = ref.decode("ascii", "replace")
        if offset == 0:
            self._begin(name)
        if self._file is None or name != self._ref or offset != self._offset or (
                offset + len(data) > size):
            raise StreamBroken(peer=self._peer, reason=f"{len(data)} bytes at {offset} of a "
                               f"container of {size}, where {self._offset} were there")
        try:
            self._file.write([data], offset, new=True)
            self._offset += len(data)
            if self._offset == size:
                self._file.sync_all(new=True)
                self.close()
        except SpoolFull:
            path = self._file.path
            self.close()
            durable.unlink(path, sync=False)
            raise

    def _begin(self, ref: str) -> None:
        self.close()
        if len(ref) != REF_BYTES:
            raise StreamBroken(peer=self._peer, reason="a container without a reference")
        try:
            self._file = open_again(self._paths, ref)
        except BadItemRef as error:
            raise StreamBroken(peer=self._peer, reason=str(error)) from error
        self._ref, self._offset = ref, 0
        self._directories.add(self._file.path.parent)

    @property
    def complete(self) -> bool:
        """Is none half written?"""
        return self._file is None

    def sync(self) -> None:
        """The names of all that were written are on the disk."""
        for directory in sorted(self._directories):
            durable.sync_directory(directory)
        if self._directories:
            durable.sync_directory(self._paths.data)
        self._directories.clear()

    def close(self) -> None:
        """Let go of a file that is not whole."""
        if self._file is not None:
            self._file.close()
            self._file = None
