"""What runs in a channel process: a service's `Worker` sends one Mlist after the other.

The process has one socket to the scheduler. A run of Mlists comes as that many packets; each is
answered when it is done. The end of the socket is the end of the process; so is the death of the
scheduler, at once: the next scheduler gets its messages again, and they must not be sent by two.
SIGTERM, SIGINT and SIGHUP that reach the whole group mean nothing here: the scheduler decides.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from omq.base import fault
from omq.services.delivery import packet

RECIPIENTS = "recipients"
PEER = "peer"
SERIAL = "serial"


@dataclass(frozen=True, slots=True)
class Report:
    """What became of an Mlist: whether its peer was reached, why not, and the service's results (of
    what JSON has); when it was begun with (monotonic) and how long it took."""

    results: list[Any]
    reached: bool = True
    reason: str = ""
    begun: float = 0.0
    spent_s: float = 0.0


class Worker(Protocol):
    """One process of a channel."""

    def send(self, head: dict[str, Any], body: bytes) -> Report:
        """Bring a text to `head["peer"]` for `head["recipients"]`. Raises nothing that a peer or a
        network can cause."""
        ...

    def idle(self) -> None:
        """Nothing came for a while: give back what is costly to hold."""
        ...

    def close(self) -> None:
        """The end."""
        ...


def run(make: Callable[[], Worker], line: socket.socket, idle_s: float) -> int:
    """Until the line ends; the exit code. In the child of a fork, signals blocked."""
    parent = os.getppid()

    def die_with_parent(_number: int, _frame: FrameType | None) -> None:
        if os.getppid() != parent:
            os._exit(0)

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, die_with_parent)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGCHLD, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    worker = make()
    try:
        while True:
            line.settimeout(idle_s)
            try:
                head, body = packet.receive(line)
            except TimeoutError:
                worker.idle()
                line.settimeout(None)
                head, body = packet.receive(line)
            begun = time.monotonic()
            fault.point("channel.before_send")
            report = worker.send(head, body)
            fault.point("channel.after_send")
            line.settimeout(None)
            packet.send(line, {
                SERIAL: head[SERIAL], "reached": report.reached, "reason": report.reason,
                "results": report.results, "begun": begun, "spent_s": time.monotonic() - begun})
    except (packet.ClosedError, ConnectionError):
        return 0
    finally:
        worker.close()
