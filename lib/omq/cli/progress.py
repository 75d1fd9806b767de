"""How far a command is, on a terminal, from the first second on."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from omq.base import side_files
from omq.base.paths import SpoolPaths
from omq.cli.common import say
from omq.core.history.frames import History
from omq.core.look.look import Look, look

PERIOD_S: Final = 1.0
_MIB: Final = 1 << 20


class Progress:
    """`omqdump: 1200 of 40000`, once a second, for what takes longer than that. `unit` of what is
    counted; total 0: not known."""

    def __init__(self, name: str, total: int = 0, unit: str = "") -> None:
        self._name, self._total, self._unit = name, total, unit
        self._next = time.monotonic() + PERIOD_S
        self._shown = False

    def __call__(self, done: int) -> None:
        if sys.stderr.isatty() and time.monotonic() >= self._next:
            self._next, self._shown = time.monotonic() + PERIOD_S, True
            of = f" of {self._total}" if self._total else ""
            side_files.say(f"\r{self._name}: {done}{of}{self._unit}", end="")

    def end(self) -> None:
        if self._shown:
            side_files.say("")


class Reading(Progress):
    """How much of the journal was read, for tools that look at the files."""

    def __init__(self, name: str) -> None:
        super().__init__(name, unit=" MiB of the journal read")

    def __call__(self, done: int) -> None:
        super().__call__(done // _MIB)


@contextmanager
def looking(name: str, paths: SpoolPaths) -> Iterator[Look]:
    """A look at the instance; a warning says when it is not a living one."""
    reading = Reading(name)
    with look(paths, progress=reading) as seen:
        reading.end()
        if seen.note:
            say(name, seen.note)
        yield seen


@contextmanager
def reading_history(name: str, paths: SpoolPaths) -> Iterator[History]:
    """The journal and its archive."""
    reading = Reading(name)
    yield History(paths, reading)
    reading.end()
