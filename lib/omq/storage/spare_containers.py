"""Containers made ahead: empty files whose names are on the disk already, so that a large body
needs one sync and not three, of its file, its directory and the one above.

Who writes one large body only pays for no other: there are none before the second, then ever more
at once, up to MADE_MAX, whose directories are synced once for all of them.

Invariants:
1. What `take` gives was made by this object in this process with O_EXCL, is empty, has one name,
   and the names of file and directory are synced; or it is one that is used again
   (storage.recycled_containers), which comes first.
2. One that is older than AGE_S_MAX is removed and not used: omscan takes away what is old and no
   message names, an hour by default.
3. `close` removes what was not used.

In the middle of a crash: empty files that no message names, which omscan calls spare. What is
written into one is a container like any other, before its sync and after it.

Errors: DiskError, SpoolFull.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from omq.base import clock
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.storage import containers, durable
from omq.storage.files import File
from omq.storage.recycled_containers import Taker

MADE_MAX: Final = 16
"""At once: by then a body's share of making them is small, and few are left behind by a death."""
AGE_S_MAX: Final = 60


class SpareContainers:
    """See the module. Of one client or thread."""

    def __init__(self, paths: SpoolPaths) -> None:
        self._paths = paths
        self._taker = Taker(paths)
        self._refs: list[str] = []  # the last is the next
        self._count = 0  # to make the next time
        self._made_ns = 0
        self._pid = os.getpid()

    def take(self, size: int = 0) -> tuple[str, File, int] | None:
        """The reference, the file, open for writing, and how long it is: one of a body that has
        ended, if one is there for a body of `size` bytes (0: nobody knows), else an empty one.
        None: make one in the usual way."""
        if size and (used := self._taker.take(size)) is not None:
            return used
        if self._pid != os.getpid():  # a child: they are its parent's
            self._refs, self._count, self._pid = [], 0, os.getpid()
        if self._refs and clock.monotonic_ns() - self._made_ns > AGE_S_MAX * clock.NS_PER_S:
            self._remove()
        if not self._refs and self._count:
            self._make()
        self._count = min(2 * self._count, MADE_MAX) or 1
        while self._refs:
            ref = self._refs.pop()
            file = containers.open_spare(self._paths, ref)
            if file is not None:
                return ref, file, 0
        return None

    def _make(self) -> None:
        refs: list[str] = []
        self._made_ns = clock.monotonic_ns()
        try:
            for _ in range(self._count):
                ref, file = containers.create_empty(self._paths)
                file.close()
                refs.append(ref)
            for folder in sorted({containers.path_of(self._paths, ref).parent for ref in refs}):
                durable.sync_directory(folder)
            durable.sync_directory(self._paths.data)
            self._refs, refs = refs, []
        finally:
            if durable.latched() is None:
                for ref in refs:
                    durable.unlink(containers.path_of(self._paths, ref), sync=False)

    def _remove(self) -> None:
        refs, self._refs = self._refs, []
        for ref in refs:
            containers.remove(self._paths, ref, sync=False)

    def close(self) -> None:
        """Remove those that were not used; what cannot be is empty and harmless."""
        if self._pid == os.getpid() and durable.latched() is None:
            with contextlib.suppress(OmqError):
                self._remove()
        self._refs = []
