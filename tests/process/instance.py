"""One instance under test: a spool, its configuration, queue.manager and pool.writer.

Nobody supervises them: a test kills, stops and starts them itself. What they write to stderr is in
`output`. `finish` ends every test: a last start, the checks of `consistency`, an orderly stop, and
no System V object may be left. In between it starts once more, for what is on the disk must say the
same; that is a case of one kind for each test (tests.share).
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import omq
from omq.base import events
from omq.base.errors import ManagerUnavailable
from omq.ipc.client.connection import Client
from omq.storage.spool import create_spool
from tests.process.consistency import check_index
from tests.process.ipc_space import IpcSpace, ipc_space
from tests.process.processes import WAIT_S, Child, start_program
from tests.share import has
from tests.waiting import until

MANAGER, WRITER = "queue.manager", "pool.writer"
QUEUES = "[*]\ndeath_delay_s = 0\nattempts_max = 200\n\n[A]\n\n[B]\n\n[C]\n"
SETTINGS: dict[str, dict[str, object]] = {
    "index": {"messages_max": 20000, "queue_entries_max": 25000},
    "journal": {"journal_file_bytes": 1 << 20, "block_bytes_max": 1 << 19,
                "journal_files_kept": 1},
    "pool": {"checkpoint_interval_s": 1, "pool_poll_ms": 10,
             "checkpoint_journal_bytes_max": 1 << 20},
    "store": {"disk_reserve_bytes": 0, "store_file_bytes": 1 << 20},
    "ipc": {"reconnect_grace_s": 1, "channel_bytes": 1 << 20},
    "daemons": {"drain_timeout_s": 2, "event_level": "TRACE"},
    "trigger": {}, "ship": {},
}

CORE_SERVICES = """
[qmgr]
number = 100
kind = manager
program = queue.manager
nonstop = yes

[pool]
number = 101
kind = pool
program = pool.writer
nonstop = yes

[idel]
number = 102
kind = deleter
program = idel.server
queue = IDEL
"""
"""The sections of services.conf that every embedded instance needs."""


class Instance:
    """See the module."""

    cut_lines = False
    """A full disk cuts lines of the event log: of those nothing is asked."""

    def __init__(self, root: Path, space: IpcSpace) -> None:
        self.root = root / "spool"
        self.space = space
        self.output = root / "output"
        self.fault_log = root / "fired"
        self.paths = create_spool(self.root).paths
        self.conf = root / "conf"
        self.conf.mkdir()
        self.queues(QUEUES)
        self.settings()
        self.children: dict[str, Child] = {}

    # configuration

    def queues(self, text: str) -> None:
        """queues.conf."""
        (self.conf / "queues.conf").write_text(text)

    def settings(self, **changed: object) -> None:
        """omq.conf: SETTINGS, and these keys instead of its own."""
        lines = []
        for section, keys in SETTINGS.items():
            lines += [f"[{section}]"]
            lines += [f"{key} = {changed.pop(key, value)}" for key, value in keys.items()]
            lines += [f"{key} = {changed.pop(key)}" for key in sorted(changed)
                      if _SECTION_OF.get(key) == section]
        assert not changed, f"sections of {sorted(changed)} are not known here"
        (self.conf / "omq.conf").write_text("\n".join(lines) + "\n")

    # daemons

    def start(self, *programs: str, fault: str = "") -> Child:
        """Start daemons (the manager if none is named); the last of them."""
        environment = {"OMQ_FAULT": fault, "OMQ_FAULT_LOG": str(self.fault_log)} if fault else {}
        child = None
        for program in programs or (MANAGER,):
            old = self.children.get(program)
            assert old is None or not old.running, f"{program} runs"
            child = start_program(
                program, ["--spool", str(self.root), "--conf", str(self.conf)],
                output=self.output, environment=environment)
            self.children[program] = child
        assert child is not None
        return child

    def kill(self, *programs: str) -> None:
        for program in programs or (MANAGER,):
            self.children[program].kill()

    def stop(self, *programs: str) -> None:
        """SIGTERM, in this order; each must end with 0 (or by it, when it has just been forked). A
        pool.writer that has a manager is up before: its last checkpoint is part of such an end."""
        if not programs or {MANAGER, WRITER} <= set(programs):
            until(self._writer_is_up, self.said)
        for program in programs or (MANAGER, WRITER):
            child = self.children.get(program)
            if child is not None and child.running:
                child.signal(signal.SIGTERM)
                code = child.wait()
                assert code in (0, -signal.SIGTERM), f"{program}: {code}\n{self.said()}"

    def _writer_is_up(self) -> bool:
        """Or cannot come up."""
        both = [self.children.get(program) for program in (MANAGER, WRITER)]
        if not all(child is not None and child.running for child in both):
            return True
        return any(event["pid"] == self.children[WRITER].pid
                   for event in self.events(events.POOL_WRITER_STARTED.number))

    def connect(self, name: str = "test", timeout_s: float = WAIT_S) -> Client:
        return omq.connect(self.root, name=name, timeout_s=timeout_s)

    def ready(self) -> None:
        """Until the manager serves; AssertionError as soon as it has ended instead."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self.connect(timeout_s=0.2).close()
                return
            except ManagerUnavailable:
                assert self.children[MANAGER].running, self.said()
                assert time.monotonic() < deadline, self.said()

    # what they said

    def said(self) -> str:
        """Everything on stderr."""
        return self.output.read_text() if self.output.exists() else ""

    def events(self, number: int = 0) -> list[dict[str, Any]]:
        """The event log, or the events of one number."""
        if not self.paths.event_log.exists():
            return []
        found = [json.loads(line) for line in self.paths.event_log.read_text().splitlines()
                 if not self.cut_lines or line.endswith("}")]
        return [event for event in found if not number or event["event"] == number]

    def fired(self) -> list[str]:
        """`name:action:n pid` of each fault that acted."""
        return self.fault_log.read_text().splitlines() if self.fault_log.exists() else []

    def drain(self, queue: str) -> list[omq.Message]:
        """Take everything off a queue; the bodies are read."""
        out: list[omq.Message] = []
        with self.connect("drain") as c, c.reader(queue, batch=100) as reader:
            while batch := reader.next(timeout_s=0):
                for message in batch:
                    assert message.body is not None
                    message.done()
                out += batch
        return out

    # end

    def finish(self) -> None:
        """See the module."""
        for child in self.children.values():
            child.signal(signal.SIGCONT)
        manager = self.children.get(MANAGER)
        if manager is None or not manager.running:
            self.start()
        self.ready()
        check_index(self.paths)
        self.stop()
        if has(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]):
            self.start()
            self.ready()
            check_index(self.paths)
            self.stop()
        assert not self.paths.ids.exists()
        # A segment that another daemon looks at stays until that one ends, too.
        self.stop(*(name for name in self.children if name not in (MANAGER, WRITER)))
        if not self.space.own:  # a key that others drew may be one of ours: it goes with their test
            until(lambda: not self.space.objects(), self.said)
        assert not self.space.objects(), (self.space.objects(), self.said())
        lost = [e for e in self.events() if e["event"] in (1007, 1312, 1313, 1314, 1315)]
        assert not lost, lost

    def abandon(self) -> None:
        """Kill what still runs."""
        for child in self.children.values():
            if child.running:
                child.kill()


