"""The plugin of pytest that is shipped: its example, and what an instance under it does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

import omq
from omq.base.errors import ConnectionClosed, FileNotWritten, InstanceFailed
from omq.testing import plugin
from omq.testing.instance import LiveInstance
from tests.process.ipc_space import ipc_space
from tests.tidy.tree import ROOT

EXAMPLES = ROOT / "examples"
END_S = 300
NO_HOME = "/proc/self"
"""Nobody makes a file there, root neither."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveInstance]:
    with ipc_space() as space:
        with LiveInstance(tmp_path) as made:
            yield made
        assert not space.own or not space.objects()


@pytest.mark.parametrize(("name", "words"), [("testing", ("-n", "2")), ("reports", ())],
                         ids=["testing, xdist", "reports, alone"])
def test_the_example_runs(tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    if words and find_spec("xdist") is None:
        pytest.skip("pytest-xdist is not installed")
    folder = shutil.copytree(EXAMPLES / name, tmp_path / "shop",
                             ignore=shutil.ignore_patterns("__pycache__"))
    (place := tmp_path / "temporary").mkdir()
    with ipc_space() as space:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words], cwd=folder,
            env={**os.environ, "TMPDIR": str(place), "HOME": NO_HOME}, capture_output=True,
            text=True, timeout=END_S, check=False)
        assert not space.own or not space.objects()
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
    assert list(place.glob("omq-test-*")) == []


def test_time_passes_for_delays_expiry_and_back_off(live: LiveInstance) -> None:
    live.queues.define("A", retry_delay_ms=60_000, retry_backoff="exponential", attempts_max=5)
    with live.connect() as c:
        c.put("A", b"late", delay_s=600)
        c.put("A", b"short", expiry_s=30)
    live.pass_time(31)
    assert live.drain("A") == []
    live.pass_time(569)

    def fails(_: object) -> None:
        raise RuntimeError("no")

    assert [each.error for each in live.drain("A", fails, give="bytes")] == ["RuntimeError: no"]
    for pause_s in (60, 120, 240):
        live.pass_time(pause_s - 1)
        assert live.drain("A", fails, give="bytes") == []
        live.pass_time(1)
        assert len(live.drain("A", fails, give="bytes")) == 1


def test_a_clock_that_is_set_moves_moments_and_no_durations(live: LiveInstance) -> None:
    live.queues.define("A")
    with live.connect() as c:
        c.put("A", b"duration", delay_s=600)
        c.put("A", b"moment", at=live.now() + timedelta(seconds=600))
    live.step_clock(3600)
    assert [each.body for each in live.drain("A")] == [b"moment"]
    live.step_clock(-7200)
    live.pass_time(600)
    assert [each.body for each in live.drain("A")] == [b"duration"]


def test_a_power_cut_loses_what_was_not_sent_and_the_connections(live: LiveInstance) -> None:
    live.queues.define("A", death_delay_s=5)
    connection = live.connect()
    number = connection.put("A", b"kept")
    connection.put("A", b"volatile", persistent=False, priority=9)
    reader = live.connect().reader("A", ack="batch", batch=2)
    messages = reader.next(timeout_s=10)
    assert [message.body for message in messages] == [b"volatile", b"kept"]
    for message in messages:
        message.done()
    live.lose_unsynced()
    with pytest.raises(ConnectionClosed):
        connection.put("A", b"by the dead")
    live.pass_time(2)  # longer than its reader may take to come back (reconnect_grace_s)
    live.pass_time(5)
    assert [each.message_id for each in live.drain("A")] == [number]


def test_a_manager_that_is_killed_and_one_that_stops(live: LiveInstance) -> None:
    live.queues.define("A")
    connection = live.connect()
    connection.put("A", b"1")
    live.kill_manager(restart=False)
    with pytest.raises(omq.ManagerUnavailable):
        omq.connect(live.spool, timeout_s=0.1)
    live.start_manager()
    connection.put("A", b"2")
    connection.close()
    live.stop_manager()
    live.start_manager()
    assert [each.body for each in live.drain("A")] == [b"1", b"2"]


def test_a_test_finds_nothing_of_the_one_before(live: LiveInstance) -> None:
    true = live.now()
    faults: list[Callable[[], None]] = [
        lambda: None, lambda: live.pass_time(86400), lambda: live.kill_manager()]
    for fault in faults:
        live.queues.define("A")
        left_open = live.connect()
        left_open.put("A", b"left")
        fault()
        reader = left_open.reader("A")
        assert len(reader.next(timeout_s=10)) == 1
        live.clean()
        assert {each.name for each in live.queues.list()} == {"IDEL", "POISON"}
        assert live.now() - true < timedelta(seconds=3600)


def test_a_program_of_omq_has_the_same_clock(live: LiveInstance, tmp_path: Path) -> None:
    live.queues.define("A")
    live.pass_time(86400)
    (tmp_path / "body").write_text("from a command")
    for seconds in (60, 120):
        sent = live.run("omsend", "A", str(tmp_path / "body"), "--expiry", str(seconds))
        assert sent.wait() == 0
    live.pass_time(61)
    assert [each.body for each in live.drain("A")] == [b"from a command"]


def test_what_is_prepared_and_does_not_exist_is_told_when_it_starts(live: LiveInstance) -> None:
    live._world.prepare("omread", "absent")
    assert live.run("absent").wait() == 70
    assert "absent" in live._world.said()
    assert live.run("omread", "--version").wait() == 0


def test_a_configuration_that_is_wrong_says_where(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/queues.conf").write_text("[ORDERS]\nattempts_max = none\n")
    (tmp_path / "made").mkdir()
    with ipc_space(), pytest.raises(InstanceFailed, match="ended with code 78") as failed:
        LiveInstance(tmp_path / "made", tmp_path / "conf")
    assert "attempts_max" in failed.value.__notes__[0]


def test_without_room_for_ipc_objects(tmp_path: Path) -> None:
    with ipc_space() as space:
        if not space.own:
            pytest.skip("limits of System V objects need root")
        space.limit("shmmni", "0")
        with pytest.raises(InstanceFailed, match="ended with code 71"):
            LiveInstance(tmp_path)


def test_no_folder_to_write_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(FileNotWritten, match="absent"):
        plugin._world()
