"""What pages and API show of queues and messages: read from the index, the files and the journal.

All of it by the functions of the tools: one place decodes, one says what it means. Nobody is asked.
Only the index in shared memory is looked at, of a living or a dead manager: without one, the page
says so and names the tools that read the files. For worker threads.

Errors: ManagerUnavailable, UnknownQueue, BadSelector, BadRequest, those of core.look.stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from omq import codec
from omq.base import clock
from omq.base.errors import BadRequest, NoMessage, OmqError, UnknownQueue
from omq.base.names import escape, message_id_text
from omq.cli.look.cause import Cause
from omq.cli.look.omqshape import shape
from omq.cli.look.omqwhy import Answer, explain
from omq.cli.look.queue_why import explain_queue
from omq.cli.web.preview import Preview, guess, preview
from omq.core.history.frames import Happening, History
from omq.core.index.message_ids import find_qpool, known_qpool
from omq.core.index.rows import EntryRow, QueueRow, ReaderRow
from omq.core.index.view import IndexView
from omq.core.look.look import Source, look
from omq.core.look.message_facts import MessageFacts
from omq.core.look.selection import parse
from omq.core.look.stored import Stored, StoredMessages, message_id
from omq.format.index import EntryState
from omq.services.daemon.options import Location
from omq.storage.spool import open_spool

Place = tuple[int, int]
"""Priority and sequence: a place in the order of hand-out."""
AGES_MIN: Final = (1, 5, 15, 60, 240, 1440, 10_080)
AGE_NAMES: Final = ("to 1 min", "to 5 min", "to 15 min", "to 1 h", "to 4 h", "to 1 d", "to 7 d",
                    "older")
_STATES: Final = tuple(state for state in EntryState if state)
BODY_MAX: Final = 64 << 20
"""Bytes of a body that are read for somebody: they are in memory meanwhile."""
_HAPPENINGS_MAX: Final = 1000
_ORDERS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """One queue: row, readers, why it is as it is, messages by age."""

    row: QueueRow
    readers: tuple[ReaderRow, ...]
    reasons: tuple[Cause, ...]
    ages: tuple[int, ...]


@dataclass(slots=True)
class Listed:
    """A page of messages. `mails`: sender and subject by QPoolId. `after`: where the next page
    begins; None: there is none."""

    rows: list[EntryRow]
    after: Place | None = None
    notes: list[str] = field(default_factory=list)
    mails: dict[int, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessageSeen:
    """One message on its queues. `stored`, `shown` None: it cannot be read, see `problem`, or
    nobody wanted it."""

    qpool: int
    entries: tuple[EntryRow, ...]
    why: tuple[Answer, ...]
    stored: Stored | None
    message_id: str
    shown: Preview | None
    kind: str = ""
    reply_to: str = ""
    problem: str = ""


def queue(location: Location, name: str) -> QueueSeen:
    """UnknownQueue."""
    with look(location.paths, Source.SEGMENT) as seen:
        now_ns = clock.wall_ns()
        found = explain_queue(location, seen, name, now_ns)
        if found is None:
            raise UnknownQueue(queue=escape(name))
        readers = tuple(each for each in seen.view.readers() if each.queue == name)
        ((_, counts),) = shape(seen.view, [name], AGES_MIN, _STATES, now_ns)
        return QueueSeen(found.row, readers, tuple(found.reasons), tuple(counts))


def ages(location: Location, name: str) -> tuple[int, ...]:
    """The messages of a queue by age (AGES_MIN). UnknownQueue."""
    with look(location.paths, Source.SEGMENT) as seen:
        ((_, counts),) = shape(seen.view, [name], AGES_MIN, _STATES, clock.wall_ns())
        return tuple(counts)


def listed(location: Location, name: str, where: str, after: Place | None, limit: int, *,
           mails: bool = True) -> Listed:
    """The messages after a place, in the order of hand-out. Without a selector the cost is that of
    the page, not of the queue."""
    with look(location.paths, Source.SEGMENT) as seen:
        rows, notes = _rows(location, seen.view, name, where, after, limit + 1)
        page = list(rows)
        found = Listed(page[:limit])
        found.notes = [*filter(None, (seen.note,)), *notes()]
        if len(page) > limit:
            last = page[limit - 1]
            found.after = last.priority, last.sequence
        if mails:
            found.mails = dict(_mails(location, found.rows))
        return found


def chosen(location: Location, name: str, where: str, limit: int) -> Listed:
    """All that a selector means on a queue, up to a limit; BadRequest beyond it."""
    with look(location.paths, Source.SEGMENT) as seen:
        rows, notes = _rows(location, seen.view, name, where, None, limit + 1)
        found = Listed(list(rows))
        if len(found.rows) > limit:
            raise BadRequest(reason=f"more than {limit:,} messages are meant "
                             "(web_plan_messages_max); a selector makes them fewer")
        found.notes = [*notes()]
        return found


Notes = Callable[[], Iterator[str]]


def _rows(location: Location, view: IndexView, name: str, where: str, after: Place | None,
          limit: int) -> tuple[Iterator[EntryRow], Notes]:
    """The first rows, and what is to be said of them once they are taken."""
    if not where.strip():
        return view.entries(name, limit, after), lambda: iter(())
    selection = parse(where, files=False)  # files are for who runs this, not for who asks
    rows = selection.rows(view, location.paths, open_spool(location.paths.root).uuid,
                          clock.wall_ns(), name)
    behind = (row for row in rows
              if after is None or (-row.priority, row.sequence) > (-after[0], after[1]))
    return islice(behind, limit), selection.notes


def _mails(location: Location, rows: Sequence[EntryRow]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Sender and subject of those that say them; what cannot be read says nothing here."""
    messages = StoredMessages(location.paths)
    try:
        for row in rows:
            facts = MessageFacts(messages, row.message)
            with suppress(OmqError):
                properties = facts.properties
                sender = facts.sender
                subject = facts.subject if "mail.from" in properties else properties.get(
                    "subject", "")
                if sender or subject:
                    yield row.message.qpool, (sender, subject)
    finally:
        messages.close()


