"""Durable writes: the one place that decides when bytes, names and removals count as safe.

Built on a `Disk` (the real one, or the simulator's) that `use` puts in place.

Invariants:
1. The first error of a write, sync, rename or truncate LATCHES: DiskError is raised now and at
   every later durable operation of this process. A failed fsync is never repeated: the kernel marks
   the pages clean, a second call says "ok" and the bytes are lost (seen on ext4, XFS and btrfs).
2. A full disk (ENOSPC, EDQUOT) while something NEW is made is SpoolFull and latches nothing: what
   was begun is removed, nobody was told that it exists. Inside a file that counts, and once it has
   its name, it latches. Nor does a removal whose coming back does no harm (`sync_removal`).
   An open, mkdir or unlink that is refused changed nothing: DiskError, not latched.
3. A new file appears by rename, complete and synced; then its directory is synced.
4. A name, a removal or a rename counts when the directory is synced.

In the middle of a crash: a file under a temporary name (.tmp) was never told to anyone, and is
overwritten or removed by the next start; a file under its final name is whole.

Files themselves (write, sync, create) are in storage/files.py, which is built on this module.
Errors: DiskError (AccessDenied where the user has not the right), SpoolFull.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base import access
from omq.base.errors import DiskError, OmqError, SpoolFull
from omq.base.fault import point
from omq.storage.disk import DIRECTORY_MODE, Disk

_DENIED: Final = (errno.EACCES, errno.EPERM)
FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_disk: Disk = Disk()
_latched: DiskError | None = None


def use(disk: Disk) -> Disk:
    """Put another disk in place (tests); forgets a latched error. Returns the one before."""
    global _disk, _latched
    before, _disk, _latched = _disk, disk, None
    return before


def current() -> Disk:
    """The disk in use; for callers that handle OSError themselves."""
    return _disk


def latched() -> DiskError | None:
    """The error that stopped durable operations in this process, if one did."""
    return _latched


def check_latch() -> None:
    """Raise the latched error, if there is one."""
    if _latched is not None:
        raise _latched


def failure(operation: str, path: object, error: OSError, *, new: bool = False) -> OmqError:
    """The error for a failed write or sync. It latches, unless a `new` file met a full disk."""
    global _latched
    if new and error.errno in FULL:
        return refusal(operation, path, error)
    failed = DiskError(operation=operation, file=path, reason=error.strerror or str(error))
    if _latched is None:
        _latched = failed
    return failed


def refusal(operation: str, path: object, error: OSError) -> OmqError:
    """The error to raise for a call that was refused and changed nothing: it does not latch."""
    if error.errno in FULL:
        return SpoolFull(path=path, detail=full_text(path, error))
    if error.errno in _DENIED:
        return access.denied(path if isinstance(path, Path) else str(path), error)
    return DiskError(operation=operation, file=path, reason=error.strerror or str(error))


def step(name: str, path: object) -> None:
    """A crash point between two calls; an error injected there latches like one of the disk."""
    try:
        point(name)
    except OSError as error:
        raise failure(name, path, error) from error


def rename(source: Path, target: Path, *, new: bool = False) -> None:
    """Rename and sync the directories: after a crash there is the old name or the new one.

    Once renamed there is no way back: whoever finds the new name takes it for a durable one, so an
    error of the sync latches even where a full disk is the cause."""
    check_latch()
    try:
        point("durable.before_rename")
        _disk.rename(str(source), str(target))
    except OSError as error:
        raise failure("rename", source, error, new=new) from error
    try:
        _disk.sync_directory(str(target.parent))
        if source.parent != target.parent:
            _disk.sync_directory(str(source.parent))
        point("durable.after_rename")
    except OSError as error:
        raise failure("rename", source, error) from error


def unlink(path: Path, *, sync: bool = True) -> bool:
    """Remove a file; False when it is gone already. `sync`: durably (callers of many sync once)."""
    check_latch()
    try:
        _disk.unlink(str(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise refusal("unlink", path, error) from error
    if sync:
        sync_directory(path.parent)
    return True


def make_directory(path: Path, mode: int = DIRECTORY_MODE) -> bool:
    """Make a directory durably; False when there is one already (then its name is synced)."""
    check_latch()
    made = _make_directory(path, mode)
    sync_directory(path.parent)
    return made


def make_directories(wanted: Iterable[tuple[Path, int]]) -> None:
    """Make directories (path, mode), each after the one that it lies in, and make all their names
    durable: when this returns, and in no order before. A parent is synced once."""
    check_latch()
    parents: dict[Path, None] = {}
    for path, mode in wanted:
        _make_directory(path, mode)
        parents[path.parent] = None
    for parent in parents:
        sync_directory(parent)


def _make_directory(path: Path, mode: int) -> bool:
    try:
        _disk.mkdir(str(path), mode)
    except FileExistsError:
        return False
    except OSError as error:
        raise refusal("mkdir", path, error) from error
    return True


def remove_directory(path: Path) -> bool:
    """Remove an empty directory; False when it is in use or gone. Not synced: it may come back."""
    try:
        _disk.rmdir(str(path))
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            return False
        raise refusal("rmdir", path, error) from error
    return True


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable."""
    check_latch()
    try:
        _disk.sync_directory(str(path))
    except OSError as error:
        raise failure("fsync", path, error) from error


def sync_removal(path: Path) -> None:
    """Make removals from a directory durable where a name that comes back does no harm.

    For files that nothing names any more: after a power cut one may be there again, as an orphan.
    No later step depends on it, so an error here is this caller's alone and does not latch."""
    check_latch()
    try:
        _disk.sync_directory(str(path))
    except OSError as error:
        raise refusal("fsync", path, error) from error


def list_directory(path: Path) -> list[str]:
    """Names in a directory, sorted; empty when there is none."""
    try:
        return sorted(_disk.listdir(str(path)))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise refusal("read", path, error) from error


def status(path: Path) -> os.stat_result | None:
    """lstat(2), None when there is nothing."""
    try:
        return _disk.lstat(str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise refusal("read", path, error) from error


@dataclass(frozen=True, slots=True)
class FileSystem:
    """What a file system has, for this process: bytes, and places for files (inodes). `inodes` 0:
    it makes them as it needs them (btrfs, overlays of it), so they cannot run out."""

    size: int
    free: int
    inodes: int
    inodes_free: int


def file_system(path: Path) -> FileSystem:
    """Of the file system of `path`; one call."""
    try:
        found = _disk.statvfs(str(path))
    except OSError as error:
        raise refusal("read", path, error) from error
    unit, root_only = found.f_frsize, found.f_bfree - found.f_bavail
    return FileSystem((found.f_blocks - root_only) * unit, found.f_bavail * unit, found.f_files,
                      found.f_favail if found.f_files else 0)


def free_bytes(path: Path) -> int:
    """Bytes that this process may still write in the file system of `path`."""
    return file_system(path).free


def full_text(path: object, error: OSError) -> str:
    """What ran out when a call was refused: ENOSPC may mean bytes or inodes."""
    text = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        with suppress(OSError):
            found = _disk.statvfs(str(Path(str(path)).parent))
            if found.f_files and not found.f_favail:
                return (f"no inode is free (all {found.f_files} of the file system are in use), "
                        f"though {found.f_bavail * found.f_frsize} bytes are")
    return text
