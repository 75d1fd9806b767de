"""Names for sockets at any path: the kernel takes 107 bytes only, a spool's path may be longer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def socket_name(path: Path) -> Iterator[str]:
    """A short name of `path` for bind(2) and connect(2), by way of a descriptor of its directory.
    OSError when that cannot be opened."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
