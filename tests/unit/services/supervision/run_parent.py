"""Runs a real service parent whose readers talk to pipes instead of a queue manager.

`run_parent.py FEED OUT GATE [options of a daemon]`: FEED is a pipe of 8-byte messages shared by all
readers, OUT takes a line for everything that happens, `PID main|auxiliary WHAT`, GATE is a FIFO.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from omq.base.errors import ConfigError, ManagerUnavailable
from omq.services.daemon.daemon import DaemonContext, run_daemon
from omq.services.readers.parent import ServiceParent
from omq.services.readers.runner import Connection
from omq.services.readers.service import (
    Defer,
    Disposition,
    Done,
    Fail,
    Message,
    Move,
    Service,
    ServiceContext,
)

FEED, OUT = int(sys.argv[1]), int(sys.argv[2])
GATE = Path(sys.argv[3])
SIZE = 8


def tell(context: ServiceContext, what: str) -> None:
    kind = "main" if context.is_main else "auxiliary"
    os.write(OUT, f"{os.getpid()} {kind} {what}\n".encode())


@dataclass
class FakeMessage:
    reader: FakeReader
    body: bytes
    queue: str = "FAKE"
    message_id: str = "00"
    attempts: int = 0

    def _record(self, what: str) -> None:
        self.reader.recorded.append(f"{what} {self.body.decode()}")

    def done(self) -> None:
        self._record("done")

    def move(self, queues: Sequence[str], new: Sequence[object] = ()) -> None:
        self._record(f"move to {','.join(queues)} new {len(new)}:")

    def defer(self, seconds: float, reason: str = "") -> None:
        self._record(f"defer {seconds:g} {reason}:")

    def fail(self, reason: str = "") -> None:
        self._record(f"fail {reason}:")

    def release(self) -> None:
        self._record("release")


class FakeReader:
    """With `interrupt`, as the real client has it."""

    def __init__(self, context: ServiceContext) -> None:
        self.context = context
        self.recorded: list[str] = []
        self._wake = os.pipe()

    def next(self, n: int, timeout_s: float) -> list[FakeMessage]:
        self.flush()
        ready, _, _ = select.select([FEED, self._wake[0]], [], [], timeout_s)
        if self._wake[0] in ready or FEED not in ready:
            return []
        try:
            data = os.read(FEED, n * SIZE)
        except BlockingIOError:  # another reader was faster
            return []
        bodies = [data[at : at + SIZE].strip() for at in range(0, len(data), SIZE)]
        return [FakeMessage(self, body) for body in bodies]

    def flush(self) -> None:
        if (self.context.conf_dir / "manager-gone").exists():
            raise ManagerUnavailable(spool="here", reason="the test says so")
        for each in self.recorded:
            tell(self.context, each)
        self.recorded.clear()

    def interrupt(self) -> None:
        os.write(self._wake[1], b"x")


class FakeConnection:
    def __init__(self, context: ServiceContext) -> None:
        self.context = context

    @contextmanager
    def reader(self, queue: str, *, batch: int, auxiliary: bool) -> Iterator[FakeReader]:
        assert auxiliary is not self.context.is_main
        tell(self.context, f"registered on {queue} batch {batch}")
        yield FakeReader(self.context)
        tell(self.context, "unregistered")


@contextmanager
def connect(context: ServiceContext) -> Iterator[Connection]:
    yield cast(Any, FakeConnection(context))


class FakeService(Service):
    def open(self) -> None:
        wrong = "wrong" if self.context.is_main else "wrong-auxiliary"
        if (self.context.conf_dir / wrong).exists():
            raise ConfigError(file=wrong, line=1, key="it", reason="is there", allowed="nothing")
        assert "NOTIFY_SOCKET" not in os.environ

    def handle(self, message: Message) -> Disposition:
        word = message.body.decode()
        if word == "raise":
            raise ValueError("boom")
        if word == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "wait":
            tell(self.context, "waits")
            GATE.read_bytes()
        answers: dict[str, Disposition] = {
            "move": Move(("A", "B")), "defer": Defer(5, "later"), "fail": Fail("bad"),
        }  # fmt: skip
        return answers.get(word, Done())

    def idle(self) -> None:
        tell(self.context, "idle")

    def reload(self) -> None:
        tell(self.context, f"reloaded batch {self.context.conf.batch}")

    def close(self) -> None:
        tell(self.context, "closed")


def body(context: DaemonContext) -> int:
    return ServiceParent(context, FakeService, connect).run()



if __name__ == "__main__":
    os.set_blocking(FEED, False)
    sys.exit(run_daemon("fake", sys.argv[4:], body, service="fake"))
