"""A peer's server: started on loopback in a folder of its own, frozen while others are measured,
ended by pid with all that it started.

Invariants: 1. Only processes that descend from what was started here get signals. 2. Nothing
listens on another address than 127.0.0.1. 3. No process outlives `stop`.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.bench.instance import BenchError, cpu_seconds, ended_cpu_seconds

START_BOUND_S = 300.0
STOP_BOUND_S = 60.0
LOG_BYTES = 2000
_PAUSE_S = 0.05
POLL_S = 0.001
T = TypeVar("T")


def free_port() -> int:
    """A port of 127.0.0.1 that was free just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def pause(seconds: float) -> None:
    select.select([], [], [], seconds)


def polled(take: Callable[[], list[T]], timeout_s: float,
           there: Callable[[], bool] = lambda: True) -> list[T]:
    """For a system that cannot wait: take, and while it gives nothing look again after POLL_S
    (`there` is a cheaper look than a take)."""
    found, waited = take(), 0.0
    while not found and waited < timeout_s:
        pause(POLL_S)
        waited += POLL_S
        if there():
            found = take()
    return found


def tree(pid: int) -> list[int]:
    """This process and all that descend from it, parents first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
            parent = int(stat[stat.rindex(b")") + 1 :].split()[1])
            children.setdefault(parent, []).append(int(entry))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def unprivileged() -> dict[str, Any]:
    """Arguments of Popen for servers that refuse to run as root: then as nobody."""
    return {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}


class Server:
    """One process and its descendants."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.output"

    def start(self, command: list[str | Path], env: dict[str, str], *, as_nobody: bool = False
              ) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command], env=env, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
                **(unprivileged() if as_nobody else {}))

    def wait_port(self, port: int) -> None:
        """Until somebody accepts connections there."""
        self.wait_until(lambda: _accepts(port), f"port {port}")

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_BOUND_S
        while not ready():
            self.check_alive()
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name}: no {what} in {START_BOUND_S:g} s:\n{self.tail()}")
            pause(_PAUSE_S)

    def pids(self) -> list[int]:
        return tree(self._process.pid) if self._process is not None else []

    def check_alive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise BenchError(f"{self.name} ended, code {self._process.returncode}:\n{self.tail()}")

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_BYTES:]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it; what is left of its descendants is killed."""
        if self._process is None:
            return
        family = self.pids()
        if number != signal.SIGKILL:
            thaw_all(family)
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_BOUND_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in family[1:]:
            if _session_left(pid, family):
                _signal(pid, signal.SIGKILL)
        self._process = None


def freeze_all(pids: list[int]) -> None:
    """Stop these processes where they are, parents first."""
    for pid in pids:
        _signal(pid, signal.SIGSTOP)


def thaw_all(pids: list[int]) -> None:
    """Let these processes run again."""
    for pid in pids:
        _signal(pid, signal.SIGCONT)


def cpu_of(pids: list[int]) -> float:
    """CPU seconds of these processes and of their children that have ended: some servers start one
    for a hundred messages."""
    total = 0.0
    for pid in pids:
        try:
            total += cpu_seconds(pid) + ended_cpu_seconds(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def resident(pids: list[int]) -> int:
    """Bytes of memory that these processes have of their own share (Pss of smaps_rollup)."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total * 1024


def _session_left(pid: int, family: list[int]) -> bool:
    """It still runs, and is still the one that we started: its session began with the family."""
    try:
        return os.getsid(pid) in family
    except ProcessLookupError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
