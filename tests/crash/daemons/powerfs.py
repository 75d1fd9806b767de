"""powerfs: a FUSE file system that keeps its files in memory in two layers (omqtest/tree.py), so
that a power cut, a failing sync and a full disk happen on command, under the real daemons.

    python -m tests.crash.daemons.powerfs MOUNT DISK SOCKET [--quota BYTES]

DISK is a plain directory that holds what is on the disk while nothing is mounted; a mount loads it.
SOCKET takes one JSON line a command and answers one:

    {"do": "cut", "fate": "synced"|"all"|"chance", "seed": N}
                                           what the cut leaves goes to DISK; all I/O fails from then
    {"do": "gate", "match": "journal/"}    the next sync of such a file fails once: its unsynced
                                           bytes are lost, a second sync says "ok" (fsync-gate)
    {"do": "fault", "op": "write", "after": N, "errno": E, "match": "..."}  the N-th call fails
    {"do": "short", "after": N, "match": "..."}   the N-th write takes half of its bytes
    {"do": "quota", "bytes": N}            N bytes in all; more is ENOSPC
    {"do": "facts"}                        calls by kind, faults that fired, bytes held

A fault that has fired is counted, so that a test can assert that it did.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import socketserver
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mfusepy as fuse

from omqtools.omqtest import tree
from omqtools.omqtest.cuts import load, store

BLOCK = 4096


class Plan:
    """The faults that wait, and what happened so far."""

    def __init__(self) -> None:
        self.waiting: list[dict[str, Any]] = []
        self.fired: list[dict[str, Any]] = []
        self.calls: dict[str, int] = {}
        self.dead = False

    def hit(self, operation: str, path: str) -> dict[str, Any] | None:
        """Count a call; the fault that it meets, if any."""
        self.calls[operation] = self.calls.get(operation, 0) + 1
        if self.dead:
            raise OSError(errno.EIO, "the power is off")
        for fault in self.waiting:
            if fault["op"] == operation and fault.get("match", "") in path:
                fault["after"] -= 1
                if fault["after"] == 0:
                    self.waiting.remove(fault)
                    self.fired.append({**fault, "path": path})
                    return fault
        return None


class PowerFS(fuse.Operations):  # type: ignore[misc]
    """The file system. One thread serves FUSE, another one the commands; a lock orders them."""

    use_ns = True

    def __init__(self, root: tree.Node, quota: int) -> None:
        self.root = root
        self.quota = quota
        self.plan = Plan()
        self.guard = threading.Lock()
        self.open_files: dict[int, tree.Node] = {}
        self._next = 1

    # names

    def node(self, path: str) -> tree.Node:
        at = self.root
        for part in filter(None, path.split("/")):
            found = at.entries.get(part)
            if found is None:
                raise OSError(errno.ENOENT, path)
            at = found
        return at

    def parent(self, path: str) -> tuple[tree.Node, str]:
        head, _, name = path.rpartition("/")
        return self.node(head), name

    def used(self) -> int:
        return _bytes(self.root)

    def _check(self, operation: str, path: str) -> dict[str, Any] | None:
        fault = self.plan.hit(operation, path)
        if fault is not None and fault.get("errno"):
            raise OSError(fault["errno"], path)
        return fault

    def _make(self, path: str, mode: int) -> tree.Node:
        parent, name = self.parent(path)
        if name in parent.entries:
            raise OSError(errno.EEXIST, path)
        uid, gid, _ = fuse.fuse_get_context()
        made = tree.Node(mode, uid, gid, time.time_ns())
        tree.link(parent, name, made)
        return made

    # what FUSE calls

    def init(self, path: str) -> None:
        """Mounted: whoever started us reads this line."""
        sys.stdout.write("mounted\n")
        sys.stdout.flush()

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        with self.guard:
            node = self.open_files[fh] if fh in self.open_files else self.node(path)
            return {"st_mode": node.mode, "st_nlink": 2 if node.is_dir else node.links,
                    "st_size": len(node.data), "st_uid": node.uid, "st_gid": node.gid,
                    "st_mtime": node.mtime_ns, "st_ctime": node.mtime_ns,
                    "st_atime": node.mtime_ns, "st_blocks": -(-len(node.data) // 512)}

    def readdir(self, path: str, fh: int) -> list[str]:
        with self.guard:
            return [".", "..", *self.node(path).entries]

    def open(self, path: str, flags: int) -> int:
        with self.guard:
            self._check("open", path)
            return self._opened(self.node(path))

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        with self.guard:
            self._check("create", path)
            if self.used() >= self.quota:
                raise OSError(errno.ENOSPC, path)
            return self._opened(self._make(path, stat.S_IFREG | stat.S_IMODE(mode)))

    def _opened(self, node: tree.Node) -> int:
        self._next += 1
        self.open_files[self._next] = node
        return self._next

    def release(self, path: str, fh: int) -> int:
        with self.guard:
            self.open_files.pop(fh, None)
        return 0

    def mknod(self, path: str, mode: int, dev: int) -> int:
        with self.guard:
            self._check("create", path)
            self._make(path, mode)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        with self.guard:
            self._check("mkdir", path)
            self._make(path, stat.S_IFDIR | stat.S_IMODE(mode))
        return 0

    def unlink(self, path: str) -> int:
        with self.guard:
            self._check("unlink", path)
            parent, name = self.parent(path)
            tree.unlink(parent, name)
        return 0

    def rmdir(self, path: str) -> int:
        with self.guard:
            self._check("rmdir", path)
            parent, name = self.parent(path)
            if parent.entries[name].entries:
                raise OSError(errno.ENOTEMPTY, path)
            tree.unlink(parent, name)
        return 0

    def rename(self, old: str, new: str) -> int:
        with self.guard:
            self._check("rename", old)
            source, name = self.parent(old)
            target, to = self.parent(new)
            tree.rename(source, name, target, to)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        with self.guard:
            node = self.node(path)
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        with self.guard:
            node = self.node(path)
            node.uid = uid if uid not in (-1, 0xFFFFFFFF) else node.uid
            node.gid = gid if gid not in (-1, 0xFFFFFFFF) else node.gid
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        with self.guard:
            self.node(path).mtime_ns = times[1] if times else time.time_ns()
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        with self.guard:
            self._check("truncate", path)
            tree.resize(self.open_files[fh] if fh in self.open_files else self.node(path), length)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        with self.guard:
            self._check("read", path)
            return bytes(self.open_files[fh].data[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        with self.guard:
            fault = self._check("write", path)
            if fault is not None:  # a short write
                data = data[: max(1, len(data) // 2)]
            node = self.open_files[fh]
            more = offset + len(data) - len(node.data)
            if more > 0 and self.used() + more > self.quota:
                raise OSError(errno.ENOSPC, path)
            tree.write(node, offset, bytes(data))
            node.mtime_ns = time.time_ns()
            return len(data)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        with self.guard:
            fault = self.plan.hit("fsync", path)
            node = self.open_files[fh]
            if fault is not None:
                if fault.get("gate"):
                    tree.forget(node)
                raise OSError(fault.get("errno", errno.EIO), path)
            tree.sync(node)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        with self.guard:
            self._check("fsyncdir", path)
            tree.sync(self.node(path))
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        with self.guard:
            free = max(0, self.quota - self.used()) // BLOCK
            return {"f_bsize": BLOCK, "f_frsize": BLOCK, "f_blocks": self.quota // BLOCK,
                    "f_bfree": free, "f_bavail": free, "f_files": 1 << 20, "f_ffree": 1 << 20,
                    "f_favail": 1 << 20, "f_namemax": 255}


def _bytes(node: tree.Node) -> int:
    return len(node.data) + sum(map(_bytes, node.entries.values()))


def command(files: PowerFS, disk: Path, words: dict[str, Any]) -> dict[str, Any]:
    """Carry out one command; what it answers."""
    plan = files.plan
    with files.guard:
        match words["do"]:
            case "cut":
                plan.dead = True
                store(tree.cut(files.root, tree.fate(words["fate"], words.get("seed", 0))), disk)
            case "gate":
                plan.waiting.append({"op": "fsync", "after": words.get("after", 1), "gate": True,
                                     "match": words.get("match", "")})
            case "fault":
                plan.waiting.append({k: v for k, v in words.items() if k != "do"})
            case "short":
                plan.waiting.append({"op": "write", "after": words.get("after", 1), "short": True,
                                     "match": words.get("match", "")})
            case "quota":
                files.quota = words["bytes"]
            case "facts":
                return {"calls": plan.calls, "fired": plan.fired, "used": files.used()}
            case other:
                return {"error": f"unknown command {other!r}"}
    return {"ok": True}


def serve(files: PowerFS, disk: Path, address: str) -> None:
    """Answer commands, in a thread."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                answer = command(files, disk, json.loads(line))
                self.wfile.write(json.dumps(answer).encode() + b"\n")

    server = socketserver.ThreadingUnixStreamServer(address, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(prog="powerfs")
    parser.add_argument("mount", type=Path)
    parser.add_argument("disk", type=Path)
    parser.add_argument("socket")
    parser.add_argument("--quota", type=int, default=1 << 30)
    options = parser.parse_args()
    root = load(options.disk)
    files = PowerFS(root, options.quota)
    serve(files, options.disk, options.socket)
    os.umask(0)
    # Writes of more than a page: asked for in version 2 of libfuse, always so in version 3.
    large = {"big_writes": True} if fuse.fuse_version_major == 2 else {}
    fuse.FUSE(files, str(options.mount), foreground=True, nothreads=True, **large, allow_other=True,
              default_permissions=True, attr_timeout=0, entry_timeout=0, negative_timeout=0,
              hard_remove=True, fsname="powerfs")


if __name__ == "__main__":
    main()
