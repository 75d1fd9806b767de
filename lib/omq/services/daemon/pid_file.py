"""run/SERVICE.pid: which process a daemon is, for `omq drain`; and whether one is to be expected.

The file holds the pid as text, and its daemon holds a POSIX record lock on it for as long as it
lives. So a pid counts only while its process runs: nobody needs to look into /proc, which other
processes' capabilities or a user namespace may hide.

Invariants: 1. the file appears by rename with its lock held and its pid written: no reader ever
takes a dead daemon's pid for a live one; 2. children do not inherit a record lock; 3. a daemon that
ends as it meant to (stopped, or with a wrong configuration) takes its file away, one that is killed
leaves it behind. Closing any descriptor of the file drops the lock, so a daemon never opens its
own; 4. anybody may ask, and nobody can pretend: a reader's lock is a shared one, which tells
`running` nothing; 5. a run directory that cannot be written stops no daemon: the file comes when it
can (base.side_files); 6. its mode is that of the table (base.modes): what closes a spool at a start
opens each file whose mode is another, and the manager's own would lose its lock by that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from omq.base import modes, side_files

_BYTES_MAX: Final = 20


def claim(path: Path) -> None:
    """This process is the daemon, until it ends: the descriptor stays open."""
    side_files.attempt(path, lambda: _claim(path))


def _claim(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    mode = modes.wanted(f"{path.parent.name}/{path.name}", directory=False)
    fd = side_files.calls.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        side_files.calls.fchmod(fd, mode)
        side_files.write_all(fd, f"{os.getpid()}\n".encode("ascii"))
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        side_files.calls.rename(str(temporary), str(path))
    except OSError:
        os.close(fd)
        with contextlib.suppress(OSError):
            side_files.calls.unlink(str(temporary))
        raise


def release(path: Path) -> None:
    """Nobody is to wait for this daemon, nor for a predecessor that was killed."""
    side_files.remove(path)


def running(path: Path) -> int:
    """The pid of the daemon, if it lives; else 0. A file that cannot be looked at says nothing:
    what must not run twice has a lock in the spool."""
    try:
        return _running(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        side_files.unseen(path, error)
        return 0


def _running(path: Path) -> int:
    fd = side_files.calls.open(str(path), os.O_RDONLY)
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
    return side_files.seen(path) is not None
