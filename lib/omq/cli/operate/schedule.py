"""omq schedule: messages that are put at planned times.

    omq schedule define NIGHTLY REPORTS '0 3 * * *' --zone Europe/Berlin --body '{}'
    omq schedule list
    omq schedule show NIGHTLY
    omq schedule pause NIGHTLY          resume, run and delete likewise

schedule.server puts them ('omon schedule'). Those of schedules.conf are defined there; the words
above do the rest, for them too, but define and delete.

Errors: BadSchedule, UnknownSchedule, NoAuthority, NotOperator, ManagerUnavailable. `list --check`
has exit code 1 when one is overdue by more than a minute: nobody puts it; or when its queue is not
there.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Final

from omq.base import clock
from omq.base.amounts import duration
from omq.base.errors import Exit
from omq.base.names import escape
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.operate.change import connect
from omq.tasks.schedule import Schedule
from omq.tasks.schedule_step import LATE_NS
from omq.tasks.schedule_times import shown
from omq.tasks.schedules import QueueMissing, Schedules, missing_queue

NAME: Final = "omq schedule"
_ONE: Final = ("show", "pause", "resume", "run", "delete")


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    options.when = " ".join(options.when)
    _check(parser, options)
    with connect(existing(options), "omq") as connection:
        schedules = Schedules(connection)
        do = options.do
        if do == "list":
            return _list(schedules, options)
        if do == "define":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", QueueMissing)  # `_show` says it
                found = schedules.define(
                    options.name, options.queue, options.when, zone=options.zone,
                    body=options.body, properties=dict(options.property),
                    priority=options.priority, expiry_s=options.expiry, jitter_s=options.jitter,
                    catch_up=options.catch_up, overlap=options.overlap)
            _show(schedules, found, options)
        elif do == "run":
            made = schedules.run(options.name)
            _say({"schedule": options.name, "message": made}, made, options)
        elif do == "delete":
            schedules.delete(options.name)
        else:
            _show(schedules, getattr(schedules, do)(options.name), options)
    return Exit.OK


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Whether the words are those that `do` wants."""
    given = [each for each in (options.name, options.queue, options.when) if each]
    if options.do == "define" and len(given) < 3:
        parser.error("define wants a NAME, a QUEUE and WHEN: define NIGHTLY REPORTS '0 3 * * *'")
    if options.do in _ONE and len(given) != 1:
        parser.error(f"{options.do} wants the NAME of one schedule; '{NAME} list' lists them")
    if options.do == "list" and given:
        parser.error(f"list lists all; '{NAME} show {options.name}' shows one")


def _list(schedules: Schedules, options: argparse.Namespace) -> int:
    now, wrong = clock.wall_ns(), False
    for each in schedules.list():
        missing = _show(schedules, each, options, short=True)
        wrong |= missing or _overdue(each, now)
    return Exit.NO if options.check and wrong else Exit.OK


def _overdue(schedule: Schedule, now_ns: int) -> bool:
    return not schedule.paused and schedule.due_ns + LATE_NS < now_ns


def _show(schedules: Schedules, each: Schedule, options: argparse.Namespace, *,
          short: bool = False) -> bool:
    """Whether its queue is missing."""
    last = shown(each.last_ns, each.zone) if each.last_ns else None
    following = None if each.paused else shown(each.next_ns, each.zone)
    record = {**each.definition, "paused": each.paused, "next": following, "last": last,
              "puts": each.puts, "missed": each.missed, "skipped": each.skipped,
              "overdue": _overdue(each, clock.wall_ns()),
              "queue_missing": (missing := schedules.lacks_queue(each))}
    state = "paused" if each.paused else f"next {following}"
    if missing:
        state += ", and the queue is not there"
    elif record["overdue"]:
        state += ", which is over: does schedule.server run?"
    text = f"{each.name:<16} {escape(each.when)} ({each.zone}) -> {each.queue}: {state}"
    if not short:
        text += (f"\n  last {last or 'never'}, {each.puts} put, {each.missed} missed, "
                 f"{each.skipped} skipped; catch-up {each.catch_up}, overlap {each.overlap}, "
                 f"jitter {duration(each.jitter_s)}, by {each.by}\n  body {escape(each.body)}")
    _say(record, text, options)
    if missing:
        say(NAME, missing_queue(each))
    return missing


def _say(record: dict[str, object], text: str, options: argparse.Namespace) -> None:
    if options.json:
        print_json(record)
    else:
        sys.stdout.write(text + "\n")


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError("NAME=VALUE")
    return name, value


def _parser() -> argparse.ArgumentParser:
    found = tool_parser(NAME, "Messages that are put at planned times.", f"""
        {NAME} define NIGHTLY REPORTS '0 3 * * *' --zone Europe/Berlin
        {NAME} define PING CHECKS 'every 15 min' --overlap skip --catch-up skip
        {NAME} list --json
        {NAME} pause NIGHTLY
        """)
    found.add_argument("do", choices=("list", "define", *_ONE), metavar="DO",
                       help="list, define, show, pause, resume, run (now, in addition to the "
                            "planned times) or delete")
    found.add_argument("name", nargs="?", default="", metavar="NAME", help="name of the schedule")
    found.add_argument("queue", nargs="?", default="", metavar="QUEUE",
                       help="with define: where the message is put")
    found.add_argument("when", nargs="*", default=[], metavar="WHEN",
                       help="with define: minute hour day month weekday, as for cron, or 'every 15 "
                       "min' (s, min, h, days)")
    group = found.add_argument_group("define")
    group.add_argument("--zone", default="UTC", metavar="ZONE",
                       help="time zone of the IANA database, such as Europe/Berlin (default: UTC)")
    group.add_argument("--body", default="", metavar="TEXT",
                       help="text of the body; {planned} stands for the planned time")
    group.add_argument("--property", action="append", type=_property, default=[],
                       metavar="NAME=VALUE", help="may be given several times")
    group.add_argument("--priority", type=int, metavar="P", help="0 to 9 (first)")
    group.add_argument("--expiry", type=float, metavar="S",
                       help="it is not handed out after this time")
    group.add_argument("--jitter", type=int, default=0, metavar="S",
                       help="delay each planned time by its own amount, up to S seconds")
    group.add_argument("--catch-up", default="once", metavar="HOW", dest="catch_up",
                       help="planned times that were missed: skip, once (the last one; default) "
                       "or 'all N'")
    group.add_argument("--overlap", default="allow", metavar="HOW",
                       help="allow (default), or skip while the last message is still there")
    found.add_argument("--check", action="store_true",
                       help="with list: exit code 1 when one is overdue by a minute, or its "
                       "queue is not there")
    add_json(found)
    return found
