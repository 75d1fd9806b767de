"""Why nothing moves on a queue, from what is on it, who reads it, and which service should.

Causes are in the order in which they matter: the first is why.

A queue that stands still because each of its ready messages waits for its turn in a group.

The index does not say of which group a message is; payloads do. At most LOOKED_MAX of them are
read: a queue with more messages of groups before the first that could move is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from omq.base.amounts import counted, duration
from omq.base.clock import NS_PER_S, iso_time
from omq.base.errors import OmqError
from omq.base.names import IDEL_NAME, KEPT_RECORDS, POISON_NAME
from omq.base.paths import SpoolPaths
from omq.cli.look.cause import Cause, Severity
from omq.cli.look.due_times import due_text
from omq.cli.look.gateways import Gateway
from omq.cli.look.reader_causes import of_readers
from omq.cli.look.service_status import Status, Word
from omq.core.engine.queue_rules import UNLIMITED
from omq.core.index.rows import EntryRow, QueueRow, ReaderRow
from omq.core.look.group_front import group_of
from omq.core.look.look import Look, Origin
from omq.core.look.stored import StoredMessages
from omq.format.index import EntryState, QueueFlag
from omq.format.pool import RecordFlag
from omq.services.daemon.options import Location
from omq.tasks.schedule import NEVER_NS
from omq.tasks.schedule import QUEUE as SCHEDULES

LOOKED_MAX: Final = 1000


def locked(paths: SpoolPaths, seen: Look, row: QueueRow, readers: list[ReaderRow], now_ns: int
           ) -> Cause | None:
    """None: some ready message could be handed out, or that cannot be told."""
    if not row.ready or not seen.view.counters()["group_waiting"]:
        return None
    entries = list(seen.view.entries(row.name, LOOKED_MAX + 1))
    ready = [each for each in entries if each.state is EntryState.READY]
    grouped = [each for each in entries if each.message.flags & RecordFlag.GROUPED]
    if len(entries) > LOOKED_MAX or not ready or any(
            not each.message.flags & RecordFlag.GROUPED for each in ready):
        return None
    fronts = _fronts(paths, grouped)
    waits_for = [fronts.get(each.number) for each in ready]
    if any(front is None or front.number == each.number
           for front, each in zip(waits_for, ready, strict=True)):
        return None
    front = waits_for[0]
    assert front is not None
    return _cause(row, front, len(ready), readers, now_ns)


def _fronts(paths: SpoolPaths, grouped: list[EntryRow]) -> dict[int, EntryRow]:
    """Of each entry the first message of its group, by entry number."""
    first: dict[bytes, EntryRow] = {}
    found: dict[int, EntryRow] = {}
    stored = StoredMessages(paths)
    try:
        for each in sorted(grouped, key=lambda each: each.sequence):
            group = b""
            with suppress(OmqError):  # a member of the operators' group may not read payloads
                group = group_of(stored, each)
            if group:
                found[each.number] = first.setdefault(group, each)
    finally:
        stored.close()
    return found


def _cause(row: QueueRow, front: EntryRow, waiting: int, readers: list[ReaderRow], now_ns: int
           ) -> Cause:
    qpool, since_s = front.message.qpool, (now_ns - front.until_ns) / NS_PER_S
    what, hints = "which has its turn before them", []
    if front.state is EntryState.HELD:
        what, hints = "which an operator holds", [f"omrelease {qpool}"]
    elif front.state is EntryState.DEFERRED:
        what = f"which is deferred until {iso_time(front.until_ns)}"
        hints = [f"omrelease {qpool} makes it ready at once"]
    elif front.state is EntryState.PREPARED:
        what, hints = "which a unit of work in doubt has", ["omq units lists and ends them"]
    elif front.state is EntryState.ACTIVE:
        what = f"which a reader that is gone has had for {duration(since_s)}"
        for reader in readers:
            if reader.number == front.reader:
                what = (f"which reader {reader.name} (pid {reader.pid}) has had for "
                        f"{duration(since_s)}")
                hints = [f"omfreeq {row.name} -p {reader.pid} takes it back"]
    return Cause(
        "group", f"a group is locked: {counted(waiting, 'ready message')} "
        f"{'waits' if waiting == 1 else 'wait'} for message {qpool}, {what}; more readers do not "
        "help", (f"omqwhy {qpool}", *hints), queue=row.name)


def of_queue(location: Location, seen: Look, row: QueueRow, readers: list[ReaderRow],
             services: Sequence[Status], gateways: Sequence[Gateway], now_ns: int
             ) -> Iterator[Cause]:
    """See the module."""
    yield from _rules(row)
    if row.name == POISON_NAME:
        if row.messages:
            yield Cause("poison", f"{counted(row.messages, 'message')} failed too often; they "
                                  "stay until an operator acts",
                        ("omqwhy ID has the evidence; omrequeue sends them back",), queue=row.name)
        return
    if row.messages and not row.ready and not row.active:
        yield from _none_ready(seen, row, gateways, now_ns)
    if row.prepared and row.name != IDEL_NAME:
        yield Cause("in_doubt", f"{counted(row.prepared, 'message')} belong"
                    f"{'s' if row.prepared == 1 else ''} to units of work in doubt: they are not "
                    "handed out until those end",
                    ("omq units lists them; --commit UNIT or --backout UNIT",), queue=row.name)
    yield from _leased(location, seen, row)
    if row.flags & QueueFlag.SUSPENDED or not (row.ready or row.active or not row.messages):
        return
    if not readers:
        if row.name not in KEPT_RECORDS and (row.ready or not row.messages):
            yield _no_reader(row, services)
        return
    if seen.origin is not Origin.LIVING:
        return  # what its readers do does not matter now
    if row.flags & QueueFlag.AT_LIMIT and row.ready:
        work = "is being processed" if row.active == 1 else "are being processed"
        yield Cause("limit", "its limits of work let none of "
                    f"{counted(row.ready, 'ready message')} go: {row.active} {work}; more "
                    "readers do not help", (f"omq queue show {row.name} shows which limit, and "
                                            "what its keys wait for",), Severity.NOTE, row.name)
        return
    group = locked(location.paths, seen, row, readers, now_ns)
    if group is not None:
        yield group
        return
    yield from of_readers(location, seen, row, readers, now_ns)


def _rules(row: QueueRow) -> Iterator[Cause]:
    if row.flags & QueueFlag.SUSPENDED:
        yield Cause("get_inhibited", "the queue is held (get = inhibited in queues.conf): no "
                    "messages are handed out",
                    (f"omrelease -q {row.name}",), Severity.NOTE, row.name)
    if row.flags & QueueFlag.DRAINS:
        yield Cause("drains", "it was rolled over: it accepts no messages, and is removed once it "
                              "is empty and nobody reads it", (), Severity.NOTE, row.name)
    elif row.flags & QueueFlag.PUT_INHIBITED and row.name != POISON_NAME:
        yield Cause("put_inhibited", "no new messages are taken (put = inhibited in queues.conf, "
                    "or the queue is no longer in it)", (f"omrelease -q {row.name}",),
                    Severity.NOTE, row.name)
    elif 0 < row.max_depth < UNLIMITED and row.messages >= row.max_depth:
        yield Cause("full", f"it is full: {row.messages:,} of {row.max_depth:,} messages; senders "
                    "have to wait", ("max_depth in queues.conf; readers make room",),
                    queue=row.name)


def _none_ready(seen: Look, row: QueueRow, gateways: Sequence[Gateway], now_ns: int
                ) -> Iterator[Cause]:
    gateway = next((each for each in gateways if each.conf.queue == row.name), None)
    if row.deferred:
        due = seen.view.copies.until(row.number, EntryState.DEFERRED)
        first = int(np.min(due)) if len(due) else now_ns
        when = f"is due at {due_text(seen.view, first, now_ns)}"
        deleted = row.name == IDEL_NAME
        what = "deleted, and can be brought back" if deleted else (
            "put off" if gateway else "deferred")
        hints = ("omqdump --undo ID",) if deleted else (
            ("omq peers shows which peer, and why; omq flush PEER tries it now",) if gateway else
            (f"omq flush {row.name} tries them now",))
        down = f"; peers that are down: {', '.join(gateway.down[:3])}" if (
            gateway and gateway.down) else ""
        if row.name == SCHEDULES:
            paused = int(np.sum(due >= NEVER_NS))
            waits = row.deferred - paused
            text = f"{counted(paused, 'schedule')} {'is' if paused == 1 else 'are'} paused"
            if waits:
                text = (f"{counted(waits, 'schedule')} {'waits' if waits == 1 else 'wait'}; the "
                        f"first {when}" + (f"; {text}" if paused else ""))
            yield Cause("deferred", text, ("omq schedule list",), Severity.NOTE, row.name)
            return
        yield Cause("put_off" if gateway else "deferred", "none is ready: "
                    f"{counted(row.deferred, 'message')} {'is' if row.deferred == 1 else 'are'} "
                    f"{what}; the first {when}{down}", hints, Severity.NOTE, row.name)
    if row.held:
        yield Cause("held", f"none is ready: {counted(row.held, 'message')} "
                    f"{'is' if row.held == 1 else 'are'} held by an operator",
                    (f"omrelease --where 'queue={row.name} state=held'",), Severity.NOTE, row.name)


def _leased(location: Location, seen: Look, row: QueueRow) -> Iterator[Cause]:
    """In the hands of clients that are not here."""
    if not row.active:
        return
    gone = [each for each in seen.view.active()
            if each.queue == row.name and each.reader is None]
    if gone:
        first = min(gone, key=lambda each: each.until_ns)
        yield Cause("lease", f"{counted(len(gone), 'message')} {'is' if len(gone) == 1 else 'are'} "
                    "leased to a reader that is gone: it may return and finish; otherwise they "
                    "count a failed attempt and are ready again after its grace period",
                    ("reconnect_grace_s and death_delay_s of the configuration say when",
                     f"omqwhy {first.message.qpool}"), Severity.NOTE, row.name)


def _no_reader(row: QueueRow, services: Sequence[Status]) -> Cause:
    """What to do about the service that reads this queue, if one does."""
    for status in services:
        if status.conf.queue != row.name:
            continue
        title, name = status.conf.title, status.conf.name
        if status.state is Word.DISABLED:
            return Cause("no_reader", f"nobody reads it: {title} is not enabled in services.conf",
                         (f"enabled = yes in [{name}] of services.conf, then omon {name}",),
                         Severity.NOTE, row.name, name)
        off = status.state in (Word.STOPPED, Word.STOPPING)
        return Cause("no_reader", f"nobody reads it: {title} is {status.state}",
                     (f"omon {name}", f"omshowlog -s {status.conf.program} shows why"),
                     Severity.NOTE if off else Severity.WARNING, row.name, name)
    return Cause("no_reader", "nobody reads it, and no service is configured to",
                 ("a program of yours reads it, or omread",), Severity.NOTE, row.name)
