"""The channel processes that run: started, given work, listened to, collected.

A channel process as the scheduler's process has it: fork, line, pidfd, death.

Invariants: 1. signals are blocked around the fork until the child has its own handlers; 2. the
child dies with its parent; 3. a line that becomes readable, or ends, raises SIGIO here, so that a
wait for messages ends (F_SETOWN, O_ASYNC: fcntl(2)); 4. no descriptor outlives the process.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import multiprocess

from omq.base import event_log, events
from omq.services.daemon.exit_text import exit_text
from omq.services.daemon.process import die_with_parent, set_name
from omq.services.daemon.signals import blocked
from omq.services.delivery import packet, worker
from omq.services.delivery.mlist import Mlist
from omq.services.delivery.scheduler import Process
from omq.services.delivery.worker import Report, Worker

if TYPE_CHECKING:
    from omq.services.delivery.service import ChannelService

_fork = multiprocess.get_context("fork")


class _Process(Protocol):
    pid: int
    exitcode: int | None

    def start(self) -> None: ...
    def join(self, timeout: float | None = None) -> None: ...
    def close(self) -> None: ...


class ChannelProcess:
    """One process of a channel; `OSError` from the constructor when the system has none left."""

    def __init__(self, name: str, make: Callable[[], Worker], idle_s: float,
                 others: Iterable[ChannelProcess]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        not_its = [each.line for each in others]
        self.line: socket.socket = ours
        self.sent: deque[tuple[int, Mlist]] = deque()
        self._serial = 0
        parent = os.getpid()

        def life() -> None:
            die_with_parent(parent)
            set_name(name)
            for each in (ours, *not_its):
                each.close()
            raise SystemExit(worker.run(make, theirs, idle_s))

        self._process: _Process = _fork.Process(target=life, name=name)
        try:
            with blocked():
                self._process.start()
            self.pid = self._process.pid
            ours.settimeout(0.0)
            fcntl.fcntl(ours, fcntl.F_SETOWN, parent)
            fcntl.fcntl(ours, fcntl.F_SETFL, fcntl.fcntl(ours, fcntl.F_GETFL) | os.O_ASYNC)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()

    def give(self, mlist: Mlist, head: dict[str, Any], body: bytes) -> None:
        """Send it an Mlist. OSError: it is gone, or does not read."""
        self._serial += 1
        packet.send(self.line, head | {worker.SERIAL: self._serial}, body)
        self.sent.append((self._serial, mlist))

    def reports(self) -> tuple[list[tuple[Mlist, Report]], bool]:
        """What it has said since the last time, and whether it is still there."""
        found: list[tuple[Mlist, Report]] = []
        while True:
            try:
                head, _ = packet.receive(self.line)
            except BlockingIOError:
                return found, True
            except (OSError, packet.ClosedError):
                return found, False
            serial, mlist = self.sent.popleft()
            assert head[worker.SERIAL] == serial
            found.append((mlist, Report(head["results"], head["reached"], head["reason"],
                                        head["begun"], head["spent_s"])))

    def end(self) -> None:
        """No more work: it ends by itself. `collect` waits for that."""
        with suppress(OSError):
            self.line.shutdown(socket.SHUT_RDWR)
        self.line.close()

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def collect(self, timeout_s: float) -> int | None:
        """Its exit code, when it ends in this time; negative: the signal that killed it."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        if code is not None:
            self._process.close()
        return code


_COLLECT_S: Final = 5.0


class ChannelProcesses:
    """By the scheduler's processes; `close` with `kill`."""

    def __init__(self, service: ChannelService) -> None:
        self._service = service
        self._running: dict[int, tuple[Process, ChannelProcess]] = {}
        self._by_line: dict[int, int] = {}
        self._ending: list[ChannelProcess] = []
        self._poll = select.poll()

    @property
    def busy(self) -> bool:
        """Whether any of them has work."""
        return any(process.busy for process, _ in self._running.values())

    def start(self, process: Process) -> bool:
        """Fork it. False: the system has no process left."""
        context = self._service.context
        try:
            made = ChannelProcess(
                f"{context.conf.name}.{process.channel}",
                lambda: self._service.worker(process.channel),
                float(context.settings.unix_connection_idle_s),
                [each for _, each in self._running.values()])
        except OSError as error:
            context.log.event(events.CHANNEL_DIED, event_log.ERROR, channel=process.channel,
                              cause=str(error))
            return False
        self._running[process.number] = process, made
        self._by_line[made.line.fileno()] = process.number
        self._poll.register(made.line, select.POLLIN)
        context.log.event(events.CHANNEL_STARTED, event_log.TRACE, channel=process.channel,
                          pid_of=made.pid)
        self._reap()
        return True

    def give(self, process: Process, mlist: Mlist, head: dict[str, Any], body: bytes) -> bool:
        """Send it an Mlist. False: it is gone. BlockingIOError: its line is full."""
        found = self._running.get(process.number)
        if found is None:
            return False
        try:
            found[1].give(mlist, head | {"peer": mlist.peer, "recipients": mlist.recipients}, body)
        except BlockingIOError:
            raise
        except OSError:
            return False
        return True

    def reports(self) -> list[tuple[Process, list[tuple[Mlist, Report]], bool]]:
        """What those have said that have something to say, and whether each is still there."""
        found = []
        for line, _ in self._poll.poll(0):
            number = self._by_line.get(line)
            if number is None:
                continue
            process, running = self._running[number]
            said, there = running.reports()
            found.append((process, said, there))
        return found

    def wait(self, timeout_s: float) -> None:
        """Until one of them has something to say, a signal came or the time is over."""
        self._poll.poll(timeout_s * 1000)

    def end(self, process: Process) -> None:
        """It has no work: it ends."""
        running = self._forget(process)
        if running is not None:
            running.end()
            self._ending.append(running)
        self._reap()

    def bury(self, process: Process) -> str:
        """It is gone, or of no use any more: how it ended."""
        running = self._forget(process)
        if running is None:
            return "it did not start"
        running.end()
        code = running.collect(_COLLECT_S)
        if code is None:
            running.kill()
            code = running.collect(_COLLECT_S)
        return "it does not end" if code is None else exit_text(code)

    def kill(self) -> None:
        """End all at once."""
        for process, running in list(self._running.values()):
            running.kill()
            self._forget(process)
            running.end()
            self._ending.append(running)
        for each in self._ending:
            each.kill()
            each.collect(_COLLECT_S)
        self._ending.clear()

    def _forget(self, process: Process) -> ChannelProcess | None:
        found = self._running.pop(process.number, None)
        if found is None:
            return None
        running = found[1]
        self._by_line.pop(running.line.fileno(), None)
        self._poll.unregister(running.line)
        return running

    def _reap(self) -> None:
        self._ending = [each for each in self._ending if each.collect(0) is None]
