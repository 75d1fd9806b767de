"""The watcher: one thread a process that nudges the waits of its links once a second.

A client waits for its reply in semop(2), the cheapest wait there is. It has no time-out: the
published wheels of sysv_ipc are built without semtimedop, and calling that through ctypes costs a
client with cold caches as much as all the rest of a request. So this thread releases the semaphore
of every link that waits (ipc.gate); the link knows that this is no reply, looks whether its manager
still lives and what time it is, and waits again.

Links are held weakly. The thread takes no signals. It ends with the last link, and for the moment
of a fork: a process forks with the threads of its user only, and a child starts without links.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final, Protocol
from weakref import ref

PERIOD_S: Final = 1.0
NAME: Final = "omq-watcher"


class Nudged(Protocol):
    """What may wait."""

    def nudge(self) -> None: ...


class _Watcher:
    """The links, and the thread while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: tuple[ref[Nudged], ...] = ()  # replaced, never changed: the thread reads it
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    def add(self, link: Nudged) -> None:
        with self._lock:
            self._links = (*self._others(link), ref(link))
            self._start()

    def discard(self, link: Nudged) -> None:
        with self._lock:
            self._links = self._others(link)
            if not self._links:
                self._stop()

    def _others(self, link: Nudged) -> tuple[ref[Nudged], ...]:
        return tuple(each for each in self._links if each() not in (None, link))

    def before_fork(self) -> None:
        self._lock.acquire()  # nobody changes anything until the fork has happened
        self._stop()

    def after_fork(self) -> None:
        if self._links:
            self._start()
        self._lock.release()

    def _start(self) -> None:
        if self._thread is None:
            self._end.clear()
            self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
            self._thread.start()

    def _stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end.set()
            thread.join()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not self._end.wait(PERIOD_S):
            self._nudge_all()  # whose variables end with it: a link is kept by its user only

    def _nudge_all(self) -> None:
        for each in self._links:
            link = each()
            if link is not None:
                link.nudge()


_watcher = _Watcher()


def add(link: Nudged) -> None:
    """From now on nudge it."""
    _watcher.add(link)


def discard(link: Nudged) -> None:
    """No more."""
    _watcher.discard(link)


def _in_child() -> None:
    global _watcher
    _watcher = _Watcher()


os.register_at_fork(before=lambda: _watcher.before_fork(),
                    after_in_parent=lambda: _watcher.after_fork(), after_in_child=_in_child)
