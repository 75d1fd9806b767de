"""omq health: what is wrong with an instance, by alarms.conf; --watch: raises and clears alarms.

Without --watch it looks once, writes nothing, asks nobody: a line a finding. While a watcher runs
(omq-alarms.service) findings are the alarms that it has raised, with their hold times; else
whatever is at its threshold now. Below each finding stands what to do. What keeps messages from
moving and is at no threshold (held, deferred, a queue that nobody reads) is a note, which does not
count. Exit code 0: nothing is wrong; 1: something is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from omq.base import events, side_files
from omq.base.clock import iso_time
from omq.base.config import load_settings
from omq.base.errors import ConfigError, Exit
from omq.base.event_log import ERROR, EventLog, Level
from omq.base.names import escape
from omq.cli import role
from omq.cli.common import add_json, existing, print_json, tool_parser
from omq.cli.look.cause import Cause
from omq.cli.watch import alarm_file
from omq.cli.watch.alarm_conf import Alarm, load_alarms
from omq.cli.watch.alarm_events import AlarmEvents
from omq.cli.watch.alarm_notices import Notices
from omq.cli.watch.alarms import step
from omq.cli.watch.conditions import Condition, Key, raised
from omq.cli.watch.facts import Facts, gather
from omq.cli.watch.measures import OF_ROOM
from omq.cli.watch.reasons import causes
from omq.services.daemon.notify import Notifier
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals
from omq.services.standby import lease_file

NAME: Final = "omq health"
_LINE_MAX: Final = 1024


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = existing(options, tell_role=False)
    told = role.line(location.paths)
    if told and not options.watch:
        return _standby(location, told, options)
    alarms = load_alarms(location.conf_dir)
    if options.watch:
        return _watch(location, alarms)
    facts = gather(location)
    found = findings(location, alarms, facts)
    notes = other_causes(alarms, found, facts)
    shipping = facts.shipping.trouble if facts.shipping is not None else ""
    if options.json:
        if shipping:
            print_json({"shipping": shipping})
        for each in found:
            print_json(each.record() | {"causes": [cause.record() for cause in causes_of(
                alarms, each, facts)]})
        for cause in notes:
            print_json(_note(cause, facts))
    elif not options.quiet:
        for line in (*(line for each in found for line in each.lines()),
                     *(line for cause in notes for line in _note_lines(cause))):
            sys.stdout.write(escape(line, _LINE_MAX) + "\n")
        for line in room_lines(alarms, found, facts):
            sys.stdout.write(escape(line, _LINE_MAX) + "\n")
        if not found and not notes:
            sys.stdout.write("nothing is wrong\n")
    return Exit.NO if found or shipping else Exit.OK


def _standby(location: Location, told: str, options: argparse.Namespace) -> int:
    """Of one that serves nobody: does it follow its primary?"""
    said = role.published(location.paths)
    lease = lease_file.watched(location.paths, location.conf_dir)
    trouble = lease.trouble if lease is not None else ""
    if options.json:
        print_json({"standby": told, "following": bool(said.get("following")),
                    "lag_frames": said.get("lag_frames"), "error": said.get("error", ""),
                    "lease": trouble if lease is not None else None})
    elif not options.quiet:
        sys.stdout.write(escape(told, _LINE_MAX) + "\n")
        for each in filter(None, (said.get("error"), trouble)):
            sys.stdout.write(escape(f"    -> {each}", _LINE_MAX) + "\n")
    return Exit.OK if said.get("following") and not trouble else Exit.NO


def findings(location: Location, alarms: tuple[Alarm, ...], facts: Facts) -> list[Condition]:
    """See the module."""
    kept = alarm_file.read(location.paths)
    if kept.living:
        return raised(kept.conditions.values())
    pending = step(alarms, facts, {})
    return raised(_ripe(each) for each in pending.values())


def room_lines(alarms: tuple[Alarm, ...], found: list[Condition], facts: Facts) -> list[str]:
    """What fills the disk, if one of these is about that, and the command that helps."""
    about = {each.name for each in alarms if each.measure in OF_ROOM}
    if not any(each.alarm in about for each in found):
        return []
    return list(filter(None, (facts.space.note or facts.filled.text,)))


def _ripe(each: Condition) -> Condition:
    return replace(each, raised=True)


def causes_of(alarms: tuple[Alarm, ...], each: Condition, facts: Facts) -> list[Cause]:
    """What is seen now that explains a finding."""
    measure = next((alarm.measure for alarm in alarms if alarm.name == each.alarm), "")
    return causes(measure, each.queue, facts) if measure else []


def other_causes(alarms: tuple[Alarm, ...], found: list[Condition], facts: Facts) -> list[Cause]:
    """Those of which no finding tells: nothing of them is at a threshold."""
    told = [cause for each in found for cause in causes_of(alarms, each, facts)]
    return [cause for cause in facts.causes.all() if cause not in told]


def _note_lines(cause: Cause) -> Iterator[str]:
    first, *rest = cause.lines()
    return iter((f"note: {first}", *rest))


def _note(cause: Cause, facts: Facts) -> dict[str, Any]:
    """The JSON object of a cause that is at no threshold: `alarm` is null."""
    return {"alarm": None, "queue": cause.queue or None, "severity": "note", "value": None,
            "since": iso_time(facts.time_ns), "why": cause.text, "hints": list(cause.hints),
            "causes": [cause.record()]}


def _watch(location: Location, alarms: tuple[Alarm, ...]) -> int:
    """Until SIGTERM; SIGHUP reads alarms.conf and omq.conf again."""
    settings = load_settings(location.conf_dir)
    log = EventLog("omq-alarms", location.paths.event_log, level=Level[settings.event_level],
                   stderr=True, bytes_max=settings.event_log_bytes_max)
    kept = alarm_file.read(location.paths)
    signals, notifier, before = Signals(), Notifier(), kept.conditions
    notices = Notices(settings, log, dict(kept.told_ns), owed=kept.owed,
                      stopping=lambda: signals.stopping)
    told = AlarmEvents(location.paths, settings, log)
    signals.install()
    notifier.ready(f"{len(alarms)} alarms")
    while not signals.stopping:
        if signals.take_reload():
            try:
                alarms, settings = load_alarms(location.conf_dir), load_settings(location.conf_dir)
                told.configure(settings)
                log.event(events.SERVICE_RELOADED)
            except ConfigError as error:
                log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
        before = turn(location, alarms, before, notices, told)
        notifier.watchdog()
        signals.wait(settings.alarms_period_s)
    notifier.stopping()
    alarm_file.write(location.paths, before, notices.told_ns, notices.owed)
    side_files.retry()
    log.close()
    return Exit.OK


def turn(location: Location, alarms: tuple[Alarm, ...], before: dict[Key, Condition],
         notices: Notices, told: AlarmEvents) -> dict[Key, Condition]:
    """One look, and what follows of it. The file is written when all have been told: a watcher that
    dies while it tells has the next one tell again, rather than nobody."""
    facts = gather(location)
    now = step(alarms, facts, before)
    notices.changed(before, now)
    told.changed(before, now, facts.time_ns)
    told.put(facts)
    notices.tell(alarms, facts.time_ns)
    alarm_file.write(location.paths, now, notices.told_ns, notices.owed)
    side_files.retry()
    return now


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Report what is wrong with an instance, according to "
                               "alarms.conf.", """
        omq health
        omq health --quiet || echo ill
        omq health --json
        omq health --watch
        """)
    parser.add_argument("--quiet", action="store_true", help="print nothing; the exit code is the "
                                                             "answer")
    parser.add_argument("--watch", action="store_true",
                        help="keep running; raise and clear alarms (omq-alarms.service)")
    add_json(parser)
    return parser
