"""L0: nothing that the real programs do to a spool goes past the seam, or the simulator would prove
nothing about them. strace watches a short life of the daemons and a client; what it saw must be
what the seam wrote down, call for call."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omq.storage.spool import create_spool
from tests.crash.sim.trace import CALLS, Changes, logged, traced
from tests.crash.sim.traced import PLANTED
from tests.process.test_manager import WAIT_S
from tests.waiting import until

NOT_DURABLE = ("logs/", "run/ids.json", "run/ipc.list", "run/qmgr.sock", "run/qmgr.pid",
               "run/pool.pid", "run/qmgr.stack", "run/pool.stack", "run/idel", "run/.",
               "home.json", ".home.json")
"""Past the seam on purpose: the event log, what of run/ describes living processes, and the note of
where the spool is (side files, which are made as .NAME.PID and renamed)."""
ROOT = Path(__file__).resolve().parents[3]


class Traced:
    """Programs under strace on one spool."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "spool"
        create_spool(self.root)
        conf = self.root / "conf"
        conf.mkdir()
        (conf / "queues.conf").write_text("[*]\n\n[A]\n\n[B]\n")
        (conf / "omq.conf").write_text(
            "[journal]\njournal_file_bytes = 1048576\nblock_bytes_max = 524288\n"
            "journal_files_kept = 0\n[index]\nmessages_max = 1000\nqueue_entries_max = 2000\n"
            "[pool]\ncheckpoint_interval_s = 1\n[store]\ndisk_reserve_bytes = 0\n")
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, plant: str = "0") -> subprocess.Popen[bytes]:
        strace = shutil.which("strace")
        if strace is None:
            pytest.skip("install strace")
        log = self.folder / f"{name}.log"
        arguments = [] if name == "client" else ["--conf", str(self.root / "conf")]
        self.started[name] = subprocess.Popen(
            [strace, "-f", "-qq", "-y", "-s", "4096", "-e", f"trace={CALLS}",
             "-e", "signal=none", "-o", str(self.folder / f"{name}.trace"), "--",
             sys.executable, "-m", "tests.crash.sim.traced", str(log), plant, name,
             "--spool", str(self.root), *arguments],
            cwd=ROOT, env={k: v for k, v in os.environ.items() if not k.startswith("OMQ_")})
        return self.started[name]

    def pid(self, name: str) -> int:
        """The program itself: signals are for it, not for strace."""
        return int((self.folder / f"{name}.log").read_text().split("\n", 1)[0])

    def stop(self, name: str) -> int:
        """SIGTERM, when it is heard: the client is done before a slow pool.writer is up."""
        until(lambda: self._hears(name), lambda: f"{name} hears no SIGTERM")
        os.kill(self.pid(name), signal.SIGTERM)
        return self.started[name].wait(WAIT_S)

    def _hears(self, name: str) -> bool:
        status = Path(f"/proc/{self.pid(name)}/status").read_text()
        (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught, 16) >> signal.SIGTERM - 1 & 1)

    def changes(self, name: str) -> tuple[Changes, Changes]:
        """What strace saw, and what the seam wrote down."""
        seen = (self.folder / f"{name}.trace").read_text()
        said = (self.folder / f"{name}.log").read_text()
        return (traced(seen, self.root, without=NOT_DURABLE),
                logged(said, self.root, without=NOT_DURABLE))


@contextmanager
def programs(folder: Path) -> Iterator[Traced]:
    made = Traced(folder)
    try:
        yield made
    finally:
        for name, process in made.started.items():
            if process.poll() is None:
                os.kill(made.pid(name), signal.SIGKILL)
                process.wait(WAIT_S)


def test_every_change_of_the_real_programs_goes_through_the_seam(tmp_path: Path) -> None:
    with programs(tmp_path) as world:
        for name in ("queue.manager", "pool.writer", "idel.server"):
            world.start(name)
        assert world.start("client").wait(WAIT_S) == 0, "is ptrace permitted here?"
        for name in ("idel.server", "queue.manager", "pool.writer"):
            assert world.stop(name) == 0, name
        for name in world.started:
            seen, said = world.changes(name)
            assert seen, name
            assert seen - said == {}, f"{name} did this past the seam"
            assert said - seen == {}, f"{name} did not do what the seam says"
        calls = {change[0] for name in world.started for change in world.changes(name)[0]}
        assert {"write", "fsync", "fdatasync", "create", "rename", "unlink"} <= calls


def test_a_change_behind_its_back_is_found(tmp_path: Path) -> None:
    with programs(tmp_path) as world:
        world.start("queue.manager", plant="1")
        world.start("pool.writer")
        assert world.start("client").wait(WAIT_S) == 0
        assert world.stop("queue.manager") == 0
        assert world.stop("pool.writer") == 0
        seen, said = world.changes("queue.manager")
    hidden = {change[0] for change in seen - said if change[1].endswith(PLANTED)}
    assert hidden == {"create", "write", "fsync"}
    assert all(change[1].endswith(PLANTED) for change in seen - said)


@pytest.mark.parametrize(("line", "change"), [
    ('7 pwritev(5</s/a>, [{iov_base="x"..., iov_len=9}], 1, 4096) = 9',
     ("write", "/s/a", "4096", "9")),
    ('7 pwritev2(5</s/a>, [{iov_base="x"..., iov_len=9}], 1, 512, 0) = 9',
     ("write", "/s/a", "512", "9")),
    ('7 openat(AT_FDCWD</>, "/s/b", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0640) = 4</s/b>',
     ("create", "/s/b")),
    ('7 openat2(6</s>, "data/1", {flags=O_RDWR|O_CREAT, mode=0640}, 24) = 4</s/data/1>',
     ("create", "/s/data/1")),
    ('7 rename("/s/a.tmp", "/s/a") = 0', ("rename", "/s/a.tmp", "/s/a")),
    ('7 unlinkat(3</s>, "d", AT_REMOVEDIR) = 0', ("rmdir", "/s/d")),
    ('7 ftruncate(3</s/a>, 512) = 0', ("truncate", "/s/a", "512")),
    ('7 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3</s/a>, 0) = 0x7f00',
     ("mmap", "/s/a")),
    ('7 write(3</s/a>, "x"..., 9) = 9', ("write", "/s/a", "?", "9")),
    ('7 fsync(3</s/a>) = -1 EIO (Input/output error)', None),
    ('7 fsync(3</elsewhere>) = 0', None)])
def test_the_reading_of_strace(line: str, change: tuple[str, ...] | None) -> None:
    found = traced(line, Path("/s"), without=())
    assert list(found) == ([change] if change else [])
