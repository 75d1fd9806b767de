"""Documents name commands with options that these have: each `command --option` in the text, and
each line of an example that begins with a command."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from omq.cli.command_table import parser_in, parser_of
from omq.cli.launch import COMMANDS
from omq.cli.setup.omq_main import COMMANDS as PARTS
from omq.cli.setup.omq_main import main_of
from tests.tidy.tree import ROOT

PAGES: Final = [ROOT / "README.md", ROOT / "RELEASE_NOTES.md",
                *sorted((ROOT / "lib/omq/docs").glob("*.md"))]
OF_ITS_OWN: Final = ("omread", "omsend", "omq-sendmail", "celery")
"""Their words may be another program's, or a queue's; START and their own tests run them."""


def options(parser: argparse.ArgumentParser) -> set[str]:
    """All that it takes, those of its own commands included."""
    found = set[str]()
    for action in parser._actions:
        found.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                found |= options(each)
    return found


@cache
def options_of(name: str, part: str) -> set[str] | None:
    """Those of the command that a line begins with; None: it is not one of omq's."""
    if name == "omq" and part in PARTS:
        return options(parser_in(f"omq {part}", main_of(part)))
    return options(parser_of(name)) if name in COMMANDS and name not in OF_ITS_OWN else None


def lines(text: str) -> Iterator[str]:
    """What may be a command line: code in the text, and the lines of examples."""
    examples = re.sub(r"\\\n\s*", " ", text)
    for block in re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```$", examples, re.M | re.S):
        yield from block.splitlines()
    prose = re.sub(r"^```.*?^```$", "", examples, flags=re.M | re.S)
    yield from (line.strip() for line in prose.splitlines() if line.startswith("    "))
    yield from re.findall(r"`([^`]+)`", prose)


def unknown(line: str) -> list[str]:
    """Its options that the command does not have."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    if "--" in words:
        words = words[:words.index("--")]
    ends = [at for at, word in enumerate(words) if word in ("|", "&&", ";", ">", "||")]
    words = words[:ends[0]] if ends else words
    its = options_of(words[0].removeprefix("bin/"), "".join(words[1:2])) if words else None
    if its is None:
        return []
    named = [word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)]
    return [each for each in named if each not in its]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_the_options_that_documents_name(page: Path) -> None:
    wrong = {line: found for line in lines(page.read_text(encoding="utf-8"))
             if (found := unknown(line))}
    assert wrong == {}


def test_an_option_that_is_none_is_found() -> None:
    assert unknown("omrequeue -q POISON") == ["-q"]
    assert unknown("omq conf --changed --all") == ["--all"]
    assert unknown("bin/omstat -a | grep --nothing x") == []
    assert "omstat -z" in list(lines("Say `omstat -z` and\n\n    omstat -a\n"))
