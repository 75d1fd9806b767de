"""The reader processes of one service: one main, 0 to 20 auxiliary; started, watched, stopped.

Invariants: 1. readers[0] is the main reader for ever; an auxiliary that was stopped leaves the list
when it is dead; 2. a dead reader that is still wanted starts again after its back-off, unless its
exit code says that the configuration is wrong; 3. after `kill` no reader is left.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable
from functools import partial

from omq.base import event_log, events
from omq.base.event_log import EventLog
from omq.services.daemon.exit_text import exit_text
from omq.services.daemon.restart_backoff import Backoff
from omq.services.daemon.run_state import State
from omq.services.readers.process import ReaderProcess, Target


class ReaderGroup:
    """Lives in the service's parent process and its selector."""

    def __init__(
        self,
        name: str,
        selector: selectors.BaseSelector,
        log: EventLog,
        *,
        target: Target,
        backoff: Callable[[], Backoff],
        died_of_signal: Callable[[], object] = lambda: None,
    ) -> None:
        self.readers: list[ReaderProcess] = []
        self._name = name
        self._selector = selector
        self._log = log
        self._target = target
        self._backoff = backoff
        self._died_of_signal = died_of_signal
        self.resize(0)

    @property
    def main(self) -> ReaderProcess:
        return self.readers[0]

    @property
    def auxiliary(self) -> list[ReaderProcess]:
        return self.readers[1:]

    @property
    def live(self) -> bool:
        """Whether any process runs."""
        return any(reader.live for reader in self.readers)

    @property
    def failed(self) -> int:
        """How many are given up for their configuration."""
        return sum(reader.state is State.FAILED for reader in self.readers)

    @property
    def restarts(self) -> int:
        return sum(reader.restarts for reader in self.readers)

    def running(self) -> int:
        """How many auxiliaries are registered."""
        return sum(reader.state is State.STARTED for reader in self.auxiliary)

    def next_due(self) -> float | None:
        """When the next dead reader is to be started."""
        times = [each.due for each in self.readers if each.state is State.WAITING]
        return min(times, default=None)

    def resize(self, auxiliaries: int) -> None:
        """Have the main reader and this many auxiliaries, leaving those that stay alone."""
        staying = [reader for reader in self.readers if reader.wanted]
        for reader in staying[1 + auxiliaries :]:
            reader.stop()
        self._forget_stopped()
        used = {reader.name for reader in self.readers}
        names = (self._reader_name(number) for number in range(len(used) + auxiliaries + 1))
        free = [name for name in names if name not in used]
        for name in free[: max(0, 1 + auxiliaries - len(staying))]:
            self.readers.append(
                ReaderProcess(
                    name, is_main=not self.readers, target=self._target, backoff=self._backoff()
                )
            )

    def _reader_name(self, number: int) -> str:
        return f"{self._name}.{number}" if number else self._name

    def start_due(self, now: float) -> None:
        """Start what should run and may start now."""
        for reader in self.readers:
            if reader.wanted and reader.is_due(now):
                self._start(reader, now)

    def reload(self) -> None:
        """Pass on SIGHUP; a reader given up for its configuration gets another chance."""
        for reader in self.readers:
            if reader.wanted:
                reader.retry()
                reader.signal(signal.SIGHUP)

    def stop(self) -> None:
        """Ask all to finish the message in hand and end."""
        for reader in self.readers:
            reader.stop()

    def kill(self) -> None:
        """End at once whatever is left, and collect it."""
        for reader in [each for each in self.readers if each.live]:
            reader.wanted = False
            reader.signal(signal.SIGKILL)
            self._log.event(
                events.READER_KILLED, event_log.ERROR, reader=reader.name, pid_of=reader.pid
            )
            self._on_death(reader)  # waits for a process that is being killed

    def _start(self, reader: ReaderProcess, now: float) -> None:
        try:
            reader.start(now)
        except OSError as error:
            reader.postpone(now)
            self._log.event(
                events.READER_DIED, event_log.ERROR, reader=reader.name, reason=str(error)
            )
            return
        self._watch(reader.pidfd, partial(self._on_death, reader))
        self._watch(reader.ready_fd, partial(self._on_ready, reader))
        self._log.event(events.READER_STARTED, reader=reader.name, pid_of=reader.pid)

    def _watch(self, fd: int, react: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, react)

    def _on_ready(self, reader: ReaderProcess) -> None:
        if reader.ready_fd < 0:
            return  # its death was seen earlier in the same round
        # Before the close: readers forked since then share the pipe, and epoll would go on
        # reporting a description that lives on in them.
        self._selector.unregister(reader.ready_fd)
        reader.read_ready()

    def _on_death(self, reader: ReaderProcess) -> None:
        for fd in (reader.pidfd, reader.ready_fd):
            if fd >= 0:
                self._selector.unregister(fd)
        pid = reader.pid
        code = reader.collect(time.monotonic())
        if code == 0 and not reader.wanted:
            self._log.event(events.READER_STOPPED, reader=reader.name, pid_of=pid)
        else:
            self._log.event(
                events.READER_DIED, event_log.ERROR, reader=reader.name, pid_of=pid,
                cause=exit_text(code), restarts=reader.restarts,
            )  # fmt: skip
            if code < 0:
                self._died_of_signal()
        self._forget_stopped()

    def _forget_stopped(self) -> None:
        self.readers = [each for each in self.readers if each.wanted or each.live or each.is_main]
