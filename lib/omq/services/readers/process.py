"""One reader process as its parent sees it: fork, readiness, death, back-off.

The child is forked with `multiprocess`. It tells its readiness by one byte in a pipe; its death is
seen through a pidfd, which is ready exactly when there is an exit code to collect.

Invariants: 1. signals are blocked around the fork until the child has its own handlers, so a stop
that comes in between is not lost; 2. the child dies with the parent (PR_SET_PDEATHSIG); 3. no file
descriptor outlives its process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import multiprocess

from omq.base.errors import Exit
from omq.services.daemon.notify import forget_environment
from omq.services.daemon.process import ProcessId, die_with_parent, identify
from omq.services.daemon.restart_backoff import Backoff
from omq.services.daemon.run_state import LIVE, ProcessState, State
from omq.services.daemon.signals import blocked

Ready = Callable[[], None]
Target = Callable[[bool, Ready], int]  # (is_main, ready) -> exit code; runs in the child

_fork = multiprocess.get_context("fork")


class _Process(Protocol):
    """What is used of multiprocess.Process (which has no type information)."""

    pid: int
    exitcode: int | None

    def start(self) -> None: ...
    def join(self) -> None: ...
    def close(self) -> None: ...


class ReaderProcess:
    """A place for one reader: the same over all its restarts."""

    def __init__(self, name: str, *, is_main: bool, target: Target, backoff: Backoff) -> None:
        self.name = name
        self.is_main = is_main
        self.wanted = True
        self.state = State.STOPPED
        self.since = time.time()
        self.restarts = 0
        self.last_code: int | None = None  # how its process ended last
        self.pidfd = -1
        self.ready_fd = -1
        self.due = 0.0  # monotonic time of the next start, while WAITING
        self._target = target
        self._backoff = backoff
        self._process: _Process | None = None
        self._identity = ProcessId(0, 0)
        self._started_at = 0.0

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def pid(self) -> int:
        return self._identity.pid

    def record(self) -> ProcessState:
        """For run/<service>.json."""
        return ProcessState(
            name=self.name, state=self.state, since=self.since, pid=self._identity.pid,
            start_ticks=self._identity.start_ticks, restarts=self.restarts,
        )  # fmt: skip

    def start(self, now: float) -> None:
        """Fork. OSError when the system has no process left."""
        assert not self.live
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        parent = os.getpid()
        process: _Process = _fork.Process(
            target=_child, args=(self._target, parent, writing), name=self.name,
            kwargs={"is_main": self.is_main},
        )  # fmt: skip
        try:
            with blocked():
                process.start()
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._process, self.ready_fd = process, reading
        self.pidfd = os.pidfd_open(process.pid)
        self._identity = identify(process.pid)
        self._started_at = now
        self.enter(State.STARTING)

    def is_due(self, now: float) -> bool:
        """Whether it may start now."""
        if self.state is State.WAITING:
            return now >= self.due
        return self.state is State.STOPPED

    def read_ready(self) -> None:
        """The readiness pipe is readable: the child is ready, or gone. Closes the pipe."""
        said = os.read(self.ready_fd, 1)
        self._close_ready()
        if said and self.state is State.STARTING:
            self.enter(State.STARTED)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal through the pidfd: never to another process."""
        if self.pidfd >= 0:
            with suppress(ProcessLookupError):  # dead already: its exit code will be collected
                signal.pidfd_send_signal(self.pidfd, number)

    def retry(self) -> None:
        """A configuration that may be right now: a reader given up is started again."""
        if self.state is State.FAILED:
            self.enter(State.STOPPED)

    def stop(self) -> None:
        """Ask it to end; a stopped process (SIGSTOP) is woken for it."""
        self.wanted = False
        if self.state is State.WAITING:
            self.enter(State.STOPPED)
        elif self.live and self.state is not State.STOPPING:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            self.enter(State.STOPPING)  # told when it has the signal, not before

    def collect(self, now: float) -> int:
        """The pidfd is ready: take the exit code and decide the next state."""
        assert self._process is not None
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        self.last_code = code
        self._process.close()
        self._process = None
        os.close(self.pidfd)
        self.pidfd = -1
        self._close_ready()
        self._identity = ProcessId(0, 0)
        if not self.wanted:
            self.enter(State.STOPPED)
        elif code == Exit.CONFIG:
            self.enter(State.FAILED)
        else:
            self.postpone(now)
        return code

    def postpone(self, now: float) -> None:
        """Dead, or it could not be forked: the next start waits for the back-off."""
        self.restarts += 1
        self.due = now + self._backoff.next_wait_s(now - self._started_at)
        self.enter(State.WAITING)

    def enter(self, state: State) -> None:
        self.state = state
        self.since = time.time()

    def _close_ready(self) -> None:
        if self.ready_fd >= 0:
            os.close(self.ready_fd)
            self.ready_fd = -1


def _child(target: Target, parent: int, writing: int, *, is_main: bool) -> None:
    """The first thing in the child; signals are still blocked."""
    die_with_parent(parent)
    forget_environment(os.environ)

    def ready() -> None:
        os.write(writing, b"1")
        os.close(writing)

    raise SystemExit(target(is_main, ready))
