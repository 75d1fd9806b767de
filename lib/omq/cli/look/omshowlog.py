"""omshowlog: the event log, in the original's form.

    REPORT      Local Delivery(local.delivery) 05.15.99 14:26:31
    [OM 7604] Finished delivery of message
          queue = LOCAL
    Pid of logging process: 15400

Of an instance that systemd runs, from the system's journal if the user may read it; else from
logs/events.log and the one before it (events.log.1), which every daemon writes too (--journal and
--file choose). Lines that are not events are counted and told, never shown raw.
Times are local. Levels are numbers as in the original: 1 fatal, 3 error, 5 warning, 9 report, 15
trace; -l shows everything up to a level.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from omq.base import clock
from omq.base.clock import NS_PER_S, seed_time
from omq.base.errors import BadRequest, CommandUnusable, ConfigError, Exit
from omq.base.event_log import Level
from omq.base.names import escape
from omq.base.services_conf import ServiceConf, load_services
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.look.event_lines import Logged, follow, from_file
from omq.services.daemon.options import Location
from omq.services.supervise import systemctl
from omq.services.supervise.unit_files import base_name

# Events from the system's journal, where the daemons of a systemd instance log (base.journald).
#
# An entry with OMQ_EVENT has the event's fields as fields of its own. One that a daemon could only
# write to its stderr is a line, which is taken apart again. Numbers are numbers again, as in the
# log file. What others write under the same units (systemd itself) is not an event.
#
# Errors: CommandUnusable (journalctl).

_PLACES: Final = ("/var/log/journal", "/run/log/journal")
_HUMAN: Final = re.compile(
    r"(?:<\d>)?(FATAL|ERROR|WARNING|REPORT|TRACE) (\S+)\[(\d+)\] \[OM (\d+)\] (.*)", re.DOTALL)
_FIELD: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')  # base.event_log.human_line
_QUOTED: Final = re.compile(r'\\(["\\])')
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
        fields = {name: _QUOTED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
                  for name, value in said}
    order = [name for name, _ in said if name in fields]
    shown = {name: _value(fields[name]) for name in dict.fromkeys([*order, *fields])}
    text = escape(rest[: first.start()].rstrip() if first else rest)
    record = {"time": clock.iso_time(time_ns), "level": level, "service": service,
              "pid": int(pid), "event": int(event), "text": text, **shown}
    return Logged(time_ns, Level[level], service, int(pid), int(event), text, shown, record)


def _text(value: object) -> str:
    """A field's value: journalctl gives the bytes of one that is not text as numbers, and null for
    a long one."""
    if isinstance(value, list):
        raw = value[-1] if value and isinstance(value[-1], str) else bytes(value)
        return raw if isinstance(raw, str) else raw.decode("utf-8", "backslashreplace")
    return "" if value is None else str(value)


def _value(text: str) -> Any:
    """As base.event_log would have it: a number, if it is written as one."""
    return int(text) if _WHOLE.fullmatch(text) else text


NAME: Final = "omshowlog"
_LEVEL_WIDTH: Final = 12
_FIELD_CHARACTERS_MAX: Final = 1024


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code: 1 when no event is shown."""
    options = parser().parse_args(argv)
    location = existing(options)
    level = _level(options.level)
    since_ns = _since(options)
    titles = _titles(location)
    shown = 0
    for each in _source(location, options, since_ns):
        if _wanted(each, options, level, since_ns):
            shown += 1
            _show(each, titles, options)
    return Exit.OK if shown else Exit.NO


def _source(location: Location, options: argparse.Namespace, since_ns: int) -> Iterable[Logged]:
    def lost(count: int) -> None:
        say(NAME, f"{count} lines are not events")

    managed = systemctl.managed(location.paths)
    if options.journal or (managed is not None and not options.file and readable()):
        return from_journal(location.paths.event_log, _units(location, managed), since_ns,
                            follow=options.follow)
    path = location.paths.event_log
    return follow(path, lost) if options.follow else from_file(path, lost)


