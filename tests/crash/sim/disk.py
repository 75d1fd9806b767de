"""A disk in memory behind the seam of omq.storage.disk: what the process sees, and a log of what it
did, from which tests/crash/sim/platter.py tells what a power cut may leave.

The process sees every write at once, as over a page cache. The log holds each change and each sync
in order; `Sync` and `SyncDirectory` are the only things that make changes certain.

Faults: `hook` is asked before each call and may raise OSError (the call then does nothing, but see
below), raise Cut, or give a smaller count for a write. A sync that fails drops what it was to write
(the kernel marks the pages clean): the process goes on to see it, until the cache is dropped, and
no later sync saves it. `capacity` bounds the bytes of all files: ENOSPC, after a short write.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from omq.storage.disk import DIRECTORY_MODE, FILE_MODE, Buffer, Disk

ROOT: Final = 1
_BLOCK: Final = 4096


class Cut(BaseException):
    """The power fails here; no `except Exception` may hold it up."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes into a file; its size grows as far as they reach."""

    node: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A truncate, longer or shorter."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Link:
    """A new name: a file or a directory was made."""

    parent: int
    name: str
    node: int
    kind: int  # stat.S_IFREG, S_IFDIR


@dataclass(frozen=True, slots=True)
class Unlink:
    """A name goes away."""

    parent: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Rename:
    """A name becomes another one; what had that name loses it."""

    source: int
    source_name: str
    target: int
    target_name: str
    node: int


@dataclass(frozen=True, slots=True)
class Sync:
    """fsync or fdatasync of a file returned 0."""

    node: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A sync of a file failed: what it had not saved yet is not on the disk and never will be."""

    node: int


@dataclass(frozen=True, slots=True)
class SyncDirectory:
    """fsync of a directory returned 0."""

    node: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A note of the workload in the log: something was asked for, or acknowledged."""

    what: object


Event = Write | Resize | Link | Unlink | Rename | Sync | Dropped | SyncDirectory | Mark
Hook = Callable[[str, str, int], int | None]
"""(call, path, bytes) -> None, or how many bytes of a write to take."""


class Node:
    """A file or directory. `data` of an image is shared and replaced by a copy at the first
    write; `saved`: what is certainly on the disk, kept where faults need it."""

    __slots__ = ("data", "entries", "kind", "number", "path", "saved", "shadow")

    def __init__(self, number: int, kind: int, path: str, data: bytes | bytearray = b"") -> None:
        self.number = number
        self.kind = kind
        self.path = path
        self.data: bytes | bytearray = data
        self.entries: dict[str, Node] = {}
        self.saved: bytes = b""
        self.shadow: bytearray | None = None

    def writable(self) -> bytearray:
        """The bytes, to be changed."""
        if not isinstance(self.data, bytearray):
            self.data = bytearray(self.data)
        return self.data


def _put(data: bytearray, offset: int, piece: bytes) -> None:
    if offset > len(data):
        data += bytes(offset - len(data))
    data[offset : offset + len(piece)] = piece


