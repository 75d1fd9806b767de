"""omqwhy: why a message does not move, and the evidence; or why nothing moves on a queue.

It looks at the index (or the files of a dead instance), the readers, and for a message on POISON or
another dead-letter queue at the journal and its pool record. Nothing is changed, and the queue
manager is asked one thing alone: what the reader of a message says of its work.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import omq
from omq.base import clock, limits
from omq.base.amounts import counted, duration
from omq.base.clock import NS_PER_S, iso_time
from omq.base.errors import Exit, OmqError, UnknownQueue
from omq.base.names import IDEL_NAME, POISON_NAME, escape
from omq.base.paths import SpoolPaths
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.look.authority_causes import Refusals
from omq.cli.look.due_times import due_text
from omq.cli.look.finding_causes import of
from omq.cli.look.gateway_why import peers_of_message
from omq.cli.look.instance_causes import of_manager
from omq.cli.look.queue_why import Around, around, explain_queue
from omq.cli.look.queue_why import lines as queue_lines
from omq.cli.look.queue_why import record as queue_record
from omq.cli.progress import looking, reading_history
from omq.core.index.message_ids import find_qpool
from omq.core.index.rows import EntryRow, QueueRow, ReaderRow
from omq.core.index.view import IndexView
from omq.core.look.group_front import front_of
from omq.core.look.look import Look, Origin
from omq.core.look.stored import StoredMessages
from omq.format.failure_note import FailureNote
from omq.format.frame_rules import WORDS
from omq.format.index import EntryState, QueueFlag
from omq.format.pool import Message, RecordFlag
from omq.services.daemon.options import Location
from omq.storage.pool_reader import PoolReader
from omq.storage.spool import open_spool

# The evidence of how a message came to POISON or another dead-letter queue: all of the packet of
# its last POISON frame, while the journal or the archive has it; else what its pool record keeps.
#
# Errors: DiskError.


def evidence(name: str, paths: SpoolPaths, view: IndexView, entry: EntryRow) -> dict[str, Any]:
    """Of the message on this queue, {} if it did not fail its way there, or nothing is known.
    `name`: of the command."""
    return _told(name, paths, entry) or _noted(_note(paths, view, entry))


def _told(name: str, paths: SpoolPaths, entry: EntryRow) -> dict[str, Any]:
    """The packet of the last POISON frame that put it on this queue."""
    found: dict[str, Any] = {}
    with reading_history(name, paths) as history:
        for each in history.of_message(entry.message.qpool):
            if each.rule.fails and entry.queue in (POISON_NAME, *each.targets):
                try:
                    packet = json.loads(each.text)
                except ValueError:
                    packet = {"text": each.text}
                found = {"lsn": each.lsn, "time": iso_time(each.time_ns),
                         **(packet if isinstance(packet, dict) else {})}
    return found


def _note(paths: SpoolPaths, view: IndexView, entry: EntryRow) -> FailureNote | None:
    """Of its pool record, which the last checkpoint wrote; its frames are in the journal till
    then."""
    message = entry.message
    if message.file is None or message.record is None or not message.flags & RecordFlag.NOTED:
        return None
    pool = PoolReader(paths, open_spool(paths.root).uuid, write=False)
    try:
        found = pool.read_record(message.file, message.record)
    finally:
        pool.close()
    if not isinstance(found, Message) or found.qpool != message.qpool or found.note is None:
        return None
    return found.note if view.queue_names()[found.note.to] == entry.queue else None


def _noted(note: FailureNote | None) -> dict[str, Any]:
    """The same keys as in a packet."""
    if note is None:
        return {}
    return {"time": iso_time(note.last_ns), "queue": note.queue, "attempts": note.attempts,
            "cause": WORDS.get(note.reason, str(note.reason)), "reason": note.text,
            "first_ns": note.first_ns, "time_ns": note.last_ns}


NAME = "omqwhy"
_ID_DIGITS = 48
_SAID_WAIT_S: Final = 1.0
_ELSEWHERE: Final = frozenset(("put_inhibited", "full", "drains", "deferred", "held", "put_off",
                               "lease", "in_doubt"))
"""Causes that hold up others than a ready message."""


@dataclass(slots=True)
class Answer:
    """Why a message stays on one queue."""

    entry: EntryRow
    code: str  # for programs; the codes are a contract
    text: str
    hints: list[str] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code: 1 when there is no such message or queue."""
    options = parser().parse_args(argv)
    location = existing(options)
    found = False
    with looking(NAME, location.paths) as seen:
        uuid = open_spool(location.paths.root).uuid
        for text in options.message:
            whole = None if _is_id(text) else explain_queue(
                location, seen, text.upper(), clock.wall_ns())
            if whole is not None:
                found = True
                if options.json:
                    print_json(queue_record(whole))
                else:
                    sys.stdout.write("\n".join((*queue_lines(whole), "")))
                continue
            qpool = find_qpool(text, uuid, seen.view, location.paths)
            answers = list(explain(location, seen, qpool or 0))
            for each in answers if seen.origin is Origin.LIVING else ():
                if each.entry.state is EntryState.ACTIVE:
                    each.evidence |= _work_said(location, NAME, each.entry)
            found |= bool(answers)
            if not answers and not _is_id(text):  # a text of its submitter's names a message too
                raise UnknownQueue(queue=escape(text.upper()))
            if not answers:
                lost = f", or it is one of {len(seen.findings)} damaged places" if (
                    seen.findings) else ""
                say(NAME, f"no message {text} waits here{lost} (omqlog --message shows what "
                    "happened to it)")
            _show(answers, as_json=options.json)
    return Exit.OK if found else Exit.NO


