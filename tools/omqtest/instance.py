"""The daemons of a run: queue.manager and pool.writer on a spool, started, killed and stopped here.

With a `log` they run on a recording disk (record.py). What they print is in `output`.

Errors: RunError with the last lines of what they said.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import omq
from omq.base.errors import ManagerUnavailable, OmqError
from omq.base.paths import SpoolPaths
from omq.cli import launch
from omq.ipc.client.connection import Client
from omq.ipc.server.objects import ObjectList
from omq.storage import durable, segment
from omq.storage.disk import Disk
from omq.storage.spool import create_spool
from omqtools.omqtest.child import Child
from omqtools.omqtest.clients import put, read
from omqtools.omqtest.history import HistoryFile
from omqtools.omqtest.record import RecordingDisk

MANAGER, WRITER = "queue.manager", "pool.writer"
WAIT_S = 60.0
LOG_LINES = 30
QUEUES = "[*]\ndeath_delay_s = 0\nattempts_max = 200\n\n[A]\n\n[B]\n"
SETTINGS = """\
[journal]
journal_file_bytes = 524288
block_bytes_max = 262144
journal_files_kept = 1
[pool]
checkpoint_interval_s = 1
checkpoint_journal_bytes_max = 262144
pool_poll_ms = 10
[store]
container_threshold_bytes = 32768
disk_reserve_bytes = {reserve}
store_file_bytes = 262144
[index]
messages_max = 20000
queue_entries_max = 25000
[ipc]
reconnect_grace_s = 1
[daemons]
drain_timeout_s = 2
"""


class RunError(Exception):
    """The run cannot go on; what was found so far says nothing."""


class Instance:
    """See the module."""

    def __init__(self, spool: Path, place: Path, reserve: int = 0, *, made: bool = False) -> None:
        """`made`: the spool is there, and so is the configuration."""
        self.spool = spool
        self.place = place
        self.conf = place / "conf"
        self.output = place / "output"
        self.log: Path | None = None
        self.running: dict[str, Child] = {}
        if made:
            self.paths = SpoolPaths(spool)
            return
        self.conf.mkdir(parents=True, exist_ok=True)
        (self.conf / "queues.conf").write_text(QUEUES)
        (self.conf / "omq.conf").write_text(SETTINGS.format(reserve=reserve))
        self.paths = create_spool(spool).paths

    def start(self, *names: str, **environment: str) -> None:
        """Start daemons; both when none is named."""
        for name in names or (MANAGER, WRITER):
            self.running[name] = Child(partial(self._daemon, name), self.output, environment)

    def _daemon(self, name: str) -> int:
        """In the child."""
        self._disk()
        return launch.run(name, ["--spool", str(self.spool), "--conf", str(self.conf),
                                 "--foreground-log"])

    def _disk(self) -> RecordingDisk | None:
        disk = RecordingDisk(self.log, self.spool) if self.log is not None else None
        durable.use(disk or Disk())
        return disk

    def client(self, what: str, name: str, histories: Path, **options: Any) -> Child:
        """A client: `put` or `read` of clients.py."""
        def run() -> int:
            disk = self._disk()
            sink = disk.log if disk is not None else HistoryFile(histories / name)
            work = put if what == "put" else read
            return work(self.spool, sink, name, **options)

        return Child(run, self.output)

    def ready(self, wait_s: float = WAIT_S) -> None:
        """Until the manager answers."""
        deadline = time.monotonic() + wait_s
        while True:
            try:
                self.connect(0.2).close()
                return
            except ManagerUnavailable:
                code = self.running[MANAGER].poll()
                if code is not None:
                    raise RunError(f"queue.manager ended with {code}:\n{self.said()}") from None
                if time.monotonic() > deadline:
                    raise RunError(f"queue.manager does not answer:\n{self.said()}") from None

    def connect(self, timeout_s: float = WAIT_S) -> Client:
        return omq.connect(self.spool, name="omqtest", timeout_s=timeout_s)

    def kill(self, *names: str) -> None:
        """SIGKILL, and collect."""
        for name in names or tuple(self.running):
            process = self.running.pop(name)
            process.kill()
            process.wait()

    def wait_dead(self, name: str, wait_s: float = WAIT_S) -> int:
        """The exit code of a daemon that ends by itself."""
        code = self.running[name].wait(wait_s)
        if code is None:
            raise RunError(f"{name} lives on:\n{self.said()}")
        del self.running[name]
        return code

    def stop(self) -> None:
        """In order; RunError when one does not end well."""
        for name in (MANAGER, WRITER):
            process = self.running.get(name)
            if process is not None:
                process.terminate()
                code = self.wait_dead(name)
                if code:
                    raise RunError(f"{name} ended with {code}:\n{self.said()}")

    def end(self) -> None:
        """Whatever state things are in: no process and no IPC object is left."""
        self.kill()
        with contextlib.suppress(OmqError, OSError):
            ids = segment.read_ids(self.paths)
            if ids is not None:
                segment.remove(ids.segment, os.geteuid())
            ObjectList(self.paths).clear_left_overs(os.geteuid())

    def said(self) -> str:
        """The end of what they printed."""
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return "\n".join(text.splitlines()[-LOG_LINES:])


@contextlib.contextmanager
def instance(spool: Path, place: Path, reserve: int = 0) -> Iterator[Instance]:
    """An instance that leaves nothing running."""
    made = Instance(spool, place, reserve)
    try:
        yield made
    finally:
        made.end()
