"""The event log: one line an event in both places, hostile text, losses, levels, catalogue."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from omq.base import events
from omq.base.event_log import ERROR, REPORT, TRACE, EventLog


@pytest.fixture(autouse=True)
def _no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)


def test_numbers_and_texts_of_the_original() -> None:
    assert {number: events.CATALOGUE[number].text for number in (7601, 7603, 7604, 7605)} == {
        7601: "Local Delivery Started Up",
        7603: "Started delivery of message",
        7604: "Finished delivery of message",
        7605: "Current message Id",
    }
    assert events.CATALOGUE[7608].text == "Finished delivery to recipient"
    assert events.CATALOGUE[7618].text == "Creator of message"
    assert events.CATALOGUE[8807].text == "No Error Manager Configured. Please Configure One"


def test_one_json_line_and_one_line_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "events.log"
    log = EventLog("local.delivery", path)
    log.event(events.LOCAL_DELIVERY_FINISHED, REPORT, queue="LOCAL", size=7, none=None)
    log.close()
    record = json.loads(path.read_text(encoding="ascii"))
    assert record.pop("time")
    assert record == {
        "level": "REPORT",
        "service": "local.delivery",
        "pid": os.getpid(),
        "event": 7604,
        "text": "Finished delivery of message",
        "queue": "LOCAL",
        "size": 7,
    }
    assert capsys.readouterr().err == (
        f"REPORT local.delivery[{os.getpid()}] [OM 7604] Finished delivery of message "
        "queue=LOCAL size=7\n"
    )


def test_hostile_fields_stay_on_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "events.log"
    log = EventLog("x", path)
    log.event(events.REQUEST_REFUSED, ERROR, name="a\n\x1b[2J b", raw=b"\n\xff", long="y" * 5000)
    log.close()
    text = path.read_text(encoding="ascii")
    assert text.count("\n") == 1
    assert len(text) < 2000
    assert json.loads(text)["raw"] == "0aff"
    shown = capsys.readouterr().err
    assert shown.rstrip("\n").isprintable()
    assert 'name="a\\x0a\\x1b[2J b"' in shown


def test_level_is_a_threshold(capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog("x")
    log.event(events.CHECKPOINT, TRACE)
    assert capsys.readouterr().err == ""
    EventLog("x", level=TRACE).event(events.CHECKPOINT, TRACE)
    assert "[OM 1411]" in capsys.readouterr().err


def test_prefix_for_systemd(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    EventLog("x").event(events.DISK_ERROR, ERROR)
    assert capsys.readouterr().err.startswith("<3>ERROR x[")


def test_log_that_cannot_be_written_is_told_once_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog("x", tmp_path / "none" / "events.log")
    assert "cannot be opened" in capsys.readouterr().err
    log.event(events.CHECKPOINT)
    said = capsys.readouterr().err
    assert "[OM 1411]" in said  # stderr still has it
    assert "cannot be opened" not in said
    assert log.lost == 1


def test_full_disk_is_counted_and_not_fatal(capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog("x", Path("/dev/full"))
    log.event(events.CHECKPOINT)
    log.event(events.CHECKPOINT)
    log.close()
    assert log.lost == 2
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_lines_of_many_processes_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    log = EventLog("x", path, stderr=False)
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            for number in range(100):
                log.event(events.CHECKPOINT, fill="z" * 500, number=number)
            os._exit(0)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
    log.close()
    records = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    assert sorted((record["pid"], record["number"]) for record in records) == [
        (pid, number) for pid in sorted(children) for number in range(100)
    ]


def test_reopen_follows_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    log = EventLog("x", path, stderr=False)
    path.rename(tmp_path / "events.log.1")
    log.reopen()
    log.event(events.CHECKPOINT)
    log.close()
    assert len(path.read_text(encoding="ascii").splitlines()) == 1


def test_own_keys_are_protected() -> None:
    with pytest.raises(AssertionError):
        EventLog("x", stderr=False).event(events.CHECKPOINT, pid=1)
