"""omshowlog: the event log, in the original's form.

    REPORT      Local Delivery(local.delivery) 05.15.99 14:26:31
    [OM 7604] Finished delivery of message
          queue = LOCAL
    Pid of logging process: 15400

Of an instance that systemd runs, from the system's journal if the user may read it; else from
logs/events.log and the one before it (events.log.1), which every daemon writes too (--journal and
--file choose). Lines that are no events are counted and told, never shown raw.
Times are local. Levels are numbers as in the original: 1 fatal, 3 error, 5 warning, 9 report, 15
trace; -l shows everything up to a level.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from omq.base import clock
from omq.base.clock import NS_PER_S, seed_time
from omq.base.errors import BadRequest, ConfigError, Exit
from omq.base.event_log import Level
from omq.base.names import escape
from omq.base.services_conf import ServiceConf, load_services
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.look.event_lines import Logged, follow, from_file
from omq.cli.look.journal_lines import from_journal, readable
from omq.services.daemon.options import Location
from omq.services.supervise import systemctl
from omq.services.supervise.unit_files import base_name

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
        say(NAME, f"{count} lines are no events")

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
    found.add_argument("-f", dest="follow", action="store_true", help="go on with what comes")
    where = found.add_mutually_exclusive_group()
    where.add_argument("--journal", action="store_true", help="read the system's journal")
    where.add_argument("--file", action="store_true", help="read logs/events.log.1 and events.log")
    add_json(found)
    return found
