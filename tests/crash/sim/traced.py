"""L0: a program of omq that writes down each change which it makes through storage.disk, in a
process that strace watches: `python -m tests.crash.sim.traced LOG PLANT NAME ARGUMENT...`.

The first line of LOG is the pid, the others are `call|path|...` as tests/crash/sim/trace.py reads
them from strace. NAME is a command of omq.cli.launch, or `client`, a submitter and reader. With
PLANT = 1 the program also makes one file in the journal behind the seam's back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import omq
from omq.cli import launch
from omq.storage import durable
from omq.storage.disk import DIRECTORY_MODE, FILE_MODE, Buffer, Disk

PLANTED: Final = "journal/planted"
LARGE: Final = 300_000  # above the container threshold


class LoggingDisk(Disk):
    """The real disk; each call that changed something is a line of the log."""

    def __init__(self, log: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._say(str(os.getpid()))

    def _say(self, *words: object) -> None:
        os.write(self._log, ("|".join(map(str, words)) + "\n").encode())

    def _path(self, fd: int) -> str:
        return os.readlink(f"/proc/self/fd/{fd}")

    def open(self, path: str, flags: int, mode: int = FILE_MODE) -> int:
        fd = super().open(path, flags, mode)
        if flags & os.O_CREAT:
            self._say("create", path)
        return fd

    def open_beneath(self, root: str, relative: str, flags: int, mode: int = FILE_MODE) -> int:
        fd = super().open_beneath(root, relative, flags, mode)
        if flags & os.O_CREAT:
            self._say("create", f"{root}/{relative}")
        return fd

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        count = super().pwritev(fd, buffers, offset)
        self._say("write", self._path(fd), offset, count)
        return count

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self._say("fsync", self._path(fd))

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        self._say("fdatasync", self._path(fd))

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        self._say("truncate", self._path(fd), size)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._say("rename", source, target)

    def rename_new(self, source: str, target: str) -> None:
        super().rename_new(source, target)
        self._say("rename", source, target)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._say("unlink", path)

    def mkdir(self, path: str, mode: int = DIRECTORY_MODE) -> None:
        super().mkdir(path, mode)
        self._say("mkdir", path)

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        self._say("rmdir", path)

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self._say("fsync", path)


def client(spool: Path) -> int:
    """A short life: small, large, several queues, not persistent; moved, deferred, done."""
    with omq.connect(spool, name="traced", timeout_s=120) as connection:
        for body in (b"small", b"l" * LARGE):
            connection.put("A", body)
        connection.put(["A", "B"], b"both")
        connection.put("A", b"gone at the end", persistent=False)
        connection.put_many("B", [b"%d" % i for i in range(20)])
        with connection.reader("A", batch=10) as reader:
            first, *rest = reader.next(timeout_s=120)
            first.move(["B"], new=[omq.Outgoing(b"a receipt", queues=("B",))])
            for message in rest:
                message.done()
        with connection.reader("B", batch=5) as reader:
            for message in reader.next(timeout_s=120):
                message.defer(60)
    return 0


def main() -> int:
    log, plant, name, *arguments = sys.argv[1:]
    durable.use(LoggingDisk(log))
    spool = Path(arguments[arguments.index("--spool") + 1])
    if plant == "1":
        fd = os.open(spool / PLANTED, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, b"behind its back")
        os.fsync(fd)
        os.close(fd)
    return client(spool) if name == "client" else launch.run(name, arguments)


if __name__ == "__main__":
    sys.exit(main())
