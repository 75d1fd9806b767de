"""The manager's doorkeeper: a thread that waits for everything that is not a request.

It owns `qmgr.sock`, the clients' control connections, the pidfds of clients, and the clock's next
deadline. It decides nothing: each event goes into a queue, and one small message of the wake-up
type on the request queue makes the main loop look. The main loop waits in one place only.

Invariants: 1. the thread sleeps unless something happens; 2. lines are bounded in length; 3. only
the main loop writes to a connection.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import sysv_ipc

from omq.base import clock
from omq.base.socket_name import socket_name
from omq.format.wire import WAKE_TYPE

LINE_BYTES_MAX = 256 * 1024
BACKLOG = 128
NS = 1_000_000_000
_SOCKET_MODE = 0o660


class What(Enum):
    """Kinds of events."""

    LINE = "line"  # a request on a control connection
    CLOSED = "closed"  # the other side closed it
    DIED = "died"  # the registered process ended


@dataclass(slots=True, eq=False)
class Door:
    """One control connection."""

    connection: socket.socket
    received: bytearray = field(default_factory=bytearray)
    pidfd: int = -1
    closed: bool = False


@dataclass(frozen=True, slots=True)
class DoorEvent:
    """What happened at which door."""

    what: What
    door: Door
    line: bytes = b""


class Doorkeeper:
    """See the module. `events` is read by the main loop."""

    def __init__(self, path: Path, requests: sysv_ipc.MessageQueue, gid: int) -> None:
        self.events: deque[DoorEvent] = deque()
        self._requests = requests
        self._deadline = 0
        self._stopping = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._listener = self._listen(path, gid)
        self._path = path
        self._lock = threading.Lock()  # guards selector registrations made by the main loop
        self._selector.register(self._bell, selectors.EVENT_READ, "bell")
        self._selector.register(self._listener, selectors.EVENT_READ, "listener")
        self._thread = threading.Thread(target=self._run, name="doorkeeper", daemon=True)

    @staticmethod
    def _listen(path: Path, gid: int) -> socket.socket:
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.settimeout(0)
        with socket_name(path) as name:
            listener.bind(name)
        with contextlib.suppress(PermissionError):  # not a member of that group: owner only
            os.chown(path, -1, gid)
        path.chmod(_SOCKET_MODE)
        listener.listen(BACKLOG)
        return listener

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close every door."""
        self._stopping = True
        os.eventfd_write(self._bell, 1)
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Door):
                self.close(key.data)
        self._selector.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)
        os.close(self._bell)

    def arm(self, deadline: int) -> None:
        """The main loop wants to be woken at this monotonic ns (0: never)."""
        earlier = deadline and (not self._deadline or deadline < self._deadline)
        self._deadline = deadline
        if earlier:
            os.eventfd_write(self._bell, 1)

    def watch(self, door: Door, pid: int) -> None:
        """Tell when this process ends; the pidfd cannot be fooled by a reused pid."""
        door.pidfd = os.pidfd_open(pid)
        with self._lock:
            self._selector.register(door.pidfd, selectors.EVENT_READ, ("pid", door))
        os.eventfd_write(self._bell, 1)

    def close(self, door: Door) -> None:
        """The main loop is done with a connection."""
        if door.closed:
            return
        door.closed = True
        with self._lock:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(door.connection)
            if door.pidfd >= 0:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(door.pidfd)
                os.close(door.pidfd)
                door.pidfd = -1
        door.connection.close()

    # the thread

    def _run(self) -> None:
        while not self._stopping:
            timeout = None
            if self._deadline:
                timeout = max(0, self._deadline - clock.monotonic_ns()) / NS
            ready = self._selector.select(timeout)
            woke = not ready and bool(self._deadline)
            if woke:
                self._deadline = 0
            for key, _ in ready:
                woke |= self._look(key)
            if woke and not self._stopping:
                self.wake()

    def _look(self, key: selectors.SelectorKey) -> bool:
        if key.data == "bell":
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)
            return False
        if key.data == "listener":
            return self._accept()
        if isinstance(key.data, tuple):
            door = key.data[1]
            self._unwatch(key.fileobj)
            return self._tell(DoorEvent(What.DIED, door))
        return self._read(key.data)

    def _unwatch(self, thing: object) -> None:
        with self._lock, contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(thing)  # type: ignore[arg-type]

    def _accept(self) -> bool:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # gone again, or no descriptor left: the client tries again
            return False
        connection.settimeout(0)
        with self._lock:
            self._selector.register(connection, selectors.EVENT_READ, Door(connection))
        return False

    def _read(self, door: Door) -> bool:
        try:
            data = door.connection.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data or len(door.received) > LINE_BYTES_MAX:
            self._unwatch(door.connection)
            return self._tell(DoorEvent(What.CLOSED, door))
        door.received += data
        told = False
        while (end := door.received.find(b"\n")) >= 0:
            line = bytes(door.received[:end])
            del door.received[: end + 1]
            told = self._tell(DoorEvent(What.LINE, door, line))
        return told

    def _tell(self, event: DoorEvent) -> bool:
        self.events.append(event)
        return True

    def wake(self) -> None:
        """Make the main loop look; if the queue is full it is awake anyway."""
        with contextlib.suppress(sysv_ipc.BusyError, sysv_ipc.ExistentialError):
            self._requests.send(b"w", block=False, type=WAKE_TYPE)
