"""Carry out a change of messages: ask first, then order it from the queue manager, then report.

What was looked at is what is changed: each message goes with the LSN that the look saw. Every order
is journaled with uid, pid, command and reason. A copy is a put of new messages; its command is
journaled first. Ids go out in orders of a few hundred, each all or nothing with its journal block;
an interrupted command has done whole orders. Copies go out in batches likewise.

Errors: NotConfirmed, MessagesRefused (after all others were carried out), ManagerUnavailable,
TimedOut, NoAuthority, UnknownQueue, and those of a put for a copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import omq
from omq.base.clock import STOPPED, process_state
from omq.base.config import client_settings
from omq.base.errors import (
    BadRequest,
    IndexFull,
    ManagerUnavailable,
    MessagesRefused,
    MessageTooLong,
    NotConfirmed,
    OmqError,
    QueueFull,
    SpoolFull,
)
from omq.base.names import escape
from omq.cli.common import say
from omq.cli.operate.change_plan import Change, Doing, Target, counted
from omq.cli.progress import Progress
from omq.core.index.rows import EntryRow
from omq.core.index.view import IndexView
from omq.core.look.stored import Stored, StoredMessages
from omq.format.message import Descriptor
from omq.format.property_values import carried
from omq.ipc.client.connection import Client, Outgoing
from omq.ipc.client.manager_absence import hung_error
from omq.ipc.client.operator import Operator, Refusal, Report
from omq.services.daemon.options import Location

Ask = Callable[[str], bool]
COPY_MESSAGES: Final = 500
COPY_BYTES: Final = 1 << 18
"""A batch of copies: as many messages as one order, and no more bytes than a channel takes at once
(put_many goes in several requests else, each all or nothing)."""
REFUSALS_SHOWN: Final = 5
"""A stale plan may have thousands; they mostly say the same."""


def confirm(location: Location, change: Change, count: int, ask: Ask, *, yes: bool) -> None:
    """Ask before more than operator_confirm_messages are changed. NotConfirmed."""
    if yes or count <= client_settings(location.conf_dir).operator_confirm_messages:
        return
    if not ask(f"{change.text()}: {counted(count)}. Are you sure (y/n) ? "):
        raise NotConfirmed(count=count, what="messages", action=change.text())


def connect(location: Location, name: str) -> Client:
    """A connection for an operator: a manager that is gone or hangs is reported soon."""
    with IndexView.attach(location.paths) as view:
        if not view.alive:
            raise ManagerUnavailable(spool=location.paths.root, reason="it does not run")
        header = view.header
        if header is not None and process_state(header.pid) in STOPPED:  # it cannot answer
            raise hung_error(location.paths, header.pid) or ManagerUnavailable(
                spool=location.paths.root, reason="it does not run")
    timeout_s = client_settings(location.conf_dir).connect_timeout_s
    return omq.connect(location.paths.root, name=name[:16], timeout_s=timeout_s,
                       waiting=partial(say, name))


def carry_out(location: Location, command: str, change: Change, items: Sequence[Target],
              reason: str) -> Report:
    """Order it. The report tells what was done and refused; see `check`."""
    name = command.split(" ", 1)[0]
    with connect(location, name) as connection:
        progress = Progress(name, len(items))
        operator = Operator(connection, command, progress)
        try:
            return _order(operator, change, items, reason)
        finally:
            progress.end()


def _order(operator: Operator, change: Change, items: Iterable[Target], reason: str) -> Report:
    if change.doing is Doing.HOLD:
        return operator.hold(items, reason=reason, force=change.force)
    if change.doing is Doing.RELEASE:
        return operator.release(items, reason=reason)
    if change.doing is Doing.MOVE:
        return operator.move(items, change.targets, priority=change.priority, reason=reason,
                             force=change.force)
    if change.doing is Doing.RESTORE:
        return operator.restore(items, priority=change.priority, reason=reason)
    assert change.doing is Doing.DELETE, "copies have their own way"
    return operator.delete(items, keep_s=change.keep_s, reason=reason, force=change.force)


def check(report: Report, count: int) -> None:
    """MessagesRefused when the queue manager left some as they are."""
    if report.refused:
        raise MessagesRefused(refused=len(report.refused), count=count,
                              text=escape(report.refused[0].text, 500))


def refusals(report: Report) -> Iterator[str]:
    """What to tell of those that were left as they are: the first few, and how many more."""
    yield from (escape(each.text, 500) for each in report.refused[:REFUSALS_SHOWN])
    more = len(report.refused) - REFUSALS_SHOWN
    if more > 0:
        yield f"and {more} more were refused (--json names each)"


def copy(location: Location, command: str, change: Change, rows: Sequence[EntryRow],
         names: Sequence[str], reason: str) -> Report:
    """New messages with the same properties and bytes, in batches of COPY_MESSAGES and COPY_BYTES:
    each batch is there wholly or not at all. `names`: of the queues by number."""
    report, name = Report(), command.split(" ", 1)[0]
    if len(change.targets) != 1:
        raise BadRequest(reason="a copy goes on one queue")
    goal = change.targets[0]
    stored = StoredMessages(location.paths)
    progress = Progress(name, len(rows))
    try:
        with connect(location, name) as connection:
            report.lsns.append(Operator(connection, command).note(
                change.targets, len(rows), reason=reason))
            for batch in _batches(rows):
                found = list(_copies(stored, batch, change.priority, names, report))
                _put(connection, goal, found, report)
                progress(len(report.done) + len(report.refused))
    finally:
        stored.close()
        progress.end()
    return report


def _put(connection: Client, goal: str, batch: list[tuple[int, Outgoing]], report: Report
         ) -> None:
    """One batch; if it is refused for what one of its messages is, or for want of room, each half
    by itself."""
    if not batch:
        return
    try:
        connection.put_many(goal, [new for _, new in batch])
        report.done += [qpool for qpool, _ in batch]
    except (MessageTooLong, QueueFull, IndexFull, SpoolFull) as error:
        if len(batch) == 1:
            report.refused.append(Refusal(batch[0][0], error.status, str(error)))
            return
        half = len(batch) // 2
        _put(connection, goal, batch[:half], report)
        _put(connection, goal, batch[half:], report)


def _batches(rows: Sequence[EntryRow]) -> Iterator[list[EntryRow]]:
    batch: list[EntryRow] = []
    size = 0
    for row in rows:
        if batch and (len(batch) == COPY_MESSAGES or size + row.message.size > COPY_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += row.message.size
    if batch:
        yield batch


def _copies(stored: StoredMessages, rows: Iterable[EntryRow], priority: int | None,
            names: Sequence[str], report: Report) -> Iterator[tuple[int, Outgoing]]:
    """What can be read of them, with its QPoolId; the rest is refused."""
    for row in rows:
        try:
            found = stored.read(row.message)
            yield row.message.qpool, outgoing(
                found, stored.body(row.message, found), row.priority if priority is None
                else priority, names, persistent=row.message.persistent,
                expiry_ns=row.message.expiry_ns)
        except OmqError as error:
            report.refused.append(Refusal(row.message.qpool, error.status, str(error)))


def outgoing(stored: Stored, body: bytes, priority: int, names: Sequence[str], *,
             persistent: bool = True, expiry_ns: int) -> Outgoing:
    """The same message once more, with an id of its own, and over when it is (0: never)."""
    found: Descriptor = stored.descriptor
    reply_to = names[found.reply_to] if 0 < found.reply_to < len(names) else ""
    expiry_s = max(0, expiry_ns - time.time_ns()) / 1e9 if expiry_ns else None
    return Outgoing(body=body, priority=priority, properties=carried(stored.properties),
                    persistent=persistent, correlation_id=found.correlation_id.rstrip(b"\0"),
                    expiry_s=expiry_s, reply_to=reply_to, group_id=found.group_id.rstrip(b"\0"),
                    group_sequence=found.number, last_in_group=found.last)


def report_record(change: Change, report: Report) -> dict[str, Any]:
    """The JSON object of a change: a contract, keys are only added."""
    return {"action": change.doing.value, "targets": list(change.targets),
            "done": len(report.done), "refused": [
                {"qpool_id": each.qpool, "status": each.status, "reason": each.text}
                for each in report.refused], "lsns": report.lsns}
