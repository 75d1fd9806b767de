"""run/SERVICE.pid: which process a daemon is, for `omq drain`; and whether one is to be expected.

The file holds the pid as text, and its daemon holds a POSIX record lock on it for as long as it
lives. So a pid counts only while its process runs: nobody needs to look into /proc, which other
processes' capabilities or a user namespace may hide.

Invariants: 1. the file appears by rename with its lock held and its pid written: no reader ever
takes a dead daemon's pid for a live one; 2. children do not inherit a record lock; 3. a daemon that
ends as it meant to (stopped, or with a wrong configuration) takes its file away, one that is killed
leaves it behind. Closing any descriptor of the file drops the lock, so a daemon never opens its
own.

Errors: DiskError, SpoolFull when the run directory cannot be written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from omq.storage import durable

_BYTES_MAX: Final = 20
_MODE: Final = 0o640


def claim(path: Path) -> None:
    """This process is the daemon, until it ends: the descriptor stays open. The first write of a
    daemon, so DiskError where the file system is read-only, SpoolFull where it is full."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    disk = durable.current()
    try:
        fd = disk.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        disk.pwritev(fd, [f"{os.getpid()}\n".encode("ascii")], 0)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        disk.rename(str(temporary), str(path))
    except OSError as error:
        raise durable.refusal("write", path, error) from error


def release(path: Path) -> None:
    """Nobody is to wait for this daemon, nor for a predecessor that was killed."""
    disk = durable.current()  # past the latch: this is no spool data, and it may go after an error
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(str(path))


def running(path: Path) -> int:
    """The pid of the daemon, if it lives; else 0."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EACCES and EAGAIN both say that it is held
        text = os.pread(fd, _BYTES_MAX, 0)
        return int(text) if text.strip().isdigit() else 0
    finally:
        os.close(fd)
    return 0


def expected(path: Path) -> bool:
    """Whether the daemon runs, or was killed: then whoever supervises it starts the next one."""
    return path.exists()
