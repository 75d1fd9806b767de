"""Names for sockets at any path: the kernel takes 107 bytes only, a spool's path may be longer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BYTES_MAX = 107  # sun_path of unix(7), without its zero


@contextmanager
def socket_name(path: Path) -> Iterator[str]:
    """A name of `path` for bind(2) and connect(2). A long path is named by way of a descriptor of
    its directory; not any path, for a process that has changed its user id may not look into its
    own /proc. OSError when the directory cannot be opened."""
    if len(os.fsencode(path)) <= BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