def _is_id(text: str) -> bool:
    """A number is a QPoolId, also where a queue has it for a name."""
    return text.isdigit() or len(text) == _ID_DIGITS


def _show(answers: list[Answer], *, as_json: bool) -> None:
    for answer in answers:
        if as_json:
            print_json(record(answer))
        else:
            sys.stdout.write("\n".join((*lines(answer), "")))


def explain(location: Location, seen: Look, qpool: int) -> Iterator[Answer]:
    """An answer for each queue that the message is on."""
    view, known = seen.view, around(location)
    queues = {row.name: row for row in view.queues()}
    readers = view.readers()
    for entry in view.of_message(qpool):
        answer = (_turn(location, view, entry, readers) or _why(view, entry, readers)
                  or _ready(location, seen, entry, queues.get(entry.queue), readers, known))
        if entry.message.expiry_ns and entry.queue not in (POISON_NAME, IDEL_NAME):
            answer.evidence = {"expiry": iso_time(entry.message.expiry_ns)}
        if entry.queue == POISON_NAME or entry.message.flags & RecordFlag.NOTED:
            answer.evidence |= evidence(NAME, location.paths, view, entry)
        if entry.state in (EntryState.DEFERRED, EntryState.ACTIVE):
            for peer, reason, hint in peers_of_message(location, entry):
                answer.text += f"; it is for {peer}" + (f": {reason}" if reason else "")
                answer.hints += [hint] if hint else []
        if seen.origin is not Origin.LIVING:
            for cause in of_manager(location, seen, known.services, ""):
                answer.hints += (cause.text, *cause.hints)
        yield answer


def _why(view: IndexView, entry: EntryRow, readers: list[ReaderRow]) -> Answer | None:
    """By its own state; None: it is ready."""
    now = clock.wall_ns()
    mine = [reader for reader in readers if reader.queue == entry.queue]
    if entry.state is EntryState.PREPARED:
        return Answer(entry, "prepared", "it belongs to a unit of work in doubt: it waits for the "
                      "end of that", ["omq units lists them; --commit UNIT or --backout UNIT"])
    if entry.message.remembers:
        return Answer(entry, "memory", "it is not a message: a queue remembers the id of one by it "
                      "(dedupe_s)" + (f" until {iso_time(entry.until_ns)}"
                                      if entry.state is EntryState.DEFERRED else
                                      "; its time is over"))
    if entry.queue == POISON_NAME:
        return Answer(entry, "poison", f"{entry.attempts} attempts failed; it is on POISON until "
                      "somebody looks", ["omrequeue ID sends it back to where it failed"])
    if entry.queue == IDEL_NAME and entry.state is EntryState.DEFERRED:
        return Answer(entry, "deleted", "an operator deleted it; it is gone at "
                      f"{iso_time(entry.until_ns)}", ["omqdump --undo ID brings it back"])
    if entry.state is EntryState.HELD:
        return Answer(entry, "held", f"an operator holds it since {iso_time(entry.until_ns)}"
                      if entry.until_ns else "an operator holds it", ["omrelease ID"])
    if entry.state is EntryState.DEFERRED and entry.message.flags & RecordFlag.BARRIER and not (
            entry.attempts or entry.retries):
        return Answer(entry, "barrier", "it waits until other messages are done, until "
                      f"{due_text(view, entry.until_ns, now)} at the latest",
                      [f"omq cancel --state {entry.message.qpool} says for how many",
                       "omrelease ID makes it ready at once"])
    if entry.state is EntryState.DEFERRED:
        after = f" after {entry.attempts} failed attempts" if entry.attempts else ""
        return Answer(entry, "deferred", f"deferred{after} until "
                      f"{due_text(view, entry.until_ns, now)}",
                      ["omrelease ID makes it ready at once"])
    return _active(view, entry, mine, now) if entry.state is EntryState.ACTIVE else None