def message(location: Location, text: str, kind: str, most: int) -> MessageSeen:
    """A message by its QPoolId or its id; NoMessage: none waits here. `kind`: of the preview,
    empty: as it looks best. `most` 0: without its body, which is not read then; one of more than
    BODY_MAX never is."""
    uuid = open_spool(location.paths.root).uuid
    with look(location.paths, Source.SEGMENT) as seen:
        qpool = find_qpool(text, uuid, seen.view, location.paths)
        entries = tuple(seen.view.of_message(qpool or 0))
        if not entries:
            raise NoMessage(queue="any queue")
        why = tuple(explain(location, seen, qpool or 0))
        names = seen.view.queue_names()
    messages = StoredMessages(location.paths)
    try:
        row = entries[0].message
        stored = messages.read(row)
        reply_to = stored.descriptor.reply_to
        too_large = f"the body has {row.size:,} bytes: omqdump shows it" if (
            row.size > BODY_MAX) else ""
        shown = None
        if most and not too_large:
            body = messages.body(row, stored)
            decoded = None if kind else codec.shown(body, stored.properties)
            if decoded is not None:
                body, kind = decoded.encode(), "json"
            kind = kind or guess(body, stored.properties)
            shown = preview(body, kind, most)
        return MessageSeen(
            row.qpool, entries, why, stored,
            message_id_text(message_id(stored, uuid, row.qpool)), shown, kind,
            names[reply_to] if 0 < reply_to < len(names) else "", too_large)
    except OmqError as error:
        return MessageSeen(entries[0].message.qpool, entries, why, None, "", None,
                           problem=str(error))
    finally:
        messages.close()


def biography(location: Location, text: str) -> tuple[int, list[Happening], list[str]]:
    """(QPoolId, all that journal and archive say of a message, what could not be read). It reads
    them all: one at a time (Console.history)."""
    uuid = open_spool(location.paths.root).uuid
    qpool = known_qpool(text, uuid)
    if qpool is None:
        with look(location.paths, Source.SEGMENT) as seen:
            qpool = find_qpool(text, uuid, seen.view, location.paths)
    history = History(location.paths)
    found = list(islice(history.of_message(qpool), _HAPPENINGS_MAX)) if qpool else []
    return qpool or 0, found, [str(each) for each in history.findings]


def orders(location: Location) -> list[Happening]:
    """The commands of operators, the newest first; one reading at a time as above."""
    return list(reversed(deque(History(location.paths).orders(), _ORDERS_MAX)))


def readers(location: Location) -> list[ReaderRow]:
    """All that are registered."""
    with look(location.paths, Source.SEGMENT) as seen:
        return sorted(seen.view.readers(), key=lambda each: (each.queue, each.number))
