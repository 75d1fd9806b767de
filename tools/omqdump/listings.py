"""The options that show the instance as it is: s T L l t.

Errors: UnknownQueue, BadRequest, and those of the sources.

Listings of any length: lines made from plain numbers, without a record for each message.

The lines are those of render.entry_table and index_records.entry_record, made about ten times as
fast; a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np

from omq.base import clock
from omq.base.arrays import Vector
from omq.base.clock import NS_PER_S, seed_time
from omq.base.errors import BadRequest, UnknownQueue
from omq.base.names import escape
from omq.cli.common import print_json
from omq.cli.look.index_records import entry_record, queue_record
from omq.core.index.item_refs import brief, place
from omq.core.index.rows import EntryRow
from omq.core.index.view import IndexView, RawEntry
from omq.core.look.message_facts import MessageFacts
from omq.core.look.pool_plain import Made
from omq.core.look.selection import parse
from omq.core.look.stored import StoredMessages
from omq.format.index import EntryState
from omq.format.pool import RecordFlag
from omqtools.omqdump import dump_json, render
from omqtools.omqdump.option_desk import Desk
from omqtools.omqdump.text_file import default_reference, dump_path, write_lines

_STATES: Final = {int(state): f"{state.name.lower():<8}" for state in EntryState}
_ACTIVE: Final = int(EntryState.ACTIVE)
_CONTAINER: Final = int(RecordFlag.CONTAINER)
_REMEMBERS: Final = int(RecordFlag.MEMORY)
_KEPT: Final = "ny"  # by RecordFlag.PERSISTENT
assert int(RecordFlag.PERSISTENT) == 1
_LINE: Final = "%-9d %s %-8d %s %s%s\n"

_ENTRY: Final = ("e_priority", "e_state", "e_attempts", "e_submitted")
_MESSAGE: Final = ("m_qpool", "m_flags", "m_size", "m_location", "m_offset", "m_length")


def table_lines(view: IndexView, queues: Iterable[int]) -> Iterator[str]:
    """l as a table, of the queues with these numbers."""
    yield render.ENTRY_TITLE
    texts = _Texts()
    for queue in queues:
        for columns in view.columns(queue, _ENTRY, _MESSAGE):
            yield from _chunk(view, columns, texts)


class _Texts:
    """What many lines have in common, made once each: dictionaries by number."""

    def __init__(self) -> None:
        self.heads = Made(_head)
        self.times = Made(lambda second: f"{seed_time(second * NS_PER_S):<17}")
        self.files = Made(lambda word: brief(place(word, 0))[:-1])


def _head(number: int) -> str:
    """Priority, state, kept or not, failed attempts."""
    return (f"{number & 0xFF:<3} {_STATES[number >> 8 & 0xFF]} {_KEPT[number >> 16 & 1]} "
            f"{number >> 17:<4}")


def _chunk(view: IndexView, columns: list[Vector], texts: _Texts) -> list[str]:
    """The lines are made by one call of `%`: a third of the time of one by one."""
    priority, state, attempts, submitted, qpools, flags, sizes, words, offsets, lengths = columns
    count = len(qpools)
    if not count:
        return []
    failed = attempts.astype(np.int64) - ((attempts > 0) & (state == _ACTIVE))
    heads = (priority.astype(np.int64) | state.astype(np.int64) << 8
             | (flags & 1).astype(np.int64) << 16 | failed << 17)
    places, files = offsets.tolist(), texts.files.each(words)
    for at in np.flatnonzero(flags & _CONTAINER).tolist():
        files[at] = brief(view.item_ref(int(words[at]), places[at], int(lengths[at]),
                                        int(flags[at])))
        places[at] = ""
    for at in np.flatnonzero(flags & _REMEMBERS).tolist():
        files[at], places[at] = render.REMEMBERS, ""
    values: list[int | str] = [""] * (6 * count)
    for at, column in enumerate((qpools.tolist(), texts.heads.each(heads), sizes.tolist(),
                                 texts.times.each(submitted // NS_PER_S), files, places)):
        values[at::6] = column
    return (_LINE * count % tuple(values)).splitlines()


def json_lines(view: IndexView, raws: Iterable[RawEntry]) -> Iterator[str]:
    """l as JSON lines."""
    names = view.queue_names()
    for raw in raws:
        yield json.dumps(entry_record(view.entry_of(raw, names)))


_POOL_FILE: Final = "/tmp/omqmsg"


def show_summary(desk: Desk) -> None:
    """s: messages, active ones and load of each queue."""
    _show_queues(desk, render.load_table)


def show_throughput(desk: Desk) -> None:
    """T: messages, active ones and throughput of each queue."""
    _show_queues(desk, render.throughput_table)


def _show_queues(desk: Desk, table: render.Table) -> None:
    with desk.sources.index() as view:
        rows = view.queues()
    if desk.json:
        for row in rows:
            print_json(queue_record(row) | desk.sources.space.record())
    else:
        desk.print(table(rows))


def list_configured(desk: Desk) -> None:
    """L: names of the queues, from poolctrl; the queue manager need not run."""
    for name in desk.sources.configured_queues():
        if desk.json:
            print_json({"queue": name})
        else:
            desk.out.write(name + "\n")


def browse(desk: Desk) -> None:
    """l: the messages on a queue in the order in which they are handed out."""
    queue = desk.queue()
    limit = _number(desk.answers.word())
    chosen = None if queue == "*" else queue
    with desk.sources.index() as view:
        numbers = [row.number for row in view.queues() if chosen in (None, row.name)]
        if not numbers:
            raise UnknownQueue(queue=escape(queue))
        if desk.answers.flags.where or desk.answers.flags.mail:
            _browse_chosen(desk, view, chosen, limit)
        elif desk.json:
            desk.print(json_lines(view, view.raw_entries(chosen, limit)))
        else:
            desk.print(islice(table_lines(view, numbers), None if limit is None else limit + 1))


def _browse_chosen(desk: Desk, view: IndexView, queue: str | None, limit: int | None) -> None:
    selection = parse(*(desk.answers.flags.where or ()))
    rows = islice(selection.rows(
        view, desk.sources.paths, desk.sources.uuid, clock.wall_ns(), queue), limit)
    if desk.answers.flags.count:
        count = sum(1 for _ in rows)
        desk.print([f'{{"messages": {count}}}' if desk.json else str(count)])
    elif desk.answers.flags.mail:
        _browse_mail(desk, rows)
    elif desk.json:
        for row in rows:
            desk.record(entry_record(row))
    else:
        desk.print(render.entry_table(rows))
    for note in selection.notes():
        desk.note(note)


def _browse_mail(desk: Desk, rows: Iterator[EntryRow]) -> None:
    """--mail: with sender and subject, which are read from each message."""
    messages = StoredMessages(desk.sources.paths)
    try:
        found = ((row, MessageFacts(messages, row.message)) for row in rows)
        if desk.json:
            for row, facts in found:
                desk.record(entry_record(row) | render.mail_record(facts))
        else:
            desk.print(render.mail_table(found))
    finally:
        messages.close()


def _number(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise BadRequest(reason=f"{escape(text)!r} is not a number of messages")
    return int(text)


def dump_text(desk: Desk) -> None:
    """t: the pool files or the queue manager's memory as text; file `-`: to the output."""
    what = desk.answers.ask("Message pool (m) or queues (q) ? ")
    if what not in ("m", "q"):
        raise BadRequest(reason=f"{escape(what)!r} is neither m (Message Pool) nor q (queues)")
    default = _POOL_FILE if what == "m" else default_reference()
    answer = desk.answers.ask(f"Msg File Name ({default}):", default)
    source = desk.sources.pool_text() if what == "m" else desk.sources.memory_text()
    with source as text:
        if desk.json:
            text = dump_json.json_lines(text, "pool" if what == "m" else "")
        _write_text(desk, answer, default, text)


def _write_text(desk: Desk, answer: str, default: str, text: Iterator[str]) -> None:
    if answer == "-":
        desk.print(text)
        return
    path = dump_path(desk.sources.paths, answer)
    count = write_lines(path, text)
    if desk.json:
        print_json({"file": str(path), "lines": count})
    elif answer == default and not desk.answers.interactive:
        desk.out.write(f"{default}\n")  # a script must learn the name that it did not choose
