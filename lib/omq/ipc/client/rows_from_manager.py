"""Rows of the queue that a reader reads, as the queue manager tells them, for readers that may not
map the index: what core.index.view.IndexView is to operators (ADR 0062). They are asked for in
pieces, as they are wanted; a restart of the manager in between changes nothing, for places in the
order of hand-out outlive it.

Errors: NoAuthority, QueueGone, and those of the link.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from omq.base import limits
from omq.base.errors import GetInhibited, NotOperator
from omq.base.paths import SpoolPaths
from omq.core.index.rows import (
    ENTRY_COLUMNS,
    MESSAGE_COLUMNS,
    EntryRow,
    MessageRow,
    RawEntry,
)
from omq.format.index import EntryState
from omq.format.pool import RecordFlag
from omq.format.wire import REPLY, SEEN

if TYPE_CHECKING:
    from omq.core.index.view import IndexView
    from omq.core.index.without_numpy import PlainIndex
    from omq.ipc.client.connection_parts import Wire
    from omq.ipc.client.link import Link

    IndexRows = IndexView | PlainIndex
    Rows: TypeAlias = "IndexRows | ToldRows"

_FIELDS: Final = {"m_time": "created"}  # where the row says it otherwise
_ENTRY_AT: Final = tuple(SEEN.names.index(name[2:]) if name[2:] in SEEN.names else -1
                         for name in ENTRY_COLUMNS)
_MESSAGE_AT: Final = tuple(
    SEEN.names.index(field) if (field := _FIELDS.get(name, name[2:])) in SEEN.names else -1
    for name in MESSAGE_COLUMNS)


def index_of(paths: SpoolPaths) -> IndexRows:
    """The index, read with numpy where that is installed, else without: a client needs none.
    ManagerUnavailable, NotOperator."""
    if importlib.util.find_spec("numpy") is None:
        from omq.core.index.without_numpy import PlainIndex

        return PlainIndex.attach(paths)
    from omq.core.index.view import IndexView

    return IndexView.attach(paths)


def rows_of(wire: Wire) -> Rows:
    """Of the index, where this user may map it; else of what the manager tells."""
    try:
        return index_of(wire.paths)
    except NotOperator:
        return ToldRows(wire.link)


class ToldRows:
    """See the module."""

    header = None

    def __init__(self, link: Link) -> None:
        self._link = link
        self._number, self._queue = link.reader.number, link.reader.queue

    def queue_names(self) -> list[str]:
        """By queue number; its own alone has a name."""
        return [*([""] * self._number), self._queue]

    def hands_out(self, queue: str) -> bool:
        """The manager refuses to tell any, if not."""
        return True

    def raw_entries(self, queue: str) -> Iterator[RawEntry]:
        """In the order of hand-out; what comes or goes meanwhile may be there or not. While get is
        inhibited there is nothing, and the manager says when to look again
        (core.engine.arrivals)."""
        assert queue == self._queue, "a reader looks at its own queue"
        place: object = None
        while True:
            try:
                told = self._see(after=place, want=limits.BATCH_MAX)
            except GetInhibited:
                return
            yield from self._rows(int(told["count"]))
            place = told["next"]
            if place is None:
                return

    def raw_numbered(self, numbers: Sequence[int]) -> Iterator[RawEntry]:
        """Those of these entries that are there."""
        size = max(1, (len(self._link.reply) - REPLY.size) // SEEN.size)
        for at in range(0, len(numbers), size):
            try:
                told = self._see(entries=list(numbers[at : at + size]))
            except GetInhibited:
                return
            yield from self._rows(int(told["count"]))

    def _see(self, **question: object) -> dict[str, Any]:
        return self._link.control({"op": "see", **question})

    def _rows(self, count: int) -> list[RawEntry]:
        """The rows of an answer, before another one takes their place."""
        out: list[RawEntry] = []
        for at in range(REPLY.size, REPLY.size + count * SEEN.size, SEEN.size):
            row = (*SEEN.unpack_from(self._link.reply, at), 0)  # the last one: what is not told
            out.append((row[0], tuple(row[n] for n in _ENTRY_AT), row[1],
                        tuple(row[n] for n in _MESSAGE_AT)))
        return out

    def entry_of(self, raw: RawEntry, names: list[str]) -> EntryRow:
        """All that is known of it. Where its payload lies is not told."""
        number, entry, slot, message = raw
        queue, state, priority, sequence, attempts, retries, submitted_ns, until_ns, _, _ = entry
        (qpool, _, _, parts, flags, size, created_ns, pid, _, _, length, lsn, crc, expiry_ns, origin
         ) = message
        told = MessageRow(
            number=slot, qpool=qpool, file=None, record=None, parts=parts, flags=flags, size=size,
            created_ns=created_ns, pid=pid, item_ref="", word=0, offset=0, length=length, lsn=lsn,
            crc=crc, expiry_ns=expiry_ns, origin=origin)
        return EntryRow(
            number=number, queue=names[queue], state=EntryState(state), priority=priority,
            sequence=sequence, attempts=attempts, retries=retries, submitted_ns=submitted_ns,
            until_ns=until_ns, lease=0, reader=None, message=told)

    def item_ref(self, word: int, offset: int, length: int, flags: int) -> str:
        """Where its payload lies, for people."""
        return "a container" if flags & RecordFlag.CONTAINER else "the queue manager's answer"

    def close(self) -> None:
        """There is nothing to let go of."""