def _units(location: Location, managed: systemctl.Managed | None) -> list[str]:
    """The units of the instance."""
    if managed is None:
        return []
    known = [managed.unit(name) for name in load_services(location.conf_dir)]
    return [*known, managed.drain, f"{base_name(managed.instance)}-archive.service"]


def _wanted(each: Logged, options: argparse.Namespace, level: int, since_ns: int) -> bool:
    return (each.level <= level and each.time_ns >= since_ns
            and (options.pid is None or each.pid == options.pid)
            and (options.service is None or options.service in (each.service, each.short))
            and (options.event is None or each.event == options.event))


def _show(each: Logged, titles: dict[str, str], options: argparse.Namespace) -> None:
    if options.json:
        print_json(each.record)
    else:
        sys.stdout.write("\n".join((*lines(each, titles, with_pid=options.with_pid), "", "")))
    if options.follow:
        sys.stdout.flush()


def lines(each: Logged, titles: dict[str, str], *, with_pid: bool) -> Iterator[str]:
    """One event. The original's errno line stands at error level and worse."""
    title = titles.get(each.service, each.service)
    yield (f"{each.level.name:<{_LEVEL_WIDTH}}{escape(title)}({escape(each.service):<14}) "
           f"{seed_time(each.time_ns)}")
    yield f"[OM {each.event:04d}] {escape(each.text)}"
    for name, value in each.fields.items():
        if name != "errno":
            yield f"      {escape(name)} = {escape(str(value), _FIELD_CHARACTERS_MAX)}"
    if with_pid:
        yield f"Pid of logging process: {each.pid}"
    if each.level <= Level.ERROR and "errno" in each.fields:
        yield f"Current errno value: {escape(str(each.fields['errno']))}"


def _titles(location: Location) -> dict[str, str]:
    """Titles by the name that a daemon logs under: its program, or its short name."""
    try:
        services: dict[str, ServiceConf] = load_services(location.conf_dir)
    except ConfigError as error:
        say(NAME, f"{error}; services are shown by name")
        return {}
    return {name: conf.title for conf in services.values() for name in (conf.program, conf.name)}


def _level(text: str) -> int:
    if text.isdigit():
        return int(text)
    if text.upper() in Level.__members__:
        return Level[text.upper()]
    raise BadRequest(reason=f"-l is a number up to 15 or one of {', '.join(Level.__members__)}")


def _since(options: argparse.Namespace) -> int:
    now = clock.wall_ns()
    if options.since:
        return clock.parse_iso(options.since)
    return now - options.period * 60 * NS_PER_S if options.period is not None else 0


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(NAME, "Show the event log.", """
        omshowlog -l 9 -P -p 10
        omshowlog -l 9 -P -i 15400 -p 10
        omshowlog -l error --since 2026-11-21T08:00
        omshowlog -f --json
        """)
    found.add_argument("-l", dest="level", default="9", metavar="LEVEL",
                       help="most detail: 1 fatal, 3 error, 5 warning, 9 report, 15 trace (9)")
    found.add_argument("-p", dest="period", type=int, metavar="MINUTES",
                       help="only the last MINUTES")
    found.add_argument("--since", metavar="TIME", help="only from then on: 2026-11-21T08:00")
    found.add_argument("-P", dest="with_pid", action="store_true",
                       help="show the pid of the process that logged")
    found.add_argument("-i", dest="pid", type=int, metavar="PID",
                       help="only what this process logged")
    found.add_argument("-s", dest="service", metavar="SERVICE", help="only this service")
    found.add_argument("-e", dest="event", type=int, metavar="NUMBER",
                       help="only the event with this number (omq-events(7))")
    found.add_argument("-f", dest="follow", action="store_true", help="keep printing new events "
                                                                      "as they come")
    where = found.add_mutually_exclusive_group()
    where.add_argument("--journal", action="store_true", help="read the system's journal")
    where.add_argument("--file", action="store_true", help="read logs/events.log.1 and events.log")
    add_json(found)
    return found
