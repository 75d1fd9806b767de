"""How far a command is: on a terminal, from the first second on, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

from omq.cli.progress import Progress, Reading


class Screen(io.StringIO):
    """A stderr that may be a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_it_speaks_once_a_second_on_a_terminal(monkeypatch: pytest.MonkeyPatch, *, terminal: bool
                                               ) -> None:
    now = [100.0]
    monkeypatch.setattr("omq.cli.progress.time.monotonic", lambda: now[0])
    screen = Screen(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    counted, reading = Progress("omqdump", 40_000), Reading("omscan")
    for now[0], done in ((100.5, 1), (101.0, 1200), (101.9, 1300), (102.0, 2400)):
        counted(done)
    reading(7 << 20)
    counted.end()
    Progress("quick", 1).end()
    assert screen.getvalue() == (
        "\romqdump: 1200 of 40000\romqdump: 2400 of 40000\romscan: 7 MiB of the journal read\n"
        if terminal else "")
