"""Whether a channel.sender runs, as `omq channel` finds it: by the lock of its pid file."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from omq.base import clock
from omq.base.paths import SpoolPaths
from omq.cli.operate.channel_look import running_channels
from omq.services.daemon.options import Location
from tests.process.processes import claimant


@pytest.fixture
def location(tmp_path: Path) -> Location:
    found = Location(None, SpoolPaths(tmp_path), tmp_path)
    found.paths.run.mkdir()
    return found


def says(location: Location, **said: Any) -> None:
    text = json.dumps([{"channel": "EAST", "state": "running", **said}])
    (location.paths.run / "channels.json").write_text(text)


def test_a_process_that_proc_hides_runs(location: Location, monkeypatch: pytest.MonkeyPatch
                                        ) -> None:
    """hidepid: an operator sees none of another user's processes."""
    monkeypatch.setattr(clock, "process_start_ticks", lambda pid: None)
    child = claimant(location.paths.pid_file("channels"))
    says(location, service="channels", pid=child.pid)
    assert running_channels(location)["EAST"]["state"] == "running"
    file = location.paths.pid_file("channels")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644, "whoever is no owner asks, too"
    child.kill()
    assert not running_channels(location), "what a dead one said is nothing"


@pytest.mark.parametrize("said", [
    {}, {"sender": [1, 1]}, {"service": "channels"}, {"service": "channels", "pid": "1"},
    {"service": "../run/channels", "pid": 1}, {"service": 7, "pid": 0}])
def test_what_an_older_or_another_one_said(location: Location, said: dict[str, Any]) -> None:
    """Without an owner that can be asked for: none runs, until it is started anew."""
    child = claimant(location.paths.pid_file("channels"))
    says(location, **said)
    assert not running_channels(location)
    child.kill()


@pytest.mark.parametrize("text", ["", "{", "7", "[7]", "[[]]", '{"a": 1}', "null"])
def test_half_a_file_says_nothing(location: Location, text: str) -> None:
    (location.paths.run / "channels.json").write_text(text)
    assert not running_channels(location)
