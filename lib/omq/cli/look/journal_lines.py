"""Events from the system's journal, where the daemons of a systemd instance log (base.journald).

An entry with OMQ_EVENT has the event's fields as fields of its own. One that a daemon could only
write to its stderr is a line, which is taken apart again. Numbers are numbers again, as in the log
file. What others write under the same units (systemd itself) is no event.

Errors: CommandUnusable (journalctl).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from omq.base import clock
from omq.base.errors import CommandUnusable
from omq.base.event_log import Level
from omq.base.names import escape
from omq.cli.look.event_lines import Logged

_PLACES: Final = ("/var/log/journal", "/run/log/journal")
_HUMAN: Final = re.compile(
    r"(?:<\d>)?(FATAL|ERROR|WARNING|REPORT|TRACE) (\S+)\[(\d+)\] \[OM (\d+)\] (.*)", re.DOTALL)
_FIELD: Final = re.compile(r'(\w+)=("[^"]*"|\S+)')
_PREFIX: Final = "OMQ_"
_OWN: Final = ("OMQ_EVENT", "OMQ_SERVICE", "OMQ_LOG")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")


def readable() -> bool:
    """Whether this user may read the system's journal (systemd-journald.service(8))."""
    return any(os.access(path, os.R_OK) for place in _PLACES
               for path in Path(place).glob("*/system.journal"))


def from_journal(log: Path, units: Sequence[str], since_ns: int, *, follow: bool
                 ) -> Iterator[Logged]:
    """The events of the instance with this log file, from journalctl(1), and what these units of it
    could only write to stderr."""
    command = ["journalctl", "--output=json", "--all", "--no-pager"]
    if since_ns:
        command.append(f"--since=@{since_ns // clock.NS_PER_S}")
    if follow:
        command += ["--follow", "--lines=all"]
    command.append(f"OMQ_LOG={log}")
    for unit in units:
        command += ["+", f"_SYSTEMD_UNIT={unit}"]
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
        entry = {name: _text(value) for name, value in json.loads(line).items()}
        match = _HUMAN.fullmatch(entry["MESSAGE"])
        time_ns = int(entry["__REALTIME_TIMESTAMP"]) * 1000
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if match is None:
        return None
    level, service, pid, event, rest = match.groups()
    said = _FIELD.findall(rest)
    first = _FIELD.search(rest)
    fields = {name.removeprefix(_PREFIX).lower(): value for name, value in entry.items()
              if name.startswith(_PREFIX) and name not in _OWN}
    if "OMQ_EVENT" not in entry:
        fields = {name: value.strip('"') for name, value in said}
    order = [name for name, _ in said if name in fields]
    shown = {name: _value(fields[name]) for name in dict.fromkeys([*order, *fields])}
    text = escape(rest[: first.start()].rstrip() if first else rest)
    record = {"time": clock.iso_time(time_ns), "level": level, "service": service,
              "pid": int(pid), "event": int(event), "text": text, **shown}
    return Logged(time_ns, Level[level], service, int(pid), int(event), text, shown, record)


def _text(value: object) -> str:
    """A field's value: journalctl gives the bytes of one that is no text as numbers, and null for a
    long one."""
    if isinstance(value, list):
        raw = value[-1] if value and isinstance(value[-1], str) else bytes(value)
        return raw if isinstance(raw, str) else raw.decode("utf-8", "backslashreplace")
    return "" if value is None else str(value)


def _value(text: str) -> Any:
    """As base.event_log would have it: a number, if it is written as one."""
    return int(text) if _WHOLE.fullmatch(text) else text
