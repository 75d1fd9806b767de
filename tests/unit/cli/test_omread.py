"""omread as a whole: its words, what it asks of the client library, how it ends."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import omq
from omq.base.errors import Exit, ManagerUnavailable
from omq.cli import launch
from tests.unit.cli.fakes import FakeConnection, FakeMessage, FakeReader

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, manager: FakeConnection) -> Run:
    (tmp_path / "spool").mkdir()
    (tmp_path / "conf").mkdir()

    def call(*words: str) -> int:
        place = ["--spool", str(tmp_path / "spool"), "--conf", str(tmp_path / "conf")]
        return launch.run("omread", [*place, *words])

    return call


def _give(manager: FakeConnection, *bodies: bytes) -> list[FakeMessage]:
    messages = [FakeMessage(body) for body in bodies]
    manager.source = FakeReader(list(messages))
    return messages


def test_prints_until_nothing_comes(
    run: Run, manager: FakeConnection, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    messages = _give(manager, b"one\n", b"two\n")
    assert run("ORDERS", "--timeout", "0.5", "--batch", "10") == 0
    assert capfdbinary.readouterr().out == b"one\ntwo\n"
    assert manager.readers == [{"queue": "ORDERS", "batch": 10, "auxiliary": False}]
    assert manager.source.asked == [(10, 0.5)] * 2
    assert [message.ended for message in messages] == [("done",)] * 2


def test_nothing_came(run: Run) -> None:
    assert run("ORDERS", "--timeout", "0") == Exit.NO


def test_count(run: Run, manager: FakeConnection) -> None:
    _give(manager, b"1", b"2", b"3")
    assert run("ORDERS", "--count", "2", "--auxiliary") == 0
    assert len(manager.source.waiting) == 1
    assert manager.readers[0]["auxiliary"] is True


def test_command_and_its_words_are_everything_behind_the_dashes(
    run: Run, manager: FakeConnection, tmp_path: Path
) -> None:
    (message,) = _give(manager, b"body")
    script = f'cat > {tmp_path}/out; echo " $*" >> {tmp_path}/out; exit 75'
    words = ["sh", "-c", script, "name", "--json", "--", "--count"]
    assert run("ORDERS", "--defer-s", "5", "--timeout", "0", "--", *words) == 0
    assert (tmp_path / "out").read_text() == "body --json -- --count\n"
    assert message.ended == ("defer", 5.0, "exit code 75")


def test_command_that_cannot_be_started_ends_it(
    run: Run, manager: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    (message,) = _give(manager, b"body")
    assert run("ORDERS", "--", "/no/such/command") == Exit.UNAVAILABLE
    assert message.ended == ("release",)
    assert "cannot be started" in capsys.readouterr().err


def test_readers_share_the_work(
    run: Run, manager: FakeConnection, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    _give(manager, b"m\n")  # each of the forked readers has its own copy of it
    assert run("ORDERS", "--readers", "3", "--timeout", "0") == 0
    assert capfdbinary.readouterr().out == b"m\n" * 3


@pytest.mark.parametrize("readers", ["1", "2"])
def test_error_of_the_manager_is_one_line_and_its_code(
    run: Run, manager: FakeConnection, monkeypatch: pytest.MonkeyPatch, readers: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def refuse(**_how: object) -> FakeConnection:
        raise ManagerUnavailable(spool="/spool", reason="gone")

    monkeypatch.setattr(omq, "connect", refuse)
    assert run("ORDERS", "--readers", readers) == Exit.UNAVAILABLE
    error = capfd.readouterr().err
    assert error.startswith("omread: the queue manager of /spool cannot be reached: gone")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["orders"],
        ["ORDERS", "--"],
        ["ORDERS", "--json", "--", "true"],
        ["ORDERS", "extra"],
        ["ORDERS", "--readers", "0"],
        ["ORDERS", "--readers", "22"],
        ["ORDERS", "--count", "0"],
        ["ORDERS", "--batch", "1001"],
        ["ORDERS", "--timeout", "-1"],
        ["ORDERS", "--defer-s", "nan"],
    ],
)
def test_wrong_words(run: Run, manager: FakeConnection, words: list[str]) -> None:
    assert run(*words) == Exit.USAGE
    assert manager.connects == []


def test_missing_spool(tmp_path: Path) -> None:
    assert launch.run("omread", ["--spool", str(tmp_path / "no"), "ORDERS"]) == Exit.NO_INPUT


def test_signals_are_given_back(run: Run) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert run("ORDERS", "--timeout", "0") == Exit.NO
    assert signal.getsignal(signal.SIGINT) is before
