"""The watcher: one thread a process that ends the waits of its links when there is reason to look.

A client waits for its reply in semop(2), the cheapest wait there is. It has no time-out: the
published wheels of sysv_ipc are built without semtimedop, and calling that through ctypes costs a
client with cold caches as much as all the rest of a request. So this thread watches the control
connections, which end with the manager, and the time: then it releases the semaphore of every link
that waits (ipc.client.reply_wait); the link knows that this is not a reply, looks whether its
manager still lives and what time it is, and waits again. While nothing happens the thread wakes
every few seconds, a tenth of the shortest time-out, and nobody else wakes at all.

Links are held weakly. The thread takes no signals. It ends with the last link, and for the moment
of a fork: a process forks with the threads of its user only, and a child starts without links.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import ref

PERIOD_MIN_S: Final = 0.1
PERIOD_MAX_S: Final = 10.0
NAME: Final = "omq-watcher"


class Nudged(Protocol):
    """What may wait."""

    def nudge(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Watched:
    """One that is watched: no other one is the same, even with the same descriptor later."""

    link: ref[Nudged]
    connection: int  # descriptor
    timeout_s: float


class _Watcher:
    """The links, and the thread while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: tuple[_Watched, ...] = ()  # replaced, never changed: the thread reads it
        self._thread: threading.Thread | None = None
        self._bell = -1  # eventfd: the links are others now, or this is the end
        self._ending = False

    def add(self, link: Nudged, connection: int, timeout_s: float) -> None:
        with self._lock:
            self._watched = (*self._others(link), _Watched(ref(link), connection, timeout_s))
            self._start()

    def discard(self, link: Nudged) -> None:
        with self._lock:
            self._watched = self._others(link)
            if self._watched:
                self._ring()
            else:
                self._stop()

    def _others(self, link: Nudged) -> tuple[_Watched, ...]:
        return tuple(each for each in self._watched if each.link() not in (None, link))

    def before_fork(self) -> None:
        self._lock.acquire()  # nobody changes anything until the fork has happened
        self._stop()

    def after_fork(self) -> None:
        if self._watched:
            self._start()
        self._lock.release()

    def _start(self) -> None:
        if self._thread is not None:
            self._ring()
            return
        self._ending = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
        self._thread.start()

    def _ring(self) -> None:
        if self._thread is not None:
            os.eventfd_write(self._bell, 1)

    def _stop(self) -> None:
        if self._thread is None:
            return
        self._ending = True
        self._ring()
        self._thread.join()
        self._thread = None
        os.close(self._bell)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not self._ending:
            watched = self._watched
            shortest_s = min((each.timeout_s for each in watched), default=0.0)
            period_s = min(max(shortest_s / 10, PERIOD_MIN_S), PERIOD_MAX_S)
            found = self._wait(period_s, [each.connection for each in watched])
            # One that was discarded meanwhile may be closed, and its number another one's by now.
            ended = any(each.connection in found and each in self._watched for each in watched)
            if ended or not found:
                self._nudge_all()  # whose variables end with it: a link is kept by its user only
            if ended:  # and stays so until its link looks: it may be busy elsewhere
                self._wait(PERIOD_MIN_S, [])

    def _wait(self, timeout_s: float, connections: list[int]) -> list[int]:
        """The bell if it rang, and the connections that have ended; empty: the time is over."""
        poll = select.poll()
        for descriptor in connections:
            poll.register(descriptor, select.POLLRDHUP)
        poll.register(self._bell, select.POLLIN)
        found = [descriptor for descriptor, _ in poll.poll(timeout_s * 1000)]
        if self._bell in found:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)
        return found

    def _nudge_all(self) -> None:
        for each in self._watched:
            link = each.link()
            if link is not None:
                link.nudge()


_watcher = _Watcher()


def add(link: Nudged, connection: int, timeout_s: float) -> None:
    """From now on nudge it when this connection (a descriptor) ends, and so often that a time-out
    of so many seconds is noticed."""
    _watcher.add(link, connection, timeout_s)


def discard(link: Nudged) -> None:
    """No more; before its connection is closed."""
    _watcher.discard(link)


def _in_child() -> None:
    global _watcher
    _watcher = _Watcher()


os.register_at_fork(before=lambda: _watcher.before_fork(),
                    after_in_parent=lambda: _watcher.after_fork(), after_in_child=_in_child)
