"""A channel process as the scheduler's process has it: fork, line, pidfd, death.

Invariants: 1. signals are blocked around the fork until the child has its own handlers; 2. the
child dies with its parent; 3. a line that becomes readable, or ends, raises SIGIO here, so that a
wait for messages ends (F_SETOWN, O_ASYNC: fcntl(2)); 4. no descriptor outlives the process.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

import multiprocess

from omq.services.daemon.process import die_with_parent, set_name
from omq.services.daemon.signals import blocked
from omq.services.delivery import packet, worker
from omq.services.delivery.mlist import Mlist
from omq.services.delivery.worker import Report, Worker

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
