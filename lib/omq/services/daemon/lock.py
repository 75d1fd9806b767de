"""Who holds a lock of an instance: of its supervisor, of its manager (omq.storage.spool.lock).

The kernel drops the lock when the holder dies, however it dies, so a lock file never goes stale;
the pid in it is for messages only.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

LOCK_FILE = "supervisor.lock"
_TEXT_BYTES_MAX = 200


def holder(path: Path) -> str:
    """The pid that the holder of the lock wrote ("?" if it is just doing so); "" if nobody does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, _TEXT_BYTES_MAX, 0).decode("ascii", "replace")
        return text.partition(" ")[0].strip() or "?"
    finally:
        os.close(fd)
    return ""
