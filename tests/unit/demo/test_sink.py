"""The sink as a process, spoken to by real SMTP."""

from __future__ import annotations

import inspect
import os
import smtplib
from multiprocessing import Pipe
from pathlib import Path

import pytest

from tests.demo import sink as sink_module
from tests.demo.arrivals import count_arrivals, sink_arrivals
from tests.demo.sink import SinkHandler, run_sink, sink_process

BODY = b"Subject: t\r\n\r\n.dot\r\n..\r\n\r\n8 bit: \xc3\xa4\r\n" + b"long" * 5000 + b"\r\n"


def test_transactions_become_files(tmp_path: Path) -> None:
    with sink_process(tmp_path / "sink", later_share=0.0) as sink:
        with smtplib.SMTP("127.0.0.1", sink.port, "test", timeout=120) as smtp:
            smtp.sendmail("a@omq.test", ["x@remote1.test", "y@remote1.test"], BODY)
            smtp.sendmail("", ["z@remote2.test"], BODY, ["BODY=8BITMIME"])
        pid = sink.pid
    arrivals = list(sink_arrivals(tmp_path / "sink"))
    assert [each.recipient for each in arrivals] == [
        "x@remote1.test",
        "y@remote1.test",
        "z@remote2.test",
    ]
    assert all(each.data == BODY for each in arrivals)
    assert arrivals[0].together == ("x@remote1.test", "y@remote1.test")
    assert count_arrivals(tmp_path / "none", tmp_path / "sink") == 3
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_slow_peer_is_the_same_folder_behind_another_port(tmp_path: Path) -> None:
    with sink_process(tmp_path / "sink", later_share=0) as sink:
        for port in (sink.slow_port, sink.port):
            with smtplib.SMTP("127.0.0.1", port, "test", timeout=120) as smtp:
                smtp.sendmail("a@b.test", ["c@d.test"], b"X: y\r\n\r\n")
        assert count_arrivals(tmp_path / "none", sink.folder) == 2
        assert sink.port != sink.slow_port


def test_it_accepts_addresses_in_utf8(tmp_path: Path) -> None:
    with (
        sink_process(tmp_path, later_share=0.0) as sink,
        smtplib.SMTP("127.0.0.1", sink.port, "test", timeout=120) as smtp,
    ):
        smtp.ehlo()
        options = ["SMTPUTF8", "BODY=8BITMIME"]
        smtp.sendmail("ä@omq.test", ["ö@remote1.test"], BODY, options)
    assert [each.recipient for each in sink_arrivals(tmp_path)] == ["ö@remote1.test"]


def test_refusal_for_the_moment(tmp_path: Path) -> None:
    with (
        sink_process(tmp_path, later_share=1.0) as sink,
        smtplib.SMTP("127.0.0.1", sink.port, "test", timeout=120) as smtp,
    ):
        with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
            smtp.sendmail("a@omq.test", ["x@remote1.test"], BODY)
        assert refused.value.recipients["x@remote1.test"][0] == 451
    assert list(tmp_path.iterdir()) == []


def test_every_member_of_the_handler_can_be_looked_at(tmp_path: Path) -> None:
    """As aiosmtpd does for each connection: Python 3.11.2 could not, and nothing was taken."""
    assert "handle_DATA" in dict(inspect.getmembers(SinkHandler(tmp_path, 0.0)))


def test_a_sink_that_cannot_serve_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise TypeError("no session")

    monkeypatch.setattr(sink_module, "_Session", broken)
    monkeypatch.setattr("signal.signal", lambda number, action: None)  # stays this process's
    ours, theirs = Pipe()
    with ours, theirs:
        with pytest.raises(TypeError, match="no session"):
            run_sink(str(tmp_path), 0.0, theirs)
        assert not ours.poll()