_SECTION_OF = {
    "ship_interval_ms": "ship", "ship_late_s": "ship", "ship_base_hours": "ship",
    "ship_bases_kept": "ship", "ship_to": "ship",
    "failures_known_max": "index",
    "clients_max": "ipc", "clients_group": "ipc", "operators_group": "ipc",
    "request_queue_bytes": "ipc", "dedupe_clients_max": "ipc",
    "body_bytes_max": "store", "container_threshold_bytes": "store", "archive": "journal",
    "messages_total_max": "index", "index_reserve_percent": "index",
    "disk_check_interval_s": "store", "connect_timeout_s": "ipc",
    "checkpoint_lag_frames_max": "pool", "clients_per_uid_max": "ipc", "clients_reserved": "ipc",
    "register_timeout_s": "ipc", "event_burst": "daemons", "unit_messages_max": "ipc",
    "units_bytes_max": "ipc", "trigger_interval_s": "trigger", "trigger_backoff_min_s": "trigger",
    "trigger_backoff_max_s": "trigger", "trigger_starts_max": "trigger",
    "queues_temporary_per_client": "index",
    "event_messages": "daemons", "event_oldest_s": "daemons",
    "idel_attempts_max": "daemons", "reader_wait_s": "ipc", "recycled_bytes_max": "store",
    "restart_backoff_min_s": "daemons", "restart_backoff_max_s": "daemons",
}


def impatient(c: Client, timeout_s: float = 0.5) -> None:
    """From now on it waits no longer. Before, a slow machine may take its time."""
    c._link._timeout_s = timeout_s
    if c._link._line is not None:
        c._link._line._timeout_s = timeout_s


@contextmanager
def instance(root: Path, *, clean: bool = True, kind: type[Instance] = Instance
             ) -> Iterator[Instance]:
    """An instance in a namespace of its own. `clean`: `finish` it, if the test has not failed."""
    with ipc_space() as space:
        made = kind(root, space)
        try:
            yield made
            if clean:
                made.finish()
        finally:
            made.abandon()
