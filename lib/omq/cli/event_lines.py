"""Events as they were logged, from the log file or from the system's journal.

A line that is no event (cut by a full disk, written by something else) is counted, not shown. The
file may be rotated while it is followed: a new file of the same name is read from its start.
Errors: InputUnreadable, CommandUnusable (journalctl).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from omq.base import clock
from omq.base.errors import CommandUnusable, InputUnreadable, OmqError
from omq.base.event_log import Level
from omq.base.names import escape

POLL_S: Final = 0.25
_RESERVED: Final = ("time", "level", "service", "pid", "event", "text")
_HUMAN: Final = re.compile(
    r"(?:<\d>)?(FATAL|ERROR|WARNING|REPORT|TRACE) (\S+)\[(\d+)\] \[OM (\d+)\] (.*)", re.DOTALL)
_FIELD: Final = re.compile(r'(\w+)=("[^"]*"|\S+)')


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


def from_journal(instance: str | None, *, follow: bool) -> Iterator[Logged]:
    """The events of the units of an instance, from journalctl(1)."""
    pattern = f"omq-*@{instance}*" if instance else "omq*"
    command = ["journalctl", "--output=json", "--no-pager", "--unit", pattern]
    if follow:
        command += ["--follow", "--lines=all"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise CommandUnusable(command=shlex.join(command), reason=error.strerror) from error
    assert process.stdout is not None
    try:
        for line in process.stdout:
            found = from_journal_line(line)
            if found is not None:
                yield found
    finally:
        process.terminate()
        process.stdout.close()
        process.wait()


def from_journal_line(line: bytes) -> Logged | None:
    """An event of journalctl's JSON; None for messages of others."""
    try:
        entry = json.loads(line)
        match = _HUMAN.fullmatch(str(entry["MESSAGE"]))
        time_ns = int(entry["__REALTIME_TIMESTAMP"]) * 1000
    except (ValueError, TypeError, KeyError):
        return None
    if match is None:
        return None
    level, service, pid, event, rest = match.groups()
    fields = {name: value.strip('"') for name, value in _FIELD.findall(rest)}
    first = _FIELD.search(rest)
    text = escape(rest[: first.start()].rstrip() if first else rest)
    record = {"time": clock.iso_time(time_ns), "level": level, "service": service,
              "pid": int(pid), "event": int(event), "text": text, **fields}
    return Logged(time_ns, Level[level], service, int(pid), int(event), text, dict(fields), record)
