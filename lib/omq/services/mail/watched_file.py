"""A file of a map or of checks, which an administrator may change at any time: read again when it
has changed; its lines with their numbers.

One that is wrong, empty, without an end of its last line or changed while it was read is not taken:
half a file is not the whole of it.

Errors: MapFailed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from omq.base.limits import MIB
from omq.services.mail.map_errors import MapFailed

FILE_BYTES_MAX: Final = 64 * MIB
_Content = TypeVar("_Content")


@dataclass(slots=True)
class Watched:
    """A file whose content is read again when it has changed."""

    name: str
    path: Path
    _stamp: tuple[int, ...] = ()
    _content: Any = None

    def content(self, parse: Callable[[str], _Content]) -> _Content:
        """What `parse` makes of the file as it is now. MapFailed."""
        try:
            with open(self.path, "rb") as file:
                stamp = _stamp(file.fileno())
                if stamp == self._stamp:
                    kept: _Content = self._content
                    return kept
                data = file.read(FILE_BYTES_MAX + 1)
                if _stamp(file.fileno()) != stamp:
                    raise MapFailed(self.name, f"{self.path} changes while it is read")
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MapFailed(self.name, f"{self.path} cannot be read: {error}") from error
        if len(data) > FILE_BYTES_MAX:
            raise MapFailed(self.name, f"{self.path} has more than {FILE_BYTES_MAX} bytes")
        if not text.endswith("\n"):
            raise MapFailed(self.name, f"{self.path} is empty, or its last line has no end: it may "
                                       "be half written; write a new file and rename it")
        content = parse(text)
        self._stamp, self._content = (), content  # in this order: another thread may look
        self._stamp = stamp
        return content


def _stamp(descriptor: int) -> tuple[int, ...]:
    state = os.fstat(descriptor)
    return state.st_ino, state.st_dev, state.st_size, state.st_mtime_ns


def joined_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers; those that go on with the one before are joined to it."""
    found: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0] in " \t" and found:
            found[-1] = found[-1][0], f"{found[-1][1]} {line.strip()}"
        else:
            found.append((number, line.strip()))
    return found