def _turn(location: Location, view: IndexView, entry: EntryRow, readers: list[ReaderRow]
          ) -> Answer | None:
    """It waits for another message of its group."""
    if entry.state is not EntryState.READY or entry.queue in (POISON_NAME, IDEL_NAME):
        return None
    stored = StoredMessages(location.paths)
    try:
        front = front_of(view, stored, entry)
    finally:
        stored.close()
    if front is None:
        return None
    now, qpool = clock.wall_ns(), front.message.qpool
    mine = [reader for reader in readers if reader.queue == entry.queue]
    what = {EntryState.ACTIVE: "which a reader has", EntryState.HELD: "which an operator holds",
            EntryState.DEFERRED: f"which is deferred until {iso_time(front.until_ns)}"}.get(
                front.state, "which has its turn before it")
    for reader in mine:
        if front.state is EntryState.ACTIVE and reader.number == front.reader:
            since_s = (now - front.until_ns) / NS_PER_S
            what = (f"which reader {reader.name} (pid {reader.pid}) has had for "
                    f"{duration(since_s)}")
    return Answer(entry, "group", f"it waits for message {qpool} of its group, {what}",
                  [f"omqwhy {qpool}"])


def _active(view: IndexView, entry: EntryRow, readers: list[ReaderRow], now: int) -> Answer:
    since = duration((now - entry.until_ns) / NS_PER_S)
    for reader in readers:
        if reader.number == entry.reader:
            state = clock.process_state(reader.pid)
            stopped = f"; its process is stopped by a signal ({state})" if (
                state in clock.STOPPED) else ""
            go_on = [f"kill -CONT {reader.pid} lets it go on"] if stopped else []
            return Answer(entry, "active", f"reader {reader.name} (pid {reader.pid}) has had it "
                          f"for {since}, lease {entry.lease}{stopped}",
                          [*go_on, f"omfreeq {entry.queue} -p {reader.pid} takes all its messages "
                           "back"])
    if entry.reader is not None and (client := view.client(entry.reader)) is not None:
        return Answer(entry, "in_unit", f"{client[0]} (pid {client[1]}) took it {since} ago in a "
                      "unit of work that it has not ended", [])
    return Answer(entry, "limbo", "its reader is not here: it may come back and finish it, else "
                  "the message counts one failed attempt soon")


def _ready(location: Location, seen: Look, entry: EntryRow, queue: QueueRow | None,
           readers: list[ReaderRow], known: Around) -> Answer:
    """What holds up its queue, or how many are ahead of it."""
    ahead, mine = 0, [reader for reader in readers if reader.queue == entry.queue]
    for raw in seen.view.raw_entries(entry.queue):
        if raw[0] == entry.number:
            break
        ahead += raw[1][1] == EntryState.READY
    behind = f"{counted(ahead, 'ready message')} {'is' if ahead == 1 else 'are'} ahead of it"
    if queue is not None:
        for cause in of(location, seen, queue, mine, known.services, known.gateways, Refusals(),
                        clock.wall_ns()):
            if cause.code not in _ELSEWHERE:
                return Answer(entry, cause.code, f"{cause.text}; {behind}", list(cause.hints))
    busy = sum(reader.active > 0 for reader in mine)
    limited = queue is not None and queue.flags & QueueFlag.LIMITED
    return Answer(entry, "ready", f"it is ready; {behind}; {counted(len(mine), 'reader')}, "
                  f"{busy} of them busy", [
                      f"omq queue why {entry.queue} --message {entry.message.qpool} says whether a "
                      "limit of work holds it"] if limited else [])


def lines(answer: Answer) -> Iterator[str]:
    """The reason, what it rests on, and what to do."""
    entry = answer.entry
    yield (f"{entry.message.qpool} on {entry.queue} ({entry.state.name.lower()}, priority "
           f"{entry.priority}): {answer.text}")
    if entry.message.replayed:
        yield "    it was replayed from POISON before"
    for name, value in answer.evidence.items():
        yield f"    {name} = {escape(value, limits.KIB) if isinstance(value, str) else value}"
    for hint in answer.hints:
        yield f"    -> {hint}"


def record(answer: Answer) -> dict[str, Any]:
    """The JSON object of an answer: a contract, keys are only added."""
    entry = answer.entry
    return {"qpool_id": entry.message.qpool, "queue": entry.queue, "why": answer.code,
            "text": answer.text, "state": entry.state.name.lower(), "priority": entry.priority,
            "failed_attempts": entry.attempts, "replayed": entry.message.replayed,
            "evidence": answer.evidence, "hints": answer.hints}


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(
        NAME, "Explain why a message or a queue does not move, who holds it, and what to do.",
        """
        omqwhy 956
        omqwhy LOCAL
        omqwhy 956 957 --json
        """)
    found.add_argument("message", nargs="+", metavar="ID|QUEUE",
                       help="QPoolIds, message ids, or queues")
    add_json(found)
    return found


def _work_said(location: Location, name: str, entry: EntryRow) -> dict[str, str]:
    """What the reader of a message says of its work: the one thing that omqwhy asks the
    queue manager, which alone has it, and for which it does not wait long. `progress` and its time;
    nothing where the reader said nothing, or has ended; why, where it cannot be asked."""
    try:
        with omq.connect(location.paths.root, name=name, timeout_s=_SAID_WAIT_S) as connection:
            words, moment = connection.said_of(entry.message.qpool, entry.queue)
    except OmqError as error:
        return {"progress_unknown": str(error)}
    return {} if moment is None else {
        "progress": words, "progress_time": moment.isoformat(timespec="seconds")}
