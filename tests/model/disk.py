"""A disk that syncs nothing and knows what was not synced: what a power cut may take away.

Names (make, rename, unlink) count at once; the crash simulator of tests/crash is for what directory
syncs are worth. Here whole writes are lost, the last ones of a file first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from omq.storage.disk import FILE_MODE, Buffer, Disk


class Cut(BaseException):
    """The process dies here."""


@dataclass(slots=True)
class _Unsynced:
    """Writes to one file since its last sync, as what was there before."""

    fd: int
    before: list[tuple[int, bytes, int]] = field(default_factory=list)  # offset, bytes, file size


class LossyDisk(Disk):
    """`cut`: how many more writes and syncs are done; then every one raises Cut."""

    def __init__(self) -> None:
        self.cut: int | None = None
        self._files: dict[int, _Unsynced] = {}
        self._opened: set[int] = set()

    def _step(self) -> None:
        if self.cut is not None:
            if self.cut == 0:
                raise Cut
            self.cut -= 1

    def open(self, path: str, flags: int, mode: int = FILE_MODE) -> int:
        fd = super().open(path, flags, mode)
        self._opened.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self._opened.discard(fd)
        super().close(fd)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._step()
        status = os.fstat(fd)
        known = self._files.get(status.st_ino)
        if known is None:
            known = self._files[status.st_ino] = _Unsynced(os.dup(fd))
        size = sum(map(len, buffers))
        known.before.append((offset, os.pread(fd, size, offset), status.st_size))
        return super().pwritev(fd, buffers, offset)

    def _synced(self, fd: int) -> None:
        self._step()
        known = self._files.pop(os.fstat(fd).st_ino, None)
        if known is not None:
            os.close(known.fd)

    def fsync(self, fd: int) -> None:
        self._synced(fd)

    def fdatasync(self, fd: int) -> None:
        self._synced(fd)

    def drop_cache(self, fd: int) -> None:
        return None

    def sync_directory(self, path: str) -> None:
        return None

    def die(self, keep: Callable[[int], int]) -> None:
        """The process is gone: its descriptors close. Of n unsynced writes of a file the first
        `keep(n)` stay."""
        self.cut = None
        for fd in self._opened:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._opened.clear()
        for file in self._files.values():
            kept = keep(len(file.before))
            for offset, data, size in reversed(file.before[kept:]):
                os.pwrite(file.fd, data, offset)
                os.ftruncate(file.fd, size)
            os.close(file.fd)
        self._files.clear()
