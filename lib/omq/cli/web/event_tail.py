"""The end of the event log, and what comes after it, for a page that follows.

Only the end is read (BYTES). A log that was rotated meanwhile is read from its start. The records
are those of omq.cli.look.event_lines; texts are made visible here, for a page writes them as they
are.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from omq.base.names import escape
from omq.cli.look.event_lines import Logged, parse

BYTES: Final = 256 * 1024
LINES_MAX: Final = 200
_FIELDS_MAX: Final = 30


class EventTail:
    """See the module. One thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = (0, 0)
        self._at = -1

    def new(self) -> list[dict[str, Any]]:
        """What was logged since the last call, the oldest first; the first call gives nothing."""
        return [record(each) for each in self._read()]

    def last(self) -> list[dict[str, Any]]:
        """The last LINES_MAX, the newest first."""
        try:
            with self._path.open("rb") as file:
                at = max(0, os.fstat(file.fileno()).st_size - BYTES)
                file.seek(at)
                if at:
                    file.readline()
                found = [each for each in map(parse, file) if each is not None]
        except OSError:
            return []
        return [record(each) for each in reversed(found[-LINES_MAX:])]

    def _read(self) -> list[Logged]:
        try:
            with self._path.open("rb") as file:
                state = os.fstat(file.fileno())
                identity = (state.st_dev, state.st_ino)
                if self._at < 0:
                    self._at = state.st_size
                elif identity != self._file or state.st_size < self._at:
                    self._at = 0
                self._file = identity
                file.seek(max(self._at, state.st_size - BYTES))
                data = file.read(BYTES)
        except OSError:
            self._at = 0  # what comes into a log that is not there yet is new
            return []
        whole = data.rfind(b"\n") + 1
        self._at = max(self._at, state.st_size - BYTES) + whole
        found = [parse(line) for line in data[:whole].splitlines()]
        return [each for each in found if each is not None][-LINES_MAX:]


def record(each: Logged) -> dict[str, Any]:
    """For a page: texts alone, in the order of its columns."""
    fields = list(each.fields.items())[:_FIELDS_MAX]
    return {"time": str(each.record["time"]), "level": each.level.name.lower(),
            "service": escape(each.service, 64), "number": f"OM {each.event:04d}",
            "text": escape(each.text, 200),
            "fields": ", ".join(f"{escape(name, 64)}={escape(str(value), 200)}"
                                for name, value in fields)}
