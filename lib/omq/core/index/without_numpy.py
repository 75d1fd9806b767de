"""The messages on a queue out of the index, for programs without numpy: what a client needs of
core.index.view.IndexView, which is for tools and for whoever has numpy.

A walk over all entries takes some 100 ns each here, 5 ns there; rows and their order are the same.

Invariants: those of IndexView. 1. Entries are selected and sorted; no link is followed, and every
number from a table is bounded before it is used to index another. 2. A row pairs an entry with its
own message: the sequence is read once more after the message. 3. No view of the segment outlives a
call, so `close` can always detach.

Errors: ManagerUnavailable, NotOperator (nothing to attach), UnknownQueue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Self

from omq.base.errors import ManagerUnavailable, UnknownQueue
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.core.index import names
from omq.core.index.item_refs import ItemRefs
from omq.core.index.rows import (
    ENTRY_COLUMNS,
    MESSAGE_COLUMNS,
    STATES,
    EntryRow,
    RawEntry,
    entry_row,
    message_row,
)
from omq.format.index import Counter, IndexHeader, IndexLayout, QueueFlag
from omq.storage.segment import AttachedIndex

_PIECE_ROWS: Final = 1 << 12
"""Rows copied at a time: bounds the memory of a walk."""


class PlainIndex:
    """See the module; used as `ipc.client.rows_from_manager.Rows`."""

    def __init__(self, buffer: memoryview, layout: IndexLayout, paths: SpoolPaths,
                 attached: AttachedIndex | None = None) -> None:
        self._buffer, self._layout, self._attached = buffer, layout, attached
        self._refs = ItemRefs(paths)

    @classmethod
    def attach(cls, paths: SpoolPaths) -> Self:
        """The index of a running manager, or the one that a dead manager left."""
        try:
            attached = AttachedIndex(paths)
        except (OSError, TypeError, ValueError, OverflowError) as error:
            # ids.json or the spool cannot be read, or holds what no manager wrote there.
            raise ManagerUnavailable(spool=paths.root, reason=escape(str(error))) from error
        return cls(attached.buffer, attached.header.layout(), paths, attached)

    @property
    def header(self) -> IndexHeader | None:
        """The segment's header; None when it is closed, or for tables of this process."""
        return None if self._attached is None else self._attached.header

    def close(self) -> None:
        """Let go of the segment and of payload files; that is the end of it."""
        self._refs.close()
        if self._attached is not None:
            self._attached.close()
            self._attached = None

    def queue_names(self) -> list[str]:
        """By queue number."""
        return names.of_queues(self._buffer, self._layout)

    def hands_out(self, queue: str) -> bool:
        """Whether get from this queue is allowed."""
        number = self._number(queue)
        return number is None or not self._column("q_flags")[number] & QueueFlag.SUSPENDED

    def raw_entries(self, queue: str, limit: int | None = None) -> Iterator[RawEntry]:
        """The messages on a queue in the order of hand-out, at most `limit`. UnknownQueue."""
        number = self._number(queue)
        if number is None:
            raise UnknownQueue(queue=escape(queue))
        found = (raw for raw in self._at(self._on(number)) if raw[1][0] == number)
        return islice(found, limit)

    def raw_numbered(self, numbers: Sequence[int]) -> Iterator[RawEntry]:
        """Those of these entries that are there, in this order."""
        sequences = self._column("e_sequence")
        return self._at([(number, sequences[number]) for number in numbers
                         if number < self._layout.entries])

    def entry_of(self, raw: RawEntry, queues: list[str]) -> EntryRow:
        """All that is known of it; `queues` as queue_names gives them."""
        number, entry, slot, message = raw
        _, _, _, _, flags, _, _, _, word, offset, length, *_ = message
        ref = self._refs.of(word, offset, length, flags)
        return entry_row(number, entry, queues, message_row(slot, message, ref))

    def item_ref(self, word: int, offset: int, length: int, flags: int) -> str:
        """The item reference of a message."""
        return self._refs.of(word, offset, length, flags)

    def _number(self, queue: str) -> int | None:
        """Of a queue that is there; one that was removed may have had the same name."""
        flags = self._column("q_flags")
        return next((number for number, name in enumerate(self.queue_names())
                     if name == queue and flags[number] & QueueFlag.IN_USE), None)

    def _on(self, queue: int) -> list[tuple[int, int]]:
        """(entry number, sequence) of all that is on a queue, in the order of hand-out."""
        high = names.high(self._buffer, Counter.ENTRIES_HIGH, self._layout.entries)
        queues, states = self._column("e_queue"), self._column("e_state")
        priorities, sequences = self._column("e_priority"), self._column("e_sequence")
        found: list[tuple[int, int, int]] = []
        for first in range(0, high, _PIECE_ROWS):
            some = slice(first, min(first + _PIECE_ROWS, high))
            pairs = zip(queues[some].tolist(), states[some].tolist(), strict=True)
            found += [(-priorities[entry], sequences[entry], entry)
                      for entry, (of, state) in enumerate(pairs, first) if of == queue and state]
        found.sort()
        return [(entry, sequence) for _, sequence, entry in found]

    def _at(self, selected: list[tuple[int, int]]) -> Iterator[RawEntry]:
        """The entries with these numbers that still have these sequences."""
        for first in range(0, len(selected), _PIECE_ROWS):
            yield from self._piece(selected[first : first + _PIECE_ROWS])

    def _piece(self, selected: list[tuple[int, int]]) -> list[RawEntry]:
        entry = [self._column(name) for name in ENTRY_COLUMNS]
        message = [self._column(name) for name in MESSAGE_COLUMNS]
        slots, sequences, states = map(self._column, ("e_message", "e_sequence", "e_state"))
        found: list[RawEntry] = []
        for number, sequence in selected:
            values, slot = tuple(column[number] for column in entry), slots[number]
            if slot >= self._layout.messages:
                continue
            of = tuple(column[slot] for column in message)
            whole = sequences[number] == sequence and states[number] in STATES  # see invariant 2
            if whole and of[0] and values[1] in STATES:
                found.append((number, values, slot, of))
        return found

    def _column(self, name: str) -> memoryview:
        """Over the buffer itself: never kept beyond a call."""
        return self._layout.column(self._buffer, name)
