"""The system calls that spool data goes through, one small method each: the seam of the crash
tests.

`Disk` is the real one. The crash simulator of tests/crash has a class of the same methods that
keeps files in memory and decides what a power cut leaves; `durable.use` puts it in place. Nothing
else in omq opens, reads, writes, syncs, renames or removes spool data (tests/tidy looks for it).

Invariants:
1. Every file is opened with O_NOFOLLOW | O_CLOEXEC: a link in the spool is never followed, a child
   never inherits a descriptor.
2. Methods do what the system call does, once: loops over short counts, latching of errors and the
   order of syncs belong to `durable`.
3. `open_beneath` cannot leave its root: openat2(2) with RESOLVE_BENEATH, NO_SYMLINKS and
   NO_MAGICLINKS; where the kernel has none (before 5.6, or a container's filter), one openat with
   O_NOFOLLOW for each component, which refuses the same paths.

Errors: OSError, as the system gives it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
from collections.abc import Sequence
from typing import Final

from omq.base import modes

Buffer = bytes | bytearray | memoryview

FILE_MODE: Final = modes.FILE
DIRECTORY_MODE: Final = modes.DIRECTORY
IOV_MAX: Final = 1024  # Linux takes no more buffers in one pwritev
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_SYS_OPENAT2: Final = 437  # the same number on every architecture but alpha
_FICLONE: Final = 0x40049409  # _IOW(0x94, 9, int)
_KEEP_SIZE: Final = 0x01  # of fallocate(2)
_PUNCH_HOLE: Final = 0x02
_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
_BEGIN_WRITE: Final = getattr(_LIBRARY, "sync_file_range", None)  # of Linux and glibc alone
_WRITE: Final = 2  # SYNC_FILE_RANGE_WRITE
_FALLOCATE: Final = getattr(_LIBRARY, "fallocate64", None) or _LIBRARY.fallocate  # 64-bit offsets
_RENAME: Final = getattr(_LIBRARY, "renameat2", None)  # glibc 2.28
_AT_FDCWD: Final = -100
_NOREPLACE: Final = 1
_RESOLVE: Final = 0x02 | 0x04 | 0x08  # NO_MAGICLINKS, NO_SYMLINKS, BENEATH
_NO_OPENAT2: Final = (errno.ENOSYS, errno.EPERM)


class _OpenHow(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class Disk:
    """The real disk. Paths are absolute text, descriptors ints; each call may raise OSError."""

    def open(self, path: str, flags: int, mode: int = FILE_MODE) -> int:
        return os.open(path, flags | _SAFE, mode)

    def open_beneath(self, root: str, relative: str, flags: int, mode: int = FILE_MODE) -> int:
        """Open `relative` under the directory `root` without a way to leave it (invariant 3)."""
        if "\0" in relative:
            raise OSError(errno.EINVAL, "NUL in a path", relative)
        directory = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                return _openat2(directory, relative, flags | _SAFE, mode)
            except OSError as error:
                if error.errno not in _NO_OPENAT2:
                    raise
            return open_by_components(directory, relative, flags | _SAFE, mode)
        finally:
            os.close(directory)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return os.pread(fd, length, offset)

    def pread_now(self, fd: int, length: int, offset: int) -> bytes | None:
        """The same if nothing has to be waited for, from memory alone; None: the disk would be
        asked, or this file system cannot tell (preadv2(2), RWF_NOWAIT)."""
        data = bytearray(length)
        try:
            count = os.preadv(fd, (data,), offset, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return None
            raise
        return bytes(data) if count == length else None

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        return os.pwritev(fd, buffers, offset)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def begin_write(self, fd: int) -> None:
        """Have the system begin to write what the file has, and wait for nothing: a sync that
        follows finds most of it done. No sync itself, and says nothing: an error is the sync's to
        tell (sync_file_range(2); where it is missing, nothing is begun)."""
        if _BEGIN_WRITE is not None:
            _BEGIN_WRITE(fd, ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_uint(_WRITE))

    def clone(self, fd: int, source: int) -> None:
        """Have an empty file share all blocks of another one, as it is now: neither sees what is
        written to the other later, and no byte is copied (FICLONE, ioctl_ficlone(2)). The kernel
        refuses another file system before it asks one of them."""
        fcntl.ioctl(fd, _FICLONE, source)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def punch(self, fd: int, offset: int, length: int) -> None:
        """Give the room of these bytes back; they read as zeros, and the size stays."""
        mode = _KEEP_SIZE | _PUNCH_HOLE
        if _FALLOCATE(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def drop_cache(self, fd: int) -> None:
        """Make later reads of the file come from the disk; only clean pages are dropped."""
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def lock(self, fd: int, *, shared: bool = False) -> None:
        """flock(2), exclusive or shared; BlockingIOError when another process is in the way."""
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

    def lease(self, fd: int) -> None:
        """Have this file alone until `release` or its close: the kernel gives a lease for writing
        to a file's only opener (fcntl(2), F_SETLEASE). BlockingIOError: somebody else has it open,
        under whatever name, has it mapped, or a descriptor of it is on its way to him. Another
        OSError: this kernel or file system cannot tell. Meanwhile it opens for nobody: O_NONBLOCK
        is refused with EAGAIN, others wait (for /proc/sys/fs/lease-break-time, 45 s, at most). The
        signal that tells of them is one that is ignored, not SIGIO, which ends a process."""
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def release(self, fd: int) -> None:
        """Who waits for the file has it."""
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    def alone(self, fd: int) -> bool:
        """Whether nobody else has this file open, nor waits for it. False as well where the kernel
        cannot tell. No lease is left."""
        try:
            self.lease(fd)
            self.release(fd)
        except OSError:
            return False
        return True

    def chmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(path)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def statvfs(self, path: str) -> os.statvfs_result:
        return os.statvfs(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def rename_new(self, source: str, target: str) -> None:
        """The same where nothing has the name `target`: FileExistsError (renameat2(2)). Another
        OSError where the file system or the C library has not got it; then nothing is renamed."""
        if _RENAME is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source)
        if _RENAME(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target),
                   ctypes.c_uint(_NOREPLACE)):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), source, None, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str, mode: int = DIRECTORY_MODE) -> None:
        os.mkdir(path, DIRECTORY_MODE)
        if mode != DIRECTORY_MODE:  # past the umask
            os.chmod(path, mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        """fsync(2) of a directory: its entries are durable when this returns."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _openat2(directory: int, relative: str, flags: int, mode: int) -> int:
    # openat2 refuses a mode where nothing is created.
    how = _OpenHow(flags, mode if flags & os.O_CREAT else 0, _RESOLVE)
    raw = os.fsencode(relative)
    fd: int = _LIBRARY.syscall(
        ctypes.c_long(_SYS_OPENAT2), ctypes.c_int(directory), ctypes.c_char_p(raw),
        ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), relative)
    return fd


def open_by_components(directory: int, relative: str, flags: int, mode: int = FILE_MODE) -> int:
    """openat(2) step by step, refusing what RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS refuse."""
    parts = relative.split("/")
    if relative.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise OSError(errno.EXDEV, "path leaves its root", relative)
    at = directory
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | _SAFE, dir_fd=at)
            if at != directory:
                os.close(at)
            at = below
        return os.open(parts[-1], flags | _SAFE, mode, dir_fd=at)
    finally:
        if at != directory:
            os.close(at)
