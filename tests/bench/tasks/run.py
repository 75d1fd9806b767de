"""One broker with senders and workers of a library as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.bench.instance import BenchError
from tests.bench.peers.peer import Peer
from tests.bench.peers.processes import pause
from tests.bench.tasks.brokers import LIBRARIES, Broker

ROOT: Final = Path(__file__).resolve().parents[3]
BOUND_S: Final = 300.0
LOOK_S: Final = 0.05


class Program:
    """The processes; `path` is a file that tasks write to, for each measurement another one."""

    def __init__(self, library: str, broker: Broker, peer: Peer, folder: Path) -> None:
        self._library, self._broker, self._peer, self._folder = library, broker, peer, folder
        self._running: list[subprocess.Popen[bytes]] = []

    def worker(self) -> subprocess.Popen[bytes]:
        return self._start(*LIBRARIES[self._library].worker)

    def sender(self, path: Path, count: int, rate: float = 0.0) -> subprocess.Popen[bytes]:
        return self._start(LIBRARIES[self._library].app, str(path), str(count), str(rate))

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        # A peer that was started anew has another port.
        broker = {"name": self._broker.name, "url": self._broker.url(self._peer),
                  "options": self._broker.options[self._library]}
        environment = {**os.environ, "PYTHONPATH": str(ROOT),
                       "OMQ_BENCH_BROKER": json.dumps(broker)}
        with (self._folder / "program.log").open("ab") as log:
            made = subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, stdout=log,
                                    stderr=log, env=environment, start_new_session=True)
        self._running.append(made)
        return made

    def kill(self, program: subprocess.Popen[bytes]) -> None:
        """With all its processes."""
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        self._running.remove(program)

    def end(self) -> None:
        for program in tuple(self._running):
            self.kill(program)


def until(found: Callable[[], object], what: str) -> None:
    """Look, until it is so. BenchError."""
    ends = time.monotonic() + BOUND_S
    while not found():
        if time.monotonic() > ends:
            raise BenchError(f"no {what} in {BOUND_S:g} s")
        pause(LOOK_S)
