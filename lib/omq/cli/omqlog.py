"""omqlog: the biography of a message, from the journal and its archive; and what operators did.

A line a frame: time, LSN, what happened, where, by whom. The queue manager is not asked, so it
works on a dead instance, as far back as files are kept (`archive = keep`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from omq.base.clock import iso_time
from omq.base.errors import BadRequest, Exit
from omq.base.names import parse_message_id
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.progress import looking, reading_history
from omq.core.history import Happening
from omq.core.message_ids import find_qpool, known_qpool
from omq.core.settle import REASONS
from omq.format.journal import FrameFlag, FrameType
from omq.format.message import id_hash
from omq.services.options import Location
from omq.storage.spool import open_spool

NAME = "omqlog"
_PLAIN = {
    FrameType.GIVE: "given to a reader", FrameType.DONE: "done", FrameType.DELETE: "deleted",
    FrameType.HOLD: "held", FrameType.RELEASE: "released",
    FrameType.RELEASE_GIVEN: "given back untouched", FrameType.POISON: "put on POISON"}


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    location = existing(options)
    if not options.operator and not options.message:
        raise BadRequest(reason="say --message ID or --operator")
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


def _show(found: Iterable[Happening], *, as_json: bool) -> int:
    count = 0
    for each in found:
        count += 1
        if as_json:
            print_json(record(each))
        else:
            sys.stdout.write("\n".join((*lines(each), "")))
    return count


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
        for each in history.read(
                lambda frames: (frames["type"] == FrameType.PUT) & (frames["lease"] == key)):
            found = each.qpool
    return found


def what(each: Happening) -> str:
    """What happened, in words."""
    on = f" on {each.queue}" if each.queue else ""
    if each.kind is FrameType.PUT:
        born = f", made by the move of {each.parent}" if each.parent else ""
        on = on or f" on {', '.join(each.targets)}"
        return f"put{on}, priority {each.priority}, {each.size} bytes{born}"
    if each.kind is FrameType.OPERATOR:
        return f"operator command, {each.argument} messages"
    if each.kind is FrameType.MOVE:
        again = " (replayed)" if each.flags & FrameFlag.REPLAYED else ""
        return f"moved from {each.queue or 'nowhere'} to {', '.join(each.targets)}{again}"
    if each.kind is FrameType.DEFER:
        failed = "attempt failed, " if each.flags & FrameFlag.FAILED else ""
        why = REASONS.get(each.reason, "")
        return f"{failed}deferred{on} until {iso_time(each.argument)}" + (f": {why}" if why else "")
    text = _PLAIN.get(each.kind, each.kind.name.lower()) + on
    if each.kind is FrameType.GIVE:
        text += f", attempt {each.attempt}"
    if each.flags & FrameFlag.LAST_PART:
        text += "; it is gone"
    elif each.flags & FrameFlag.TO_IDEL:
        text += "; it waits on IDEL"
    return text


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
        "attempt": each.attempt, "reason": REASONS.get(each.reason, ""), "lease": each.lease,
        "until": iso_time(each.argument) if each.kind is FrameType.DEFER else None,
        "failed": bool(each.flags & FrameFlag.FAILED), "text": each.text,
        "gone": bool(each.flags & FrameFlag.LAST_PART), "pid": each.pid, "uid": each.uid,
        "client": each.client, "parent": each.parent, "file": each.file,
        "operator": None if command is None else {
            "lsn": command.lsn, "uid": command.uid, "pid": command.pid,
            "command": command.command, "reason": command.reason}}


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(
        NAME, "Tell what happened to a message, from the journal and its archive.",
        """
        omqlog --message 956
        omqlog --message 4f4d5131dd4488a1bb9040d5a2e96c790000000000000003bc --json
        omqlog --operator
        """)
    found.add_argument("--message", metavar="ID", help="a QPoolId or a message id")
    found.add_argument("--operator", action="store_true", help="all commands of operators")
    add_json(found)
    return found
