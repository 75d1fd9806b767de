"""omrc --embedded as it is: its daemons come from the fork server, and without it all goes on."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import omq
from omq.base import events
from omq.base.paths import SpoolPaths
from omq.services.daemon.run_state import read_supervisor
from tests.process.ipc_space import ipc_space

WAIT_S = 120.0
CONF = ("[index]\nmessages_max = 1000\nqueue_entries_max = 1000\n[journal]\n"
        "journal_file_bytes = 4 MiB\nblock_bytes_max = 1 MiB\n[store]\ndisk_reserve_bytes = 0\n"
        "[daemons]\nrestart_backoff_min_s = 0\n")


class Embedded:
    """A supervisor of the three core daemons, and what it says."""

    def __init__(self, root: Path) -> None:
        self.paths = SpoolPaths(root)
        self.paths.conf.mkdir(parents=True)
        (self.paths.conf / "omq.conf").write_text(CONF)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "omq.cli.launch", "omrc", "--embedded", "-n",
             "--spool", root], stderr=subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if not k.startswith("OMQ_")})
        self._said = b""

    def until(self, words: str) -> None:
        """Read on until it has said this."""
        assert self.process.stderr is not None
        fd = self.process.stderr.fileno()
        while words.encode() not in self._said:
            assert select.select([fd], [], [], WAIT_S)[0], self._said
            data = os.read(fd, 4096)
            assert data, self._said
            self._said += data
        self._said = self._said.partition(words.encode())[2]

    def pid(self, name: str) -> int:
        state = read_supervisor(self.paths.run / "supervisor.json")
        assert state is not None
        return next(child.pid for child in state.children if child.name == name)

    def fork_server(self) -> int:
        """Its pid."""
        family = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        names = {pid: Path(f"/proc/{pid}/comm").read_text() for pid in family.read_text().split()}
        (found,) = [int(pid) for pid, name in names.items() if name == "omrc.fork\n"]
        return found

    def given_up(self) -> int:
        lines = self.paths.event_log.read_text().splitlines()
        return sum(json.loads(line)["event"] == events.FORK_SERVER_GONE.number for line in lines)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Embedded]:
    with ipc_space() as space:
        made = Embedded(tmp_path / "spool")
        try:
            made.until("idel.server: is ready")
            yield made
            made.process.terminate()
            assert made.process.wait(WAIT_S) == 0
            assert space.objects() == set()
        finally:
            if made.process.poll() is None:
                made.process.terminate()
                made.process.wait(WAIT_S)
            if made.process.stderr is not None:
                made.process.stderr.close()


def _shared(pid: int) -> int:
    """Bytes that it has in common with others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Shared_Dirty"))


def test_daemons_are_forked_and_share_what_was_imported(embedded: Embedded) -> None:
    before = embedded.pid("idel")
    for name, program in (("qmgr", "queue.manager"), ("pool", "pool.writer"),
                          ("idel", "idel.server")):
        pid = embedded.pid(name)
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        assert [b"omq.cli.launch", program.encode()] == words[3:5]
        assert Path(f"/proc/{pid}/comm").read_text() == f"{program}\n"
        assert os.getpgid(pid) == pid
        assert _shared(pid) > 4 << 20, name
    os.kill(before, signal.SIGKILL)
    embedded.until("idel.server: is ready")
    assert embedded.pid("idel") != before
    assert embedded.given_up() == 0


def test_a_manager_is_restarted_without_the_fork_server(embedded: Embedded) -> None:
    fork_server = embedded.fork_server()
    os.kill(fork_server, signal.SIGKILL)
    with omq.connect(embedded.paths.root, timeout_s=WAIT_S) as connection:
        first = connection.put("LOCAL", b"before")
        for name, program in (("qmgr", "queue.manager"), ("pool", "pool.writer")):
            os.kill(embedded.pid(name), signal.SIGKILL)
            embedded.until(f"{program}: is ready")
        second = connection.put("LOCAL", b"after")
        with connection.reader("LOCAL", batch=10) as reader:
            found = []
            for message in reader.next(timeout_s=0):
                found.append((message.message_id, message.body))
                message.done()
    assert found == [(first, b"before"), (second, b"after")]
    assert embedded.given_up() == 1
    embedded.process.send_signal(signal.SIGHUP)  # and a reload forgives it
    os.kill(embedded.pid("idel"), signal.SIGKILL)
    embedded.until("idel.server: is ready")
    assert embedded.fork_server() != fork_server
    assert embedded.given_up() == 1
