"""Commands run for messages: what they get, how their end counts, and commands that cannot run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import events
from omq.base.errors import CommandUnusable, QueueGone
from omq.base.event_log import EventLog
from omq.cli.queue.message_command import MessageCommand, environment
from omq.services.daemon.signals import Signals
from tests.unit.cli.fakes import MESSAGE_ID, FakeMessage


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    made = EventLog("omread", tmp_path / "events.log", stderr=False)
    yield made
    made.close()


def _shell(log: EventLog, script: str, timeout_s: float | None = None) -> MessageCommand:
    return MessageCommand(["sh", "-c", script], 60.0, timeout_s, log)


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("cat > /dev/null", ("done",)),
        ("exit 0", ("done",)),  # without reading its input
        ("exit 75", ("defer", 60.0, "exit code 75")),
        ("exit 3", ("fail", "exit code 3")),
        ("kill -9 $$", ("fail", "signal 9 (Killed)")),
        ("no-such-command 2> /dev/null", ("fail", "exit code 127")),
    ],
)
def test_exit_code_decides(log: EventLog, script: str, ended: tuple[object, ...]) -> None:
    message = FakeMessage(b"x" * 200_000)
    _shell(log, script)(message)
    assert message.ended == ended


def test_body_is_its_input_and_the_rest_its_environment(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("OMQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMQ_PROPERTY_OLD", "of an outer message")
    out = tmp_path / "out"
    message = FakeMessage(
        b"\x00\xff", {"mail.from": "a@b", "x-1": "two\nlines"}, priority=7, attempts=2, defers=1,
        redelivered=True, correlation_id=b"\x01\x02", reply_to="ANSWERS", group_id="g",
    )  # fmt: skip
    _shell(log, f"{{ cat; env -0 | grep -z ^OMQ_ | sort -z; }} > {out}")(message)
    assert message.ended == ("done",)
    assert out.read_bytes().startswith(b"\x00\xff")
    assert sorted(out.read_bytes()[2:].decode().rstrip("\0").split("\0")) == [
        "OMQ_ATTEMPTS=2", "OMQ_CORRELATION_ID=0102", "OMQ_DEFERS=1", "OMQ_GROUP_ID=g",
        f"OMQ_MESSAGE_ID={MESSAGE_ID}", "OMQ_PRIORITY=7", "OMQ_PROPERTY_MAIL_FROM=a@b",
        "OMQ_PROPERTY_X_1=two\nlines", "OMQ_QPOOL_ID=42", "OMQ_QUEUE=ORDERS", "OMQ_REDELIVERED=1",
        "OMQ_REPLY_TO=ANSWERS",
    ]  # fmt: skip


def test_environment_is_always_possible() -> None:
    found = environment(FakeMessage(properties={"a": "1\0", "a.b": "first", "a_b": "second"}))
    assert found["OMQ_PROPERTY_A"] == "1\ufffd"
    assert found["OMQ_PROPERTY_A_B"] == "first"


def test_a_reply_queue_that_is_gone_wants_no_reply() -> None:
    class Asked(FakeMessage):
        def __getattribute__(self, name: str) -> object:
            if name == "reply_to":
                raise QueueGone(queue="ANSWERS")
            return super().__getattribute__(name)

    assert environment(Asked())["OMQ_REPLY_TO"] == ""


def test_time_out_kills_the_command_and_its_children(log: EventLog) -> None:
    message = FakeMessage(b"x" * 200_000)
    reading, writing = os.pipe()
    # The child holds the pipe open: its end shows that it is gone.
    command = MessageCommand(
        [sys.executable, "-c", "import subprocess; subprocess.run(['cat', '/dev/zero'], stdout=2)"],
        60.0, 0.2, log,
    )  # fmt: skip
    saved = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    try:
        command(message)
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    assert message.ended == ("fail", "killed after 200 ms")
    while os.read(reading, 1 << 20):
        pass
    os.close(reading)


def test_command_that_cannot_be_started_is_not_the_messages_fault(log: EventLog) -> None:
    message = FakeMessage()
    with pytest.raises(CommandUnusable, match="/no/such/command cannot be started: No such file"):
        MessageCommand(["/no/such/command"], 60.0, None, log)(message)
    assert message.ended == ()


def test_properties_too_large_for_an_environment_are(log: EventLog) -> None:
    message = FakeMessage(properties={"big": "x" * (1 << 18)})
    _shell(log, "exit 0")(message)
    assert message.ended == ("fail", "its properties do not fit into an environment")


def test_damaged_body_is_a_failed_attempt(log: EventLog, tmp_path: Path) -> None:
    message = FakeMessage(damaged=True)
    _shell(log, "exit 0")(message)
    assert message.ended[0] == "fail"
    assert f'"event": {events.COMMAND_FAILED.number}' in (tmp_path / "events.log").read_text()


@pytest.fixture
def signals() -> Iterator[Signals]:
    made = Signals()
    made.install()
    yield made
    made.restore()


def test_the_first_interrupt_lets_the_command_finish_and_says_so(
    log: EventLog, signals: Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    message = FakeMessage()
    MessageCommand(["sh", "-c", "kill -INT $PPID"], 60.0, None, log, signals)(message)
    assert message.ended == ("done",)
    assert signals.stopping and signals.interrupts == 1
    assert capsys.readouterr().err == (
        "omread: sh is finishing its message; ^C again ends it\n")


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_the_next_interrupts_end_the_command_and_the_message_is_untouched(
    log: EventLog, signals: Signals, trap: str
) -> None:
    message = FakeMessage()
    script = f"{trap}while :; do kill -INT $PPID; done"
    with pytest.raises(KeyboardInterrupt):
        MessageCommand(["sh", "-c", script], 60.0, None, log, signals)(message)
    assert message.ended == ()
    assert signals.interrupts >= (3 if trap else 2)


def test_a_child_leaves_interrupts_to_its_parent(log: EventLog, signals: Signals) -> None:
    signals.obey_parent()
    message = FakeMessage()
    try:
        MessageCommand(["sh", "-c", "kill -INT $PPID"], 60.0, None, log, signals)(message)
        assert message.ended == ("done",) and signals.interrupts == 0
        with pytest.raises(KeyboardInterrupt):
            MessageCommand(["sh", "-c", "kill -USR1 $PPID; while :; do :; done"], 60.0, None, log,
                           signals)(FakeMessage())
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
