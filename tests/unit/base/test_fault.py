"""Crash points: nothing without OMQ_FAULT; with it they act once, at the n-th hit, on record."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import fault
from omq.base.errors import ConfigError

POINT = "journal.before_sync"


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    fault.arm("")


def _run(
    specification: str, hits: int, log: Path | None = None
) -> subprocess.CompletedProcess[str]:
    code = (
        "from omq.base import fault\n"
        f"for number in range({hits}):\n"
        f"    print(number, flush=True); fault.point({POINT!r})\n"
    )
    environment = {**os.environ, "OMQ_FAULT": specification}
    environment.pop("OMQ_FAULT_LOG", None)
    if log is not None:
        environment["OMQ_FAULT_LOG"] = str(log)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )


def test_nothing_happens_without_arming(tmp_path: Path) -> None:
    fault.point("not even the name is looked at")
    result = _run("", 3, tmp_path / "fired")
    assert (result.returncode, result.stdout.split()) == (0, ["0", "1", "2"])
    assert not (tmp_path / "fired").exists()


def test_kill_at_the_nth_hit_is_recorded(tmp_path: Path) -> None:
    log = tmp_path / "fired"
    result = _run(f"{POINT}:kill:3", 5, log)
    assert result.returncode == -signal.SIGKILL
    assert result.stdout.split() == ["0", "1", "2"]
    entry, pid = log.read_text().split()
    assert entry == f"{POINT}:kill:3"
    assert pid.isdecimal()


def test_with_a_log_an_entry_acts_once_over_all_processes(tmp_path: Path) -> None:
    log = tmp_path / "fired"
    specification = f"{POINT}:exit:1;{POINT}:exit:2"
    results = [_run(specification, 3, log) for _ in range(3)]
    assert [result.returncode for result in results] == [70, 70, 0]
    assert len(log.read_text().splitlines()) == 2


def test_without_a_log_it_acts_in_every_process() -> None:
    assert [_run(f"{POINT}:exit:1", 1).returncode for _ in range(2)] == [fault.EXIT_STATUS] * 2


def test_disk_error() -> None:
    fault.arm(f"{POINT}:eio:2")
    fault.point(POINT)
    with pytest.raises(OSError, match=r"injected at journal\.before_sync"):
        fault.point(POINT)
    fault.point(POINT)


def test_stop() -> None:
    pid = os.fork()
    if pid == 0:
        fault.arm(f"{POINT}:stop:1")
        fault.point(POINT)
        os._exit(7)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.parametrize(
    "specification", ["x:kill:1", f"{POINT}:boom:1", f"{POINT}:kill:0", f"{POINT}:kill", POINT]
)
def test_bad_specifications(specification: str) -> None:
    with pytest.raises(ConfigError):
        fault.arm(specification)


def test_unregistered_point_is_a_bug() -> None:
    fault.arm(f"{POINT}:kill:9")
    with pytest.raises(AssertionError):
        fault.point("no.such.point")
