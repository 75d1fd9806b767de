"""A queue that stands still because each of its ready messages waits for its turn in a group.

The index does not say of which group a message is; payloads do. At most LOOKED_MAX of them are
read: a queue with more messages of groups before the first that could move is not judged.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from omq.base.amounts import counted, duration
from omq.base.clock import NS_PER_S, iso_time
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.cli.look.cause import Cause
from omq.core.index.rows import EntryRow, QueueRow, ReaderRow
from omq.core.look.group_front import group_of
from omq.core.look.look import Look
from omq.core.look.stored import StoredMessages
from omq.format.index import EntryState
from omq.format.pool import RecordFlag

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
