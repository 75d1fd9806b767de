"""A System V IPC namespace for one test: limits of its own, and every object in it is the test's.

The calling thread leaves the old namespace and comes back at the end; processes started in between
are born in the new one, and what they leave in it vanishes with it. Where the kernel refuses (no
CAP_SYS_ADMIN) the test goes on in the common namespace, beside those of other processes: `own`
says so. Its daemons, which are forked from this process, then draw their keys from a part that
belongs to this process, and only objects with such keys count.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from omq.ipc.server import objects

CLONE_NEWIPC = 0x08000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_KINDS = ("shm", "sem", "msg")
_PARTS = 1 << 12
"""Of the keys; by pid, so that processes that were started one after the other have different ones.
"""


@dataclass(frozen=True, slots=True)
class IpcSpace:
    """The namespace that a test works in."""

    own: bool
    before: frozenset[tuple[str, int]] = field(default_factory=frozenset)

    def objects(self) -> set[tuple[str, int]]:
        """(kind, id) of each object that the test or its daemons made."""
        return _objects(_ALL if self.own else _mine()) - self.before

    def limit(self, name: str, value: str) -> None:
        """Set kernel.`name` of this namespace."""
        assert self.own, "limits are those of the machine here"
        Path("/proc/sys/kernel", name).write_text(value)


_ALL = range(-(1 << 31), 1 << 31)


def _mine() -> range:
    """The keys of this process."""
    size = (1 << 31) // _PARTS
    first = os.getpid() % _PARTS * size
    return range(max(1, first), first + size)


def _objects(keys: range) -> set[tuple[str, int]]:
    found = set()
    for kind in _KINDS:
        for line in Path("/proc/sysvipc", kind).read_text().splitlines()[1:]:
            key, number, *_ = line.split()
            if int(key) in keys:
                found.add((kind, int(number)))
    return found


@contextmanager
def ipc_space() -> Iterator[IpcSpace]:
    """See the module."""
    home = os.open("/proc/thread-self/ns/ipc", os.O_RDONLY | os.O_CLOEXEC)
    try:
        own = _LIBC.unshare(CLONE_NEWIPC) == 0
        try:
            keys = objects.KEYS if own else _mine()
            with mock.patch.object(objects, "KEYS", keys):
                yield IpcSpace(own, frozenset(_objects(_ALL if own else keys)))
        finally:
            if own and _LIBC.setns(home, CLONE_NEWIPC):
                raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(home)
