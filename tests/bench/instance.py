"""The queue manager and pool.writer of a bench run: a spool and a configuration of their own.

Both run as a supervisor would start them, each told to be ready through a notify socket. No other
daemon is needed: a message whose last queue is done with it is deleted by the manager itself,
unless it has a container.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from omq.base import form
from omq.base.errors import ManagerUnavailable
from omq.base.paths import SpoolPaths
from omq.format.index import COUNTERS_AT, Counter
from omq.ipc.server.objects import ObjectList
from omq.services.supervise.child import NotifySocket
from omq.services.supervise.daemon_plan import environment
from omq.storage import segment
from omq.storage.segment import AttachedIndex
from omq.storage.spool import create_spool

Settings = Mapping[str, Mapping[str, Any]]  # section, key

QUEUE = "BENCH"
MANAGER = "queue.manager"
POOL_WRITER = "pool.writer"
START_BOUND_S = 300.0
STOP_BOUND_S = 120.0
LOG_LINES = 20
# What the user's shell may have set for another instance.
_FOREIGN = ("OMQ_SPOOL", "OMQ_CONF", "OMQ_FAULT", "OMQ_FAULT_LOG", "NOTIFY_SOCKET",
            "PYTHONDONTWRITEBYTECODE")
_BYTECODE = Path(__file__).resolve().parents[2] / "build" / "bytecode"
"""pip writes it when it installs; without it each start would compile 300 modules, 0.3 s."""


class BenchError(Exception):
    """The bench cannot go on, or a count is wrong."""


class Instance:
    """One spool; `start` and `stop` its daemons, ask what they cost."""

    def __init__(self, root: Path, messages_max: int, queues: Sequence[str] = (),
                 settings: Settings | None = None) -> None:
        """`queues`: more than QUEUE, each may go on with `key = value` lines; `settings`: those
        of omq.conf that are not the bench's."""
        if (running := form.told()) != form.COMPILED:  # as behind an edit without make setup
            sys.stderr.write(f"The fast path is {running}, not compiled: these are other figures; "
                             "'make setup' compiles it.\n")
        self.paths = SpoolPaths(root / "spool")
        self.conf = root / "conf"
        self.messages_max = messages_max
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        create_spool(self.paths.root)
        _write_conf(self.conf, messages_max, (QUEUE, *queues), settings or {})

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def start(self, name: str) -> float:
        """Start a daemon; seconds until it said that it is ready."""
        notify = NotifySocket(name)
        began = time.monotonic()
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "omq.cli.launch", name,
                 "--spool", str(self.paths.root), "--conf", str(self.conf)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=_environment() | {"NOTIFY_SOCKET": notify.address},
            )  # fmt: skip
        self._running[name] = process
        try:
            self._wait_ready(name, process, notify, began + START_BOUND_S)
        finally:
            notify.close()
        return time.monotonic() - began

    def _wait_ready(self, name: str, process: subprocess.Popen[bytes], notify: NotifySocket,
                    deadline: float) -> None:
        pidfd = os.pidfd_open(process.pid)
        try:
            while time.monotonic() < deadline:
                select.select([notify.fileno(), pidfd], [], [], 1.0)
                if any(notice.flag("READY") for notice in notify.receive(process.pid)):
                    return
                if process.poll() is not None:
                    raise BenchError(f"{name} ended at start, code {process.returncode}:\n"
                                     f"{self.log_tail(name)}")
        finally:
            os.close(pidfd)
        raise BenchError(f"{name} was not ready in {START_BOUND_S:g} s:\n{self.log_tail(name)}")

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> float:
        """Stop a daemon and wait for its end; seconds that it took."""
        process = self._running.pop(name)
        began = time.monotonic()
        process.send_signal(number)
        try:
            process.wait(STOP_BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BenchError(f"{name} did not stop:\n{self.log_tail(name)}") from None
        if number == signal.SIGTERM and process.returncode:
            raise BenchError(f"{name} ended with code {process.returncode}:\n"
                             f"{self.log_tail(name)}")
        return time.monotonic() - began

    def check_alive(self) -> None:
        """BenchError when a daemon has died meanwhile."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise BenchError(f"{name} died, code {process.returncode}:\n{self.log_tail(name)}")

    def alive(self, name: str) -> bool:
        return name in self._running and self._running[name].poll() is None

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of each daemon that runs."""
        return {name: cpu_seconds(process.pid) for name, process in self._running.items()
                if process.poll() is None}

    def forget_dead(self, name: str) -> None:
        """It is known to have ended by itself."""
        self._running.pop(name).wait()

    def kill_all(self) -> None:
        """The end, whatever state things are in; no process and no IPC object is left."""
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()
        # What the next start would remove; there is none.
        ids = segment.read_ids(self.paths)
        if ids is not None:
            segment.remove(ids.segment, os.geteuid())
        ObjectList(self.paths).clear_left_overs(os.geteuid())

    def counters(self) -> dict[Counter, int]:
        """The manager's counters, from its index."""
        index = AttachedIndex(self.paths)
        try:
            values = np.frombuffer(index.buffer, "<u8", max(Counter) + 1, COUNTERS_AT)
            found = {counter: int(values[counter]) for counter in Counter}
            del values
            return found
        finally:
            index.close()

    def index_size(self) -> tuple[int, float]:
        """(bytes of the segment, bytes for one message at the configured capacity)."""
        index = AttachedIndex(self.paths)
        try:
            return index.header.size, index.header.layout().bytes_per_message
        finally:
            index.close()

    def log_tail(self, name: str) -> str:
        lines: list[str] = []
        for path in (self._log(name), self.paths.event_log):
            with contextlib.suppress(FileNotFoundError):
                lines += path.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return "\n".join(lines)

    def _log(self, name: str) -> Path:
        return self.paths.logs / f"{name}.output"


@contextlib.contextmanager
def running(root: Path, messages_max: int) -> Iterator[Instance]:
    """An instance with both daemons; stopped in order, killed if the bench itself fails."""
    instance = Instance(root, messages_max)
    try:
        instance.start(MANAGER)
        instance.start(POOL_WRITER)
        yield instance
        instance.check_alive()
        instance.stop(MANAGER)
        if instance.alive(POOL_WRITER):
            instance.stop(POOL_WRITER)
    except ManagerUnavailable as error:
        raise BenchError(f"{error}:\n{instance.log_tail(MANAGER)}") from error
    finally:
        instance.kill_all()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process (proc(5)), to a clock tick of usually 10 ms."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended_cpu_seconds(pid: int) -> float:
    """The same of its children that have ended and were collected, and of theirs."""
    fields = _stat(pid)
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> dict[str, int]:
    """Resident bytes of a process: all, its own, and shared memory that it has touched."""
    wanted = {"VmRSS": "resident", "RssAnon": "own", "RssShmem": "shared"}
    found: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in wanted:
            found[wanted[key]] = int(value.split()[0]) * 1024
    return found


def _stat(pid: int) -> list[bytes]:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return stat[stat.rindex(b")") + 1 :].split()


def _environment() -> dict[str, str]:
    return {name: value for name, value in environment(os.environ).items()
            if name not in _FOREIGN} | {"PYTHONPYCACHEPREFIX": str(_BYTECODE)}


def _write_conf(conf: Path, messages_max: int, queues: Sequence[str], more: Settings) -> None:
    """What is not set here is as shipped."""
    settings: dict[str, dict[str, Any]] = {
        "journal": {"archive": "delete"},  # a long run would fill the disk
        "index": {"messages_max": messages_max, "queue_entries_max": messages_max},
        "daemons": {"watchdog_s": 0, "event_level": "TRACE"},  # TRACE: checkpoints are told
    }
    for section, keys in more.items():
        settings.setdefault(section, {}).update(keys)
    text = "".join(
        f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
        for section, keys in settings.items())
    conf.mkdir()
    (conf / "omq.conf").write_text(text)
    (conf / "queues.conf").write_text("".join(
        f"[{name}]\n{keys}\ndescription = what the bench reads and writes\n"
        for name, _, keys in (queue.partition("\n") for queue in queues)))
