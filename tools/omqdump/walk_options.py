"""The options that open, show and close one message: g G f r a c v.

Errors: UnknownQueue, NoSuchHandle, BodyUnavailable and BodyDamaged for what cannot be opened (the
walk goes on after it; Z removes it).
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from omq.base.errors import NoMessage
from omq.cli.look.index_records import entry_record
from omq.core.index.message_ids import find_qpool
from omq.core.index.view import IndexView, RawEntry
from omq.core.look.stored import StoredMessages
from omq.format.index import EntryState
from omqtools.omqdump import message_text, render
from omqtools.omqdump.handles import Opened, position
from omqtools.omqdump.option_desk import Desk

TIME_OUT: Final = "TIME_OUT"


def get_next(desk: Desk) -> None:
    """g: open the next message of the walk; TIME_OUT after the last one, then from the start."""
    queue = desk.queue()
    with desk.sources.index() as view:
        raw = next(desk.handles.ahead(view, queue), None)
        if raw is None:
            desk.handles.walks.pop(queue, None)
            _time_out(desk, queue)
            return
        desk.handles.walks[queue] = position(raw)
        _open(desk, view, raw)


def get_nth(desk: Desk) -> None:
    """G: open the message after the first n of the queue; the walk goes on from there."""
    queue = desk.queue()
    skipped = desk.answers.number("Number of msgs to skip (0):", 0)
    with desk.sources.index() as view:
        raw = next(islice(view.raw_entries(queue), skipped, None), None)
        if raw is None:
            desk.handles.walks.pop(queue, None)
            _time_out(desk, queue)
            return
        desk.handles.walks[queue] = position(raw)
        _open(desk, view, raw)


def find(desk: Desk) -> None:
    """f: open the message that is handed out next and is not open here. With an id: that one."""
    queue, wanted = desk.queue(), desk.answers.word()
    with desk.sources.index() as view:
        if wanted:
            _open(desk, view, _with_id(desk, view, queue, wanted))
            return
        names = view.queue_names()
        for raw in view.raw_entries(queue):
            ready = raw[1][1] == EntryState.READY
            if ready and not desk.handles.is_open(raw[3][0], names[raw[1][0]]):
                _open(desk, view, raw)
                return
    _time_out(desk, queue)


def _with_id(desk: Desk, view: IndexView, queue: str, text: str) -> RawEntry:
    qpool = find_qpool(text, desk.sources.uuid, view, desk.sources.paths)
    names = view.queue_names()
    for raw in view.raw_of_message(qpool or 0):
        if names[raw[1][0]] == queue:
            return raw
    raise NoMessage(queue=queue)


def _time_out(desk: Desk, queue: str) -> None:
    if desk.json:
        desk.record({"queue": queue, "handle": None, "time_out": True})
    else:
        desk.out.write(TIME_OUT + "\n")


def _open(desk: Desk, view: IndexView, raw: RawEntry) -> None:
    row = view.entry_of(raw, view.queue_names())
    stored = StoredMessages(desk.sources.paths)
    try:
        found = stored.read(row.message)
    finally:
        stored.close()
    names = view.queue_names()
    reply_to = found.descriptor.reply_to
    opened = Opened(
        desk.handles.free(), found, row.message.item_ref, row, None, row.priority,
        row.message.persistent, names[reply_to] if 0 < reply_to < len(names) else "")
    desk.handles.add(opened)
    if desk.json:
        desk.record({"handle": opened.handle, **entry_record(row)})
    else:
        desk.out.write(f"Msg Handle = {opened.handle}\n")


def read(desk: Desk) -> None:
    """r: what an opened message is; the word `body` after the handle shows its bytes too."""
    opened = desk.opened()
    with_body = desk.answers.word() == "body"
    body = message_text.body_of(desk.sources.paths, opened) if with_body else None
    queues = []
    if opened.row is not None:
        with desk.sources.index() as view:
            queues = view.of_message(opened.row.message.qpool)
    if desk.json:
        desk.record(message_text.record(opened, queues, desk.sources.uuid, body))
    else:
        subject = message_text.subject_of(desk.sources.paths, opened)
        desk.print(message_text.lines(opened, queues, desk.sources.uuid, body, subject))


def access(desk: Desk) -> None:
    """a: the opened messages."""
    if desk.json:
        for opened in desk.handles.opened.values():
            desk.record(message_text.opened_record(opened))
    else:
        desk.print(message_text.opened_table(desk.handles.opened.values()))


def close(desk: Desk) -> None:
    """c: close an opened message."""
    opened = desk.opened()
    desk.handles.close(opened.handle)
    if desk.json:
        desk.record({"handle": opened.handle, "closed": True})


def status(desk: Desk) -> None:
    """v: the status of a queue, and where the walk is. Nothing is reset."""
    queue = desk.queue()
    with desk.sources.index() as view:
        rows = [row for row in view.queues() if row.name == queue]
        readers = [reader for reader in view.readers() if reader.queue == queue]
        walked = desk.handles.passed(view, queue)  # UnknownQueue
        if not rows:
            next(view.raw_entries(queue), None)
    if desk.json:
        desk.record(render.status_record(rows[0], readers, walked))
    else:
        desk.print(render.status_lines(rows[0], readers, walked))