class SimDisk(Disk):
    """See the module. `log` is None where nobody will ask what a cut leaves."""

    def __init__(self, *, record: bool = True, faults: bool = False) -> None:
        self.log: list[Event] | None = [] if record else None
        self.hook: Hook | None = None
        self.capacity: int | None = None
        self.nodes = 1
        self.root = Node(ROOT, stat.S_IFDIR, "")
        self._faults = faults
        self._files: dict[int, Node] = {}
        self._locks: dict[int, int] = {}  # node -> descriptor
        self._next_fd = 1000
        self._used = 0
        self._uid = os.geteuid()
        self._directories: dict[str, Node] = {}

    # the machine

    def mark(self, what: object) -> None:
        """A note of the workload."""
        if self.log is not None:
            self.log.append(Mark(what))

    def kill(self) -> None:
        """All processes are gone: descriptors and locks; the page cache stays."""
        self._files.clear()
        self._locks.clear()

    def unlock(self, path: str) -> None:
        """The process that holds this lock is gone."""
        self._locks.pop(self._node(path).number, None)

    def add(self, parent: Node, name: str, number: int, kind: int, data: bytes = b"") -> Node:
        """A node of an image that is mounted."""
        node = Node(number, kind, f"{parent.path}/{name}", data)
        if self._faults:
            node.saved = data
        parent.entries[name] = node
        self.nodes = max(self.nodes, number)
        self._used += len(data)
        return node

    def used(self) -> int:
        return self._used

    # looking up

    def _directory(self, path: str) -> Node:
        known = self._directories.get(path)
        if known is not None:
            return known
        node = self.root
        for part in path.strip("/").split("/") if path.strip("/") else ():
            if node.kind != stat.S_IFDIR:
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            if part not in node.entries:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            node = node.entries[part]
        if node.kind != stat.S_IFDIR:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        self._directories[path] = node
        return node

    def _split(self, path: str) -> tuple[Node, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def _node(self, path: str) -> Node:
        parent, name = self._split(path)
        node = parent.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return node

    def _ask(self, call: str, path: str, count: int = 0) -> int | None:
        return self.hook(call, path, count) if self.hook is not None else None

    def _log(self, event: Event) -> None:
        if self.log is not None:
            self.log.append(event)

    # Disk

    def open(self, path: str, flags: int, mode: int = FILE_MODE) -> int:
        self._ask("open" if not flags & os.O_CREAT else "create", path)
        parent, name = self._split(path)
        node = parent.entries.get(name)
        if node is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            if self.capacity is not None and self._used >= self.capacity:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            node = self._make(parent, name, stat.S_IFREG)
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        elif node.kind == stat.S_IFDIR and flags & (os.O_RDWR | os.O_WRONLY):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        elif flags & os.O_TRUNC and node.data:
            self._resize(node, 0)
        self._next_fd += 1
        self._files[self._next_fd] = node
        return self._next_fd

    def _make(self, parent: Node, name: str, kind: int) -> Node:
        self.nodes += 1
        node = Node(self.nodes, kind, f"{parent.path}/{name}", bytearray())
        parent.entries[name] = node
        self._log(Link(parent.number, name, node.number, kind))
        return node

    def open_beneath(self, root: str, relative: str, flags: int, mode: int = FILE_MODE) -> int:
        if relative.startswith("/") or ".." in relative.split("/"):
            raise OSError(errno.EXDEV, "path leaves its root", relative)
        return self.open(f"{root}/{relative}", flags, mode)

    def close(self, fd: int) -> None:
        node = self._files.pop(fd)
        if self._locks.get(node.number) == fd:
            del self._locks[node.number]

    def pread_now(self, fd: int, length: int, offset: int) -> bytes | None:
        return self.pread(fd, length, offset)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        node = self._files[fd]
        self._ask("pread", node.path, length)
        return bytes(node.data[offset : offset + length])

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        node = self._files[fd]
        data = b"".join(buffers)
        limit = self._ask("pwritev", node.path, len(data))
        if limit is not None:
            data = data[:limit]
        grown = offset + len(data) - len(node.data)
        if self.capacity is not None and grown > 0:
            room = self.capacity - self._used
            if room < grown:
                data = data[: max(0, len(data) - (grown - max(0, room)))]
                if not data:
                    raise OSError(errno.ENOSPC, "No space left on device", node.path)
        self._used += max(0, offset + len(data) - len(node.data))
        _put(node.writable(), offset, data)
        if node.shadow is not None:
            _put(node.shadow, offset, data)
        self._log(Write(node.number, offset, data))
        return len(data)

    def begin_write(self, fd: int) -> None:
        """What is written may be lost until a sync, whatever was begun."""

    def fsync(self, fd: int) -> None:
        self._sync(fd, "fsync")

    def fdatasync(self, fd: int) -> None:
        self._sync(fd, "fdatasync")

    def _sync(self, fd: int, call: str) -> None:
        node = self._files[fd]
        try:
            self._ask(call, node.path)
        except OSError:
            node.shadow = bytearray(node.saved)
            self._log(Dropped(node.number))
            raise
        if self._faults:
            node.saved = bytes(node.data if node.shadow is None else node.shadow)
        self._log(Sync(node.number))

    def _resize(self, node: Node, size: int) -> None:
        data = node.writable()
        self._used += size - len(data)
        if size < len(data):
            del data[size:]
        else:
            data += bytes(size - len(data))
        if node.shadow is not None:
            shadow = bytes(node.shadow[:size])
            node.shadow = bytearray(shadow.ljust(size, b"\0"))
        self._log(Resize(node.number, size))

    def clone(self, fd: int, source: int) -> None:
        """Until a sync a cut may leave any part of it, as of what was written."""
        node = self._files[fd]
        self._ask("clone", node.path)
        if self.pwritev(fd, [bytes(self._files[source].data)], 0) != len(self._files[source].data):
            self._resize(node, 0)
            raise OSError(errno.ENOSPC, "No space left on device", node.path)

    def truncate(self, fd: int, size: int) -> None:
        node = self._files[fd]
        self._ask("truncate", node.path)
        self._resize(node, size)

    def punch(self, fd: int, offset: int, length: int) -> None:
        """A cut before, in or after it leaves the same bytes if they are zeros: they must be."""
        node = self._files[fd]
        self._ask("punch", node.path)
        assert not any(node.data[offset : offset + length]), "room of bytes that are not zeros"

    def drop_cache(self, fd: int) -> None:
        node = self._files[fd]
        if node.shadow is not None:
            node.data, node.shadow = node.shadow, None

    def fstat(self, fd: int) -> os.stat_result:
        return self._status(self._files[fd])

    def _status(self, node: Node) -> os.stat_result:
        mode = node.kind | (DIRECTORY_MODE if node.kind == stat.S_IFDIR else FILE_MODE)
        return os.stat_result((mode, node.number, 1, 1, self._uid, 0, len(node.data), 0, 0, 0))

    def lock(self, fd: int, *, shared: bool = False) -> None:
        """Shared counts as exclusive: one process at a time is simulated."""
        number = self._files[fd].number
        if self._locks.get(number, fd) != fd:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self._locks[number] = fd

    def lease(self, fd: int) -> None:
        """Nobody else opens a file while a lease is held: one process at a time is simulated."""
        if sum(each is self._files[fd] for each in self._files.values()) != 1:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def release(self, fd: int) -> None:
        """Nobody waits for it."""

    def chmod(self, fd: int, mode: int) -> None:
        """No start depends on a mode."""

    def lstat(self, path: str) -> os.stat_result:
        return self._status(self._node(path) if path != "/" else self.root)

    def listdir(self, path: str) -> list[str]:
        return list(self._directory(path).entries)

    def statvfs(self, path: str) -> os.statvfs_result:
        free = (1 << 40 if self.capacity is None else self.capacity - self._used) // _BLOCK
        return os.statvfs_result((_BLOCK, _BLOCK, free, free, max(0, free), 0, 0, 0, 0, 255))

    def rename(self, source: str, target: str) -> None:
        self._ask("rename", source)
        old, old_name = self._split(source)
        new, new_name = self._split(target)
        node = old.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)
        replaced = new.entries.get(new_name)
        if replaced is not None:
            self._used -= len(replaced.data)
        del old.entries[old_name]
        new.entries[new_name] = node
        node.path = target
        self._log(Rename(old.number, old_name, new.number, new_name, node.number))

    def rename_new(self, source: str, target: str) -> None:
        parent, name = self._split(target)
        if name in parent.entries:
            raise FileExistsError(errno.EEXIST, "File exists", target)
        self.rename(source, target)

    def unlink(self, path: str) -> None:
        self._ask("unlink", path)
        node = self._node(path)
        if node.kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        parent, name = self._split(path)
        del parent.entries[name]
        self._used -= len(node.data)
        self._log(Unlink(parent.number, name, node.number))

    def mkdir(self, path: str, mode: int = DIRECTORY_MODE) -> None:
        self._ask("mkdir", path)
        parent, name = self._split(path)
        if name in parent.entries:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self._make(parent, name, stat.S_IFDIR)

    def rmdir(self, path: str) -> None:
        self._ask("rmdir", path)
        node = self._directory(path)
        if node.entries:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        parent, name = self._split(path)
        del parent.entries[name]
        self._directories.clear()
        self._log(Unlink(parent.number, name, node.number))

    def sync_directory(self, path: str) -> None:
        self._ask("sync_directory", path)
        self._log(SyncDirectory(self._directory(path).number))
