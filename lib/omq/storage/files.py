"""Spool files: opened without following links, written in full, synced once, made by rename.

Invariants:
1. Writes loop on short counts; every error goes through the latch of storage/durable.py.
2. `sync` is the only thing that makes bytes count; it is never repeated after it failed.
3. What `create_filled` and `write_new_file` return is whole and durable under its name.
4. A file is written by position; there is no shared offset and no buffer of ours.

In the middle of a crash: `create_filled` and `write_new_file` work under `.tmp`, which the next
start overwrites; an append (File.write) is whatever subset of its sectors reached the disk.

Errors: DiskError, SpoolFull; FileNotFoundError from open_file, so that callers decide what is
missing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from omq.base.errors import DiskError, OmqError
from omq.base.fault import POINTS, point
from omq.storage import durable
from omq.storage.disk import FILE_MODE, IOV_MAX, Buffer

TEMPORARY: Final = ".tmp"
CLOSED: Final = -1
UNREADABLE: Final = b"\xee"
_ZEROS: Final = bytes(1 << 20)
_CANNOT_SHARE: Final = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS,
                        errno.EPERM, errno.ETXTBSY)
"""How file systems and filters say that a file cannot share another one's blocks."""


def _point_name(area: str, moment: str) -> str:
    name = f"{area}.{moment}"
    return name if name in POINTS else ""


