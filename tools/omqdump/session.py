"""A session: reads options, runs them, says `Done`.

Invariants: 1. the menu is shown on a terminal only, so that the output of a script is the output of
its options; 2. an error ends a script but not a session on a terminal.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from itertools import zip_longest
from typing import Final

from omq.base.errors import BadRequest, OmqError
from omq.base.names import escape
from omq.cli.common import say
from omqdump.options import OPTIONS, QUIT, Desk, Option

_MENU_WIDTH: Final = 35
_MENU_ROWS: Final = 11  # of two options; Quit stands alone below
_ERROR_CHARACTERS_MAX: Final = 2000


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
        """One option with the answers behind it; False when it is time to go."""
        option, words = parse(text)
        if option.letter == QUIT:
            return False
        if option.action is None:
            raise BadRequest(reason=f"option {option.letter} ({option.title}) is not available "
                             "in this version")
        self._desk.answers.give(words)
        option.action(self._desk)
        if not self._desk.json:
            self._desk.out.write("Done\n")
        self._desk.out.flush()
        return True


def parse(text: str) -> tuple[Option, list[str]]:
    """(option, answers) of a line such as `t q /tmp/file`; BadRequest."""
    try:
        letter, *words = shlex.split(text)
    except ValueError as error:  # an open quotation, or nothing but an empty line
        raise BadRequest(reason=f"{escape(text.strip())!r} is no option: {error}") from error
    option = OPTIONS.get(letter)
    if option is None:
        raise BadRequest(reason=f"there is no option {escape(letter)!r}; "
                         f"there are {' '.join(OPTIONS)}")
    if len(words) > option.answers_max:
        raise BadRequest(reason=f"option {letter} takes {option.answers_max} answers, "
                         f"not {len(words)}")
    return option, words


def menu() -> str:
    """All options in two columns, as the original has them, and which are not there yet."""
    shown = [f"{option.letter}: {option.title}" for option in OPTIONS.values()]
    left, right = [*shown[:_MENU_ROWS], shown[-1]], shown[_MENU_ROWS:-1]
    rows = zip_longest(left, right, fillvalue="")
    lines = [f"{one:<{_MENU_WIDTH}}{other}".rstrip() for one, other in rows]
    missing = [option.letter for option in OPTIONS.values()
               if option.action is None and option.letter != QUIT]
    note = f"Not available in this version: {' '.join(missing)}"
    return "\n".join(["Please select an option:", "", *lines, "", note, ""])
