"""The one logger: an event has a level, a number and text, a process id and fields.

Each goes to two places: `logs/events.log` as one JSON object a line, and stderr as one line for
people. Where stderr is systemd's journal, the event goes there with its fields (omq.base.journald);
if that fails it is a line with the `<N>` priority prefix of sd-daemon(3).

Invariants: 1. an event, or those of a batch (`together`), are one write() on an O_APPEND
descriptor, so that the lines of many processes do not mix; 2. nothing that a field holds can start
a new line or reach a terminal unescaped, but that on a terminal a traceback has its lines, each
indented; 3. a log that cannot be written never stops the service:
the loss goes to stderr, and the first line that goes through again is an event with the number
of lines that are missing (OM 1125). How the file is followed and bounded: base.log_file.

JSON keys: time (ISO 8601), level, service, pid, event (number), text, then the fields. A field that
would hide one of these is a bug of ours.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Final

from omq.base import clock, events, side_files
from omq.base.events import Event
from omq.base.journald import Journal, is_journal, message_id
from omq.base.log_file import LogFile
from omq.base.names import escape

FIELD_CHARACTERS_MAX: Final = 1024
"""A longer value is cut: one event must stay one short write."""

TRACEBACK: Final = "traceback"
"""The field that a terminal shows in lines of their own."""
_RESERVED: Final = frozenset({"time", "level", "service", "pid", "event", "text"})


class Level(IntEnum):
    """How bad it is; numbers grow with detail, as in the original's logging levels."""

    FATAL = 1  # the process cannot go on and is about to end: someone must act now
    ERROR = 3  # an operation failed for good, or data is damaged: someone must look
    WARNING = 5  # something is wrong but handled (retried, deferred, refused): look if it repeats
    REPORT = 9  # normal work worth a line: starts, stops, deliveries
    TRACE = 15  # detail for finding a fault; off unless asked for


FATAL: Final = Level.FATAL
ERROR: Final = Level.ERROR
WARNING: Final = Level.WARNING
REPORT: Final = Level.REPORT
TRACE: Final = Level.TRACE

_SYSLOG_PRIORITY = {FATAL: 2, ERROR: 3, WARNING: 4, REPORT: 6, TRACE: 7}

FieldValue = str | bytes | float | Path | None
"""What a field may be; int and bool pass as float does."""


