"""Readers forked by omread: the exit code for all, deaths, and stops; none is left behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from omq.base.errors import Exit
from omq.cli.queue.omread import ReaderProcesses, overall
from omq.services.daemon.signals import Signals
from omq.services.readers.process import Ready

Behaviour = Callable[[bool, Ready], int]


@pytest.fixture
def signals() -> Iterator[Signals]:
    made = Signals()
    made.install()
    yield made
    made.restore()


def _until_stopped(is_main: bool, ready: Ready) -> int:  # noqa: FBT001 (the type Target)
    own = Signals()
    own.install()
    ready()
    while not own.stopping:
        own.wait(None)
    return Exit.OK


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([0, 0], 0),
        ([0, 1], 0),
        ([1, 1], Exit.NO),
        ([0, 69, 78], 69),
        ([78, -9], Exit.OS),
        ([1, 69], 69),
    ],
)
def test_exit_code_for_all(codes: list[int], code: int) -> None:
    assert overall(codes) == code


def test_first_reader_is_main_and_the_others_follow(signals: Signals) -> None:
    reading, writing = os.pipe()

    def behave(is_main: bool, ready: Ready) -> int:  # noqa: FBT001 (the type Target)
        os.write(writing, b"M" if is_main else b"a")
        ready()
        return Exit.OK

    assert ReaderProcesses("probe", behave, 3, signals).run() == Exit.OK
    os.close(writing)
    assert os.read(reading, 10) == b"Maa"
    os.close(reading)


def test_what_is_wrong_for_all_happens_once(signals: Signals) -> None:
    reading, writing = os.pipe()

    def behave(is_main: bool, ready: Ready) -> int:  # noqa: FBT001 (the type Target)
        os.write(writing, b"x")
        return Exit.NO_INPUT

    assert ReaderProcesses("probe", behave, 3, signals).run() == Exit.NO_INPUT
    os.close(writing)
    assert os.read(reading, 10) == b"x"
    os.close(reading)


def test_signal_is_passed_on_and_waited_for(signals: Signals) -> None:
    left = threading.Semaphore(0)
    reading, writing = os.pipe()

    def behave(is_main: bool, ready: Ready) -> int:  # noqa: FBT001 (the type Target)
        def ready_and_said() -> None:
            ready()
            os.write(writing, b"r")

        code = _until_stopped(is_main, ready_and_said)
        os.write(writing, b"e")
        return code

    def stop_when_all_run() -> None:
        count = 0
        while count < 3:
            count += len(os.read(reading, 3 - count))
        os.kill(os.getpid(), signal.SIGTERM)
        left.release()

    helper = threading.Thread(target=stop_when_all_run)
    helper.start()
    assert ReaderProcesses("probe", behave, 3, signals).run() == Exit.OK
    helper.join(120)
    assert left.acquire(blocking=False)
    assert os.read(reading, 10) == b"eee"
    os.close(reading)
    os.close(writing)


def test_killed_reader_is_reported_and_not_replaced(
    signals: Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()

    def behave(is_main: bool, ready: Ready) -> int:  # noqa: FBT001 (the type Target)
        os.write(writing, b"x")
        ready()
        if not is_main:
            os.kill(os.getpid(), signal.SIGKILL)
        return Exit.OK

    assert ReaderProcesses("probe", behave, 2, signals).run() == Exit.OS
    assert "probe.1" in capsys.readouterr().err
    os.close(writing)
    assert os.read(reading, 10) == b"xx"
    os.close(reading)


def test_no_reader_outlives_an_error_of_the_parent(
    signals: Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = ReaderProcesses("probe", _until_stopped, 2, signals)
    started: list[int] = []

    def fail() -> None:
        started.extend(each.pid for each in processes._readers if each.live)
        raise OSError("no more processes")

    monkeypatch.setattr(processes, "_wait", fail)
    with pytest.raises(OSError, match="no more processes"):
        processes.run()
    assert started
    for pid in started:
        with pytest.raises(ChildProcessError):  # ended, and its exit code was taken
            os.waitpid(pid, os.WNOHANG)
