"""Messages on standard output: bytes as they are, JSON lines, and safe on a terminal."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omq.base.event_log import EventLog
from omq.cli.common import shown
from omq.cli.queue.omread import MessagePrinter
from tests.unit.cli.fakes import MESSAGE_ID, FakeMessage


class Output:
    """Standard output as the printer uses it."""

    def __init__(self, *, terminal: bool) -> None:
        self.buffer = io.BytesIO()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


Print = Callable[..., bytes]


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Print]:
    log = EventLog("omread", tmp_path / "events.log", stderr=False)

    def run(*messages: FakeMessage, as_json: bool = False, terminal: bool = False) -> bytes:
        output = Output(terminal=terminal)
        monkeypatch.setattr(sys, "stdout", output)
        printer = MessagePrinter(log, as_json=as_json)
        for message in messages:
            printer(message)
        printer.close()
        return output.buffer.getvalue()

    yield run
    log.close()


def test_bodies_go_out_as_they_are(printed: Print) -> None:
    messages = [FakeMessage(b"a\n"), FakeMessage(b"\x00\xff"), FakeMessage(b"")]
    assert printed(*messages) == b"a\n\x00\xff"
    assert [message.ended for message in messages] == [("done",)] * 3


def test_json_line_has_everything(printed: Print) -> None:
    message = FakeMessage(
        "grüße\n".encode(), {"k": "v"}, attempts=1, redelivered=True, correlation_id=b"\x0a",
        reply_to="ANSWERS", group_id="g",
    )  # fmt: skip
    line = printed(message, as_json=True)
    assert line.isascii()
    record = json.loads(line)
    assert record.pop("put_time").startswith("2023-11-1")
    assert record == {
        "message_id": MESSAGE_ID, "qpool_id": 42, "queue": "ORDERS", "priority": 4, "attempts": 1,
        "defers": 0, "redelivered": True, "correlation_id": "0a", "size": 8,
        "reply_to": "ANSWERS", "group_id": "g",
        "properties": {"k": "v"}, "body": "grüße\n",
    }  # fmt: skip


def test_json_body_that_is_no_text_is_base64(printed: Print) -> None:
    record = json.loads(printed(FakeMessage(b"\xff\x00"), as_json=True))
    assert record["body_base64"] == "/wA="
    assert "body" not in record


def test_terminal_gets_no_control_characters(printed: Print) -> None:
    assert printed(FakeMessage(b"a\x1b[2Jb"), terminal=True) == b"a\\x1b[2Jb\n"


@pytest.mark.parametrize(
    ("body", "lines"),
    [(b"", b"\n"), (b"a", b"a\n"), (b"a\n", b"a\n"), (b"a\r\nb", b"a\nb\n"), (b"\n\n", b"\n\n")],
)
def test_shown_lines(body: bytes, lines: bytes) -> None:
    assert shown(body) == lines


def test_damaged_body_is_a_failed_attempt_and_said(printed: Print, tmp_path: Path) -> None:
    message = FakeMessage(damaged=True)
    assert printed(message) == b""
    assert message.ended[0] == "fail"
    assert "1442" in (tmp_path / "events.log").read_text()


def test_message_is_not_done_when_nobody_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    output = Output(terminal=False)
    output.buffer = Closed()
    monkeypatch.setattr(sys, "stdout", output)
    message = FakeMessage()
    printer = MessagePrinter(EventLog("omread", stderr=False), as_json=False)
    with pytest.raises(BrokenPipeError):
        printer(message)
    printer.close()
    assert message.ended == ()
