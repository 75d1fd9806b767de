"""A System V IPC namespace for one test: limits of its own, and every object in it is the test's.

The calling thread leaves the old namespace and comes back at the end; processes started in between
are born in the new one, and what they leave in it vanishes with it. Where the kernel refuses (no
CAP_SYS_ADMIN) the test goes on in the common namespace: `own` says so, and only objects that were
not there before count.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CLONE_NEWIPC = 0x08000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_KINDS = ("shm", "sem", "msg")


@dataclass(frozen=True, slots=True)
class IpcSpace:
    """The namespace that a test works in."""

    own: bool
    before: frozenset[tuple[str, int]] = field(default_factory=frozenset)

    def objects(self) -> set[tuple[str, int]]:
        """(kind, id) of each object that the test or its daemons made."""
        return _objects() - self.before

    def limit(self, name: str, value: str) -> None:
        """Set kernel.`name` of this namespace."""
        assert self.own, "limits are those of the machine here"
        Path("/proc/sys/kernel", name).write_text(value)


def _objects() -> set[tuple[str, int]]:
    found = set()
    for kind in _KINDS:
        for line in Path("/proc/sysvipc", kind).read_text().splitlines()[1:]:
            found.add((kind, int(line.split()[1])))
    return found


@contextmanager
def ipc_space() -> Iterator[IpcSpace]:
    """See the module."""
    home = os.open("/proc/thread-self/ns/ipc", os.O_RDONLY | os.O_CLOEXEC)
    try:
        own = _LIBC.unshare(CLONE_NEWIPC) == 0
        try:
            yield IpcSpace(own, frozenset(_objects()))
        finally:
            if own and _LIBC.setns(home, CLONE_NEWIPC):
                raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(home)
