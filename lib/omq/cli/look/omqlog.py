"""omqlog: the biography of a message, from the journal and its archive; and what operators did.

A line a frame: time, LSN, what happened, where, by whom. The queue manager is not asked, so it
works on a dead instance, as far back as files are kept (`archive = keep`). `--mail` tells of all
messages that were made of a mail, reports too, each line with its QPoolId, and then what mail.log
has of them: recipients, replies, delays.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from omq.base.clock import iso_time
from omq.base.errors import BadRequest, Exit
from omq.base.log_file import opened
from omq.base.names import escape, parse_message_id
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.progress import looking, reading_history
from omq.core.history.frames import Happening, put_with_id
from omq.core.index.message_ids import find_qpool, known_qpool
from omq.format.frame_rules import WORDS, Argument
from omq.format.journal import FrameFlag
from omq.format.message import ID_PREFIX, id_hash
from omq.services.daemon.options import Location
from omq.storage.spool import open_spool

NAME = "omqlog"
MAIL_LOG: Final = "mail.log"
_REPORT: Final = re.compile(r"^sender non-delivery notification: ([0-9a-f]{48})\b")


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    location = existing(options)
    if not options.operator and not options.message and not options.mail:
        raise BadRequest(reason="say --message ID, --mail ID or --operator")
    if options.mail:
        return _tell_mail(location, options.mail, as_json=options.json)
    with reading_history(NAME, location.paths) as history:
        if options.operator:
            found = history.orders()
        else:
            qpool = _qpool(location, options.message)
            found = history.of_message(qpool) if qpool else iter(())
        count = _show(found, as_json=options.json)
    for finding in history.findings:
        say(NAME, str(finding))
    if not count:
        say(NAME, "journal and archive say nothing of it" if options.message else
            "there are no operator commands in journal and archive")
    return Exit.OK if count else Exit.NO


def _show(found: Iterable[Happening], *, as_json: bool, several: bool = False) -> int:
    count = 0
    for each in found:
        count += 1
        if as_json:
            print_json(record(each))
        else:
            first, *more = lines(each)
            if several:
                first = f"{first} (QPoolId {each.qpool})"
            sys.stdout.write("\n".join((first, *more, "")))
    return count


def _tell_mail(location: Location, text: str, *, as_json: bool) -> int:
    """All of a mail, by the id of its 250 reply or the QPoolId of its first message."""
    uuid = open_spool(location.paths.root).uuid
    qpool = known_qpool(text, uuid)
    known = set() if qpool is None else {qpool}
    key = id_hash(parse_message_id(text)) if qpool is None else 0
    with reading_history(NAME, location.paths) as history:
        count = _show(history.of_family(known, key), as_json=as_json, several=True)
    for finding in history.findings:
        say(NAME, str(finding))
    ids = {text.lower()} | {(ID_PREFIX + uuid[:12]).hex() + f"{each:016x}" for each in known}
    for line in _logged(location.paths.logs / MAIL_LOG, ids):
        count += 1
        if as_json:
            print_json({"mail_log": line})
        else:
            sys.stdout.write(f"{line}\n")
    if not count:
        say(NAME, "journal, archive and mail.log say nothing of it")
    return Exit.OK if count else Exit.NO


def _logged(path: Path, ids: set[str]) -> Iterator[str]:
    """The lines of mail.log and of the one before it, with one of these ids or that of a report
    that they tell of; none where there is no such file."""
    with suppress(FileNotFoundError), ExitStack() as stack:
        for file in [stack.enter_context(each) for each in opened(path)]:
            for raw in file:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                about, _, rest = line.partition("]: ")[2].partition(": ")
                if about in ids:
                    ids |= set(_REPORT.findall(rest))
                    yield escape(line, 4096)


def _qpool(location: Location, text: str) -> int:
    uuid = open_spool(location.paths.root).uuid
    known = known_qpool(text, uuid)
    if known is not None:
        return known
    with looking(NAME, location.paths) as seen:
        qpool = find_qpool(text, uuid, seen.view, location.paths)
    return _of_the_past(location, text) if qpool is None else qpool


def _of_the_past(location: Location, text: str) -> int:
    """The last message that was put with this id; 0: none. Frames have the hash of the id only."""
    key = id_hash(parse_message_id(text))
    found = 0
    with reading_history(NAME, location.paths) as history:
        for each in history.read(lambda frames: put_with_id(frames, key)):
            found = each.qpool
    return found


class FrameWords:
    """The pieces of which the words of a row (format.frame_rules) make a sentence."""

    def __init__(self, each: Happening) -> None:
        self.priority, self.size, self.attempt = each.priority, each.size, each.attempt
        self.argument = each.argument
        self.place = each.queue or "nowhere"
        self.targets = ", ".join(each.targets)
        self.on = f" on {each.queue}" if each.queue else ""
        if each.rule.makes and each.targets:  # all of them: the frame's own queue is the first
            self.on = f" on {self.targets}"
        self.born = f", made of {each.parent}" if each.parent else ""
        if each.flags & FrameFlag.MEMORY:
            self.born = "; not a message: a queue remembers an id by it"
        elif each.group:
            self.born += f", of group {each.group}{_place(each)}"
        self.to = f", moved to {self.targets}" if each.targets else ""
        self.again = " (replayed)" if each.flags & FrameFlag.REPLAY else ""
        self.failed = "attempt failed, " if each.flags & FrameFlag.FAILED else ""
        self.until = until(each)
        self.why = f": {why(each)}" if why(each) else ""
        self.order = f"process {each.argument}{self.on}" if each.queue else _counted(each)
        self.moved = f"moved from {each.queue} to" if each.queue else "put besides on"
        self.end = "; it is gone" if each.flags & FrameFlag.LAST_PART else (
            "; it waits on IDEL" if each.flags & FrameFlag.TO_IDEL else "")


def _place(each: Happening) -> str:
    """`, number 3, the last`: where it has its place in its group."""
    if not each.group_sequence:
        return ""
    return f", number {each.group_sequence}" + (", the last" if each.last_in_group else "")


def _counted(each: Happening) -> str:
    """`3 messages`, `2 of 3 messages` (the others were refused), `1 service`."""
    command, count = each.command, each.argument
    things = "messages" if command is None else command.things
    if command is not None and command.done is not None and command.done != count:
        return f"{command.done} of {count} {things}"
    return f"{count} {things.removesuffix('s') if count == 1 else things}"


def what(each: Happening) -> str:
    """What happened, in words."""
    return each.rule.words.format(it=FrameWords(each))


def why(each: Happening) -> str:
    """The reason, in words."""
    return WORDS.get(each.reason, str(each.reason)) if each.rule.reasoned else ""


def until(each: Happening) -> str | None:
    """The time that a frame sets."""
    timed = each.rule.argument is Argument.UNTIL and each.argument
    return iso_time(each.argument) if timed else None


def lines(each: Happening) -> Iterator[str]:
    """A line, and indented ones for texts."""
    who = f"pid {each.pid} uid {each.uid}" + (f" {each.client}" if each.client else "")
    yield f"{iso_time(each.time_ns)} LSN {each.lsn} {what(each)} [{who}]"
    if each.text:
        yield f"    {each.text}"
    if each.command is not None:
        yield f"    by operator uid {each.command.uid}: {each.command.command}"
        if each.command.reason:
            yield f"    reason: {each.command.reason}"


def record(each: Happening) -> dict[str, Any]:
    """The JSON object of a line: a contract, keys are only added."""
    command = each.command
    return {
        "time": iso_time(each.time_ns), "lsn": each.lsn, "event": each.kind.name.lower(),
        "what": what(each), "qpool_id": each.qpool, "queue": each.queue,
        "targets": list(each.targets), "priority": each.priority, "size": each.size,
        "attempt": each.attempt, "reason": why(each), "lease": each.lease,
        "until": until(each),
        "failed": bool(each.flags & FrameFlag.FAILED), "text": each.text,
        "gone": bool(each.flags & FrameFlag.LAST_PART), "pid": each.pid, "uid": each.uid,
        "client": each.client, "parent": each.parent, "file": each.file,
        "group": each.group, "group_sequence": each.group_sequence,
        "last_in_group": each.last_in_group,
        "operator": None if command is None else {
            "lsn": command.lsn, "uid": command.uid, "pid": command.pid,
            "command": command.command, "reason": command.reason, "things": command.things,
            "done": command.done}}


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(
        NAME, "Show what happened to a message, from the journal and its archive.",
        """
        omqlog --message 956
        omqlog --message 4f4d5131dd4488a1bb9040d5a2e96c790000000000000003bc --json
        omqlog --mail 0f2c9b1e5a7d4c3f8e6b0a9d1c2b3a4f187a3b0c2d4e5f60
        omqlog --operator
        """)
    found.add_argument("--message", metavar="ID", help="a QPoolId or a message id")
    found.add_argument("--mail", metavar="ID", help="a mail, by the id of its 250 reply: all "
                                                    "messages made from it, recipients, reports")
    found.add_argument("--operator", action="store_true", help="all commands of operators")
    add_json(found)
    return found
