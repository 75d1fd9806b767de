"""A queue manager of its own for the operator's tools, and the tools run in this process."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import omq
from omq.cli import launch
from omq.core.index.view import IndexView
from omq.ipc.client.connection import Client
from omq.storage import spool
from omq.storage.segment import read_ids
from omqtools.omqtest.child import Child
from tests.process.loaded import complete_conf, load_all
from tests.process.processes import popen

WAIT_S = 120.0
QUEUES = "[*]\ndeath_delay_s = 0\n\n[A]\n\n[B]\n\n[LOCAL]\n\n[ERROR]\n\n[SHUT]\nput = inhibited\n"
SETTINGS = ("[index]\nmessages_max = 20000\nqueue_entries_max = 25000\n"
            "[journal]\njournal_file_bytes = 4194304\nblock_bytes_max = 1048576\n"
            "[ipc]\nconnect_timeout_s = 30\nclients_max = 20\n"
            "[store]\ndisk_reserve_bytes = 0\n")


@dataclass
class Said:
    """What a tool said and how it ended."""

    code: int
    out: str
    err: str


class Instance:
    """A spool with its queue manager."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = spool.create_spool(root).paths
        self.conf = root / "conf"
        self.conf.mkdir(exist_ok=True)
        (self.conf / "queues.conf").write_text(QUEUES)
        (self.conf / "omq.conf").write_text(SETTINGS)
        complete_conf(self.conf)
        self.manager: Child | None = None

    def start(self) -> None:
        self.manager = popen("queue.manager", self.arguments)
        self.connect("wait").close()

    def stop(self) -> None:
        if self.manager is not None and self.manager.poll() is None:
            self.manager.send_signal(signal.SIGCONT)
            self.manager.terminate()
            assert self.manager.wait(WAIT_S) == 0

    def kill(self) -> None:
        """SIGKILL between two groups, so that the segment it leaves is whole."""
        assert self.manager is not None
        while True:
            with self.stopped(), IndexView.attach(self.paths) as view:
                if view.counters()["version"] % 2 == 0:
                    self.manager.kill()
                    self.manager.wait(WAIT_S)
                    return

    def end(self) -> None:
        """Leave no process and no System V object."""
        if self.manager is None:
            return
        if self.manager.poll() is not None and read_ids(self.paths) is not None:
            self.start()  # it removes what a killed one left
        self.stop()

    @property
    def arguments(self) -> list[str]:
        return ["--spool", str(self.root), "--conf", str(self.conf)]

    def connect(self, name: str = "test") -> Client:
        return omq.connect(self.root, name=name, timeout_s=WAIT_S)

    def put(self, queue: str | Sequence[str], *bodies: bytes, priority: int = 4) -> list[int]:
        """Messages; their QPoolIds."""
        with self.connect("put") as connection:
            ids = [connection.put(queue, body, priority=priority) for body in bodies]
        return [int(each[32:], 16) for each in ids]

    def on(self, queue: str) -> list[int]:
        """QPoolIds on a queue, in the order of hand-out."""
        with IndexView.attach(self.paths) as view:
            return [row.message.qpool for row in view.entries(queue)]

    def bodies(self, queue: str) -> list[bytes]:
        """Everything on a queue, taken off."""
        out: list[bytes] = []
        with self.connect("drain") as connection, connection.reader(queue, batch=50) as reader:
            while batch := reader.next(timeout_s=0):
                for message in batch:
                    out.append(message.body)
                    message.done()
        return out

    def run(self, name: str, *arguments: str, stdin: str | None = None) -> Said:
        """A command of the suite, in this process; `omq flush` is one with its sub-command."""
        name, *sub = name.split(" ")
        out, err = io.StringIO(), io.StringIO()
        before = sys.stdin
        sys.stdin = io.StringIO(stdin or "")
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = launch.run(name, [*sub, *self.arguments, *arguments])
        finally:
            sys.stdin = before
        return Said(code, out.getvalue(), err.getvalue())

    def dump(self, *arguments: str, stdin: str | None = None) -> Said:
        """omqdump; it must succeed."""
        said = self.run("omqdump", *arguments, stdin=stdin)
        assert said.code == 0, said
        return said

    def run_as(self, uid: int, name: str, *arguments: str) -> Said:
        """The same as another user of the spool's group, in a child that has everything loaded."""
        load_all()
        group = self.root.stat().st_gid
        receive, send = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                os.setgroups([])
                os.setresgid(group, group, group)
                os.setresuid(uid, uid, uid)
                said = self.run(name, *arguments)
                os.write(send, json.dumps([said.code, said.out, said.err]).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(send)
        with open(receive, "rb") as stream:
            found = json.loads(stream.read())
        assert os.waitpid(pid, 0)[1] == 0
        return Said(*found)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The manager does not move meanwhile (SIGSTOP), and tools do not wait long for it."""
        assert self.manager is not None
        settings = (self.conf / "omq.conf").read_text()
        self._rewrite(settings.replace("connect_timeout_s = 30", "connect_timeout_s = 1"))
        self.manager.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.manager.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield
        finally:
            self._rewrite(settings)
            self.manager.send_signal(signal.SIGCONT)

    def _rewrite(self, settings: str) -> None:
        """omq.conf, whole at any time: somebody may begin meanwhile."""
        other = self.conf / "omq.conf.new"
        other.write_text(settings)
        other.replace(self.conf / "omq.conf")
