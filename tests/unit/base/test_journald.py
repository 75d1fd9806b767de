"""The native protocol of systemd's journal: what is sent, and what happens where nobody listens."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from omq.base import events
from omq.base.event_log import ERROR, EventLog
from omq.base.journald import Journal, encode, is_journal, message_id


def test_several_lines_travel_with_their_length() -> None:
    assert encode({"A": "x=1", "B": "one\ntwo"}) == (
        b"A=x=1\nB\n\x07\0\0\0\0\0\0\0one\ntwo\n")


def test_an_event_has_its_id_for_ever() -> None:
    assert message_id(1203) == "b3739b1bd4655637ace62d964aac5bb2"


def test_only_the_journals_own_stream_counts(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream:
        status = os.fstat(stream.fileno())
        name = f"{status.st_dev}:{status.st_ino}"
        assert is_journal({"JOURNAL_STREAM": name}, stream.fileno())
        assert not is_journal({"JOURNAL_STREAM": f"{name}0"}, stream.fileno())
        assert not is_journal({}, stream.fileno())


def test_nobody_listens(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "none")
    assert not journal.send({"MESSAGE": "x"})
    journal.close()


def test_an_event_arrives_with_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        monkeypatch.setattr("omq.base.event_log.Journal", lambda: Journal(path))
        monkeypatch.setattr("omq.base.event_log.is_journal", lambda _environ: True)
        monkeypatch.setenv("JOURNAL_STREAM", "1:1")
        log = EventLog("router", None)
        log.event(events.FAILED, ERROR, queue="ORDERS", reason="a\nb")
        lines = listener.recv(65536).split(b"\n")
    assert b"OMQ_QUEUE=ORDERS" in lines
    assert b"OMQ_EVENT=1008" in lines
    assert b"PRIORITY=3" in lines
    assert b"OMQ_REASON" in lines
    assert capfd.readouterr().err == ""
    path.unlink()
    log.event(events.FAILED, ERROR, queue="ORDERS")  # the journal is gone: stderr, with <N>
    assert capfd.readouterr().err.startswith("<3>ERROR router[")
    log.close()
