"""A session on a terminal: menu, prompts, answers, errors that do not end it."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import BadRequest
from omq.storage.spool import SpoolInfo
from omqtools.omqdump.prompts import Prompts
from omqtools.omqdump.session import parse
from tests.needs import open_terminal
from tests.tidy.tree import ROOT
from tests.unit.omqdump import world

DEADLINE_S = 60.0


_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)"
                     r"|[@-Z\\-_=>()][0-9A-B]?)")


class Terminal:
    """A tool with a terminal of 100 columns for its input and output."""

    def __init__(self, *arguments: str, command: str = "omqdump") -> None:
        self._mine, theirs = open_terminal()
        termios.tcsetwinsize(theirs, (30, 100))
        search = os.pathsep.join([str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "omq.cli.launch", command, *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "PYTHONPATH": search, "TERM": "xterm-256color"})
        os.close(theirs)
        self._seen = ""

    def until(self, text: str) -> str:
        """What is shown up to and with `text`."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self._seen:
            ready, _, _ = select.select([self._mine], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in {self._seen!r}"
            self._seen += os.read(self._mine, 65536).decode().replace("\r\n", "\n")
        shown, _, self._seen = self._seen.partition(text)
        return shown + text

    def until_shown(self, text: str) -> None:
        """Until the text stands on a screen that is drawn: escape sequences do not count."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in _ESCAPE.sub("", self._seen):
            ready, _, _ = select.select([self._mine], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in {_ESCAPE.sub('', self._seen)[-2000:]!r}"
            self._seen += os.read(self._mine, 65536).decode(errors="replace")
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._mine, text.encode())

    def end(self) -> int:
        """Its exit code."""
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._mine)


@pytest.fixture
def terminal(info: SpoolInfo) -> Iterator[Terminal]:
    found = Terminal("--spool", str(info.paths.root))
    yield found
    found.close()


@pytest.mark.usefixtures("running")
def test_session(terminal: Terminal, tmp_path: Path) -> None:
    assert "s: Show summary of queues          o: Output opened msg to files\n" in terminal.until(
        "Option?")
    terminal.type("s\n")
    assert "LOCAL            6           2         6         96.68" in terminal.until("Done\n")
    terminal.until("Option?")
    terminal.type("m\n")
    terminal.until("Msg Handle (2000):")
    terminal.type("\n")
    assert "no message is open under handle 2000" in terminal.until("Option?")
    terminal.type("g\n")
    terminal.until("Queue Name:")
    terminal.type("desk\n")
    assert "Msg Handle = 2000" in terminal.until("Done\n")
    terminal.type("r\n\n")
    assert "Msg File = ~/data/000000a/0000b94" in terminal.until("Done\n")
    terminal.type("g DESK\n")
    assert "TIME_OUT" in terminal.until("Done\n")
    terminal.until("Option?")
    terminal.type("t\n")
    terminal.until("Message pool (m) or queues (q) ? ")
    terminal.type("m\n")
    terminal.until("Msg File Name (/tmp/omqmsg):")
    terminal.type(f"{tmp_path}/mine\n")
    terminal.until("Done\n")
    assert (tmp_path / "mine").read_text() == world.GOLDEN.joinpath("pool.txt").read_text()
    terminal.until("Option?")
    terminal.type("l\n")
    terminal.until("Queue Name:")
    terminal.type("\n")
    assert "no answer" in terminal.until("Option?")
    terminal.type("\n")
    assert "Please select an option:" in terminal.until("Option?")
    terminal.type("q\n")
    assert terminal.end() == 0


@pytest.mark.usefixtures("running")
def test_return_takes_the_default(terminal: Terminal, info: SpoolInfo) -> None:
    terminal.until("Option?")
    terminal.type("t q\n")
    shown = terminal.until("):")
    assert "Msg File Name (~/temp/" in shown
    terminal.type("\n")
    terminal.until("Done\n")
    (written,) = info.paths.temp.iterdir()
    assert f"~/temp/{written.name}" in shown
    terminal.until("Option?")
    terminal.type("\x04")
    assert terminal.end() == 0


def test_interrupt_ends_it(terminal: Terminal) -> None:
    terminal.until("Option?")
    while terminal.process.poll() is None:  # a signal just before a read is seen after it only
        terminal.process.send_signal(2)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one behind the end would kill it
            terminal.process.wait(10)
    assert terminal.end() == 130


def test_an_answer_that_does_not_fit_names_its_question() -> None:
    answers = Prompts(None, io.StringIO(), interactive=False)
    answers.give(["SHIPPED"], argparse.Namespace())
    with pytest.raises(BadRequest, match=r"'SHIPPED' is not a number, asked for "
                                         r"'Msg Handle \(1\)'"):
        answers.number("Msg Handle (1): ", 1)
    with pytest.raises(BadRequest, match=r"option d \(.+\) takes 1 answer, not 2"):
        parse("d AUDIT 77")
