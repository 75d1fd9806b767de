"""The manager's doorkeeper: a thread that waits for everything that is not on the request queue.

It owns `qmgr.sock`, the clients' control connections, the pidfds of clients, and the clock's next
deadline. It decides one thing, who may come in (ipc.server.admission); all else goes into the ring
(ipc.server.doors), and one small message of the wake-up type on the request queue makes the main
loop look. The main loop waits in one place only.

A door that has something for the main loop is not polled until the main loop is done with it
(`rearm`). Without a free descriptor the listener is not polled until a door is closed, or for
SCARCE_S; callers wait in its backlog.

Invariants: 1. the thread sleeps unless something happens, and looks at the deadline whatever
happens; 2. lines are bounded in length, doors in number, descriptors that come in to one a door;
3. only the main loop writes to a connection, but for the refusal of one that does not come in;
4. if the thread ends, so does the main loop (`failure`), which cannot hear anything without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
from array import array
from pathlib import Path
from typing import Final

import sysv_ipc

from omq.base import clock, events, modes
from omq.base.clock import NS_PER_S as _NS
from omq.base.errors import OmqError
from omq.base.event_log import WARNING
from omq.base.rated_log import RatedLog
from omq.base.socket_name import socket_name
from omq.format.wire import WAKE_TYPE
from omq.ipc.server.admission import Admission
from omq.ipc.server.doors import LINE_BYTES_MAX, READ_BYTES, Door, Ring
from omq.ipc.wire.errnos import Outcome, outcome

EVENTS_PER_TURN: Final = 64
"""So many descriptors are looked at between two looks at the clock."""
SCARCE_S: Final = 1.0
"""Pause of the listener when descriptors or memory are short: not only ours may have run out."""
OWED_S: Final = 0.1
"""Pause until what could not be done at once is tried again, or looked at again."""
BACKLOG: Final = 1024
"""Callers that wait to be accepted: a burst of them must not make connect(2) fail for others. The
kernel takes no more than net.core.somaxconn."""
_DROPPED_BYTES: Final = 512 * 1024
"""More than a socket holds: what a caller has said already is read before it is turned away, so
that it sees the refusal and not a reset."""
_ONCE: Final = select.EPOLLIN | select.EPOLLONESHOT

Watched = Door | tuple[Door] | None
"""What a descriptor is of: a door, its process (a tuple), or the bell and the listener (None)."""


class Doorkeeper:
    """See the module. `ring` is emptied by the main loop; `deadline`: when it is woken (monotonic
    ns; 0: it was, or never)."""

    def __init__(self, path: Path, requests: sysv_ipc.MessageQueue, gid: int,
                 admission: Admission, register_s: float, log: RatedLog) -> None:
        self.ring = Ring()
        self.admission = admission
        self.failure: BaseException | None = None
        self._requests: sysv_ipc.MessageQueue = requests
        self._register_ns = int(register_s * _NS)
        self._log = log
        self.deadline = 0
        self._listen_again = 0  # monotonic ns; 0: the listener is polled
        self._wake_owed = self._stopping = False
        self._signals = -1
        self._callers: dict[Door, int] = {}  # until when each has to register, the first first
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.epoll()
        self._listener = _listen(path, gid)
        self._path = path
        self._lock = threading.Lock()  # guards what both threads change: watched, callers
        self._watched: dict[int, Watched] = {}
        self._poll.register(self._bell, select.EPOLLIN)
        self._poll.register(self._listener, _ONCE)
        self._thread = threading.Thread(target=self._run, name="doorkeeper", daemon=True)

    def start(self, signals: int = -1) -> None:
        """`signals`: readable when one has come. A handler in Python runs in the main thread, when
        that runs; a signal just before its wait would be heard after it alone."""
        self._signals = signals
        if signals >= 0:
            self._poll.register(signals, select.EPOLLIN)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close every door."""
        self._stopping = True
        self._ring_bell()
        self._thread.join()
        for door in [each for each in self._watched.values() if isinstance(each, Door)]:
            self.close(door)
        self._poll.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)
        os.close(self._bell)

    # called by the main loop

    def arm(self, deadline: int) -> None:
        """The main loop wants to be woken at this monotonic ns (0: never)."""
        earlier = deadline and (not self.deadline or deadline < self.deadline)
        self.deadline = deadline
        if earlier:
            self._ring_bell()

    def watch(self, door: Door, pid: int) -> None:
        """A caller has become a client. Tell when its process ends; the pidfd cannot be fooled by
        a reused pid. OSError."""
        if door.pidfd >= 0:  # of an attempt to register that failed later
            return
        door.pidfd = os.pidfd_open(pid)
        with self._lock:
            self._watched[door.pidfd] = (door,)
            self._poll.register(door.pidfd, _ONCE)

    def registered(self, door: Door) -> None:
        """It need not hurry any more."""
        with self._lock:
            self._callers.pop(door, None)
        self.admission.registered(door)

    def rearm(self, door: Door) -> None:
        """The main loop has taken what the door said: read on."""
        with self._lock:
            if not door.closed:
                self._poll.modify(door.connection, _ONCE)

    def close(self, door: Door) -> None:
        """The main loop is done with a connection."""
        if door.closed:
            return
        with self._lock:
            door.closed = True
            self._watched.pop(door.connection.fileno(), None)
            self._callers.pop(door, None)
            if (descriptor := door.take_descriptor()) >= 0:
                os.close(descriptor)
            if door.pidfd >= 0:
                self._watched.pop(door.pidfd, None)
                os.close(door.pidfd)
                door.pidfd = -1
            door.connection.close()
        self.admission.leave(door)
        if self._listen_again:  # now there is a descriptor
            self._listen_again = 1
            self._ring_bell()

    def wake(self) -> None:
        """Make the main loop look; if the queue is full it is awake anyway, if it is gone it knows
        already."""
        self._wake_owed = False  # first: another thread may fail, and owe it, behind our success
        try:
            self._requests.send(b"w", block=False, type=WAKE_TYPE)
        except (sysv_ipc.Error, OSError, MemoryError) as error:
            found = outcome("msgsnd", error)
            if found is Outcome.BUG:
                raise
            if (found is not Outcome.GONE and not isinstance(error, sysv_ipc.BusyError)
                    and not self._stopping):
                self._wake_owed = True
                self._ring_bell()

    def _ring_bell(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it rings already
            os.eventfd_write(self._bell, 1)

    # the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                if self._turn() and not self._stopping:
                    self.wake()
        except BaseException as error:
            self.failure = error
            self.wake()

    def _turn(self) -> bool:
        """Wait and look once; True: the main loop has something to do."""
        ready = self._poll.poll(self._wait_s(), EVENTS_PER_TURN)
        told = self._wake_owed
        for descriptor, _ in ready:
            told |= self._look(descriptor)
        now = clock.monotonic_ns()
        if self.deadline and now >= self.deadline:
            self.deadline = 0
            told = True
        if self._listen_again and now >= self._listen_again:
            self._listen_again = 0
            self._poll.modify(self._listener, _ONCE)
        return self._hurry_callers(now) | told

    def _wait_s(self) -> float | None:
        """Until the next deadline; None: there is none."""
        now = clock.monotonic_ns()
        times = [each for each in (self.deadline, self._listen_again) if each]
        if self._wake_owed:
            times.append(now + int(OWED_S * _NS))
        with self._lock:
            first = next(iter(self._callers.values()), 0)
        if first:  # one that is late may wait for the main loop: then look again soon
            times.append(max(first, now + int(OWED_S * _NS)))
        return max(0, min(times) - now) / _NS if times else None

    def _look(self, descriptor: int) -> bool:
        if descriptor == self._bell:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)
            return False
        if descriptor == self._signals:
            return bool(os.read(descriptor, READ_BYTES))
        if descriptor == self._listener.fileno():
            self._accept()
            return False
        found = self._watched.get(descriptor)
        if isinstance(found, Door):
            return self._read(found)
        if found is not None:
            return self._process_ended(descriptor, found[0])
        return False  # closed by the main loop meanwhile

    def _process_ended(self, descriptor: int, door: Door) -> bool:
        """The number may have been another door's when the event came: ask the pidfd itself."""
        with self._lock:
            if door.closed:
                return False
            asked = select.poll()
            asked.register(descriptor, select.POLLIN)
            if not asked.poll(0):
                self._poll.modify(descriptor, _ONCE)
                return False
        return self._ended(door)

    def _ended(self, door: Door) -> bool:
        door.ended = True
        self.ring.add(door)
        return True

    def _hurry_callers(self, now: int) -> bool:
        """Those whose time to register is over, unless it is the main loop that is late."""
        with self._lock:
            late = []
            for door, until in self._callers.items():
                if now < until:
                    break
                if not door.waiting:
                    late.append(door)
        for door in late:
            self._ended(door)
        return bool(late)

    def _read(self, door: Door) -> bool:
        """What a door says. It never waits, so the lock may be held: the main loop, which closes
        doors, cannot give the descriptor's number to another file meanwhile."""
        try:
            with self._lock:
                if door.closed:
                    return False
                data, came, _, _ = socket.recv_fds(door.connection, READ_BYTES, 1,
                                                   socket.MSG_CMSG_CLOEXEC)
                door.keep(came)
        except OSError as error:
            if outcome("recv", error) in (Outcome.LATER, Outcome.AGAIN):
                self.rearm(door)
                return False
            data = b""
        door.received += data
        if not data or len(door.received) > LINE_BYTES_MAX + READ_BYTES:
            return self._ended(door)
        if b"\n" not in data:
            if len(door.received) > LINE_BYTES_MAX:
                return self._ended(door)
            self.rearm(door)
            return False
        self.ring.add(door)
        return True

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if outcome("accept", error) is Outcome.SCARCE:
                self._listen_again = clock.monotonic_ns() + int(SCARCE_S * _NS)
                self._log.event(events.DOOR_SCARCE, WARNING, os.strerror(error.errno or 0))
                return
            self._poll.modify(self._listener, _ONCE)
            return
        self._poll.modify(self._listener, _ONCE)
        connection.settimeout(0)
        _, uid, _ = array("i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        refusal = self.admission.refusal(uid)
        if refusal is not None:
            self._log.event(events.CALLER_REFUSED, WARNING, uid, uid=uid, reason=str(refusal))
            _turn_away(connection, refusal)
            return
        door = Door(connection, uid)
        self.admission.enter(door)
        with self._lock:
            self._callers[door] = clock.monotonic_ns() + self._register_ns
            self._watched[connection.fileno()] = door
            self._poll.register(connection, _ONCE)


def _listen(path: Path, gid: int) -> socket.socket:
    """A listening socket that never waits, for the group `gid`. OSError."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.settimeout(0)
    with socket_name(path) as name:
        listener.bind(name)
    with contextlib.suppress(PermissionError):  # not the owner's group: owner only
        os.chown(path, -1, gid)
    path.chmod(modes.SOCKET)
    listener.listen(BACKLOG)
    return listener


def _turn_away(connection: socket.socket, refusal: OmqError) -> None:
    """Say why and close; never waits."""
    answer = json.dumps({"status": refusal.status, "fields": refusal.fields})
    with contextlib.suppress(OSError):
        connection.recv(_DROPPED_BYTES)
    with contextlib.suppress(OSError):
        connection.send(answer.encode() + b"\n")
    connection.close()
