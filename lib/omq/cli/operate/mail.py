"""omq mail: hold, release, requeue, delete and print mails on the queues: postsuper and postcat.

    omq mail hold ID --reason 'looks like spam'          by the id of mailq and mail.log
    omq mail release --sender '*@example.com'            held ones go on, deferred ones at once
    omq mail requeue --queue POISON --age 1d             from POISON to where it failed
    omq mail delete --recipient bob@example.org --dry-run
    mailq | ... | omq mail delete - --yes                ids of the standard input, one a line
    omq mail cat ID                                      the envelope and the text

All that is given must hold; of an option that is given several times one. ALL in place of ids is
every mail (of --queue, --state). A mail that a filter quarantined lies on DEFER: release and
requeue send it to ROUTER. What is deleted is kept for `operator_undo_s`, nobody is sent a report,
and a message that has several recipients is deleted for all of them.

Each order is journaled with who gave it and why, goes out in pieces of a few hundred messages, and
changes nothing that changed since it was looked at. More than `operator_confirm_messages` are asked
about; requeue takes `operator_requeue_max` at most, unless --limit says another number.

Errors: BadRequest (nothing is chosen), NothingMeant, NotConfirmed, MessagesRefused; of a look.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from omq.base.clock import NS_PER_S, wall_ns
from omq.base.config import client_settings
from omq.base.errors import BadRequest, Exit, MessagesRefused, NothingMeant
from omq.base.names import DEFER, POISON_NAME, ROUTER, escape
from omq.cli.common import add_json, existing, print_json, say, shown, tool_parser
from omq.cli.operate import change as changes
from omq.cli.operate.change_plan import Change, Doing, Target, counted, target
from omq.cli.operate.command_notes import add_reason
from omq.cli.operate.mail_chosen import Chosen, Mail, MailFilter
from omq.cli.progress import looking
from omq.core.look.stored import StoredMessages
from omq.format.index import EntryState
from omq.services.daemon.options import Location
from omq.storage.spool import open_spool

NAME: Final = "omq mail"
ALL: Final = "ALL"
_COMMAND_CHARS: Final = 200
_TO_ROUTER: Final = Change(Doing.MOVE, (ROUTER,))
_WAITING: Final = (EntryState.READY, EntryState.DEFERRED, EntryState.ACTIVE)


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = existing(options)
    chosen = Chosen(_wanted(options))
    if options.doing == "cat":
        return _print(location, chosen, options)
    return _order(location, chosen, options)


def _wanted(options: argparse.Namespace) -> MailFilter:
    words = list(options.ids)
    if "-" in words:
        words.remove("-")
        words += filter(None, (line.strip() for line in sys.stdin))
    found = MailFilter(tuple(each for each in words if each != ALL), tuple(options.sender),
                   tuple(options.recipient), tuple(options.queue), tuple(options.state),
                   options.age)
    if options.limit is not None and options.limit < 1:
        raise BadRequest(reason="--limit is a number from 1 on")
    if ALL in words and found.ids:
        raise BadRequest(reason="ALL means every mail: it cannot be combined with ids")
    if not (words or found.senders or found.recipients or found.age):
        raise BadRequest(reason="name mails by their ids, by --sender, --recipient or --age, or "
                         "say ALL")
    return found


def change_of(doing: str, row: Mail, *, force: bool) -> Change | None:
    """What is done to this mail; None: the order is not for it."""
    entry = row.entry
    if doing == "delete":
        return Change(Doing.DELETE, force=force)
    if doing == "hold":
        return Change(Doing.HOLD, force=force) if entry.state in _WAITING else None
    if entry.queue == DEFER:
        return _TO_ROUTER
    if doing == "requeue":
        return Change(Doing.MOVE) if entry.queue == POISON_NAME else None
    return Change(Doing.RELEASE) if entry.state in (EntryState.HELD, EntryState.DEFERRED) else None


def _order(location: Location, chosen: Chosen, options: argparse.Namespace) -> int:
    doing, items = options.doing, dict[Change, list[Target]]()
    limit = options.limit
    if limit is None and doing == "requeue":
        limit = client_settings(location.conf_dir).operator_requeue_max
    with looking(NAME, location.paths) as seen:
        rows = chosen.rows(seen.view, location.paths, open_spool(location.paths.root).uuid)
        pairs = ((row, change) for row in rows
                 if (change := change_of(doing, row, force=options.force)) is not None)
        for row, change in islice(pairs, limit):
            items.setdefault(change, []).append(target(row.entry))
            if options.dry_run:
                _tell(row, change, json_lines=options.json)
    for note in chosen.notes():
        say(NAME, note)
    count = sum(map(len, items.values()))
    if not count:
        raise NothingMeant(action=doing)
    if options.dry_run:
        say(NAME, f"{doing}: {counted(count)}, nothing is done")
        return Exit.OK
    changes.confirm(location, next(iter(items)), count, _asked, yes=options.yes)
    return _carry_out(location, items, count, options)


def _carry_out(location: Location, items: dict[Change, list[Target]], count: int,
               options: argparse.Namespace) -> int:
    refused: list[str] = []
    done = 0
    for change, targets in items.items():
        report = changes.carry_out(location, _command(options), change, targets, options.reason)
        done += len(report.done)
        refused += (each.text for each in report.refused)
        if options.json:
            print_json(changes.report_record(change, report))
        for text in changes.refusals(report):
            say(NAME, text)
    if not options.json:
        sys.stdout.write(f"{done} of {counted(count)}: {options.doing}\n")
    if refused:
        raise MessagesRefused(refused=len(refused), count=count, text=escape(refused[0], 500))
    return Exit.OK


def _command(options: argparse.Namespace) -> str:
    """As it is journaled: thousands of ids are not."""
    several = ("sender", "recipient", "queue", "state")
    words = [*options.ids, *(f"--{name} {each}" for name in several
                             for each in getattr(options, name))]
    if options.age:
        words.append(f"--age {options.age}")
    return escape(" ".join((NAME, options.doing, *words)), _COMMAND_CHARS)


def _record(row: Mail) -> dict[str, Any]:
    """The JSON object of a mail: a contract, keys are only added."""
    entry = row.entry
    return {"mail_id": row.mail_id, "qpool_id": entry.message.qpool, "queue": entry.queue,
            "state": entry.state.name.lower(), "size": entry.message.size,
            "age_s": max(0, wall_ns() - entry.submitted_ns) // NS_PER_S, "sender": row.sender,
            "recipients": list(row.recipients)}


def _tell(row: Mail, change: Change, *, json_lines: bool) -> None:
    """A line of --dry-run."""
    record = _record(row)
    if json_lines:
        print_json(record | {"action": change.text()})
        return
    to = ", ".join(map(escape, row.recipients[:3])) + ", ..." * (len(row.recipients) > 3)
    sys.stdout.write(f"{escape(row.mail_id)} {record['queue']} {record['state']} {record['size']} "
                     f"<{escape(row.sender)}> {to}: {change.text()}\n")


def _print(location: Location, chosen: Chosen, options: argparse.Namespace) -> int:
    """The mails, each once, whatever number of queues it is on."""
    printed: set[int] = set()
    for row, body in _bodies(location, chosen, options.limit):
        if row.entry.message.qpool in printed:
            continue
        printed.add(row.entry.message.qpool)
        sys.stdout.writelines(_envelope(row))
        sys.stdout.flush()
        _write(body)
    for note in chosen.notes():
        say(NAME, note)
    if not printed:
        raise NothingMeant(action="cat")
    return Exit.OK


def _bodies(location: Location, chosen: Chosen, limit: int | None) -> Iterator[tuple[Mail, bytes]]:
    messages = StoredMessages(location.paths)
    try:
        with looking(NAME, location.paths) as seen:
            rows = chosen.rows(seen.view, location.paths, open_spool(location.paths.root).uuid)
            for row in islice(rows, limit):
                yield row, messages.body(row.entry.message, row.stored)
    finally:
        messages.close()


def _envelope(row: Mail) -> Iterator[str]:
    entry = row.entry
    yield f"*** {escape(row.mail_id)}: {entry.queue}, {entry.state.name.lower()}\n"
    yield f"sender: {escape(row.sender) or '<>'}\n"
    yield from (f"recipient: {escape(each)}\n" for each in row.recipients)
    for name, value in sorted(row.stored.properties.items()):
        if name.startswith("mail.") and not name.startswith(("mail.from", "mail.to", "mail.orig.")):
            yield f"{escape(name)}: {escape(value)}\n"
    yield f"*** {entry.message.size} bytes\n"


def _write(body: bytes) -> None:
    """Byte for byte; to a terminal what it may show."""
    if sys.stdout.isatty():
        body = shown(body)
    if (raw := getattr(sys.stdout, "buffer", None)) is not None:
        raw.write(body)
        raw.flush()
    else:
        sys.stdout.write(body.decode("utf-8", "replace"))


def _asked(prompt: str) -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Hold, release, requeue, delete and print mails on the queues.", """
        omq mail hold --sender '*@example.com' --dry-run
        omq mail release 5A1F --reason 'looked at it'
        omq mail delete --queue UNIX --state deferred --age 3d
        """)
    parser.add_argument("doing", choices=("hold", "release", "requeue", "delete", "cat"),
                        metavar="ORDER", help="hold, release, requeue, delete or cat")
    parser.add_argument("ids", nargs="*", metavar="ID",
                        help="ids of mails or messages; -: read ids from the standard input; ALL")
    parser.add_argument("--sender", action="append", default=[], metavar="PATTERN",
                        help="from this sender ('*@example.com'; '<>' has none)")
    parser.add_argument("--recipient", action="append", default=[], metavar="PATTERN",
                        help="for this recipient")
    parser.add_argument("--queue", action="append", default=[], help="on this queue")
    parser.add_argument("--state", action="append", default=[],
                        help="ready, deferred, held or active")
    parser.add_argument("--age", default="", metavar="TIME",
                        help="at least this long on their queue (2h, 3d); '<2h': shorter")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N in this run")
    parser.add_argument("--dry-run", action="store_true", help="only list the messages that match")
    parser.add_argument("--yes", action="store_true", help="do not ask before changing many "
                                                           "messages")
    parser.add_argument("--force", action="store_true",
                        help="with hold and delete: also what a service is processing")
    add_reason(parser)
    add_json(parser)
    return parser
