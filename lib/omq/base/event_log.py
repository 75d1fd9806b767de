"""The one logger: an event has a level, a number and text, a process id and fields.

Each goes to two places: `logs/events.log` as one JSON object a line, and stderr as one line for
people. Where stderr is systemd's journal, the event goes there with its fields (omq.base.journald);
if that fails it is a line with the `<N>` priority prefix of sd-daemon(3).

Invariants: 1. one event is one write() on an O_APPEND descriptor, so that the lines of many
processes do not mix; 2. nothing that a field holds can start a new line or reach a terminal
unescaped; 3. a log that cannot be written never stops the service: the loss is told on stderr, and
the first line that goes through again is an event with the number of lines that are missing (OM
1125). The log is a side file (base.side_files), never synced; 4. a log that was renamed is left
alone and a new one begun, by each process with its next event; 5. with `bytes_max` the log and the
one before it (`.1`) take no more than twice that, and a line: who finds the log at its bound
renames it, under a lock on the file itself, so that of several processes one does.

In the middle of a crash: between the rename and the first line of the new file there is only `.1`;
no line is lost, for one that is written meanwhile goes to the renamed file.

JSON keys: time (ISO 8601), level, service, pid, event (number), text, then the fields. A field that
would hide one of these is a bug of ours.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from enum import IntEnum
from pathlib import Path
from typing import Final

from omq.base import clock, events, side_files
from omq.base.events import Event
from omq.base.journald import Journal, is_journal, message_id
from omq.base.names import escape

FIELD_CHARACTERS_MAX: Final = 1024
"""A longer value is cut: one event must stay one short write."""

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
        self._bytes_max = bytes_max  # 0: no bound
        self.level = level
        self.lost = 0  # lines, since the log was last written
        self._torn = False  # its last line is cut: the next one begins anew
        self._said = False  # that it is refused
        self._closed = False
        self._path = path
        self._stderr = stderr
        self._prefix = "JOURNAL_STREAM" in os.environ
        self._journal = Journal() if stderr and is_journal(os.environ) else None
        self._descriptor = -1
        self.reopen()

    def reopen(self) -> None:
        """Open the log again, after a fork into another service or a rotation."""
        self._close_file()
        self._closed = False
        if self._path is None:
            return
        try:
            self._descriptor = side_files.calls.open(
                str(self._path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            self._refused(f"cannot be opened: {error.strerror}")

    def close(self) -> None:
        """Let go of the file and the journal; what comes later goes to stderr."""
        self._closed = True
        self._close_file()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def event(self, event: Event, level: Level = REPORT, /, **fields: FieldValue) -> None:
        """Log `event`; fields that are None are left out."""
        if level > self.level:
            return
        assert _RESERVED.isdisjoint(fields), "a field must not hide one of the log's own keys"
        shown = {name: _plain(value) for name, value in fields.items() if value is not None}
        if level <= ERROR and "errno" not in shown:
            shown.update(_errno())
        pid = os.getpid()  # asked each time: services fork
        if self._path is not None and not self._closed:
            self._follow(self._path)
        if self._descriptor >= 0:
            self._append(event, level, pid, shown)
        elif self._path is not None and not self._closed:
            self.lost += 1
        if self._stderr:
            line = human_line(self.service, event, level, pid, shown)
            if self._journal is None or not self._journal.send(
                journal_fields(self.service, event, level, line, shown, self._path)
            ):
                self._say(_SYSLOG_PRIORITY[level], line)

    def _follow(self, path: Path) -> None:
        """Have the file open that has the name, and not beyond its bound. Two system calls."""
        if self._descriptor >= 0:
            mine = os.fstat(self._descriptor)
            if not _is_at(path, mine):
                self._close_file()
            elif 0 < self._bytes_max <= mine.st_size:
                self._rotate(path)
        if self._descriptor < 0:
            self.reopen()

    def _rotate(self, path: Path) -> None:
        """Rename the full log, unless another process was quicker; one that cannot be goes on."""
        try:
            # A description of its own: one that came by a fork shares its lock with the parent.
            own = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(own, fcntl.LOCK_EX)
                found = os.fstat(own)
                if found.st_size >= self._bytes_max and _is_at(path, found):
                    side_files.calls.rename(str(path), f"{path}.1")
            finally:
                os.close(own)
        except OSError as error:
            self._refused(f"cannot be renamed at its bound: {error.strerror}")
            return
        self._close_file()

    def side_files(self, event: Event, fields: dict[str, str | float]) -> None:
        """What base.side_files has to tell."""
        self.event(event, REPORT if event is events.SIDE_FILES_WRITTEN else ERROR, **fields)

    def _append(
        self, event: Event, level: Level, pid: int, fields: dict[str, str | float]
    ) -> None:
        """One line; in front of the first after a loss goes the line that tells of it."""
        line = self._line(event, level, pid, fields)
        if self.lost:
            told = self._line(events.EVENTS_LOST, WARNING, pid, {"lines": self.lost})
            line = (b"\n" if self._torn else b"") + told + line
        try:
            written = side_files.calls.write(self._descriptor, line)
        except OSError as error:
            self.lost += 1
            self._refused(f"cannot be written: {error.strerror}")
            return
        if written == len(line):
            self.lost, self._torn, self._said = 0, False, False
        else:
            self.lost += 1
            self._torn = self._torn or written > 0
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
        side_files.say((f"<{priority}>" if self._prefix else "") + line)


def _is_at(path: Path, file: os.stat_result) -> bool:
    """Whether this file has this name."""
    try:
        return os.path.samestat(os.stat(path), file)
    except OSError:
        return False


def human_line(
    service: str, event: Event, level: Level, pid: int, fields: dict[str, str | float]
) -> str:
    """`REPORT local.delivery[71] [OM 7604] Finished delivery of message queue=LOCAL`."""
    words = [f"{level.name} {service}[{pid}] [OM {event.number:04d}] {event.text}"]
    for name, value in fields.items():
        text = escape(str(value), FIELD_CHARACTERS_MAX)
        words.append(f'{name}="{text}"' if " " in text else f"{name}={text}")
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
