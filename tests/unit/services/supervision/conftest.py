"""Real supervisors and service parents in processes of their own; every wait has a bound.

`Lines` and the control socket are what tests synchronise on. The bound only turns a hang into a
failure; no test measures time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.services.supervise.control_client import ControlConnection

HERE = Path(__file__).parent
BOUND_S = 120.0


class Lines:
    """Reads lines from a pipe, waiting at most BOUND_S for what is expected."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.seen: list[str] = []
        self._buffer = b""

    def next(self) -> str | None:
        """One line; None at the end of file."""
        deadline = time.monotonic() + BOUND_S
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"nothing more came after: {self.seen}")
            data = os.read(self.fd, 65536)
            if not data:
                return None
            self._buffer += data
        line, _newline, self._buffer = self._buffer.partition(b"\n")
        self.seen.append(line.decode())
        return self.seen[-1]

    def until(self, wanted: Callable[[str], bool]) -> str:
        """The first line for which `wanted` holds."""
        while (line := self.next()) is not None:
            if wanted(line):
                return line
        raise AssertionError(f"it ended before the line came: {self.seen}")


class Running:
    """A process under test and the lines of its stdout."""

    def __init__(self, process: subprocess.Popen[bytes], spool: Path) -> None:
        self.process = process
        self.spool = spool
        assert process.stdout is not None
        self.lines = Lines(process.stdout.fileno())

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self.lines.next() is not None:
            pass
        return self.process.wait(BOUND_S)


class Supervised(Running):
    """A supervisor; `events` follows its control socket from before the first daemon."""

    def connect(self) -> ControlConnection:
        return ControlConnection(self.spool / "run", BOUND_S)

    def journal(self) -> list[str]:
        """What the fake daemons noted, in order."""
        path = self.spool / "journal.txt"
        return path.read_text().splitlines() if path.exists() else []

    def status(self) -> dict[str, dict[str, Any]]:
        with self.connect() as connection:
            reply = connection.ask({"command": "status"})
        return {child["name"]: child for child in reply["children"]}

    def until(self, name: str, words: str) -> str:
        """Wait until the supervisor says this of the daemon."""
        return self.lines.until(lambda line: line.startswith(f"fake.{name}: ") and words in line)


LIMITS = {"start_s": 60, "stop_s": 60, "watchdog_s": 0, "backoff_min_s": 0, "backoff_max_s": 60}


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (tmp_path / "spool" / "run").mkdir(parents=True)
    (tmp_path / "spool").chmod(0o750)
    return tmp_path / "spool"


@pytest.fixture
def supervise(spool: Path) -> Iterator[Callable[..., Supervised]]:
    """supervise({NAME: [KIND, BEHAVIOUR]}, limit=...) starts a supervisor; killed at the end."""
    started: list[Supervised] = []

    def start(services: dict[str, list[str]], **limits: float) -> Supervised:
        write_spec(spool, services, **limits)
        command = [sys.executable, str(HERE / "run_supervisor.py"), str(spool / "spec.json")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(Supervised(process, spool))
        return started[-1]

    yield start
    for each in started:
        _end(each.process)


def write_spec(spool: Path, services: dict[str, list[str]], **more: Any) -> None:
    """What the supervisor reads at its start and at a reload."""
    limits = {key: more.get(key, default) for key, default in LIMITS.items()}
    spec = {
        "spool": str(spool), "limits": limits, "services": services,
        "wrong": more.get("wrong", False),
    }  # fmt: skip
    (spool / "spec.json").write_text(json.dumps(spec))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing: a live supervisor first gets the chance to stop its daemons."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait(BOUND_S)


@pytest.fixture
def respec() -> Callable[..., None]:
    return write_spec


@pytest.fixture
def end_process() -> Callable[[subprocess.Popen[bytes]], None]:
    return _end


@pytest.fixture
def running() -> Callable[[subprocess.Popen[bytes], Path], Running]:
    return Running


@pytest.fixture
def lines() -> Callable[[int], Lines]:
    return Lines
