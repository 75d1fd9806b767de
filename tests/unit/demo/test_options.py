"""Where the demo's options come from: the command line, else the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base.errors import Exit
from tests.demo.__main__ import _parse as parse

OURS = ("OMQ_DEMO_MAIL", "N", "SEED", "CONNECTIONS", "CRASH", "KEEP")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OURS:
        monkeypatch.delenv(name, raising=False)


def test_the_mailbox_of_a_login_shell_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL", "/var/mail/somebody")
    assert parse([]).mail is None
    monkeypatch.setenv("OMQ_DEMO_MAIL", "box")
    assert parse([]).mail == Path("box")
    assert parse(["--mail", "other"]).mail == Path("other")


def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in zip(OURS, ("box", "7", "3", "2", "1", "0"), strict=True):
        monkeypatch.setenv(name, text)
    options = parse([])
    assert (options.count, options.seed, options.connections) == (7, 3, 2)
    assert options.crash and not options.kept


def test_empty_values_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OURS:
        monkeypatch.setenv(name, "")
    assert parse([]) == parse(["--seed", "1", "--connections", "8"])
    assert parse([]).count is None and not parse([]).crash and parse([]).kept


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5"])
def test_a_count_that_is_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([f"--count={text}"])
    assert ended.value.code == Exit.USAGE
    assert f"{text!r} is not a number of 1 or more" in capsys.readouterr().err
