"""Signals as flags and as something to wait on.

SIGTERM and SIGINT set `stopping`, SIGHUP asks for a reload; SIGINT is also counted, for programs in
which the second ^C means more than the first. The C handler of CPython writes each
signal number into a socket pair (signal.set_wakeup_fd), so one selector waits for signals, pipes
and sockets alike and a blocking wait ends at once. Handlers only set flags and call the registered
wakers (a client library's `interrupt`): no other code ever runs inside a signal.

Invariants: 1. a signal that arrives before `install` in a forked child waits (it is blocked around
the fork) and is delivered after; 2. a child never writes into its parent's pair: it installs its
own before it unblocks.
"""

from __future__ import annotations

import math
import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_READ_BYTES = 4096


class Signals:
    """The flags of one process; the main thread installs them."""

    def __init__(self) -> None:
        self.stopping = False
        self.reload_wanted = False  # until somebody takes it (`take_reload`)
        self.interrupts = 0  # how often ^C was pressed
        self._impatient: list[Callable[[int], None]] = []
        self._wakers: list[Callable[[], None]] = []
        self._pair: tuple[socket.socket, socket.socket] | None = None

    def install(self, *, children: bool = False) -> None:
        """Take over the signals; with `children` a SIGCHLD also ends a wait."""
        self._close_pair()
        reading, writing = socket.socketpair()
        reading.settimeout(0)
        writing.settimeout(0)
        self._pair = (reading, writing)
        signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_interrupt)
        signal.signal(signal.SIGHUP, self._on_reload)
        signal.signal(signal.SIGCHLD, self._on_child if children else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)

    def obey_parent(self) -> None:
        """In a child that shares its parent's terminal: ^C reaches both, and the parent alone
        decides. It says that it was pressed twice by SIGUSR1."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, self._on_impatience)

    @contextmanager
    def impatience(self, told: Callable[[int], None]) -> Iterator[None]:
        """Meanwhile `told` is called, from the handler, with how often ^C was pressed."""
        self._impatient.append(told)
        try:
            yield
        finally:
            self._impatient.remove(told)

    def restore(self) -> None:
        """Give the signals back as Python sets them at start (tests, and tools that go on)."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._close_pair()

    def add_waker(self, waker: Callable[[], None]) -> None:
        """Call this from the handler too; it must be safe there (set a flag, release)."""
        self._wakers.append(waker)

    def remove_waker(self, waker: Callable[[], None]) -> None:
        self._wakers.remove(waker)

    def fileno(self) -> int:
        """Readable when a signal came; `drain` it."""
        assert self._pair is not None, "install first"
        return self._pair[0].fileno()

    def drain(self) -> None:
        """Forget the wake-ups (not the flags)."""
        assert self._pair is not None, "install first"
        while True:
            try:
                if not self._pair[0].recv(_READ_BYTES):
                    return
            except BlockingIOError:
                return

    def wait(self, timeout_s: float | None, also: int = -1) -> None:
        """Until a signal comes, or the descriptor `also` is readable, or the time is over."""
        poll = select.poll()  # one system call; an epoll would be four
        poll.register(self.fileno(), select.POLLIN)
        if also >= 0:
            poll.register(also, select.POLLIN)
        if poll.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000))):
            self.drain()

    def take_reload(self) -> bool:
        """Whether a reload was asked for since the last call."""
        asked, self.reload_wanted = self.reload_wanted, False
        return asked

    def request_stop(self) -> None:
        """As if SIGTERM had come."""
        self.stopping = True
        for waker in self._wakers:
            waker()

    def request_reload(self) -> None:
        """As if SIGHUP had come."""
        self.reload_wanted = True
        for waker in self._wakers:
            waker()

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.request_stop()

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.interrupts += 1
        self.request_stop()
        for told in tuple(self._impatient):
            told(self.interrupts)

    def _on_impatience(self, _number: int, _frame: FrameType | None) -> None:
        self.interrupts = 1
        self._on_interrupt(_number, _frame)

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        self.request_reload()

    def _on_child(self, _number: int, _frame: FrameType | None) -> None:
        return None  # the byte in the pair is all that is wanted

    def _close_pair(self) -> None:
        if self._pair is not None:
            for end in self._pair:
                end.close()
            self._pair = None


@contextmanager
def blocked() -> Iterator[None]:
    """Hold back the signals around a fork; the child unblocks them by `Signals.install`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
