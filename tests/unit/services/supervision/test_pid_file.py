"""run/SERVICE.pid: a pid that counts only while its process lives; the drain that goes by it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omq.base.errors import (
    Exit,
    ManagerNotExpected,
    ManagerUnavailable,
    TimedOut,
    UnderSupervisor,
)
from omq.base.paths import SpoolPaths
from omq.base.services_conf import ServiceConf, ServiceKind
from omq.cli.setup import omq_drain
from omq.cli.setup.omq_drain import drain, find, services_by_stage
from omq.services.daemon import pid_file
from omq.services.daemon.lock import LOCK_FILE
from omq.storage.spool import create_spool, lock

DAEMON = """\
import pathlib, signal, sys
from omq.services.daemon import pid_file
path = pathlib.Path(sys.argv[1])
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
pid_file.claim(path)
print("claimed", flush=True)
signal.pause()
"""
BODY = """\
import sys
from omq.cli import launch
from omq.services.daemon import daemon

how = sys.argv[1]
if how == "late":
    daemon._MANAGER_WAIT_S = 0.0
launch._target = lambda name: lambda words: daemon.run_daemon(
    name, words, lambda context: 1 // 0 if how == "died" else int(how), service="pool")
sys.exit(launch.run("pool.writer", sys.argv[2:]))
"""
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def paths(tmp_path: Path) -> SpoolPaths:
    create_spool(tmp_path / "spool")
    (tmp_path / "spool/conf").mkdir()
    return SpoolPaths(tmp_path / "spool")


@pytest.fixture
def start(paths: SpoolPaths) -> Iterator[Start]:
    """Starts a process that claims to be a service."""
    with contextlib.ExitStack() as stack:
        def begin(service: str, how: str = "obedient") -> subprocess.Popen[bytes]:
            command = [sys.executable, "-c", DAEMON, str(paths.pid_file(service)), how]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"claimed\n"
            return process

        yield begin


def test_a_pid_counts_while_its_process_lives(paths: SpoolPaths, start: Start) -> None:
    path = paths.pid_file("router")
    assert (pid_file.running(path), pid_file.expected(path)) == (0, False)
    first = start("router")
    assert pid_file.running(path) == first.pid
    first.kill()
    first.wait()
    assert (pid_file.running(path), pid_file.expected(path)) == (0, True)  # killed: left behind
    second = start("router")
    assert pid_file.running(path) == second.pid
    pid_file.release(path)
    assert not pid_file.expected(path)
    assert not list(paths.run.glob(".router*"))


def test_a_pid_of_a_stranger_is_never_signalled(paths: SpoolPaths) -> None:
    paths.pid_file("router").write_text(f"{os.getpid()}\n")  # nobody holds its lock
    assert find(paths, "router") is None


def test_stages_stop_in_order(paths: SpoolPaths, start: Start) -> None:
    processes = {name: start(name) for name in ("smtp", "router", "qmgr")}
    os.kill(processes["router"].pid, signal.SIGSTOP)  # it hears the stop all the same
    said: list[str] = []
    drain(paths, [["smtp", "nobody"], ["router"], ["qmgr"]], 20, said.append)
    assert [text.split()[0] for text in said] == ["smtp", "router", "qmgr"]
    assert [each.wait() for each in processes.values()] == [-signal.SIGTERM] * 3
    drain(paths, [["smtp"], ["router"], ["qmgr"]], 20, said.append)
    assert len(said) == 3  # nothing ran


def test_a_stage_that_takes_too_long_is_named_and_the_next_is_left(
    paths: SpoolPaths, start: Start
) -> None:
    start("smtp", "deaf")
    manager = start("qmgr")
    with pytest.raises(TimedOut, match="smtp"):
        drain(paths, [["smtp"], ["qmgr"]], 0.05, print)
    assert manager.poll() is None


def test_what_would_be_started_again_is_not_stopped(paths: SpoolPaths, start: Start) -> None:
    """Under omrc --embedded; a lock that nobody holds, or that it may not read, hinders nothing."""
    words = ["--spool", str(paths.root), "--conf", str(paths.conf)]
    manager = start("qmgr")
    supervisor = paths.run / LOCK_FILE
    with supervisor.open("w") as file:
        file.write("4711 \n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UnderSupervisor, match=r"process 4711.*omshut"):
            omq_drain.main(words)
        assert manager.poll() is None
    with pytest.MonkeyPatch.context() as patch:  # root may read everything
        patch.setattr(omq_drain, "holder", _refused)
        assert omq_drain.main(words) == Exit.OK
    assert manager.wait() == -signal.SIGTERM
    assert omq_drain.main(words) == Exit.OK


def _refused(path: Path) -> str:
    raise PermissionError(path)


def test_stages_are_those_of_the_supervisor() -> None:
    services = [
        ServiceConf(name, name, number, kind, name)
        for number, (name, kind) in enumerate((
            ("pool", ServiceKind.POOL), ("b", ServiceKind.READER), ("idel", ServiceKind.DELETER),
            ("in", ServiceKind.SUBMITTER), ("qmgr", ServiceKind.MANAGER),
            ("a", ServiceKind.READER)))]
    assert services_by_stage(services) == [["in"], ["b", "a"], ["idel"], ["qmgr"], ["pool"]]


def _run(paths: SpoolPaths, *options: object) -> int:
    """A daemon in a process of its own; it ends with an exception when its pid file says so."""
    words = [*map(str, options), "--spool", str(paths.root), "--conf", str(paths.conf)]
    return subprocess.run([sys.executable, "-c", BODY, *words], check=False,
                          stderr=subprocess.DEVNULL).returncode


def test_a_daemon_takes_its_pid_away_when_it_ends_on_purpose(paths: SpoolPaths) -> None:
    own = paths.pid_file("pool")
    assert _run(paths, "7") == 7
    assert not own.exists()
    assert _run(paths, "died") == Exit.SOFTWARE
    assert own.exists()  # it is started again
    (paths.conf / "omq.conf").write_text("[nonsense]\n")
    assert _run(paths, "0") == Exit.CONFIG
    assert not own.exists()


def test_no_manager_is_waited_for_that_ended_on_purpose(paths: SpoolPaths) -> None:
    assert _run(paths, "0", "--with-manager") == ManagerNotExpected.exit_code == Exit.NO_INPUT
    assert not paths.pid_file("pool").exists()


def test_a_killed_manager_that_is_late_is_no_reason_to_give_up(paths: SpoolPaths, start: Start
                                                               ) -> None:
    manager = start("qmgr")
    manager.kill()
    manager.wait()
    assert _run(paths, "late", "--with-manager") == ManagerUnavailable.exit_code
    assert paths.pid_file("pool").exists()  # a restart is expected: its code is not a final one
    assert ManagerUnavailable.exit_code not in (64, 66, 78)


def test_a_killed_manager_is_waited_for(paths: SpoolPaths, start: Start) -> None:
    manager = start("qmgr")
    manager.kill()
    manager.wait()
    words = [sys.executable, "-c", BODY, "7", "--with-manager", "--spool", str(paths.root),
             "--conf", str(paths.conf)]
    with subprocess.Popen(words) as waiting:
        while not pid_file.running(paths.pid_file("pool")):
            select.select([], [], [], 0.01)
        held = lock(paths.manager_lock, "the next manager")
        assert waiting.wait() == 7
        held.close()
