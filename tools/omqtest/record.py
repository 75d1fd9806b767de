"""Record every write of a run, over all its processes, in one order; and play it back.

`RecordingDisk` is in the place of the real disk (omq.storage.durable.use). Each call that
changes something is made and noted under one lock of all processes (flock on the log), so that the
log is the order in which things happened. Clients note in it what they were told. What was noted as
acknowledged at a place of the log must survive a power cut at that place.

LOG: a JSON line for each call, after a write its bytes. Paths are relative to the spool.

`Player` builds the tree (tree.py) as it was at any place of the log, with what was not synced
then; `tree.cut` decides what of that survives. What daemons write past the shim (sockets, locks and
lists in run/, event log) is not recorded: nothing depends on it after a reboot.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from omq.storage.disk import DIRECTORY_MODE, FILE_MODE, Buffer, Disk
from omqtools.omqtest import tree
from omqtools.omqtest.history import Line


class Log:
    """The log of a run, shared by its processes."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Self:
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def note(self, line: dict[str, Any], data: bytes = b"") -> None:
        """The caller holds the lock."""
        raw = json.dumps(line).encode() + b"\n" + data
        assert os.write(self.fd, raw) == len(raw), "the log could not be written"

    def say(self, *lines: Line) -> None:
        """Lines of a history."""
        with self:
            for line in lines:
                self.note({"op": "say", "line": {**line, "ns": time.monotonic_ns()}})


class RecordingDisk(Disk):
    """The real disk, with notes."""

    def __init__(self, log: Path, spool: Path) -> None:
        self.log = Log(log)
        self._root = str(spool)
        self._open_as: dict[int, str] = {}
        self._opened = 0

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._root)

    def _noted_open(self, path: str, flags: int, fd: int) -> int:
        self._opened += 1
        self._open_as[fd] = f"{os.getpid()}.{self._opened}"
        self.log.note({"op": "open", "file": self._open_as[fd], "path": path,
                       "empty": bool(flags & os.O_TRUNC)})
        return fd

    def open(self, path: str, flags: int, mode: int = FILE_MODE) -> int:
        with self.log:
            fd = super().open(path, flags, mode)
            return self._noted_open(self._relative(path), flags, fd)

    def open_beneath(self, root: str, relative: str, flags: int, mode: int = FILE_MODE) -> int:
        with self.log:
            fd = super().open_beneath(root, relative, flags, mode)
            return self._noted_open(self._relative(os.path.join(root, relative)), flags, fd)

    def close(self, fd: int) -> None:
        with self.log:
            self._open_as.pop(fd, None)
            super().close(fd)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        with self.log:
            count = super().pwritev(fd, buffers, offset)
            data = b"".join(buffers)[:count]
            self.log.note({"op": "write", "file": self._open_as[fd], "at": offset,
                           "length": count}, data)
            return count

    def fsync(self, fd: int) -> None:
        with self.log:
            super().fsync(fd)
            self.log.note({"op": "sync", "file": self._open_as[fd]})

    def fdatasync(self, fd: int) -> None:
        with self.log:
            super().fdatasync(fd)
            self.log.note({"op": "sync", "file": self._open_as[fd]})

    def truncate(self, fd: int, size: int) -> None:
        with self.log:
            super().truncate(fd, size)
            self.log.note({"op": "size", "file": self._open_as[fd], "to": size})

    def rename(self, source: str, target: str) -> None:
        with self.log:
            super().rename(source, target)
            self.log.note({"op": "rename", "path": self._relative(source),
                           "to": self._relative(target)})

    def unlink(self, path: str) -> None:
        with self.log:
            super().unlink(path)
            self.log.note({"op": "unlink", "path": self._relative(path)})

    def mkdir(self, path: str, mode: int = DIRECTORY_MODE) -> None:
        with self.log:
            super().mkdir(path, mode)
            self.log.note({"op": "mkdir", "path": self._relative(path)})

    def rmdir(self, path: str) -> None:
        with self.log:
            super().rmdir(path)
            self.log.note({"op": "unlink", "path": self._relative(path)})

    def sync_directory(self, path: str) -> None:
        with self.log:
            super().sync_directory(path)
            self.log.note({"op": "sync directory", "path": self._relative(path)})


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of a log."""

    words: dict[str, Any]
    data: bytes = b""


def read_log(path: Path) -> Iterator[Step]:
    """The entries in order. ValueError when the log is not one."""
    with path.open("rb") as file:
        while raw := file.readline():
            words = json.loads(raw)
            data = file.read(words["length"]) if words["op"] == "write" else b""
            if len(data) != words.get("length", 0):
                raise ValueError(f"{path} ends inside a write")
            yield Step(words, data)


class Player:
    """The tree of the spool, step by step; `lines`: the history so far."""

    def __init__(self, start: tree.Node) -> None:
        self.root = start
        self.lines: list[Line] = []
        self._files: dict[str, tree.Node] = {}

    def play(self, step: Step) -> None:
        """Do one step."""
        words = step.words
        match words["op"]:
            case "say":
                self.lines.append(words["line"])
            case "open":
                self._open(words)
            case "write":
                tree.write(self._files[words["file"]], words["at"], step.data)
            case "size":
                tree.resize(self._files[words["file"]], words["to"])
            case "sync":
                tree.sync(self._files[words["file"]])
            case "sync directory":
                tree.sync(self._node(words["path"]))
            case "rename":
                tree.rename(*self._parent(words["path"]), *self._parent(words["to"]))
            case "unlink":
                tree.unlink(*self._parent(words["path"]))
            case "mkdir":
                tree.link(*self._parent(words["path"]), tree.directory(DIRECTORY_MODE))
            case other:
                raise ValueError(f"unknown step {other!r} in a log")

    def _open(self, words: dict[str, Any]) -> None:
        parent, name = self._parent(words["path"])
        node = parent.entries.get(name)
        if node is None:
            node = tree.Node(stat.S_IFREG | FILE_MODE, os.geteuid(), os.getegid())
            tree.link(parent, name, node)
        elif words["empty"]:
            tree.resize(node, 0)
        self._files[words["file"]] = node

    def _parent(self, path: str) -> tuple[tree.Node, str]:
        head, _, name = path.rpartition("/")
        return self._node(head), name

    def _node(self, path: str) -> tree.Node:
        at = self.root
        for part in path.split("/"):
            if part not in ("", "."):
                at = at.entries[part]
        return at
