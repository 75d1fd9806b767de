"""System V objects of the wire: the request queue, and a channel (segment and semaphore) per
client.

Semaphores and queues can be opened only by key with sysv_ipc, so they get a random key and are made
with IPC_CREX; whoever opens one compares the id with the one that the manager told over the socket:
a stranger who re-creates a removed key has another id. Every object made is also noted in
`run/ipc.list`, so that a start after kill -9 can remove what the dead manager left.

Errors: IpcLimit and SysctlTooLow name the sysctl to raise.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import sysv_ipc

from omq.base import clock
from omq.base.errors import IpcLimit, SysctlTooLow
from omq.base.paths import SpoolPaths
from omq.storage import segment

REQUESTS_MODE = 0o620  # members of the group may ask, only the manager reads
CHANNEL_MODE = 0o600
GONE = (sysv_ipc.ExistentialError, sysv_ipc.PermissionsError)
LIST_NAME = "ipc.list"
_MSGMNB = Path("/proc/sys/kernel/msgmnb")
_NUMBER = re.compile(r"-?[0-9]{1,10}")


@dataclass(slots=True)
class ServerChannel:
    """The manager's end of a client's channel."""

    segment: sysv_ipc.SharedMemory
    semaphore: sysv_ipc.Semaphore
    view: memoryview

    def close(self) -> None:
        """Detach and remove both; the client's own attachment lives on until it lets go."""
        self.view.release()
        for thing in (self.segment.detach, self.segment.remove, self.semaphore.remove):
            with contextlib.suppress(*GONE, sysv_ipc.NotAttachedError):
                thing()


class ObjectList:
    """`run/ipc.list`: what this manager made, for the start after its death."""

    def __init__(self, paths: SpoolPaths) -> None:
        self._path = paths.run / LIST_NAME

    def note(self, kind: str, key: int, identifier: int) -> None:
        line = f"{clock.boot_id().hex()} {kind} {key} {identifier}\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def clear_left_overs(self, owner: int) -> int:
        """Remove what a dead manager of this spool left; how many objects."""
        try:
            # Not synced: after a power cut there may be anything in it.
            lines = self._path.read_bytes().decode("ascii", "replace").splitlines()
        except FileNotFoundError:
            return 0
        boot, removed = clock.boot_id().hex(), 0
        for line in lines:
            words = line.split()
            if (len(words) == 4 and words[0] == boot
                    and all(_NUMBER.fullmatch(word) for word in words[2:])):
                removed += _remove(words[1], int(words[2]), int(words[3]), owner)
        self._path.unlink(missing_ok=True)
        return removed


def _remove(kind: str, key: int, identifier: int, owner: int) -> int:
    if kind == "shm":
        return int(segment.remove(identifier, owner))
    try:
        thing = sysv_ipc.Semaphore(key) if kind == "sem" else sysv_ipc.MessageQueue(key)
        if thing.id != identifier or thing.cuid != owner:
            return 0
        thing.remove()
        return 1
    except GONE:
        return 0


def make_requests(listed: ObjectList, gid: int, size: int) -> sysv_ipc.MessageQueue:
    """The request queue; `size` bytes when not 0."""
    try:
        queue = sysv_ipc.MessageQueue(None, sysv_ipc.IPC_CREX, mode=REQUESTS_MODE)
    except (sysv_ipc.Error, OSError) as error:
        raise IpcLimit(what="message queue", reason=str(error), sysctl="kernel.msgmni") from error
    listed.note("msg", queue.key, queue.id)
    queue.gid = gid
    if size:
        try:
            queue.max_size = size
        except (sysv_ipc.Error, OSError) as error:
            queue.remove()
            found = int(_MSGMNB.read_text(encoding="ascii"))
            if size > found:  # only root may go beyond: no restart makes this better
                raise SysctlTooLow(key="msgmnb", found=found, needed=size,
                                   what="request_queue_bytes of omq.conf") from error
            raise IpcLimit(what=f"message queue of {size} bytes", reason=str(error),
                           sysctl="kernel.msgmnb") from error
    return queue


def make_channel(listed: ObjectList, size: int, uid: int) -> ServerChannel:
    """A channel whose owner is `uid`: nobody else may attach it."""
    memory = segment.create(size, CHANNEL_MODE)
    listed.note("shm", 0, memory.id)
    try:
        semaphore = sysv_ipc.Semaphore(None, sysv_ipc.IPC_CREX, mode=CHANNEL_MODE)
    except (sysv_ipc.Error, OSError) as error:
        memory.detach()
        memory.remove()
        raise IpcLimit(what="semaphore", reason=str(error), sysctl="kernel.sem") from error
    listed.note("sem", semaphore.key, semaphore.id)
    if uid != os.geteuid():
        memory.uid = uid
        semaphore.uid = uid
    return ServerChannel(memory, semaphore, memoryview(memory))
