"""Mistakes of a configuration, gathered and told together: who mends one must not meet the next at
the next start.

    mistakes = Mistakes()
    for each in many:
        with mistakes.noted():
            load(each)
    mistakes.end()  # ConfigError, of all that were noted
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from omq.base.config_file import Entry
from omq.base.errors import ConfigError

T = TypeVar("T")


class Mistakes:
    """See the module."""

    def __init__(self) -> None:
        self._found: dict[str, ConfigError] = {}  # by its text: a shared key is looked at often

    def __bool__(self) -> bool:
        return bool(self._found)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """A ConfigError ends the block and goes no further."""
        try:
            yield
        except ConfigError as error:
            self._found[str(error)] = error

    def built(self, make: Callable[[dict[str, Entry]], T], entries: dict[str, Entry]) -> T | None:
        """What is made of the entries of a section; each that is refused is noted and left out, so
        that those after it are looked at, too. None: something was refused."""
        left = dict(entries)
        while True:
            try:
                made = make(left)
            except ConfigError as error:
                wrong = left.pop(str(error.fields["key"]), None)
                if wrong is not None or len(left) == len(entries):
                    self._found[str(error)] = error
                if wrong is None:  # of the section as a whole, or for want of what was left out
                    return None
            else:
                return made if len(left) == len(entries) else None

    def end(self) -> None:
        """ConfigError, if anything was noted: a line each, with the fields of the first."""
        if self._found:
            first = next(iter(self._found.values()))
            if len(self._found) == 1:
                raise first
            together = ConfigError(**first.fields)
            together.args = ("\n".join(self._found),)
            raise together from first
