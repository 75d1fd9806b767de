"""A primary is lost with its spool again and again; and a judge that finds what is wrong."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from omq.base.errors import Exit
from omq.ipc.server.held_replies import LSN_MAX, HeldReplies
from omqtools.omqtest import failovers, main
from omqtools.omqtest.failovers import failover_loop


def test_what_is_acknowledged_outlives_the_loss_of_primaries(tmp_path: Path) -> None:
    found = failover_loop((tmp_path / "one", tmp_path / "two"), tmp_path, 4, 11)
    assert found.verdict.faults == {} and found.done == 4
    assert found.verdict.acknowledged > 20 and sum(found.harm.values()) >= 4


def test_a_manager_that_waits_for_nobody_is_found(tmp_path: Path) -> None:
    """The standby is stopped before the loss; what is acknowledged then is lost."""
    with (mock.patch.object(HeldReplies, "_limit", property(lambda self: LSN_MAX)),
          mock.patch.object(failovers, "HARM", ("none",)),
          mock.patch("random.Random.random", lambda self: 0.0)):
        found = failover_loop((tmp_path / "one", tmp_path / "two"), tmp_path, 2, 3)
    assert found.verdict.lost


@pytest.mark.parametrize(("words", "told"), [
    (("--on", "{}/none", "--and", "{}"), "is not a directory"),
    (("--on", "{}", "--and", "{}", "--failovers", "0"), "1 at least"),
])
def test_wrong_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                   words: tuple[str, ...], told: str) -> None:
    assert main.main(["standby", *(word.format(tmp_path) for word in words)]) == Exit.USAGE
    assert told in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_command_says_what_it_did_and_found(tmp_path: Path,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["standby", "--on", str(tmp_path), "--and", str(tmp_path), "--failovers", "1",
                      "--seed", "2"]) == Exit.OK
    said = capsys.readouterr()
    assert "failovers 1, promotions killed" in said.out and "lost 0" in said.out
    assert "\nKEPT: " in said.out and not list(tmp_path.iterdir())
