"""The parent of `omq worker`: keeps its processes alive, and tells systemd how they are.

It never touches a message. The first process is the queue's main reader; the others are auxiliary,
and start when it is registered, so that what is wrong for all is reported once.

Invariants: 1. one thread, one selector, no polling but the watchdog's; 2. before the first process
was registered once, an error that no waiting mends ends the worker with its exit code; from then on
a process that ends is replaced with back-off, but for what cannot be loaded any more (78); 3. at a
stop the current messages have `stop_s`, then they are given back, then what is left is killed; when
`run` returns no process is left.
"""

from __future__ import annotations

import math
import selectors
import signal
import time
from collections.abc import Callable
from typing import Final

from omq.base import events
from omq.base.errors import Exit
from omq.base.event_log import EventLog
from omq.cli.queue.read_loop import stop_asked
from omq.services.daemon.notify import Notifier
from omq.services.daemon.restart_backoff import Backoff
from omq.services.daemon.run_state import State
from omq.services.daemon.signals import Signals
from omq.services.readers.group import ReaderGroup
from omq.services.readers.process import Target

FOR_GOOD: Final = (Exit.USAGE, Exit.NO_INPUT, Exit.NO_PERMISSION, Exit.CONFIG)
GIVE_BACK_S: Final = 5.0
"""For a function that was interrupted to leave its `finally`s, and for the message to go back."""
AGAIN_S: Final = 0.5
"""Meanwhile it is interrupted again and again. A signal that comes just before a system call that
blocks is seen by Python after it only; a function that has met one is not interrupted twice."""


class WorkerProcesses:
    """Construct and `run` once, in the process that has the signals."""

    def __init__(self, name: str, target: Target, count: int, signals: Signals, log: EventLog, *,
                 stop_s: float, backoff: Callable[[], Backoff]) -> None:
        self._count, self._signals, self._log, self._stop_s = count, signals, log, stop_s
        self._selector = selectors.DefaultSelector()
        self._group = ReaderGroup(name, self._selector, log, target=target, backoff=backoff)
        self._notifier = Notifier()
        self._was_ready = False
        self._deadline: float | None = None  # of the next step of the stop
        self._again = math.inf  # when what is interrupted is interrupted once more
        self._steps: list[Callable[[], None]] = [self._interrupt, self._group.kill]
        self._pressed = 1  # how many ^C were answered, the first by the stop itself
        self._exit = Exit.OK

    def run(self) -> int:
        """Until a signal and all processes are gone; the exit code."""
        self._selector.register(self._signals, selectors.EVENT_READ, self._signals.drain)
        self._log.event(events.WORKER_STARTED)
        try:
            while self._deadline is None or self._group.live:
                self._turn()
        finally:
            self._group.kill()
            self._selector.close()
            self._notifier.close()
        self._log.event(events.WORKER_STOPPED)
        return self._exit

    def _turn(self) -> None:
        """One round: decide, tell, wait, react."""
        now = time.monotonic()
        self._decide(now)
        self._notifier.watchdog()
        self._notifier.status(self._status())
        if self._deadline is not None and not self._group.live:
            return
        until = self._group.next_due() if self._deadline is None else min(
            self._deadline, self._again)
        waits = [] if until is None else [max(0.0, until - now)]
        if (interval_s := self._notifier.watchdog_interval_s) is not None:
            waits.append(interval_s)
        for key, _mask in self._selector.select(min(waits, default=None)):
            key.data()

    def _decide(self, now: float) -> None:
        main = self._group.main
        if self._deadline is not None:
            impatient = self._signals.interrupts > self._pressed
            self._pressed = max(self._pressed, self._signals.interrupts)
            if (now >= self._deadline or impatient) and self._steps:
                self._deadline, self._again = now + GIVE_BACK_S, math.inf
                self._steps.pop(0)()
            elif now >= self._again:
                self._interrupt()
        elif stop_asked(self._signals):
            self._stop(now)
        elif main.state is State.FAILED or (not self._was_ready and main.last_code in FOR_GOOD):
            self._exit = Exit(main.last_code or Exit.CONFIG)
            self._stop(now)
        else:
            if main.state is State.STARTED and not self._was_ready:
                self._was_ready = True
                self._group.resize(self._count - 1)
                self._notifier.ready(self._status())
            self._group.start_due(now)

    def _stop(self, now: float) -> None:
        self._group.stop()
        self._notifier.stopping(self._status())
        # systemd must not be faster than our own bounds.
        self._notifier.extend(self._stop_s + 2 * GIVE_BACK_S)
        self._deadline = now + self._stop_s

    def _interrupt(self) -> None:
        self._again = time.monotonic() + AGAIN_S
        for reader in self._group.readers:
            reader.signal(signal.SIGUSR1)

    def _status(self) -> str:
        main = int(self._group.main.state is State.STARTED)
        text = f"processes {main + self._group.running()}/{self._count}"
        return text + (f", restarts {self._group.restarts}" if self._group.restarts else "")
