"""What a scheduler notes of its sends: each file has its head, what is not written is counted."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from omq.base import side_files
from omq.services.delivery.mlist import Mlist
from omq.services.delivery.rules import Rules
from omq.services.delivery.sends import Sends
from omq.services.delivery.worker import Report


def noted(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def one(sends: Sends, peer: str = "a:25", message_id: str = "m") -> None:
    mlist = Mlist("smtp", peer, 4, ("r@x",), since=10.0)
    sends.sent(mlist, Report([], begun=10.25, spent_s=0.5), message_id, 11.0)


def test_a_line_says_how_long_it_waited_and_took(tmp_path: Path) -> None:
    sends = Sends(tmp_path, "unix", 1 << 20)
    sends.has(Rules(), begins=True)
    one(sends, 'a"\n\u2028:25', "id")
    sends.close()
    head, line = noted(tmp_path / "unix.sends.jsonl")
    assert head["begins"] is True
    assert head["rules"]["maxchans"] == Rules().maxchans
    assert (line["wait_s"], line["spent_s"], line["reached"]) == (0.25, 0.5, True)
    assert (line["peer"], line["message"]) == ('a"\n\u2028:25', "id")
    assert line["came_ns"] < head["at_ns"] + 10**9


def test_each_file_begins_with_the_rules(tmp_path: Path) -> None:
    sends = Sends(tmp_path, "unix", 2000)
    sends.has(Rules(), begins=True)
    for _ in range(40):
        one(sends)
        sends.write()
    sends.close()
    for name, begins in (("unix.sends.jsonl", False), ("unix.sends.jsonl.1", False)):
        first, *rest = noted(tmp_path / name)
        assert first["begins"] is begins
        assert rest and all("came_ns" in each for each in rest)


def test_without_room_it_is_counted_and_goes_on(tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(side_files.Calls):
        fits = 0

        def write(self, fd: int, data: bytes) -> int:
            if not self.fits:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(fd, data[:self.fits])

    sends, full = Sends(tmp_path, "unix", 1 << 20), Full()
    sends.has(Rules(), begins=True)
    sends.write()
    with monkeypatch.context() as patched:
        patched.setattr(side_files, "calls", full)
        one(sends)
        sends.write()
        full.fits = 30  # a part of the line is there
        one(sends)
        sends.write()
    one(sends)
    sends.close()
    text = (tmp_path / "unix.sends.jsonl").read_text()
    head, first, torn, second, line = (each for each in text.splitlines() if each)
    assert "rules" in head
    assert [json.loads(first), json.loads(second)] == [{"missing": 1}] * 2
    assert torn == json.dumps(json.loads(line))[:len(torn)]
    assert json.loads(line)["wait_s"] == 0.25


def test_nothing_is_noted_where_nothing_is_wanted(tmp_path: Path) -> None:
    sends = Sends(tmp_path, "unix", 0)
    sends.has(Rules(), begins=True)
    one(sends)
    sends.close()
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_not_there_stops_nothing(tmp_path: Path) -> None:
    sends = Sends(tmp_path / "away", "unix", 1 << 20)
    sends.has(Rules(), begins=True)
    sends.write()
    (tmp_path / "away").mkdir()
    one(sends)
    sends.close()
    head, line = noted(tmp_path / "away" / "unix.sends.jsonl")
    assert "rules" in head, "the head that was lost is said again"
    assert line["peer"] == "a:25"


def test_what_a_killed_one_left_of_a_line_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "unix.sends.jsonl"
    path.write_text('{"came_ns": 18')
    sends = Sends(tmp_path, "unix", 1 << 20)
    sends.has(Rules(), begins=True)
    one(sends)
    sends.close()
    torn, *whole = path.read_text().splitlines()
    assert torn == '{"came_ns": 18'
    assert [next(iter(json.loads(each))) for each in whole] == ["rules", "came_ns"]
