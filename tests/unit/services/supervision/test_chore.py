"""What the embedded supervisor runs from time to time: when, and what becomes of a run."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.event_log import EventLog
from omq.services.supervise.chore import DAY_S, Chore
from omq.services.supervise.process_group import launch

FAILED = 1008


class World:
    """A chore whose runs are numbers."""

    def __init__(self, path: Path, interval_s: float = 10) -> None:
        self.path, self.wanted, self.started = path, True, list[list[str]]()
        self.log = EventLog("omrc", path, stderr=False)
        self.chore = Chore("omq-archive", ["run", "it"], interval_s, lambda: self.wanted,
                           self._launch)

    def _launch(self, argv: list[str], environ: dict[str, str]) -> int:
        assert environ == {"A": "b"}
        self.started.append(argv)
        return 1 << 30  # no process has it: no priority can be set

    def turn(self, now: float) -> int:
        self.chore.turn(now, {"A": "b"}, self.log)
        return len(self.started)

    def end(self, code: int = 0, *, stopping: bool = False) -> list[int]:
        self.chore.on_exit(code, self.log, stopping=stopping)
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line)["event"] for line in text.splitlines()]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "events.log")
    yield made
    made.log.close()


def test_it_runs_an_interval_after_the_start_and_one_at_a_time(world: World) -> None:
    assert world.turn(100) == 0 and world.chore.next_wakeup() == 110
    assert world.turn(109) == 0
    assert world.turn(110) == 1 and world.chore.pid and world.chore.next_wakeup() is None
    assert world.turn(500) == 1, "it still runs"
    assert world.end() == [] and world.chore.next_wakeup() == 120
    assert world.turn(500) == 2


def test_nothing_to_do_is_left_out_but_once_a_day(world: World) -> None:
    world.wanted = False
    world.turn(100)
    assert world.turn(110) == 0 and world.chore.next_wakeup() == 120
    assert world.turn(100 + DAY_S) == 1
    world.end()
    assert world.turn(200 + DAY_S) == 1


@pytest.mark.parametrize(("code", "told"), [(0, []), (75, []), (65, [FAILED]), (-9, [FAILED])])
def test_a_run_that_failed_is_told_and_the_next_one_comes(world: World, code: int, told: list[int]
                                                          ) -> None:
    world.turn(0)
    world.turn(10)
    assert world.end(code) == told
    assert world.turn(30) == 2


def test_an_interval_of_zero_is_never(tmp_path: Path) -> None:
    world = World(tmp_path / "events.log", 0)
    assert world.turn(0) == world.turn(1e9) == 0 and world.chore.next_wakeup() is None
    world.log.close()


def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    log = EventLog("omrc", tmp_path / "log", stderr=False)
    chore = Chore("omq-archive", [str(tmp_path / "gone")], 1, lambda: True)
    chore.turn(0, {}, log)
    chore.turn(1, {}, log)
    log.close()
    assert not chore.pid and chore.next_wakeup() == 2
    assert json.loads((tmp_path / "log").read_text())["event"] == FAILED


def test_a_stop_kills_it_even_when_it_is_stopped(world: World) -> None:
    pid = launch([sys.executable, "-c", "import signal; signal.pause()"], dict(os.environ))
    os.kill(pid, signal.SIGSTOP)
    world.chore.pid = pid
    world.chore.stop()
    ended = os.waitid(os.P_PID, pid, os.WEXITED)
    assert ended is not None and ended.si_status == signal.SIGKILL
    assert world.end(-9, stopping=True) == []
