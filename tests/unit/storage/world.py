"""What the storage tests share: a disk that misbehaves on demand, and a small journal."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from omq.base.checksum import crc32c
from omq.base.settings import Settings
from omq.format.journal import BLOCK, FRAME, FrameFlag, FrameType
from omq.storage import durable
from omq.storage.disk import Buffer, Disk
from omq.storage.journal import JournalWriter
from omq.storage.spool import SpoolInfo

SETTINGS = replace(Settings(), journal_file_bytes=256 * 1024, block_bytes_max=64 * 1024,
                   block_frames_max=64, store_file_bytes=64 * 1024, volatile_file_bytes=64 * 1024)
PAGE = SETTINGS.journal_page_bytes
TIME_NS = 927_030_603_000_000_000


class FaultyDisk(Disk):
    """Records the durable calls, fails those it is told to, writes at most `step` bytes a call."""

    def __init__(self, step: int = 0) -> None:
        self.step = step
        self.calls: list[str] = []
        self.failures: dict[str, int] = {}  # call -> errno, until taken out

    def _call(self, name: str, what: object = "") -> None:
        self.calls.append(f"{name} {what}".strip())
        if name in self.failures:
            number = self.failures[name]
            raise OSError(number, os.strerror(number))

    def _name(self, fd: int) -> str:
        return os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))

    def open(self, path: str, flags: int, mode: int = 0o640) -> int:
        if flags & os.O_CREAT:
            self._call("create", os.path.basename(path))
        return super().open(path, flags, mode)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._call("write", self._name(fd))
        if not self.step:
            return super().pwritev(fd, buffers, offset)
        return super().pwritev(fd, [b"".join(bytes(b) for b in buffers)[: self.step]], offset)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        if "read" in self.failures:
            raise OSError(self.failures["read"], os.strerror(self.failures["read"]))
        return super().pread(fd, min(length, self.step) if self.step else length, offset)

    def fsync(self, fd: int) -> None:
        self._call("fsync", self._name(fd))
        super().fsync(fd)

    def fdatasync(self, fd: int) -> None:
        self._call("fdatasync", self._name(fd))
        super().fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._call("truncate", self._name(fd))
        super().truncate(fd, size)

    def rename(self, source: str, target: str) -> None:
        self._call("rename", os.path.basename(target))
        super().rename(source, target)

    def rename_new(self, source: str, target: str) -> None:
        self._call("rename", os.path.basename(target))
        super().rename_new(source, target)

    def unlink(self, path: str) -> None:
        self._call("unlink", os.path.basename(path))
        super().unlink(path)

    def mkdir(self, path: str, mode: int = 0o750) -> None:
        self._call("mkdir", os.path.basename(path))
        super().mkdir(path, mode)

    def sync_directory(self, path: str) -> None:
        self._call("dirsync", os.path.basename(path))
        super().sync_directory(path)


def use_faulty(step: int = 0, **failures: int) -> FaultyDisk:
    """Put a faulty disk in place; the failures begin at once."""
    disk = FaultyDisk(step)
    disk.failures.update(failures)
    durable.use(disk)
    return disk


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Real writes above `size` are short, then EFBIG (RLIMIT_FSIZE; Python ignores SIGXFSZ)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


FULL = errno.ENOSPC
BROKEN = errno.EIO


@dataclass
class Journal:
    """A journal writer that makes its own frames: each message is one PUT of `bodies[lsn]`."""

    info: SpoolInfo
    settings: Settings = SETTINGS
    next_lsn: int = 1
    epoch: int = 0
    bodies: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.writer = self._start(self.next_lsn - 1, 0)

    def _start(self, follows_lsn: int, follows_number: int) -> JournalWriter:
        self.epoch += 1
        return JournalWriter.open_epoch(
            self.info.paths, self.settings, self.info.uuid, self.epoch, self.next_lsn, follows_lsn,
            follows_number, 1, TIME_NS)

    def restart(self, follows_lsn: int, *, next_lsn: int = 0) -> None:
        """A new epoch, as after a recovery that accepted everything up to `follows_lsn`."""
        number = self.writer.file_number
        self.writer.close()
        self.next_lsn = next_lsn or follows_lsn + 1
        self.writer = self._start(follows_lsn, number)

    def put(self, *bodies: bytes, sync: bool = True) -> int:
        """One block with a PUT for each body; the file offset of its first payload byte."""
        total = sum(map(len, bodies))
        if BLOCK.size + FRAME.size * len(bodies) + total > self.writer.room():
            self.writer.rotate(self.next_lsn, 1, TIME_NS)
        offset = 0
        for i, body in enumerate(bodies):
            values = {"type": FrameType.PUT, "lsn": self.next_lsn + i, "qpool": self.next_lsn + i,
                      "flags": FrameFlag.PERSISTENT if sync else 0, "length": len(body),
                      "crc": crc32c(body), "offset": offset, "size": len(body)}
            FRAME.pack_into(self.writer.buffer, BLOCK.size + i * FRAME.size,
                            *(int(values.get(name, 0)) for name in FRAME.names))
            self.bodies[self.next_lsn + i] = body
            offset += len(body)
        at = self.writer.append(len(bodies), list(bodies), total, self.next_lsn, sync=sync,
                                next_qpool=1, time_ns=TIME_NS)
        self.next_lsn += len(bodies)
        return at

    def fill(self, blocks: int, size: int = 3000) -> None:
        """So many blocks of one message each, all different."""
        for _ in range(blocks):
            self.put(self.next_lsn.to_bytes(8, "big") * (size // 8))
