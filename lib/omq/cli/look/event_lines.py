"""Events as they were logged, from the log file (the system's journal: journal_lines).

A line that is no event (cut by a full disk, written by something else) is counted, not shown. The
file may be rotated while it is followed: a new file of the same name is read from its start.
Errors: InputUnreadable, AccessDenied.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from omq.base import access, clock
from omq.base.errors import InputUnreadable, OmqError
from omq.base.event_log import Level

POLL_S: Final = 0.25
_RESERVED: Final = ("time", "level", "service", "pid", "event", "text")


@dataclass(frozen=True, slots=True)
class Logged:
    """One event of the log; `record` is its JSON object."""

    time_ns: int
    level: Level
    service: str
    pid: int
    event: int
    text: str
    fields: dict[str, Any]
    record: dict[str, Any]

    @property
    def short(self) -> str:
        """`local` of `local.delivery`."""
        return self.service.split(".", 1)[0]


def parse(line: str | bytes) -> Logged | None:
    """An event from a line of the log file; None when it is none."""
    try:
        found = json.loads(line)
        return Logged(
            clock.parse_iso(str(found["time"])), Level[str(found["level"])],
            str(found["service"]), int(found["pid"]), int(found["event"]), str(found["text"]),
            {name: value for name, value in found.items() if name not in _RESERVED}, found)
    except (ValueError, TypeError, KeyError, RecursionError, OmqError):
        return None


def from_file(path: Path, lost: Callable[[int], None]) -> Iterator[Logged]:
    """All events of a log file, in order."""
    bad = 0
    try:
        with path.open("rb") as file:
            for line in file:
                found = parse(line)
                if found is not None:
                    yield found
                elif line.strip():
                    bad += 1
    except PermissionError as error:
        raise access.denied(path, error) from error
    except OSError as error:
        raise InputUnreadable(file=path, reason=error.strerror) from error
    if bad:
        lost(bad)


def follow(path: Path, lost: Callable[[int], None]) -> Iterator[Logged]:
    """The events that are there, then what comes, until it is interrupted."""
    bad, rest = 0, b""
    file = None
    try:
        while True:
            if file is None:
                with contextlib.suppress(FileNotFoundError):
                    file = path.open("rb")
            data = file.read(1 << 16) if file is not None else b""
            rest += data
            *whole, rest = rest.split(b"\n")
            for line in whole:
                found = parse(line)
                if found is not None:
                    yield found
                elif line.strip():
                    bad += 1
                    lost(bad)
            if not data:
                if file is not None and _is_another(path, file.fileno()):
                    file.close()
                    file, rest = None, b""
                select.select([], [], [], POLL_S)
    finally:
        if file is not None:
            file.close()


def _is_another(path: Path, descriptor: int) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:
        return True
    mine = os.fstat(descriptor)
    return (now.st_ino, now.st_dev) != (mine.st_ino, mine.st_dev) or now.st_size < os.lseek(
        descriptor, 0, os.SEEK_CUR)
