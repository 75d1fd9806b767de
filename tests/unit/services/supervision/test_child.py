"""One daemon with a clock of the test's own: time-outs, extensions, watchdog, back-off."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import events
from omq.base.services_conf import ServiceConf, ServiceKind
from omq.services.daemon.run_state import State
from omq.services.supervise.child import Child
from omq.services.supervise.daemon_plan import Limits

BOUND_S = 120.0
FAKE = Path(__file__).with_name("fake_daemon.py")
LIMITS = Limits(start_s=10, stop_s=20, watchdog_s=5, backoff_min_s=1, backoff_max_s=60)


class Watched:
    """A child, what it told, and the fake daemon's command."""

    def __init__(self, journal: Path) -> None:
        self.told: list[int] = []
        conf = ServiceConf("local", "Local", 3, ServiceKind.READER, "fake.local", queue="LOCAL")
        self.child = Child(conf, LIMITS, lambda *told: self._tell(told[1].number))
        self._journal = journal

    def _tell(self, number: int) -> None:
        self.told.append(number)

    def state(self) -> State:
        return self.child.state

    def start(self, behaviour: str, now: float) -> None:
        argv = [sys.executable, "-ISB", str(FAKE), "local", str(self._journal), behaviour]
        self.child.start(argv, dict(os.environ), now)

    def hear(self, now: float) -> None:
        """Wait for a notification of the process and hand it to the child."""
        assert select.select([self.child.notify], [], [], BOUND_S)[0]
        self.child.on_notify(now)

    def reap(self, now: float) -> None:
        """Wait for the end of the process."""
        _pid, status = os.waitpid(self.child.pid, 0)
        self.child.on_exit(os.waitstatus_to_exitcode(status), now)
        self.child.settle(now)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path / "journal.txt")
    yield found
    if found.child.pid:
        os.kill(found.child.pid, 9)
        os.waitpid(found.child.pid, 0)
    found.child.notify.close()


def test_extension_moves_the_start_timeout(watched: Watched, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    watched.start(f"gate:{gate}", 100.0)
    assert watched.child.next_wakeup() == 110.0
    while watched.child.next_wakeup() == 110.0:
        watched.hear(101.0)
    assert watched.child.next_wakeup() == 161.0
    watched.child.on_time(160.0)
    assert watched.state() is State.STARTING
    watched.child.on_time(161.0)
    assert watched.state() is State.STOPPING
    watched.reap(162.0)
    assert watched.state() is State.WAITING


def test_watchdog_counts_from_the_last_ping(watched: Watched, tmp_path: Path) -> None:
    watched.start(f"hang:{tmp_path / 'mark'}", 0.0)
    watched.hear(3.0)
    assert watched.state() is State.STARTED
    assert watched.child.next_wakeup() == 8.0
    watched.child.on_time(8.0)
    watched.reap(8.0)
    assert watched.child.exit_code == -6
    assert events.DAEMON_HUNG.number in watched.told


def test_backoff_doubles_and_ends_after_a_good_life(watched: Watched) -> None:
    waits = []
    now = 0.0
    for _ in range(8):
        watched.start("exit:1", now)
        watched.reap(now)
        due = watched.child.next_wakeup()
        assert due is not None
        waits.append(due - now)
        assert not watched.child.due(due - 0.5)
        assert watched.child.due(due)
        now = due
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    watched.start("exit:1", now)
    watched.reap(now + 61)
    assert watched.child.next_wakeup() == now + 62
    assert watched.child.restarts == 9


def test_operator_forgets_failures(watched: Watched) -> None:
    watched.start("exit:78", 0.0)
    watched.reap(0.0)
    assert watched.state() is State.FAILED
    assert not watched.child.due(1e9)
    watched.child.want()
    assert watched.child.due(0.0)


def test_program_that_cannot_start_waits_like_a_dead_one(watched: Watched) -> None:
    watched.child.start(["/nonexistent/program"], {}, 0.0)
    assert watched.state() is State.WAITING
    assert watched.child.next_wakeup() == 1.0
    watched.child.stop_for_good(0.5)
    assert watched.state() is State.STOPPED


def test_strangers_are_not_believed(watched: Watched, tmp_path: Path) -> None:
    watched.start("silent", 0.0)
    watched.hear(1.0)
    assert watched.child.text == "thinks"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.connect("\0" + watched.child.notify.address[1:])
        stranger.sendall(b"READY=1\nSTATUS=I am it")
        watched.hear(2.0)
    assert watched.state() is State.STARTING
    assert watched.child.text == "thinks"


def test_a_dead_process_whose_readers_end_gets_no_signal(
        watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no number then: 0 means every process of the caller's group."""
    watched.start("ready", 100.0)
    watched.hear(100.0)
    assert watched.state() is State.STARTED
    pid = watched.child.pid
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    watched.child.on_exit(-9, 101.0)  # not settled: its group may not be empty
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *to: sent.append(to))
    watched.child.reload()
    watched.child.stop(101.0)
    watched.child.on_time(110.0)
    assert sent == []
