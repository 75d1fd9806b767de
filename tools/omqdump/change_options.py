"""The options that change messages: m d p for an opened one, M D C Z for many, u and A.

Many are chosen by their position on the queue (the default is where the walk is), or by --where.
Nothing is changed that has changed since it was looked at; readers may run meanwhile.
Errors: those of cli.operate.change and cli.operate.change_plan, NothingMeant, BadRequest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from omq.base import clock
from omq.base.errors import AccessDenied, BadRequest, NothingMeant
from omq.base.names import IDEL_NAME, parse_priority
from omq.cli.operate import change as changes
from omq.cli.operate.change_plan import Change, Doing, counted, plan_lines, read_plan, target
from omq.cli.operate.deleted_messages import deleted
from omq.core.index.rows import EntryRow
from omq.core.index.view import IndexView
from omq.core.look.selection import Selection, parse
from omq.core.look.stored import StoredMessages
from omq.ipc.client.operator import Operator, Report
from omqtools.omqdump import message_text
from omqtools.omqdump.handles import Opened
from omqtools.omqdump.option_desk import Desk
from omqtools.omqdump.text_file import dump_path, write_lines

ANY: Final = "*"


def move_opened(desk: Desk) -> None:
    """m: an opened message goes to another queue, in one step."""
    opened = desk.opened()
    queue = desk.queue("To Queue Name:")
    _on_one(desk, opened, Change(Doing.MOVE, (queue,), force=_flag(desk, "force")))
    _follow(desk, opened, queue)


def delete_opened(desk: Desk) -> None:
    """d: an opened message leaves its queue."""
    opened = desk.opened()
    _on_one(desk, opened, _deletion(desk))
    desk.handles.close(opened.handle)


def put_opened(desk: Desk) -> None:
    """p: an opened message goes on one more queue; one that was read from files is put."""
    opened = desk.opened()
    queue = desk.queue()
    if opened.row is None:
        _put_new(desk, opened, queue)
        return
    row = replace(opened.row, queue=queue)
    _report(desk, Change(Doing.RESTORE, (queue,)), [row])
    _follow(desk, opened, opened.row.queue)


def _put_new(desk: Desk, opened: Opened, queue: str) -> None:
    body = message_text.body_of(desk.sources.paths, opened)
    names = [opened.reply_to]
    stored = replace(opened.stored, descriptor=opened.stored.descriptor._replace(reply_to=0))
    new = changes.outgoing(stored, body, opened.priority, names, persistent=opened.persistent,
                           expiry_ns=stored.descriptor.expiry)
    with changes.connect(desk.location, "omqdump") as connection:
        Operator(connection, _command(desk, "p", queue)).note((queue,), 1, reason=_reason(desk))
        found = connection.put(queue, outgoing=replace(new, reply_to=opened.reply_to))
    if desk.json:
        desk.record({"handle": opened.handle, "queue": queue, "message_id": found})
    else:
        desk.out.write(f"Message Id = {found}\n")


def _on_one(desk: Desk, opened: Opened, change: Change) -> None:
    if opened.row is None:
        raise BadRequest(reason=f"handle {opened.handle} is of a file, on no queue: put it first")
    _report(desk, change, [opened.row])


def _follow(desk: Desk, opened: Opened, queue: str) -> None:
    """The handle now stands for the message as it is after our own change."""
    assert opened.row is not None
    with desk.sources.index() as view:
        for row in view.of_message(opened.row.message.qpool):
            if row.queue == queue:
                opened.row = row
                return
    desk.handles.close(opened.handle)  # a reader was faster


def move_many(desk: Desk) -> None:
    """M: messages go to another queue."""
    queue, to = desk.queue("From Queue Name:"), desk.queue("To Queue Name:")
    _many(desk, queue, Change(Doing.MOVE, (to,), _priority(desk), force=_flag(desk, "force")))


def copy_many(desk: Desk) -> None:
    """C: messages are put once more, on another queue; each has a new id."""
    queue, to = desk.queue("From Queue Name:"), desk.queue("To Queue Name:")
    _many(desk, queue, Change(Doing.COPY, (to,), _priority(desk)))


def delete_many(desk: Desk) -> None:
    """D: messages leave a queue; what cannot be opened stays (see Z)."""
    _many(desk, desk.queue(), _deletion(desk), opening=True)


def zap(desk: Desk) -> None:
    """Z: messages leave a queue without being opened, for ever, whoever has them."""
    _many(desk, desk.queue(), Change(Doing.DELETE, keep_s=0.0, force=True))


def undo(desk: Desk) -> None:
    """u: messages that an operator deleted are on their queue again, until IDEL has run."""
    flags = desk.answers.flags
    text = "" if flags.where else desk.answers.ask("QPoolId or Message Id (all):", "all")
    wanted = Selection() if text in ("", "all") else parse(f"id={text}")
    if flags.where:
        wanted = parse(*flags.where)
    change = Change(Doing.RESTORE)
    with desk.sources.index() as view:
        names = view.queue_names()
        rows = list(deleted(_rows(desk, wanted, view, IDEL_NAME), names))
    _carry_out(desk, change, rows)


def apply_plan(desk: Desk) -> None:
    """A: carry out a plan of --dry-run; what has changed since is refused."""
    path = Path(desk.answers.ask("Plan File Name:"))
    change, items = read_plan(path, desk.sources.uuid)
    _confirm(desk, change, len(items))
    command = _command(desk, "A", str(path))
    if change.doing is Doing.COPY:
        with desk.sources.index() as view:
            names = view.queue_names()
            found = [row for item in items for row in view.of_message(item[0])
                     if target(row) == item]
        report = changes.copy(desk.location, command, change, found, names, _reason(desk))
        _tell(desk, change, report, len(items))
    else:
        report = changes.carry_out(desk.location, command, change, items, _reason(desk))
        _tell(desk, change, report, len(items))


def _many(desk: Desk, queue: str, change: Change, *, opening: bool = False) -> None:
    flags = desk.answers.flags
    with desk.sources.index() as view:
        if queue != ANY:
            next(view.raw_entries(queue), None)  # UnknownQueue
        if flags.where:
            selection = parse(*flags.where)
            found = _rows(desk, selection, view, None if queue == ANY else queue)
        else:
            found = _by_position(desk, view, queue)
        if flags.count:
            _count(desk, sum(1 for _ in found))
            return
        if flags.dry_run is not None:
            _write_plan(desk, view, change, found, flags.dry_run)
            return
        rows = list(found)
    if opening:
        _open_all(desk, rows)
    _carry_out(desk, change, rows)


def _rows(desk: Desk, selection: Selection, view: IndexView, queue: str | None
          ) -> Iterator[EntryRow]:
    rows = selection.rows(view, desk.sources.paths, desk.sources.uuid, clock.wall_ns(), queue)
    yield from (row for row in rows if queue == IDEL_NAME or row.queue != IDEL_NAME)
    for note in selection.notes():
        desk.note(note)


def _by_position(desk: Desk, view: IndexView, queue: str) -> Iterator[EntryRow]:
    if queue == ANY:
        raise BadRequest(reason="all queues at once need --where")
    at = desk.handles.passed(view, queue) + 1
    first = desk.answers.number(f"First msg ({at}):", at)
    text = desk.answers.ask("Number of msgs (1):", "1")
    if first < 1 or not (text == "all" or (text.isascii() and text.isdigit())):
        raise BadRequest(reason="positions begin at 1; the number of msgs is a number or all")
    count = None if text == "all" else int(text)
    names = view.queue_names()
    found = islice(view.raw_entries(queue), first - 1, None)
    return (view.entry_of(raw, names) for raw in islice(found, count))


def _open_all(desk: Desk, rows: Iterable[EntryRow]) -> None:
    """As in the original: a message that cannot be opened is not deleted by d or D. Who may not
    read the files goes by the right to delete alone."""
    stored = StoredMessages(desk.sources.paths)
    try:
        for row in rows:
            stored.read(row.message)
    except AccessDenied:
        return
    finally:
        stored.close()


def _write_plan(desk: Desk, view: IndexView, change: Change, rows: Iterable[EntryRow], name: str
                ) -> None:
    lines = plan_lines(change, rows, desk.sources.uuid, view.counters()["last_lsn"])
    if name == "-":
        desk.print(lines)
        return
    count = write_lines(dump_path(desk.sources.paths, name), lines) - 1
    if desk.json:
        desk.record({"plan": name, "messages": count})
    else:
        desk.out.write(f"Plan {name}: {change.text()}, {counted(count)}; nothing was changed\n")


def _count(desk: Desk, count: int) -> None:
    if desk.json:
        desk.record({"messages": count})
    else:
        desk.out.write(f"{count}\n")


def _carry_out(desk: Desk, change: Change, rows: list[EntryRow]) -> None:
    _confirm(desk, change, len(rows))
    _report(desk, change, rows)


def _confirm(desk: Desk, change: Change, count: int) -> None:
    desk.note(f"{change.text()}: {counted(count)}")
    changes.confirm(desk.location, change, count, desk.answers.yes,
                    yes=desk.orders.yes or _flag(desk, "yes"))


def _report(desk: Desk, change: Change, rows: list[EntryRow]) -> None:
    if not rows:
        raise NothingMeant(action=change.text())
    command = _command(desk, change.text())
    if change.doing is Doing.COPY:
        with desk.sources.index() as view:
            names = view.queue_names()
        report = changes.copy(desk.location, command, change, rows, names, _reason(desk))
    else:
        items = [target(row) for row in rows]
        report = changes.carry_out(desk.location, command, change, items, _reason(desk))
    _tell(desk, change, report, len(rows))


def _tell(desk: Desk, change: Change, report: Report, count: int) -> None:
    if desk.json:
        desk.record(changes.report_record(change, report))
    else:
        desk.out.write(f"{len(report.done)} of {counted(count)}: {change.text()}\n")
    for text in changes.refusals(report):
        desk.note(text)
    changes.check(report, count)


def _deletion(desk: Desk) -> Change:
    return Change(Doing.DELETE, force=_flag(desk, "force"))


def _flag(desk: Desk, name: str) -> bool:
    return bool(getattr(desk.answers.flags, name, False))


def _priority(desk: Desk) -> int | None:
    text = desk.answers.flags.priority
    return None if text is None else parse_priority(text)


def _reason(desk: Desk) -> str:
    return getattr(desk.answers.flags, "reason", None) or desk.orders.reason


def _command(desk: Desk, *words: str) -> str:
    return " ".join((desk.orders.command, *words))
