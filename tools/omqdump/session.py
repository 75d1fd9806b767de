"""A session: reads options, runs them, says `Done`.

Invariants: 1. the menu is shown on a terminal only, so that the output of a script is the output of
its options; 2. an error ends a script but not a session on a terminal.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from itertools import zip_longest
from typing import Final, NoReturn

from omq.base.errors import BadRequest, OmqError
from omq.base.names import escape
from omq.cli.common import say
from omqtools.omqdump.option_desk import Desk
from omqtools.omqdump.options import MENU, MORE, OPTIONS, QUIT, Option, Takes

_MENU_WIDTH: Final = 35
_MENU_ROWS: Final = 11  # of two options; Quit stands alone below
_ERROR_CHARACTERS_MAX: Final = 2000


class _Words(argparse.ArgumentParser):
    """Parses the words after a letter; says what is wrong instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise BadRequest(reason=f"option {self.prog}: {escape(message)}")


def words_parser(option: Option) -> argparse.ArgumentParser:
    """The words that an option takes behind its letter."""
    parser = _Words(prog=option.letter, add_help=False, allow_abbrev=False)
    for word in option.takes.words:
        if word in ("count", "yes", "force", "mail"):
            parser.add_argument(f"--{word}", action="store_true")
        else:
            parser.add_argument(f"--{word}", action="append" if word == "where" else "store")
    parser.add_argument("words", nargs="*")
    return parser


class Session:
    """See the module; `name` is the tool's, for messages."""

    def __init__(self, desk: Desk, name: str) -> None:
        self._desk = desk
        self._name = name

    def commands(self, commands: Iterable[str]) -> None:
        """Options given on the command line; the first error ends it."""
        for command in commands:
            if not self.run(command):
                return

    def batch(self) -> None:
        """Options and answers line by line; the first error ends it."""
        while (line := self._desk.answers.line("")) is not None:
            if line.strip() and not self.run(line):
                return

    def interactive(self) -> None:
        """Menu and prompt until `q` or the end of input."""
        out = self._desk.out
        out.write(menu())
        while (line := self._desk.answers.line("Option?")) is not None:
            if not line.strip():
                out.write(menu())
                continue
            try:
                if not self.run(line):
                    return
            except OmqError as error:
                out.flush()
                say(self._name, escape(str(error), _ERROR_CHARACTERS_MAX))
        out.write("\n")

    def run(self, text: str) -> bool:
        """One option with the answers after it; False when it is time to go."""
        option, words, flags = parse(text)
        if option.action is None:
            return False
        self._desk.answers.give(words, flags)
        option.action(self._desk)
        if not self._desk.json:
            self._desk.out.write("Done\n")
        self._desk.out.flush()
        return True


def parse(text: str) -> tuple[Option, list[str], argparse.Namespace]:
    """(option, answers, other words) of a line such as `t q /tmp/file`; BadRequest."""
    try:
        letter, *words = shlex.split(text)
    except ValueError as error:  # an open quotation, or nothing but an empty line
        raise BadRequest(reason=f"{escape(text.strip())!r} is not an option: {error}") from error
    option = OPTIONS.get(letter)
    if option is None:
        raise BadRequest(reason=f"there is no option {escape(letter)!r}; "
                         f"there are {' '.join(OPTIONS)}")
    flags = argparse.Namespace()
    if option.takes is not Takes.NOTHING:
        flags = words_parser(option).parse_intermixed_args(words)
        words = flags.words
    if len(words) > option.answers_max:
        counted = f"{option.answers_max} answer{'' if option.answers_max == 1 else 's'}"
        raise BadRequest(reason=f"option {letter} ({option.title}) takes {counted}, "
                         f"not {len(words)}")
    return option, words, flags


def menu() -> str:
    """All options in two columns, as the original has them; what it had not stands below."""
    shown = [f"{option.letter}: {option.title}" for option in MENU.values()]
    left, right = [*shown[:_MENU_ROWS], shown[-1]], shown[_MENU_ROWS:-1]
    rows = zip_longest(left, right, fillvalue="")
    lines = [f"{one:<{_MENU_WIDTH}}{other}".rstrip() for one, other in rows]
    assert shown[-1].startswith(QUIT)
    more = "Also: " + "   ".join(f"{option.letter}: {option.title}" for option in MORE.values())
    return "\n".join(["Please select an option:", "", *lines, "", more, ""])
