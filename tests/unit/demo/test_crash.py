"""Killing in the middle: each victim really dies, and a restart is really seen."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omq.services.daemon.process import identify
from omq.services.daemon.run_state import (
    SUPERVISOR_FILE,
    ProcessState,
    ServiceState,
    State,
    SupervisorState,
    write_state,
)
from tests.demo.crash import Crasher, CrashError, kill_and_prove
from tests.demo.feed import FeedCounts
from tests.demo.processes import Daemon

DAEMONS = ("qmgr", "pool", "router", "local")
READERS = ("router.main", "router.1", "router.2", "local.main", "local.1", "local.2")


class Instance:
    """Harmless processes under the names of an instance's, with the run files that name them."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.processes = {name: start() for name in (*DAEMONS, *READERS)}
        self.killed: list[str] = []
        self.publish()

    def restart_dead(self) -> None:
        for name, process in self.processes.items():
            if process.poll() is not None:
                assert process.returncode == -signal.SIGKILL
                self.killed.append(name)
                self.processes[name] = start()
        self.publish()

    def publish(self) -> None:
        children = tuple(map(self.state, DAEMONS))
        supervisor = SupervisorState(pid=1, start_ticks=1, since=0.0, children=children)
        write_state(self.run / SUPERVISOR_FILE, supervisor)
        for service in ("router", "local"):
            main, *auxiliary = (self.state(name) for name in READERS if name.startswith(service))
            state = ServiceState(self.state(service), len(auxiliary), main, tuple(auxiliary))
            write_state(self.run / f"{service}.json", state)

    def state(self, name: str) -> ProcessState:
        identity = identify(self.processes[name].pid)
        return ProcessState(name, State.STARTED, 0.0, identity.pid, identity.start_ticks)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


class Progress:
    """A feed that has already come so far."""

    def __init__(self, accepted: int) -> None:
        self.accepted = accepted
        self.asked: list[int] = []
        self.running = True

    def counts(self) -> FeedCounts:
        return FeedCounts(total=100, accepted=self.accepted)

    def wait_accepted(self, count: int) -> bool:
        self.asked.append(count)
        return self.accepted >= count


def start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    yield made
    made.close()


def run(instance: Instance, progress: Progress, say: Callable[[str], None]) -> None:
    crasher = Crasher(instance.run, progress, say)
    assert not crasher.running
    crasher.start()
    crasher.join()
    assert not crasher.running


def test_all_victims_die_and_come_back_in_order(instance: Instance) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if text.startswith("killed"):
            instance.restart_dead()

    progress = Progress(accepted=100)
    run(instance, progress, say)
    assert instance.killed == ["qmgr", "pool", "router.main", "local.1"]
    assert progress.asked == [30, 45, 60, 60]
    assert sum("is back as pid" in text for text in said) == 4


def test_a_feed_that_ends_too_early_fails_the_run(instance: Instance) -> None:
    with pytest.raises(CrashError, match="ended before 45"):
        run(instance, Progress(accepted=40), lambda text: instance.restart_dead())
    assert instance.killed == ["qmgr"]


def test_a_victim_that_does_not_come_back_fails_the_run(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.demo.crash._RETURN_WAIT_S", 0.0)
    with pytest.raises(CrashError, match=r"see queue\.manager come back"):
        run(instance, Progress(accepted=100), lambda text: None)


def test_a_victim_that_is_not_there_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.demo.crash._FIND_WAIT_S", 0.0)
    crasher = Crasher(tmp_path, Progress(accepted=100), lambda text: None)
    crasher.start()
    with pytest.raises(CrashError, match=r"find queue\.manager"):
        crasher.join()


def test_stop_ends_the_wait_for_a_victim(tmp_path: Path) -> None:
    crasher = Crasher(tmp_path, Progress(accepted=100), lambda text: None)
    crasher.stop()
    crasher.start()
    with pytest.raises(CrashError, match="stopped"):
        crasher.join()


def test_only_the_very_process_is_killed() -> None:
    process = start()
    try:
        with pytest.raises(CrashError, match="another one"):
            kill_and_prove(Daemon(process.pid, start_ticks=1))
        assert process.poll() is None
        kill_and_prove(identify(process.pid))
        # Dead for certain: a zombie that nobody has waited for yet.
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        assert found is not None and found.si_status == signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_gone_is_an_error() -> None:
    process = start()
    identity = identify(process.pid)
    process.kill()
    process.wait()
    with pytest.raises(CrashError, match="died by itself"):
        kill_and_prove(identity)
