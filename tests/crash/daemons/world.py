"""What the tests of this folder share: private IPC namespaces, powerfs mounts, a run on one."""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest

from omqtools.omqtest.history import Verdict, judge, read_histories
from omqtools.omqtest.instance import MANAGER, Instance
from omqtools.omqtest.kills import Load
from tests.tidy.tree import ROOT

WAIT_S = 120.0
CLONE_NEWIPC = 0x08000000
FUSE = Path("/dev/fuse")
FUSE_DEVICE = (10, 229)
FUSE_LIBRARIES = ("fuse", "fuse3")  # versions 2 and 3 of libfuse
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def private_ipc() -> Iterator[None]:
    """A System V IPC namespace for this thread and the processes it starts; what is left in it
    vanishes with it. Needs root, else the test is skipped."""
    home = os.open("/proc/thread-self/ns/ipc", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.unshare(CLONE_NEWIPC):
            pytest.skip("an IPC namespace of its own needs root")
        try:
            yield
        finally:
            assert _LIBC.setns(home, CLONE_NEWIPC) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(home)


def ipc_objects() -> int:
    """System V objects of this namespace."""
    return sum(len(Path("/proc/sysvipc", kind).read_text().splitlines()) - 1
               for kind in ("shm", "sem", "msg"))


def ipc_left() -> str:
    """What is left of them, as the kernel lists it."""
    return "\n".join(Path("/proc/sysvipc", kind).read_text() for kind in ("shm", "sem", "msg"))


def until(condition: Callable[[], object], what: str, wait_s: float = WAIT_S) -> None:
    """Look again and again, AssertionError when it does not come true."""
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {wait_s:.0f} s for {what}"
        select.select([], [], [], 0.02)


class Power:
    """A powerfs mount below `place`; `disk` is what is on the disk when it is not mounted."""

    def __init__(self, place: Path, library: str = "") -> None:
        self._environment = os.environ | ({"FUSE_LIBRARY_NAME": library} if library else {})
        self.mount = place / "mnt"
        self._disk = place / "disk"
        self._socket = place / "ctl"
        self._process: subprocess.Popen[str] | None = None
        for path in (self.mount, self._disk):
            path.mkdir(mode=0o750)

    def on(self) -> None:
        """Mount what the disk holds."""
        self._socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.daemons.powerfs", str(self.mount), str(self._disk),
             str(self._socket)], cwd=ROOT, stdout=subprocess.PIPE, text=True,
            env=self._environment)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "mounted\n"

    def off(self) -> None:
        """Unmount; without a `cut` before, nothing goes to the disk."""
        process, self._process = self._process, None
        if process is not None:
            subprocess.run(["fusermount", "-u", "-z", self.mount], check=True)
            process.wait(WAIT_S)
            assert process.stdout is not None
            process.stdout.close()

    def tell(self, do: str, **words: object) -> dict[str, Any]:
        """One command of powerfs."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self._socket))
            s.sendall(json.dumps({"do": do, **words}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(s.makefile().readline())
        assert "error" not in answer, answer
        return answer

    def fired(self) -> list[dict[str, Any]]:
        """The faults that happened."""
        found: list[dict[str, Any]] = self.tell("facts")["fired"]
        return found


def need_fuse() -> None:
    """Skip, loudly, where there is no FUSE: tests/crash/daemons/test_powercut.py then cuts the same
    daemons' recorded writes, without a mount."""
    if os.geteuid():
        pytest.skip("NO FUSE TESTS: mounting needs root; test_powercut.py cuts recorded writes")
    if shutil.which("fusermount") is None or not any(map(find_library, FUSE_LIBRARIES)):
        pytest.skip("NO FUSE TESTS: install fuse3")
    if not FUSE.exists():
        try:
            os.mknod(FUSE, 0o020666, os.makedev(*FUSE_DEVICE))
        except PermissionError:
            pytest.skip("NO FUSE TESTS: /dev/fuse is missing and cannot be made")
    try:
        os.close(os.open(FUSE, os.O_RDWR))
    except OSError as error:
        pytest.skip(f"NO FUSE TESTS: /dev/fuse: {error}")


class Run:
    """Daemons and clients on a spool; `verdict` ends it."""

    def __init__(self, spool: Path, place: Path, reserve: int = 0) -> None:
        spool.mkdir(mode=0o750)
        self.instance = Instance(spool, place / "run", reserve)
        self.load = Load(self.instance, place / "load")

    def start(self) -> None:
        self.instance.start()
        self.instance.ready()

    def acknowledged(self) -> int:
        """Puts, so far."""
        return sum(path.read_text().count('"ok"')
                   for path in self.load.histories.iterdir())

    def more(self, count: int) -> None:
        """Until so many further puts are acknowledged."""
        wanted = self.acknowledged() + count
        until(lambda: self.acknowledged() >= wanted, f"{count} more puts\n{self.instance.said()}")

    def died(self) -> None:
        """Note the end of a manager."""
        self.load.deaths.say({"op": "death"})

    def crash(self) -> None:
        """No process of omq is left."""
        self.load.end()
        self.instance.kill()
        self.died()

    def power_cut(self, power: Power, fate: str, seed: int = 0) -> None:
        """All of it: what was not synced goes, every process, every IPC object of the namespace."""
        power.tell("cut", fate=fate, seed=seed)
        self.crash()
        subprocess.run(["ipcrm", "-a"], check=True)
        assert ipc_objects() == 0
        power.off()
        power.on()

    def manager_died(self) -> int:
        """The manager's exit code; it ends by itself."""
        code = self.instance.wait_dead(MANAGER, WAIT_S)
        self.died()
        return code

    def verdict(self) -> Verdict:
        """Empty the queues, stop in order, judge; nothing may be left."""
        found = self.load.finish()
        self.instance.stop()
        assert ipc_objects() == 0, f"{ipc_left()}\n{self.instance.said()}"
        assert not found.faults, f"{found.faults}\n{self.instance.said()}"
        return found

    def events(self, number: int) -> list[dict[str, Any]]:
        """Events of this number in the log."""
        lines = self.instance.paths.event_log.read_text().splitlines()
        return [e for e in map(json.loads, lines) if e["event"] == number]

    def end(self) -> None:
        """Whatever happened."""
        self.load.end()
        self.instance.end()


@contextmanager
def running(spool: Path, place: Path, reserve: int = 0) -> Iterator[Run]:
    """A run in an IPC namespace of its own."""
    with private_ipc():
        made = Run(spool, place, reserve)
        try:
            yield made
        finally:
            made.end()


@contextmanager
def on_powerfs(reserve: int = 0) -> Iterator[tuple[Power, Run]]:
    """A run whose spool lies on powerfs."""
    need_fuse()
    with tempfile.TemporaryDirectory(prefix="omq-") as name:
        place = Path(name)
        power = Power(place)
        try:
            power.on()
            with running(power.mount / "spool", place, reserve) as run:
                yield power, run
        finally:
            power.off()


def history_of(run: Run) -> Verdict:
    """The judgement of what there is so far (lost means little while messages wait)."""
    return judge(read_histories(run.load.histories))
