"""A read-only look at the index: queues, readers, messages and who comes next, without a request.

The queue manager changes the tables at any moment, or is dead and left them half changed; so each
method takes copies with numpy and gives rows made of them. Figures of one call belong to about the
same moment, not to the same instant.

Invariants:
1. The entries of a queue are selected and sorted, which ends whatever the tables hold; links are
   followed by core.index.in_order alone, which bounds and checks each step. Every number taken from
   a table is bounded before it is used to index another.
2. A row pairs an entry with its own message: sequences are never reused, so an entry that has the
   same one before and after its message was copied was not given to another meanwhile. Free slots,
   unknown states and entries that fail this are left out.
3. No view of the segment outlives a call, so `close` can always detach.

Errors: ManagerUnavailable (nothing to attach), UnknownQueue; never those of System V IPC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Final, Self

import numpy as np

from omq.base.arrays import Vector
from omq.base.errors import ManagerUnavailable, UnknownQueue
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.core.index.copies import IndexCopies, Test
from omq.core.index.item_refs import ItemRefs
from omq.core.index.rows import (
    ENTRY_COLUMNS,
    MESSAGE_COLUMNS,
    STATES,
    Averages,
    EntryRow,
    MessageRow,
    QueueRow,
    RawEntry,
    ReaderRow,
    entry_row,
    message_row,
    name_at,
)
from omq.core.index.tables import Tables
from omq.format.index import Counter, EntryState, IndexHeader, IndexLayout, QueueFlag, ReaderFlag
from omq.storage.segment import AttachedIndex

__all__ = ["EntryRow", "IndexView", "MessageRow", "QueueRow", "RawEntry", "ReaderRow"]

CHUNK_ROWS: Final = 4096
"""Rows copied at a time: bounds the memory of a listing of any length."""


class IndexView:
    """See the module. A context manager; `close` detaches."""

    def __init__(self, buffer: memoryview, layout: IndexLayout, paths: SpoolPaths,
                 attached: AttachedIndex | None = None) -> None:
        self.copies = IndexCopies(buffer, layout)
        self._ends = QueuesAndReaders(self.copies)
        self._layout = layout
        self._attached = attached
        self._refs = ItemRefs(paths)

    @classmethod
    def attach(cls, paths: SpoolPaths, segment: int | None = None) -> Self:
        """The index of a running manager, or the one that a dead manager left (see `alive`).

        `segment`: the id of a segment, instead of the one in run/ids.json."""
        try:
            attached = AttachedIndex(paths, segment)
        except (OSError, TypeError, ValueError, OverflowError) as error:
            # ids.json or the spool cannot be read, or holds what no manager wrote there.
            raise ManagerUnavailable(spool=paths.root, reason=escape(str(error))) from error
        return cls(attached.buffer, attached.header.layout(), paths, attached)

    @classmethod
    def of(cls, tables: Tables, paths: SpoolPaths) -> Self:
        """Of tables in this process: the tombstone of a dying manager, and tests."""
        return cls(tables.buffer, tables.layout, paths)

    def close(self) -> None:
        """Let go of the segment and of payload files; that is the end of the view."""
        self._refs.close()
        if self._attached is not None:
            self._attached.close()
            self._attached = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the manager of the index still runs (True for tables of this process)."""
        return self._attached is None or self._attached.alive

    @property
    def header(self) -> IndexHeader | None:
        """The segment's header; None for tables of this process."""
        return None if self._attached is None else self._attached.header

    @property
    def message_slots(self) -> int:
        """Messages that the index has room for."""
        return self._layout.messages

    @property
    def reader_slots(self) -> int:
        """Clients that the index has room for."""
        return self._layout.readers

    def counters(self) -> dict[str, int]:
        """All counters, by the names of index.Counter in lower case."""
        raw = self.copies.counters()
        return {counter.name.lower(): raw[counter] for counter in Counter}

    def queues(self) -> list[QueueRow]:
        """All queues by name, the special ones last."""
        return self._ends.queues()

    def hands_out(self, queue: str) -> bool:
        """Whether get from this queue is allowed."""
        return not any(row.name == queue and row.flags & QueueFlag.SUSPENDED
                       for row in self.queues())

    def readers(self) -> list[ReaderRow]:
        """All registered readers by number; clients that only put are not listed."""
        return self._ends.readers()

    def client(self, number: int) -> tuple[str, int] | None:
        """Name and pid of the client in this row of the readers' table; None: nobody is there."""
        return self._ends.client(number)

    def entries(self, queue: str | None = None, limit: int | None = None,
                after: tuple[int, int] | None = None) -> Iterator[EntryRow]:
        """The messages on one queue (None: on all, queue by queue), in every state, in the order in
        which they are handed out: priority, then sequence. At most `limit` rows; `after`: of those
        after this place (priority, sequence)."""
        names = self.copies.queue_names()
        return (self.entry_of(raw, names) for raw in self.raw_entries(queue, limit, after))

    def queue_names(self) -> list[str]:
        """By queue number."""
        return self.copies.queue_names()

    def entry_of(self, raw: RawEntry, names: list[str]) -> EntryRow:
        """The record of plain numbers; `names` as queue_names gives them."""
        number, entry, slot, message = raw
        return entry_row(number, entry, names, self._message(slot, message))

    def raw_entries(self, queue: str | None = None, limit: int | None = None,
                    after: tuple[int, int] | None = None) -> Iterator[RawEntry]:
        """The same as plain numbers, for listings of a million: entry number, ENTRY columns, slot
        of the message, MESSAGE columns."""
        rows = [row for row in self.queues() if queue is None or row.name == queue]
        if queue is not None and not rows:
            raise UnknownQueue(queue=escape(queue))
        first = None if limit is None else 2 * limit + 64  # some may leave the queue meanwhile
        chains = first is not None and self._attached is not None and self.alive
        found = (raw for row in rows
                 for raw in self.raw_at(self.copies.on_queue(row.number, first, chains=chains,
                                                         after=after))
                 if raw[1][0] == row.number)
        return islice(found, limit)

    def raw_numbered(self, numbers: Sequence[int]) -> Iterator[RawEntry]:
        """The same of entries with these numbers, in this order."""
        inside = np.array([n for n in numbers if n < self._layout.entries], dtype=np.int64)
        return self.raw_at((inside, self.copies.sequences(inside)))

    def columns(self, queue: int, entry: Sequence[str], message: Sequence[str]
                ) -> Iterator[list[Vector]]:
        """For long listings: these columns of a queue's entries and messages."""
        numbers, sequences = self.copies.on_queue(queue)
        for first in range(0, len(numbers), CHUNK_ROWS):
            some = slice(first, first + CHUNK_ROWS)
            yield self.copies.columns(numbers[some], sequences[some], entry, message)

    def item_ref(self, word: int, offset: int, length: int, flags: int) -> str:
        """The item reference of a message."""
        return self._refs.of(word, offset, length, flags)

    def of_message(self, qpool: int) -> list[EntryRow]:
        """The places of one message on queues, by entry number; empty: there is no such message."""
        names = self.copies.queue_names()
        return [self.entry_of(raw, names) for raw in self.raw_of_message(qpool)]

    def of_messages(self, qpools: Vector) -> Iterator[EntryRow]:
        """The places of these messages on queues, by entry number."""
        slots = self.copies.slots_where(lambda column: np.isin(column("m_qpool"), qpools))
        return self._entries(self.copies.of_slots(slots))

    def raw_of_message(self, qpool: int) -> list[RawEntry]:
        """The same as plain numbers."""
        return [raw for slot in self.copies.slots_of(qpool)
                for raw in self.raw_at(self.copies.of_slot(slot)) if raw[3][0] == qpool]

    def with_key(self, key: int) -> list[MessageRow]:
        """The messages whose id has this key (format.message.id_hash): mostly one."""
        return self.messages_where(lambda column: column("m_key") == np.uint64(key))

    def messages_where(self, test: Test) -> list[MessageRow]:
        """The messages that `test` picks: it gets a column by its name, and gives a mask."""
        slots = self.copies.slots_where(test)
        rows = zip(slots.tolist(), self.copies.rows(MESSAGE_COLUMNS, slots), strict=True)
        return [self._message(slot, values) for slot, values in rows if values[0]]

    def ages(self, queue: int, states: Sequence[EntryState]) -> Vector:
        """When the messages on a queue that are in one of these states were put there, wall ns."""
        return self.copies.submitted(queue, states)

    def oldest(self, states: Sequence[EntryState]) -> dict[int, int]:
        """Number of a queue -> when its oldest message in one of these states was put there, wall
        ns; queues without one are not in it."""
        return self.copies.oldest(states)

    def active(self) -> Iterator[EntryRow]:
        """The messages in the hands of readers, by entry number."""
        rows = self._entries(self.copies.in_state(EntryState.ACTIVE))
        return (row for row in rows if row.state is EntryState.ACTIVE)

    def messages(self) -> Iterator[MessageRow]:
        """All messages, by the number of their slot."""
        high = self.copies.high(Counter.MESSAGES_HIGH, self._layout.messages)
        for first in range(0, high, CHUNK_ROWS):
            numbers = np.arange(first, min(first + CHUNK_ROWS, high))
            before = self.copies.rows(("m_qpool",), numbers)
            found = self.copies.rows(MESSAGE_COLUMNS, numbers)
            rows = zip(numbers.tolist(), found, before, strict=True)
            yield from (self._message(number, values) for number, values, (qpool,) in rows
                        if values[0] and values[0] == qpool)

    def _entries(self, selected: tuple[Vector, Vector]) -> Iterator[EntryRow]:
        names = self.copies.queue_names()
        for number, entry, slot, message in self.raw_at(selected):
            yield entry_row(number, entry, names, self._message(slot, message))

    def raw_at(self, selected: tuple[Vector, Vector]) -> Iterator[RawEntry]:
        """The entries with these numbers that still have these sequences, as plain numbers."""
        numbers, sequences = selected
        for first in range(0, len(numbers), CHUNK_ROWS):
            some = slice(first, first + CHUNK_ROWS)
            yield from self._raw_chunk(numbers[some], sequences[some])

    def _raw_chunk(self, numbers: Vector, sequences: Vector) -> Iterator[RawEntry]:
        entries = self.copies.rows(ENTRY_COLUMNS, numbers)
        slots = np.array(self.copies.rows(("e_message",), numbers), dtype=np.int64)[:, 0]
        inside = slots < self._layout.messages
        messages = self.copies.rows(MESSAGE_COLUMNS, np.where(inside, slots, 0))
        whole = self.copies.same(numbers, sequences)  # read last: see invariant 2
        rows = zip(numbers.tolist(), entries, slots.tolist(), messages, inside.tolist(), whole,
                   strict=True)
        return ((number, entry, slot, message)
                for number, entry, slot, message, is_inside, is_whole in rows
                if is_inside and is_whole and message[0] and entry[1] in STATES)

    def _message(self, number: int, values: tuple[int, ...]) -> MessageRow:
        _, _, _, _, flags, _, _, _, word, offset, length, *_ = values
        return message_row(number, values, self._refs.of(word, offset, length, flags))


