"""omhold, omrelease, omrequeue: one order for the messages that are named or chosen.

    omhold     nobody gets them until they are released
    omrelease  held or deferred messages are ready, at their old place
               -q of both: a whole queue, with what is to come (cli.operate.queue_hold)
    omrequeue  poisoned messages go back to the queue where they failed (or --to another), marked:
               a second failure shows it; at most --limit of them a run

Chosen by ids, or by --where; with both, both must hold. Errors: those of cli.operate.change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from omq.base import clock
from omq.base.config import client_settings
from omq.base.errors import BadRequest, Exit, FileNotWritten, NothingMeant
from omq.base.names import IDEL_NAME, POISON_NAME, escape
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.operate import change as changes
from omq.cli.operate.change_plan import Change, Doing, counted, plan_lines, target
from omq.cli.operate.queue_hold import set_queue
from omq.cli.progress import looking
from omq.core.index.rows import EntryRow
from omq.core.look.selection import Selection, parse
from omq.format.index import EntryState
from omq.services.daemon.options import Location
from omq.storage.spool import open_spool

MAY: Final[dict[Doing, Callable[[EntryRow], bool]]] = {
    Doing.HOLD: lambda row: row.state in (EntryState.READY, EntryState.DEFERRED,
                                          EntryState.ACTIVE) and row.queue != IDEL_NAME,
    Doing.RELEASE: lambda row: row.state in (EntryState.HELD, EntryState.DEFERRED)
    and row.queue != IDEL_NAME,
    Doing.MOVE: lambda row: True,
}
"""Which of the chosen the order is for; the queue manager judges for itself."""


def hold(argv: list[str] | None = None) -> int:
    """The command omhold; its exit code."""
    options = hold_parser().parse_args(argv)
    if options.queue:
        return _whole("omhold", options, get=False, put=False if options.put else None)
    if options.put:
        raise BadRequest(reason="--put is of a whole queue: say it with -q")
    return _run("omhold", options, Change(Doing.HOLD, force=options.force))


def release(argv: list[str] | None = None) -> int:
    """The command omrelease; its exit code."""
    options = release_parser().parse_args(argv)
    if options.queue:
        return _whole("omrelease", options, get=True, put=True)
    return _run("omrelease", options, Change(Doing.RELEASE))


def requeue(argv: list[str] | None = None) -> int:
    """The command omrequeue; its exit code."""
    options = requeue_parser().parse_args(argv)
    to = (options.to.upper(),) if options.to else ()
    location = existing(options)
    limit = options.limit or client_settings(location.conf_dir).operator_requeue_max
    return _run("omrequeue", options, Change(Doing.MOVE, to), options.queue.upper(), limit)


def _whole(name: str, options: argparse.Namespace, *, get: bool, put: bool | None) -> int:
    """-q: the queue itself, now and later (cli.operate.queue_hold)."""
    if options.message or options.where or options.count or options.dry_run:
        raise BadRequest(reason="-q is the whole queue: no ids, --where, --count or --dry-run")
    queue = options.queue.upper()
    row = set_queue(name, existing(options), queue, options.reason, get=get, put=put)
    if options.json:
        print_json({"queue": queue, "get": "allowed" if get else "inhibited",
                    "put": put if put is None else "allowed" if put else "inhibited",
                    "messages": None if row is None else row.messages})
    else:
        waiting = "" if row is None else f"; {counted(row.messages)} on it, {row.active} active"
        word = "released" if get else "held, nobody gets messages from it" + (
            ", and none is taken" if put is False else "")
        sys.stdout.write(f"{queue} is {word}{waiting}\n")
    return Exit.OK


def _run(name: str, options: argparse.Namespace, change: Change, queue: str | None = None,
         limit: int | None = None) -> int:
    location = existing(options)
    uuid = open_spool(location.paths.root).uuid
    selection = _selection(options)
    with looking(name, location.paths) as seen:
        may = MAY[change.doing]
        found = (row for row in selection.rows(seen.view, location.paths, uuid, clock.wall_ns(),
                                               queue) if may(row))
        rows: Iterator[EntryRow] = islice(found, limit)
        items: list[tuple[int, str, int]] = []
        if options.count:
            sys.stdout.write(f"{sum(1 for _ in rows)}\n")
        elif options.dry_run:
            lines = plan_lines(change, rows, uuid, seen.view.counters()["last_lsn"])
            _write_plan(options.dry_run, lines)
        else:
            items = [target(row) for row in rows]
    for note in selection.notes():
        say(name, note)
    if options.count or options.dry_run:
        return Exit.OK
    if not items:
        raise NothingMeant(action=f"{change.text()}{f' from {queue}' if queue else ''}")
    say(name, f"{change.text()}: {counted(len(items))}")
    changes.confirm(location, change, len(items), _asked, yes=options.yes)
    return _carry_out(name, location, change, items, options)


def _carry_out(name: str, location: Location, change: Change, items: list[tuple[int, str, int]],
               options: argparse.Namespace) -> int:
    words = [*(options.message or []), *(f"--where {each}" for each in options.where or [])]
    command = " ".join((name, *words))
    report = changes.carry_out(location, command, change, items, options.reason)
    if options.json:
        print_json(changes.report_record(change, report))
    else:
        sys.stdout.write(f"{len(report.done)} of {counted(len(items))}: {name.removeprefix('om')}"
                         f"{' to ' + ', '.join(change.targets) if change.targets else ''}\n")
    for text in changes.refusals(report):
        say(name, text)
    changes.check(report, len(items))
    return Exit.OK


def _write_plan(name: str, lines: Iterator[str]) -> None:
    if name == "-":
        sys.stdout.writelines(line + "\n" for line in lines)
        return
    try:
        with Path(name).open("x", encoding="ascii") as file:
            file.writelines(line + "\n" for line in lines)
    except OSError as error:
        raise FileNotWritten(path=escape(name), reason=error.strerror) from error


def _selection(options: argparse.Namespace) -> Selection:
    texts = list(options.where or [])
    if options.message:
        texts.append(f"id={','.join(options.message)}")
    if not texts:
        raise BadRequest(reason="name messages, or choose them by --where")
    return parse(*texts)


def _asked(prompt: str) -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _parser(name: str, description: str, examples: str) -> argparse.ArgumentParser:
    found = tool_parser(name, description, examples)
    found.add_argument("message", nargs="*", metavar="ID", help="QPoolIds or message ids")
    found.add_argument("--where", action="append", metavar="TERMS",
                       help="choose by terms, such as 'queue=LOCAL age>2h' (omq-where(7))")
    found.add_argument("--count", action="store_true", help="only print how many messages match")
    found.add_argument("--dry-run", metavar="PLAN",
                       help="write the plan (- for the output); 'omqdump --apply' carries it out")
    found.add_argument("--yes", action="store_true", help="do not ask before changing many "
                                                          "messages")
    found.add_argument("--reason", metavar="TEXT", default="", help="the reason, recorded in the "
                                                                    "journal")
    add_json(found)
    return found


def hold_parser() -> argparse.ArgumentParser:
    """The options of omhold."""
    found = _parser("omhold", "Hold messages: they are not handed out until they are released.", """
        omhold 956 957 --reason 'customer asked'
        omhold --where 'queue=UNIX size>10M'
        omhold -q LOCAL --reason 'the disk of the Maildirs is full'
        """)
    found.add_argument("-q", dest="queue", metavar="QUEUE",
                       help="the whole queue, including messages yet to come, until omrelease -q")
    found.add_argument("--put", action="store_true", help="with -q: also take no new messages")
    found.add_argument("--force", action="store_true",
                       help="also messages that readers are processing; the readers lose them")
    return found


def release_parser() -> argparse.ArgumentParser:
    """The options of omrelease."""
    found = _parser("omrelease", "Make held or deferred messages ready, at their old place.", """
        omrelease 956
        omrelease --where 'queue=UNIX state=deferred' --yes
        omrelease -q LOCAL
        """)
    found.add_argument("-q", dest="queue", metavar="QUEUE",
                       help="the whole queue, as omhold -q held it; messages held by id stay held")
    return found


def requeue_parser() -> argparse.ArgumentParser:
    """The options of omrequeue."""
    found = _parser("omrequeue", "Send messages from POISON back to the queue where they failed, "
                    "marked, so that a second failure shows.", """
        omrequeue 956
        omrequeue --where 'property:customer=42' --limit 10 --reason 'ticket 4711'
        omrequeue --where 'replayed=no' --dry-run -
        """)
    found.add_argument("--queue", default=POISON_NAME, help="take them from this queue (POISON)")
    found.add_argument("--to", metavar="QUEUE", help="to this queue instead")
    found.add_argument("--limit", type=int, metavar="N",
                       help="at most N in this run (operator_requeue_max)")
    return found