class EventLog:
    """Writes events of one service. `path` None: stderr only. `level`: the most detail written.
    `bytes_max`: of the file, before it is renamed to `.1`; 0: no bound."""

    def __init__(
        self, service: str, path: Path | None = None, *, level: Level = REPORT,
        stderr: bool = True, bytes_max: int = 0,
    ) -> None:
        self.service = service
        self.level = level
        self.lost = 0  # lines, since the log was last written
        self._said = False  # that it is refused
        self._closed = False
        self._gathered: list[tuple[bytes, str]] | None = None  # for the file, for stderr
        self._path = path
        self._file = None if path is None else LogFile(path, bytes_max, self._refused)
        self._stderr = stderr
        self._prefix = "JOURNAL_STREAM" in os.environ
        self._terminal = stderr and not self._prefix and sys.stderr.isatty()
        self._journal = Journal() if stderr and is_journal(os.environ) else None
        self.reopen()

    def reopen(self) -> None:
        """Open the log again, after a fork into another service or a rotation."""
        self._closed = False
        if self._file is not None:
            self._file.reopen()

    def close(self) -> None:
        """Let go of the file and the journal; what comes later goes to stderr."""
        self._closed = True
        if self._file is not None:
            self._file.close()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def event(self, event: Event, level: Level = REPORT, /, **fields: FieldValue) -> None:
        """Log `event`; fields that are None are left out."""
        if level > self.level:
            return
        assert _RESERVED.isdisjoint(fields), "a field must not hide one of the log's own keys"
        shown = {name: _plain(value) for name, value in fields.items() if value is not None}
        if level <= ERROR and "errno" not in shown:
            shown.update(_errno())
        pid = os.getpid()  # asked each time: services fork
        if self._gathered is not None:
            if level > ERROR and self._journal is None:
                said = self._prefixed(_SYSLOG_PRIORITY[level], self._human(
                    event, level, pid, shown)) if self._stderr else ""
                self._gathered.append((self._line(event, level, pid, shown), said))
                return
            self._tell_gathered()
        if self._file is not None and not self._closed:
            if self._file.ready():
                self._append(self._file, event, level, pid, shown)
            else:
                self.lost += 1
        if self._stderr:
            line = self._human(event, level, pid, shown)
            if self._journal is None or not self._journal.send(
                journal_fields(self.service, event, level, line, shown, self._path)
            ):
                self._say(_SYSLOG_PRIORITY[level], line)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write what comes in here with one write, at its end or before an ERROR: for those that
        work on many messages at once. Who is killed in between leaves no line of them."""
        if self._gathered is not None:
            yield
            return
        self._gathered = []
        try:
            yield
        finally:
            self._tell_gathered()
            self._gathered = None

    def _tell_gathered(self) -> None:
        found, self._gathered = self._gathered, []
        if not found:
            return
        if self._file is not None and not self._closed:
            if self._file.ready():
                self._write(self._file, b"".join(line for line, _ in found), len(found))
            else:
                self.lost += len(found)
        if self._stderr:
            side_files.say("\n".join(line for _, line in found))

    def side_files(self, event: Event, fields: dict[str, str | float]) -> None:
        """What base.side_files has to tell."""
        self.event(event, REPORT if event is events.SIDE_FILES_WRITTEN else ERROR, **fields)

    def _append(
        self, file: LogFile, event: Event, level: Level, pid: int, fields: dict[str, str | float]
    ) -> None:
        self._write(file, self._line(event, level, pid, fields), 1)

    def _write(self, file: LogFile, line: bytes, count: int) -> None:
        """So many whole lines; in front of the first after a loss goes the one that tells of it."""
        if self.lost:
            told = self._line(events.EVENTS_LOST, WARNING, os.getpid(), {"lines": self.lost})
            line = (b"\n" if file.cut else b"") + told + line
        try:
            written = file.write(line)
        except OSError as error:
            self.lost += count
            self._refused(f"cannot be written: {error.strerror}")
            return
        if written == len(line):
            self.lost, self._said = 0, False
        else:
            self.lost += count
            self._refused("cannot be written: short write, the disk is full")

    def _line(
        self, event: Event, level: Level, pid: int, fields: dict[str, str | float]
    ) -> bytes:
        record: dict[str, str | float] = {
            "time": clock.iso_time(clock.wall_ns()),
            "level": level.name,
            "service": self.service,
            "pid": pid,
            "event": event.number,
            "text": event.text,
            **fields,
        }
        return (json.dumps(record) + "\n").encode("ascii")

    def _refused(self, reason: str) -> None:
        """Told once, until the log is written again."""
        if not self._said:
            self._said = True
            self._say(3, f"ERROR {self.service}[{os.getpid()}] {self._path} {reason}")

    def _say(self, priority: int, line: str) -> None:
        side_files.say(self._prefixed(priority, line))

    def _human(
        self, event: Event, level: Level, pid: int, fields: dict[str, str | float]
    ) -> str:
        """As human_line; on a terminal with what a person reads in lines."""
        if not self._terminal or TRACEBACK not in fields:
            return human_line(self.service, event, level, pid, fields)
        rest = {name: value for name, value in fields.items() if name != TRACEBACK}
        lines = str(fields[TRACEBACK]).rstrip("\n").split("\n")
        return "\n    ".join((human_line(self.service, event, level, pid, rest),
                              *(escape(line, FIELD_CHARACTERS_MAX) for line in lines)))

    def _prefixed(self, priority: int, line: str) -> str:
        return f"<{priority}>{line}" if self._prefix else line


def human_line(
    service: str, event: Event, level: Level, pid: int, fields: dict[str, str | float]
) -> str:
    """`REPORT local.delivery[71] [OM 7604] Finished delivery of message queue=LOCAL`. A value
    with a blank or a quote is quoted, with a backslash before each quote and backslash of its own:
    so no value that somebody chose looks like a field."""
    words = [f"{level.name} {service}[{pid}] [OM {event.number:04d}] {event.text}"]
    for name, value in fields.items():
        text = str(value)
        if " " in text or '"' in text:
            text = text.replace("\\", r"\\").replace('"', r"\"")
            words.append(f'{name}="{escape(text, FIELD_CHARACTERS_MAX)}"')
        else:
            words.append(f"{name}={escape(text, FIELD_CHARACTERS_MAX)}")
    return " ".join(words)


def journal_fields(
    service: str, event: Event, level: Level, line: str, fields: dict[str, str | float],
    log: Path | None = None,
) -> dict[str, str]:
    """The journal's entry for an event; `log` says which instance it is of."""
    found = {
        "MESSAGE": line,
        "PRIORITY": str(_SYSLOG_PRIORITY[level]),
        "SYSLOG_IDENTIFIER": service,
        "MESSAGE_ID": message_id(event.number),
        "OMQ_EVENT": str(event.number),
        "OMQ_SERVICE": service,
    }
    if log is not None:
        found["OMQ_LOG"] = str(log)
    return found | {f"OMQ_{name.upper()}": str(value) for name, value in fields.items()}


def _errno() -> dict[str, str | float]:
    """The errno of the error that is being handled, if it is one of a system call: the original
    told it at level error and worse."""
    error = sys.exception()
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return {"errno": error.errno}
        error = error.__cause__
    return {}


def _plain(value: str | bytes | float | Path) -> str | float:
    if isinstance(value, int | float):
        return value
    if isinstance(value, bytes):
        return value[:FIELD_CHARACTERS_MAX].hex()
    text = str(value)
    return text if len(text) <= FIELD_CHARACTERS_MAX else text[:FIELD_CHARACTERS_MAX] + "..."
