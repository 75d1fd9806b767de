"""How every program ends: one line and a code for the world's errors, a traceback only for ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from omq.base.errors import Exit, UnknownQueue
from omq.cli import launch

Main = Callable[[list[str]], int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Main], None]:
    """Put a function behind the command name `probe`."""

    def install(main: Main) -> None:
        module = ModuleType("probe_module")
        module.__dict__["main"] = main
        monkeypatch.setitem(sys.modules, "probe_module", module)
        monkeypatch.setitem(launch.COMMANDS, "probe", "probe_module:main")
        monkeypatch.setattr(sys, "argv", ["launch"])

    return install


def _raise(error: BaseException) -> Main:
    def main(argv: list[str]) -> int:
        raise error

    return main


def test_arguments_and_code_are_passed(command: Callable[[Main], None]) -> None:
    seen: list[list[str]] = []

    def main(argv: list[str]) -> int:
        seen.extend((argv, list(sys.argv)))
        return 5

    command(main)
    assert launch.main(["probe", "-a", "b"]) == 5
    assert seen == [["-a", "b"], ["probe", "-a", "b"]]


def test_error_of_the_world_is_one_safe_line(
    command: Callable[[Main], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(_raise(UnknownQueue(queue="\x1b[2J\nX")))
    assert launch.main(["probe"]) == Exit.NO_INPUT
    error = capsys.readouterr().err
    assert error.startswith("probe: queue \\x1b[2J\\x0aX is not defined")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), launch.INTERRUPTED),
        (SystemExit(None), 0),
        (SystemExit(3), 3),
        (SystemExit(2), Exit.USAGE),
        (SystemExit("words"), Exit.USAGE),
    ],
)
def test_ends(command: Callable[[Main], None], error: BaseException, code: int) -> None:
    command(_raise(error))
    assert launch.main(["probe"]) == code


def test_closed_pipe_is_quiet(
    command: Callable[[Main], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forgotten: list[bool] = []
    monkeypatch.setattr(launch, "_forget_stdout", lambda: forgotten.append(True))
    command(_raise(BrokenPipeError()))
    assert launch.main(["probe"]) == launch.BROKEN_PIPE
    assert forgotten == [True]
    assert capsys.readouterr().err == ""


def test_bug_of_ours_shows_where(
    command: Callable[[Main], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(_raise(ZeroDivisionError("inside")))
    assert launch.main(["probe"]) == Exit.SOFTWARE
    assert "ZeroDivisionError: inside" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["no.such.command"]])
def test_unknown_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(words) == Exit.USAGE
    assert "queue.manager" in capsys.readouterr().err


def test_installed_script_is_known_by_its_name(
    command: Callable[[Main], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    command(lambda argv: len(argv))
    monkeypatch.setattr(sys, "argv", ["/usr/bin/probe", "a", "b"])
    assert launch.script() == 2
