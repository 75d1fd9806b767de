"""Several reader processes of one command, watched until the last has ended; none is replaced.

The first is the main reader. The others start when it is registered, so that what is wrong for all
(an unknown queue, no authority) is said once.

Invariants: 1. a signal to this process is passed on, and waited for as long as the readers take
(the second ^C ends their commands, the third the readers);
2. a reader that was killed is reported; 3. when `run` returns or raises no reader is left.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable
from functools import partial

from omq.base.errors import Exit
from omq.cli.common import say
from omq.cli.queue.read_loop import stop_asked
from omq.services.daemon.exit_text import exit_text
from omq.services.daemon.restart_backoff import Backoff
from omq.services.daemon.run_state import State
from omq.services.daemon.signals import Signals
from omq.services.readers.process import ReaderProcess, Target


class ReaderProcesses:
    """Construct and `run` once, in the process that has the signals."""

    def __init__(self, name: str, target: Target, count: int, signals: Signals) -> None:
        self._name = name
        self._signals = signals
        self._codes: list[int] = []
        self._told = 0  # how many ^C the readers know of
        never_used = Backoff(1, 1)
        self._readers = [
            ReaderProcess(
                f"{name}.{number}", is_main=number == 0, target=target, backoff=never_used
            )
            for number in range(count)
        ]

    def run(self) -> int:
        """The exit code for all. OSError when the system has no process left."""
        try:
            self._start(self._readers[:1])
            while self._live():
                self._wait()
                if stop_asked(self._signals):
                    self._stop()
        finally:
            for reader in self._live():
                reader.signal(signal.SIGKILL)
                self._ended(reader)
        return overall(self._codes)

    def _stop(self) -> None:
        pressed = self._signals.interrupts
        if pressed == 1 and self._told == 0:
            say(self._name, "messages in hand are finished first; ^C again ends that")
        elif pressed == 2 and self._told < pressed:
            say(self._name, "commands are ended, their messages given back; ^C again kills readers")
        for reader in self._live():
            reader.stop()
            if pressed >= 2 and pressed > self._told:
                reader.signal(signal.SIGKILL if pressed > 2 else signal.SIGUSR1)
        self._told = pressed

    def _live(self) -> list[ReaderProcess]:
        return [reader for reader in self._readers if reader.live]

    def _start(self, readers: list[ReaderProcess]) -> None:
        for reader in readers:
            reader.start(time.monotonic())

    def _wait(self) -> None:
        """Until a signal came or something happened to a reader, and react."""
        actions: dict[int, Callable[[], None]] = {self._signals.fileno(): self._signals.drain}
        live = self._live()
        # Readiness before death: a main reader that finds nothing to do is soon gone.
        actions |= {each.ready_fd: partial(self._ready, each) for each in live
                    if each.ready_fd >= 0}
        actions |= {each.pidfd: partial(self._ended, each) for each in live}
        readable = set(select.select(list(actions), [], [])[0])
        for fd, action in actions.items():
            if fd in readable:
                action()

    def _ready(self, reader: ReaderProcess) -> None:
        reader.read_ready()
        if reader.is_main and reader.state is State.STARTED and not self._signals.stopping:
            self._start(self._readers[1:])

    def _ended(self, reader: ReaderProcess) -> None:
        pid, reader.wanted = reader.pid, False
        code = reader.collect(time.monotonic())
        self._codes.append(code)
        if code < 0:
            say(self._name, f"reader {reader.name}, process {pid}, ended by {exit_text(code)};"
                " its message comes again")  # fmt: skip


def overall(codes: list[int]) -> int:
    """One exit code: a killed reader weighs most, then the first error; NO only if all say so."""
    if any(code < 0 for code in codes):
        return Exit.OS
    errors = [code for code in codes if code not in (Exit.OK, Exit.NO)]
    if errors:
        return errors[0]
    return Exit.OK if Exit.OK in codes else Exit.NO