class File:
    """An open spool file: its descriptor, its path for messages, and its crash points.

    `area` names the points: journal, pool, poolctrl, store, container; others have none.
    """

    __slots__ = ("_after_sync", "_after_write", "_before_sync", "_before_write", "fd", "path")

    def __init__(self, fd: int, path: Path, area: str = "") -> None:
        self.fd = fd
        self.path = path
        self._before_write = _point_name(area, "before_write")
        self._after_write = _point_name(area, "after_write")
        self._before_sync = _point_name(area, "before_sync")
        self._after_sync = _point_name(area, "after_sync")

    def write(self, buffers: Sequence[Buffer], offset: int, *, new: bool = False) -> None:
        """All of the byte buffers at `offset`; `new`: a full disk is SpoolFull, not latched."""
        durable.check_latch()
        try:
            if self._before_write:
                point(self._before_write)
            wanted = sum(map(len, buffers))
            written = durable.current().pwritev(self.fd, buffers[:IOV_MAX], offset)
            if written != wanted:
                self.write_rest(buffers, offset, written)
            if self._after_write:
                point(self._after_write)
        except OSError as error:
            raise durable.failure("write", self.path, error, new=new) from error

    def write_rest(self, buffers: Sequence[Buffer], offset: int, written: int) -> None:
        """What a short count left; for `write`, and omq.fast.journal in its place."""
        rest = [memoryview(buffer) for buffer in buffers if len(buffer)]
        step = written
        while True:
            offset += step
            while rest and step >= len(rest[0]):
                step -= len(rest.pop(0))
            if not rest:
                return
            rest[0] = rest[0][step:]
            step = durable.current().pwritev(self.fd, rest[:IOV_MAX], offset)
            if step == 0:
                raise OSError(errno.EIO, "the disk takes no more bytes")

    def clone(self, source: int) -> bool:
        """An empty file becomes a copy of the file of this descriptor that shares its blocks;
        False: the file system cannot do that, and nothing has changed. SpoolFull, DiskError."""
        durable.check_latch()
        try:
            if self._before_write:
                point(self._before_write)
            durable.current().clone(self.fd, source)
            if self._after_write:
                point(self._after_write)
        except OSError as error:
            if error.errno in _CANNOT_SHARE:
                return False
            raise durable.refusal("clone", self.path, error) from error
        return True

    def sync(self, *, new: bool = False) -> None:
        """fdatasync(2): the bytes written so far are on the disk when this returns; `new` as for
        write."""
        self._sync(durable.current().fdatasync, "fdatasync", new=new)

    def sync_all(self, *, new: bool = False) -> None:
        """fsync(2): bytes, size and times; `new` as for write."""
        self._sync(durable.current().fsync, "fsync", new=new)

    def _sync(self, call: Callable[[int], None], name: str, *, new: bool) -> None:
        durable.check_latch()
        try:
            if self._before_sync:
                point(self._before_sync)
            call(self.fd)
            if self._after_sync:
                point(self._after_sync)
        except OSError as error:
            raise durable.failure(name, self.path, error, new=new) from error

    def settle(self) -> None:
        """For recovery: sync, then drop the page cache, so that what is read next is on the disk.

        A page that an earlier failed sync left marked clean shows the bytes of the disk again; what
        a killed writer left dirty becomes durable. Nothing durable is written a second time.
        """
        self.sync_all()
        durable.current().drop_cache(self.fd)

    def read(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file. DiskError, not latched."""
        try:
            data = durable.current().pread(self.fd, length, offset)
            while data and len(data) < length:
                more = durable.current().pread(self.fd, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            raise durable.refusal("read", self.path, error) from error

    def size(self) -> int:
        try:
            return durable.current().fstat(self.fd).st_size
        except OSError as error:
            raise durable.refusal("read", self.path, error) from error

    def truncate(self, size: int) -> None:
        """Cut the file, durably."""
        durable.check_latch()
        try:
            durable.current().truncate(self.fd, size)
            durable.current().fsync(self.fd)
        except OSError as error:
            raise durable.failure("truncate", self.path, error) from error

    def close(self) -> None:
        """Its number is somebody else's soon: it is forgotten here, so that whoever still writes
        is refused (EBADF) and does not write into another file."""
        fd, self.fd = self.fd, CLOSED
        durable.current().close(fd)


def open_file(path: Path, area: str = "", *, write: bool = False) -> File:
    """An existing regular file. FileNotFoundError; DiskError for a link, directory or device."""
    flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_NONBLOCK  # a FIFO must not hang us
    try:
        fd = durable.current().open(str(path), flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise durable.refusal("open", path, error) from error
    file = File(fd, path, area)
    if not _is_regular(file):
        file.close()
        raise DiskError(operation="open", file=path, reason="not a regular file")
    return file


def _is_regular(file: File) -> bool:
    return stat.S_ISREG(durable.current().fstat(file.fd).st_mode)


def read_salvaged(file: File, length: int, offset: int, page: int) -> bytes:
    """Like file.read, but pages that the disk cannot read come as UNREADABLE bytes, which no format
    accepts: the rest of the file is then judged as usual."""
    try:
        return file.read(length, offset)
    except DiskError:
        end = min(offset + length, file.size())
        return b"".join(_page(file, min(page, end - at), at) for at in range(offset, end, page))


def _page(file: File, length: int, at: int) -> bytes:
    try:
        return file.read(length, at)
    except DiskError:
        return UNREADABLE * length


def read_file(path: Path, bytes_max: int) -> bytes:
    """The bytes of a small file, cut at `bytes_max`. FileNotFoundError, DiskError."""
    file = open_file(path)
    try:
        return file.read(bytes_max, 0)
    finally:
        file.close()


def create_file(path: Path, area: str = "", *, replace: bool = False) -> File:
    """A new empty file, open for reading and writing; its name is not durable yet.

    FileExistsError unless `replace` (an old one is emptied); SpoolFull, DiskError."""
    durable.check_latch()
    flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL)
    try:
        return File(durable.current().open(str(path), flags, FILE_MODE), path, area)
    except FileExistsError:
        raise
    except OSError as error:
        raise durable.refusal("create", path, error) from error


def create_filled(path: Path, size: int, area: str = "") -> File:
    """A file of `size` real zeros, synced with its name: later writes in it change no metadata.

    Made under a temporary name and renamed, so that `path` never names a shorter file."""
    temporary = path.with_name(path.name + TEMPORARY)
    file = create_file(temporary, replace=True)
    try:
        for at in range(0, size, len(_ZEROS)):
            file.write([_ZEROS[: min(len(_ZEROS), size - at)]], at, new=True)
        file.sync_all(new=True)
        durable.rename(temporary, path, new=True)
    except OmqError:
        _abandon(file)
        raise
    return File(file.fd, path, area)


def write_new_file(path: Path, parts: Sequence[Buffer], area: str = "") -> File:
    """A file with these bytes, complete and durable under its name when this returns; left open."""
    temporary = path.with_name(path.name + TEMPORARY)
    file = create_file(temporary, replace=True)
    try:
        file.write(parts, 0, new=True)
        file.sync_all(new=True)
        durable.rename(temporary, path, new=True)
    except OmqError:
        _abandon(file)
        raise
    return File(file.fd, path, area)


def _abandon(file: File) -> None:
    """Close and remove what was not finished, unless the disk failed: then nothing is touched."""
    file.close()
    if durable.latched() is None:
        durable.unlink(file.path, sync=False)
