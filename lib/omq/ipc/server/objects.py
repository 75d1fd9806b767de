"""System V objects of the wire: the request queue, and a channel (segment and semaphore) per
client.

Every object gets a random key and is made with IPC_CREX. The key is noted in `run/ipc.list` before
the object exists, so that a start after kill -9, at whatever instruction, finds and removes all
that the dead manager left. Segments are attached by id; queues and semaphores can be opened only by
key with sysv_ipc, and whoever opens one compares the id with the one that the manager told over the
socket: a stranger who re-creates a removed key has another id.

Errors: IpcLimit and SysctlTooLow name the sysctl to raise.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import sysv_ipc

from omq.base import clock, modes, side_files
from omq.base.errors import IpcLimit, SysctlTooLow
from omq.base.paths import SpoolPaths
from omq.storage import segment

GONE = (sysv_ipc.ExistentialError, sysv_ipc.PermissionsError)
LIST_NAME = "ipc.list"
LIST_BYTES_MAX = 4 << 20  # two lines of 60 bytes a client: those of clients_max, three times over
_MSGMNB = Path("/proc/sys/kernel/msgmnb")
_KEY = re.compile(r"[0-9]{1,10}")
KEYS = range(1, 2**31)
"""Those that an object may get; a test that shares a System V namespace takes a part of its own."""
MADE, STRUCK = "made", "struck"
Kind = Literal["shm", "sem", "msg"]
T = TypeVar("T")
Keep = Callable[[sysv_ipc.SharedMemory], bool]
_OPEN: dict[str, Callable[[int], Any]] = {
    "shm": sysv_ipc.SharedMemory, "sem": sysv_ipc.Semaphore, "msg": sysv_ipc.MessageQueue}


@dataclass(slots=True)
class ServerChannel:
    """The manager's end of a client's channel: a Transport of System V objects."""

    segment: sysv_ipc.SharedMemory
    semaphore: sysv_ipc.Semaphore
    view: memoryview
    listed: ObjectList

    @property
    def semaphore_id(self) -> int:
        return int(self.semaphore.id)

    @property
    def wake(self) -> Callable[[], None]:
        """The semaphore's own method: a reply pays for no function between."""
        release: Callable[[], None] = self.semaphore.release
        return release

    def told(self) -> dict[str, Any]:
        """Ids, and the key by which alone sysv_ipc opens a semaphore."""
        return {"channel": self.segment.id,
                "semaphore": [self.semaphore.key, self.semaphore.id]}

    def close(self) -> None:
        """Detach and remove both; the client's own attachment lives on until it lets go."""
        self.view.release()
        self.listed.forget(self.segment)
        self.listed.forget(self.semaphore)
        for thing in (self.segment.detach, self.segment.remove, self.semaphore.remove):
            with contextlib.suppress(*GONE, sysv_ipc.NotAttachedError):
                thing()


class ObjectList:
    """`run/ipc.list`: what this manager made, for the start after its death.

    Clients that come and go for ever must not make it grow for ever: beyond LIST_BYTES_MAX it is
    written anew with what is still there, next to it first, so that it is whole at any instruction.
    """

    def __init__(self, paths: SpoolPaths) -> None:
        self._path = paths.run / LIST_NAME
        self._bytes = 0  # of the list
        self._made: dict[tuple[str, int], None] = {}
        self._things: dict[int, tuple[str, int]] = {}  # by identity: what was made of a key
        if (found := side_files.seen(self._path)) is not None:
            self._bytes = found.st_size

    def make(self, kind: Kind, create: Callable[[int], T]) -> T:
        """What `create` makes of a key that nobody has: the key is in the list before it is used.

        In the middle of a crash: the list names a key with or without its object. A key
        that turns out to be somebody else's is struck out again."""
        while True:
            key = KEYS[secrets.randbelow(len(KEYS))]
            self._note(kind, key)
            try:
                thing = create(key)
            except sysv_ipc.ExistentialError:
                self._note(kind, key, STRUCK)
                continue
            self._things[id(thing)] = kind, key
            return thing

    def forget(self, thing: object) -> None:
        """It has been removed."""
        self._made.pop(self._things.pop(id(thing), ("", 0)), None)

    def _note(self, kind: Kind, key: int, word: str = MADE) -> None:
        if word == MADE:
            self._made[kind, key] = None
        else:
            self._made.pop((kind, key), None)
        line = _line(word, kind, key).encode()
        # On a full disk it waits: a kill -9 before there is room leaves the object behind.
        side_files.append(self._path, line)
        self._bytes += len(line)
        if self._bytes > LIST_BYTES_MAX:
            lines = "".join(_line(MADE, *each) for each in self._made).encode()
            side_files.replace(self._path, lines)
            self._bytes = len(lines)

    def clear_left_overs(self, owner: int, keep: Keep = lambda _segment: False) -> int:
        """Remove what a dead manager of this spool left; how many objects. `keep`: whether to stay
        attached to a segment."""
        listed = side_files.read(self._path)
        if listed is None:  # or it cannot be read: it stays, for a start that can
            return 0
        # Not synced: after a power cut there may be anything in it.
        lines = listed.decode("ascii", "replace").splitlines()
        boot = clock.boot_id().hex()
        made: dict[tuple[str, int], None] = {}
        for line in lines:
            words = line.split()
            if (len(words) != 4 or words[0] != boot or words[2] not in _OPEN
                    or not _KEY.fullmatch(words[3])):
                continue
            what = words[2], int(words[3])
            if words[1] == MADE:
                made[what] = None
            else:
                made.pop(what, None)
        removed = sum(_remove(kind, key, owner, keep) for kind, key in made)
        side_files.remove(self._path)
        return removed


def _line(word: str, kind: str, key: int) -> str:
    return f"{clock.boot_id().hex()} {word} {kind} {key}\n"


def _remove(kind: str, key: int, owner: int, keep: Keep) -> bool:
    kept = False
    try:
        thing = _OPEN[kind](key)
    except (*GONE, OSError, ValueError):
        return False
    try:
        if thing.cuid != owner:
            return False
        kept = kind == "shm" and keep(thing)
        thing.remove()
        return True
    except GONE:
        return False
    finally:
        if kind == "shm" and not kept:
            thing.detach()


def make_requests(listed: ObjectList, size: int) -> sysv_ipc.MessageQueue:
    """The request queue; `size` bytes when not 0."""
    try:
        queue = listed.make("msg", lambda key: sysv_ipc.MessageQueue(
            key, sysv_ipc.IPC_CREX, mode=modes.REQUESTS))
    except (sysv_ipc.Error, OSError) as error:
        raise IpcLimit(what="message queue", reason=str(error), sysctl="kernel.msgmni") from error
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
    memory = listed.make("shm", lambda key: segment.create(size, modes.CHANNEL, key))
    try:
        semaphore = listed.make("sem", lambda key: sysv_ipc.Semaphore(
            key, sysv_ipc.IPC_CREX, mode=modes.CHANNEL))
    except (sysv_ipc.Error, OSError) as error:
        listed.forget(memory)
        memory.detach()
        memory.remove()
        raise IpcLimit(what="semaphore", reason=str(error), sysctl="kernel.sem") from error
    if uid != os.geteuid():
        memory.uid = uid
        semaphore.uid = uid
    return ServerChannel(memory, semaphore, memoryview(memory), listed)
