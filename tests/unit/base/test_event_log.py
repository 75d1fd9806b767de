"""The event log: one line an event in both places, hostile text, losses, levels, catalogue."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from pathlib import Path

import pytest

from omq.base import events, side_files
from omq.base.event_log import ERROR, REPORT, TRACE, WARNING, EventLog, human_line
from omq.base.log_file import LogFile
from omq.base.names import escape
from omq.cli.look.omshowlog import from_journal_line


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


def _events(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_text(encoding="ascii").splitlines()]


def test_a_renamed_log_is_left_alone_and_a_new_one_begun(tmp_path: Path) -> None:
    """As logrotate does it: nobody has to tell the daemons."""
    path = tmp_path / "events.log"
    logs = [EventLog(name, path, stderr=False) for name in ("one", "two")]
    for log in logs:
        log.event(events.SERVICE_RELOADED, n=1)
    path.rename(tmp_path / "events.log-old")
    for log in logs:
        log.event(events.SERVICE_RELOADED, n=2)
        log.close()
    assert _events(tmp_path / "events.log-old") == [1, 1]
    assert _events(path) == [2, 2]


def test_a_full_log_is_renamed_by_one_of_its_writers(tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    logs = [EventLog(name, path, stderr=False, bytes_max=1000) for name in ("one", "two")]
    for number in range(60):
        logs[number % 2].event(events.SERVICE_RELOADED, n=number)
    for log in logs:
        log.close()
    kept = [*_events(path.with_name("events.log.1")), *_events(path)]
    assert kept == list(range(kept[0], 60)), "nothing between is lost"
    assert len(kept) < 60
    for each in (path, path.with_name("events.log.1")):
        assert each.stat().st_size < 1000 + 200


def test_two_that_find_it_full_rename_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one looked before the first renamed it: the new log must not take .1's place."""
    path = tmp_path / "events.log"
    first, second = (EventLog(name, path, stderr=False, bytes_max=100) for name in ("one", "two"))
    first.event(events.SERVICE_RELOADED, n=1)
    lock = fcntl.flock

    def late(descriptor: int, what: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        first.event(events.SERVICE_RELOADED, n=2)
        lock(descriptor, what)

    monkeypatch.setattr(fcntl, "flock", late)
    second.event(events.SERVICE_RELOADED, n=3)
    assert _events(path.with_name("events.log.1")) == [1]
    assert _events(path) == [2, 3]
    first.close()
    second.close()


def test_a_log_that_cannot_be_renamed_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "events.log"
    path.with_name("events.log.1").mkdir()
    log = EventLog("one", path, bytes_max=10, stderr=False)
    for number in range(3):
        log.event(events.SERVICE_RELOADED, n=number)
    log.close()
    assert _events(path) == [0, 1, 2]
    assert "cannot be renamed at its bound" in capsys.readouterr().err


def test_a_batch_is_one_write_and_an_error_does_not_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    whole = LogFile.write

    def write(file: LogFile, data: bytes) -> int:
        writes.append(data)
        return whole(file, data)

    monkeypatch.setattr(LogFile, "write", write)
    log = EventLog("x", tmp_path / "events.log")
    with log.together():
        for size in (1, 2):
            log.event(events.LOCAL_DELIVERY_FINISHED, REPORT, size=size)
        assert not writes and not capsys.readouterr().err
        log.event(events.LOCAL_FAILED, ERROR, size=3)
        assert len(writes) == 2  # what came before it stands before it
        with log.together():
            log.event(events.LOCAL_DELIVERY_FINISHED, REPORT, size=4)
        assert len(writes) == 2
    log.event(events.LOCAL_DELIVERY_FINISHED, REPORT, size=5)
    log.close()
    assert [each.count(b"\n") for each in writes] == [2, 1, 1, 1]
    lines = (tmp_path / "events.log").read_text().splitlines()
    assert [json.loads(line)["size"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line.rpartition("=")[2] for line in capsys.readouterr().err.splitlines()] == [
        "1", "2", "3", "4", "5"]


def test_a_batch_that_is_lost_is_counted_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog("x", tmp_path / "events.log", stderr=False)
    with monkeypatch.context() as full:
        full.setattr(LogFile, "write", lambda file, data: 0)
        with log.together():
            for _ in range(3):
                log.event(events.LOCAL_DELIVERY_FINISHED, REPORT)
    assert log.lost == 3
    log.event(events.LOCAL_DELIVERY_FINISHED, REPORT)
    log.close()
    told = [json.loads(line) for line in (tmp_path / "events.log").read_text().splitlines()]
    assert told[0]["lines"] == 3 and len(told) == 2


@pytest.mark.parametrize("refused", [False, True])
def test_what_follows_a_line_that_a_full_disk_cuts_is_a_line_of_its_own(
    tmp_path: Path, *, refused: bool
) -> None:
    """Of another process too; where the cut line cannot be ended, only of the one that cut it."""
    class Full(side_files.Calls):
        fits = 1 << 20

        def write(self, fd: int, data: bytes) -> int:
            return super().write(fd, data[:self.fits])

        def pwrite(self, fd: int, data: bytes, offset: int) -> int:
            if refused:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().pwrite(fd, data, offset)

    path, full = tmp_path / "events.log", Full()
    one, other = (EventLog(name, path, stderr=False) for name in ("one", "other"))
    before = side_files.use(full)
    try:
        one.event(events.SERVICE_RELOADED, n=1)
        full.fits = 30
        one.event(events.SERVICE_RELOADED, n=2)
        full.fits = 1 << 20
        other.event(events.SERVICE_RELOADED, n=3)
        one.event(events.SERVICE_RELOADED, n=4)
    finally:
        side_files.use(before)
        one.close()
        other.close()
    first, cut, *rest = path.read_text().splitlines()
    assert json.loads(first)["n"] == 1
    assert cut.startswith('{"time": ')
    found = [json.loads(line) for line in rest if line]
    assert [(each["service"], each.get("n"), each.get("lines")) for each in found] == [
        *([] if refused else [("other", 3, None)]), ("one", None, 1), ("one", 4, None)]
    assert ("other" in cut) is refused


@pytest.mark.parametrize("terminal", [True, False])
def test_a_traceback_has_its_lines_on_a_terminal_alone(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, terminal: bool
        ) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    log = EventLog("omq-worker")
    log.event(events.FAILED, WARNING, reason="x", traceback="File 1\n  y\x1b[31m\nValueError: z\n")
    log.close()
    said = capsys.readouterr().err
    assert "\x1b" not in said
    first, *more = said.splitlines()
    assert first.endswith("reason=x") == terminal
    assert more == (["    File 1", "      y\\x1b[31m", "    ValueError: z"] if terminal else [])


@pytest.mark.parametrize("value", [
    "x", "", "x y", '"', 'x"y', 'x" sender="root', 'x\\" sender="root', "x\\ y", "x\\",
    'a b\\\\" c="d', "x\nsender=root", 'x="y"', "\x1b[31m y", "sender=root"])
def test_no_value_looks_like_a_field(value: str) -> None:
    """To omshowlog, which takes a line apart that did not come to the journal in another way."""
    line = human_line("omq.test", events.SERVICE_STARTED, REPORT, 1,
                      {"reason": value, "sender": "me"})
    found = from_journal_line(json.dumps({"MESSAGE": line, "__REALTIME_TIMESTAMP": "1"}).encode())
    assert found is not None and found.text == events.SERVICE_STARTED.text
    assert found.fields == {"reason": escape(value), "sender": "me"}
