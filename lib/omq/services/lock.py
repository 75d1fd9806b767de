"""One supervisor per spool: flock(2) on run/supervisor.lock.

The kernel drops the lock when the holder dies, however it dies, so a lock file never goes stale; the
pid in it is for the message only. The descriptor is close-on-exec: children do not hold the lock.

Errors: SpoolLocked names the holder.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from omq.base.errors import SpoolLocked

LOCK_FILE = "supervisor.lock"
_PID_BYTES_MAX = 16


class Lock:
    """Held from construction until `release`."""

    def __init__(self, path: Path, what: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = _pid(self._fd)
            os.close(self._fd)
            raise SpoolLocked(path=path, pid=pid or "?", what=what) from error
        # Fixed width: a shorter pid overwrites a longer one without truncating the file.
        os.pwrite(self._fd, f"{os.getpid():<{_PID_BYTES_MAX - 1}}\n".encode(), 0)

    def release(self) -> None:
        """Let go. The file stays: removing it could free a lock that a newcomer just took."""
        os.close(self._fd)


def holder(path: Path) -> int:
    """The pid of the process that holds the lock now; 0 if nobody does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid(fd)
    finally:
        os.close(fd)
    return 0


def _pid(fd: int) -> int:
    text = os.pread(fd, _PID_BYTES_MAX, 0).decode("ascii", "replace").strip()
    return int(text) if text.isascii() and text.isdigit() else 0