_QUEUE: Final = (
    "q_flags", "q_depth", "q_active", "q_ready", "q_deferred", "q_held", "q_ever", "q_processed",
    "q_hour", "q_last_hour", "q_hour_at", "q_sampled", "q_started", "q_max_depth", "q_max_length",
    "q_expired", "q_failed", "q_dead")
_LOAD: Final = ("q_load1", "q_load5", "q_load15")
_RATE: Final = ("q_rate1", "q_rate5", "q_rate15")
_READER: Final = (
    "r_flags", "r_queue", "r_pid", "r_uid", "r_client", "r_processed", "r_registered", "r_request",
    "r_response", "r_timeout", "r_started")
_STATES: Final = (EntryState.ACTIVE, EntryState.READY, EntryState.DEFERRED)
_READS: Final = ReaderFlag.IN_USE | ReaderFlag.READS


class QueuesAndReaders:
    """What the index says of queues and readers: rows made of copies, without messages."""

    def __init__(self, copies: IndexCopies) -> None:
        self._copies = copies

    def queues(self) -> list[QueueRow]:
        """All queues by name, the special ones last."""
        names = self._copies.queue_names()
        found = self._copies.rows(_QUEUE, np.arange(len(names)))
        rows = [self._queue(number, names[number], values) for number, values in enumerate(found)
                if values[0] & QueueFlag.IN_USE]
        return sorted(rows, key=lambda row: (row.special, row.name))

    def readers(self) -> list[ReaderRow]:
        """All registered readers by number; clients that only put are not listed."""
        high = self._copies.high(Counter.READERS_HIGH, self._copies.layout.readers)
        found = self._copies.rows(_READER, np.arange(high))
        held = self._copies.held()
        names = self._copies.queue_names()
        return [self._reader(number, values, names, held.get(number, []))
                for number, values in enumerate(found) if values[0] & _READS == _READS]

    def client(self, number: int) -> tuple[str, int] | None:
        """Name and pid of the client in a row, be it a reader or not; None: nobody is."""
        if not 0 <= number < self._copies.high(Counter.READERS_HIGH, self._copies.layout.readers):
            return None
        ((flags, pid),) = self._copies.rows(("r_flags", "r_pid"), np.array([number]))
        return (self._copies.reader_name(number), pid) if flags & ReaderFlag.IN_USE else None

    def _queue(self, number: int, name: str, values: tuple[int, ...]) -> QueueRow:
        (flags, depth, active, ready, deferred, held, ever, processed, hour, last_hour, hour_ns,
         sampled_ns, started_ns, max_depth, max_length, expired, failed, dead) = values
        ids: dict[int, int] = {}
        if flags & QueueFlag.PSEUDO:  # IDEL
            ids = self._copies.remembered(number)
            depth, active, ready, deferred = (max(0, count - of) for count, of in zip(
                (depth, active, ready, deferred),
                (sum(ids.values()), *(ids.get(int(state), 0) for state in _STATES)), strict=True))
        return QueueRow(
            number=number, name=name, messages=depth, active=active, ready=ready,
            deferred=deferred, held=held, ever=ever, processed=processed,
            load=self._averages(_LOAD, number), throughput=self._averages(_RATE, number),
            flags=flags, special=bool(flags & QueueFlag.SPECIAL), hour=hour, last_hour=last_hour,
            hour_ns=hour_ns, sampled_ns=sampled_ns, started_ns=started_ns, max_depth=max_depth,
            max_length=max_length, expired=expired, remembered=sum(ids.values()), failed=failed,
            dead=dead)

    def _averages(self, names: tuple[str, str, str], number: int) -> Averages:
        one, five, fifteen = self._copies.averages(names, number)
        return one, five, fifteen

    def _reader(self, number: int, values: tuple[int, ...], names: list[str],
                held: list[tuple[int, int]]) -> ReaderRow:
        (flags, queue, pid, uid, client, processed, registered_ns, request_ns, response_ns,
         timeout_s, started) = values
        selector, whole = self._copies.reader_selector(number)
        return ReaderRow(
            number=number, name=self._copies.reader_name(number), queue=name_at(names, queue),
            pid=pid, uid=uid, client=client, auxiliary=bool(flags & ReaderFlag.AUXILIARY),
            active=len(held), current=min(held)[1] if held else None, processed=processed,
            registered_ns=registered_ns, request_ns=request_ns, response_ns=response_ns,
            timeout_s=timeout_s, flags=flags, started=started, selector=selector,
            selector_whole=whole)
