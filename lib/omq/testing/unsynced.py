"""A disk that can lose what was not synced: the daemons of a test instance write through it.

Before each change of a file's bytes the old ones go into a log next to the spool; a sync of the
file says there that they are not needed any more. `undo` puts back what no sync has covered, newest
first, so every file has the content of its last sync: one of the states that a power cut may leave,
the one that is hardest on whoever acknowledges early. Names (new files, renames, removals) stay as
they are, as on file systems that write them in order.

    W INODE OFFSET SIZE COUNT\n     the file had SIZE bytes; COUNT old bytes of OFFSET follow
    Z INODE OFFSET SIZE COUNT\n     the same, and the old bytes were zeros, which do not follow
    S INODE\n                      the file was synced, or removed: its number may be another's

All processes write one log, with O_APPEND and one write a record, so a sync by whoever comes after
a killed process counts for what that one wrote, as in the kernel. A kill leaves whole records, but
for the last one, whose change has not happened then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from omq.storage.disk import Buffer, Disk


class UnsyncedDisk(Disk):
    """See the module."""

    def __init__(self, log: Path) -> None:
        self._path = log
        self._log = -1

    def done(self) -> None:
        """Close the log."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._keep(fd, offset, sum(memoryview(each).nbytes for each in buffers))
        return super().pwritev(fd, buffers, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._keep(fd, size, max(0, os.fstat(fd).st_size - size))
        super().truncate(fd, size)

    def punch(self, fd: int, offset: int, length: int) -> None:
        self._keep(fd, offset, length)
        super().punch(fd, offset, length)

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self._synced(fd)

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        self._synced(fd)

    def unlink(self, path: str) -> None:
        inode = os.lstat(path).st_ino
        super().unlink(path)
        self._settle(inode)  # another file may get its number

    def _keep(self, fd: int, offset: int, count: int) -> None:
        found = os.fstat(fd)
        old = os.pread(fd, count, offset) if offset < found.st_size else b""
        zeros = not any(old)
        head = f"{'Z' if zeros else 'W'} {found.st_ino} {offset} {found.st_size} {len(old)}\n"
        self._say(head.encode() + (b"" if zeros else old))

    def _synced(self, fd: int) -> None:
        self._settle(os.fstat(fd).st_ino)

    def _settle(self, inode: int) -> None:
        self._say(f"S {inode}\n".encode())

    def _say(self, record: bytes) -> None:
        if self._log < 0:
            self._log = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(self._log, record)


def undo(log: Path, spool: Path) -> int:
    """Put back what is owed, whose writers are dead; how many changes."""
    files = {path.lstat().st_ino: path for path in spool.rglob("*") if path.is_file()}
    lost = 0
    for inode, offset, size, old in reversed(_owed(log.read_bytes() if log.exists() else b"")):
        if (path := files.get(inode)) is None:
            continue  # removed since: its bytes are nobody's
        fd = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(fd, old, offset)
            os.truncate(fd, size)
        finally:
            os.close(fd)
        lost += 1
    forget(log)
    return lost


def forget(log: Path) -> None:
    """Take all for synced."""
    if log.exists():
        os.truncate(log, 0)


def _owed(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """(inode, offset, size, old bytes) of each change that no sync has covered, in their order."""
    owed: list[tuple[int, int, int, bytes]] = []
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        kind, *numbers = data[at:end].split()
        at = end + 1
        inode, *rest = map(int, numbers)
        if kind == b"S":
            owed = [each for each in owed if each[0] != inode]
            continue
        offset, size, count = rest
        if kind == b"Z":
            owed.append((inode, offset, size, bytes(count)))
            continue
        if at + count > len(data):
            break  # killed before the change
        owed.append((inode, offset, size, data[at : at + count]))
        at += count
    return owed
