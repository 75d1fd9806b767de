"""What each command is, for people: its title, its section of the manual, and its parser.

The parser is the one that the command itself uses, so help, manual and completion cannot disagree.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

from omq.cli.launch import COMMANDS
from omq.cli.programs import PROGRAMS


class _Captured(Exception):
    """Carries a parser out of its command."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of a command, as it was when the command was about to use it."""
    module, _, function = COMMANDS[name].partition(":")
    return parser_in(name, getattr(importlib.import_module(module), function))


def parser_in(name: str, target: Callable[[list[str]], int]) -> argparse.ArgumentParser:
    """The same of a function that is one, such as a command of omq."""

    def capture(self: argparse.ArgumentParser, *_: Any, **__: Any) -> argparse.Namespace:
        raise _Captured(self)

    try:
        with mock.patch.object(sys, "argv", [name]), \
                mock.patch.object(argparse.ArgumentParser, "parse_args", capture), \
                mock.patch.object(argparse.ArgumentParser, "parse_intermixed_args", capture), \
                mock.patch.object(argparse.ArgumentParser, "parse_known_args", capture):
            target([])
    except _Captured as captured:
        return captured.parser
    raise AssertionError(f"{name} has parsed nothing")


def section_of(name: str) -> int:
    """8 for daemons, which have a dot in their name, and 1 for commands."""
    return 8 if "." in name else 1


def title_of(name: str) -> str:
    """One line."""
    return PROGRAMS[name].title
