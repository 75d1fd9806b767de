"""Events as they were logged, from the log file (the system's journal: journal_lines).

The log that was renamed at its bound (base.log_file) comes before the log. A line that is not an
event (cut by a full disk, written by something else) is counted, not shown. The file may be rotated
while it is followed: a new file of the same name is read from its start.
Errors: InputUnreadable, AccessDenied.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from omq.base import access, clock, log_file
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
    """All events of a log file and of the one before it, in order."""
    bad = 0
    for line in lines_of(path):
        found = parse(line)
        if found is not None:
            yield found
        elif line.strip():
            bad += 1
    if bad:
        lost(bad)


def lines_of(path: Path) -> Iterator[bytes]:
    """All lines of a log file and of the one before it, in order."""
    try:
        with contextlib.ExitStack() as stack:
            for file in [stack.enter_context(each) for each in log_file.opened(path)]:
                yield from file
    except PermissionError as error:
        raise access.denied(path, error) from error
    except OSError as error:
        raise InputUnreadable(file=path, reason=error.strerror) from error


def follow(path: Path, lost: Callable[[int], None]) -> Generator[Logged, None, None]:
    """The events that are there, then what comes, until it is interrupted."""
    bad = 0

    def events(lines: list[bytes]) -> Iterator[Logged]:
        nonlocal bad
        for line in lines:
            found = parse(line)
            if found is not None:
                yield found
            elif line.strip():
                bad += 1
                lost(bad)

    files, rest = _opened(path), b""
    try:
        while True:
            # Asked before the read: what was written up to the renaming is read.
            over = len(files) > 1 or (bool(files) and _is_another(path, files[0].fileno()))
            data = files[0].read(1 << 16) if files else b""
            *whole, rest = (rest + data).split(b"\n")
            yield from events(whole)
            if data:
                continue
            if over:
                files.pop(0).close()
                rest = b""
            else:
                select.select([], [], [], POLL_S)
            if not files:
                with contextlib.suppress(FileNotFoundError):
                    files.append(path.open("rb"))
    finally:
        for each in files:
            each.close()


def _opened(path: Path) -> list[IO[bytes]]:
    with contextlib.suppress(FileNotFoundError):
        return log_file.opened(path)
    return []


def _is_another(path: Path, descriptor: int) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:
        return True
    mine = os.fstat(descriptor)
    return (now.st_ino, now.st_dev) != (mine.st_ino, mine.st_dev) or now.st_size < os.lseek(
        descriptor, 0, os.SEEK_CUR)
