"""Bounded copies out of the index's tables, as lists of numbers; the lower half of IndexView.

Invariants: 1. what is returned is a copy: no numpy view of the buffer outlives a call, so a segment
can be detached; 2. a row number that the tables name is checked against the table's capacity
before it is used; 3. names come out as printable ASCII, averages as finite numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.core.index import names
from omq.core.index.in_order import first_in_order
from omq.format.index import (
    COUNTERS_AT,
    READER_SELECTOR_BYTES,
    Counter,
    EntryState,
    IndexLayout,
)
from omq.format.pool import RecordFlag

_PRIORITY_MAX: Final = np.uint64(9)
_SEQUENCE_BITS: Final = np.uint64(60)  # an LSN has fewer
_NEVER: Final = np.iinfo(np.int64).max
_PIECE_ROWS: Final = 1 << 16  # of a walk over a whole table: bounds its memory
_FIGURE_MAX: Final = 1e12  # above every real load; keeps columns readable
_KNOWN_STATES: Final = frozenset(int(state) for state in EntryState if state)
_KNOWN_VECTOR: Final = np.array(sorted(_KNOWN_STATES), dtype="u1")


def figure(value: float) -> float:
    """An average as it may be shown: finite and bounded, whatever the table holds."""
    return min(max(value, 0.0), _FIGURE_MAX) if math.isfinite(value) else 0.0

Test = Callable[[Callable[[str], Vector]], Vector]
"""Picks rows: it gets columns by name, and gives a mask."""


class IndexCopies:
    """See the module."""

    def __init__(self, buffer: memoryview, layout: IndexLayout) -> None:
        self.layout = layout
        self._buffer = buffer

    def counter(self, counter: Counter) -> int:
        """One counter."""
        return self.counters()[counter]

    def counters(self) -> list[int]:
        """All counters, by the values of index.Counter."""
        count = max(Counter) + 1
        found: list[int] = np.frombuffer(self._buffer, "<u8", count, COUNTERS_AT).tolist()
        return found

    def high(self, counter: Counter, capacity: int) -> int:
        """Rows of a table that were ever used."""
        return min(self.counter(counter), capacity)

    def rows(self, names: Sequence[str], numbers: Vector) -> list[tuple[int, ...]]:
        """These columns of these rows, a tuple a row; the caller has bounded `numbers`."""
        columns = [self._vector(name)[numbers].tolist() for name in names]
        return list(zip(*columns, strict=True))

    def averages(self, names: Sequence[str], number: int) -> tuple[float, ...]:
        """Columns of doubles of one row."""
        return tuple(figure(float(self._vector(name)[number])) for name in names)

    def on_queue(self, queue: int, first: int | None = None, *, chains: bool = False,
                 after: tuple[int, int] | None = None) -> tuple[Vector, Vector]:
        """(entry numbers, sequences) of a queue in the order in which they are handed out; of the
        `first` ones only, which are found without sorting the others. `chains`: a living manager
        keeps them in order (core.index.in_order). `after`: only those after this place, a priority
        and a sequence."""
        high = self.high(Counter.ENTRIES_HIGH, self.layout.entries)
        numbers = None
        if first is not None and chains and after is None:
            numbers = first_in_order(self._buffer, self.layout, queue, first, high)
        if numbers is None:
            used = (self._vector("e_queue")[:high] == queue) & (self._vector("e_state")[:high] != 0)
            numbers = np.flatnonzero(used)
        sequences = self._vector("e_sequence")[numbers]
        late = _PRIORITY_MAX - self._vector("e_priority")[numbers].astype("<u8")
        keys = (late << _SEQUENCE_BITS) | sequences  # highest priority first, then the oldest
        if after is not None:
            priority, sequence = after
            behind = keys > (((int(_PRIORITY_MAX) - priority) << int(_SEQUENCE_BITS)) | sequence)
            numbers, sequences, keys = numbers[behind], sequences[behind], keys[behind]
        if first is not None and first < len(keys):
            chosen = np.argpartition(keys, first)[:first]
            order = chosen[np.argsort(keys[chosen])]
        else:
            order = np.argsort(keys)
        return numbers[order], sequences[order]

    def in_state(self, state: EntryState) -> tuple[Vector, Vector]:
        """(entry numbers, sequences) of all entries in a state, by number."""
        high = self.high(Counter.ENTRIES_HIGH, self.layout.entries)
        numbers = np.flatnonzero(self._vector("e_state")[:high] == state)
        return numbers, self._vector("e_sequence")[numbers]

    def slots_of(self, qpool: int) -> list[int]:
        """Slots of the messages with this QPoolId: one, none, or in a half changed table more."""
        high = self.high(Counter.MESSAGES_HIGH, self.layout.messages)
        found: list[int] = np.flatnonzero(self._vector("m_qpool")[:high] == qpool).tolist()
        return found if qpool else []

    def columns_where(self, names: Sequence[str], test: Test) -> list[Vector]:
        """These columns of the messages that `test` picks, an array a column."""
        slots = self.slots_where(test)
        return [self._vector(name)[slots] for name in names]

    def slots_where(self, test: Test) -> Vector:
        """Slots of the messages that `test` picks: it gets the columns by name, gives a mask."""
        high = self.high(Counter.MESSAGES_HIGH, self.layout.messages)
        return np.flatnonzero(test(lambda name: self._vector(name)[:high]))

    def of_slot(self, slot: int) -> tuple[Vector, Vector]:
        """(entry numbers, sequences) of a message, by number."""
        return self.of_slots(np.array([slot]))

    def of_slots(self, slots: Vector) -> tuple[Vector, Vector]:
        """(entry numbers, sequences) of messages, by number."""
        high = self.high(Counter.ENTRIES_HIGH, self.layout.entries)
        mine = np.zeros(self.layout.messages, dtype=bool)
        mine[slots] = True
        of = self._vector("e_message")[:high]
        inside = of < self.layout.messages
        used = inside & mine[np.where(inside, of, 0)] & (self._vector("e_state")[:high] != 0)
        numbers = np.flatnonzero(used)
        return numbers, self._vector("e_sequence")[numbers]

    def submitted(self, queue: int, states: Sequence[EntryState]) -> Vector:
        """Submit times (wall ns) of the messages on a queue in these states."""
        high = self.high(Counter.ENTRIES_HIGH, self.layout.entries)
        state = self._vector("e_state")[:high]
        mine = np.flatnonzero((self._vector("e_queue")[:high] == queue)
                              & np.isin(state, list(map(int, states))))
        mine = mine[~self._remembers(mine)]
        return np.asarray(self._vector("e_submitted")[mine])

    def remembered(self, queue: int) -> dict[int, int]:
        """Ids that are remembered by messages on this queue: state -> how many."""
        high = self.high(Counter.ENTRIES_HIGH, self.layout.entries)
        mine = np.flatnonzero(self._vector("e_queue")[:high] == queue)
        states = self._vector("e_state")[mine[self._remembers(mine)]]
        found, counts = np.unique(states[states != 0], return_counts=True)
        return dict(zip(found.tolist(), counts.tolist(), strict=True))

    def _remembers(self, entries: Vector) -> Vector:
        """Mask of the entries of what is not a message (ADR 0047)."""
        slots = np.minimum(self._vector("e_message")[entries], self.layout.messages - 1)
        return np.asarray(self._vector("m_flags")[slots] & np.uint16(RecordFlag.MEMORY) != 0)

    def oldest(self, states: Sequence[EntryState]) -> dict[int, int]:
        """Number of a queue -> the first submit time (wall ns) of its entries in these states; in
        one walk over the table, in pieces."""
        high = self.high(Counter.ENTRIES_HIGH, self.layout.entries)
        found = np.full(self.layout.queues, _NEVER, dtype="<i8")
        wanted = np.array([int(state) for state in states], dtype="u1")
        for first in range(0, high, _PIECE_ROWS):
            some = slice(first, min(first + _PIECE_ROWS, high))
            queue = self._vector("e_queue")[some].copy()
            mine = np.isin(self._vector("e_state")[some], wanted) & (queue < self.layout.queues)
            np.minimum.at(found, queue[mine], self._vector("e_submitted")[some][mine])
        return {number: int(found[number]) for number in np.flatnonzero(found != _NEVER).tolist()}

    def put_off(self) -> dict[int, int]:
        """Number of a queue -> how many of its DEFERRED messages a reader has deferred; those that
        were put with a delay are not among them."""
        high = self.high(Counter.ENTRIES_HIGH, self.layout.entries)
        found = np.zeros(self.layout.queues, dtype="<i8")
        for first in range(0, high, _PIECE_ROWS):
            some = slice(first, min(first + _PIECE_ROWS, high))
            queue = self._vector("e_queue")[some].copy()
            mine = ((self._vector("e_state")[some] == int(EntryState.DEFERRED))
                    & (self._vector("e_retries")[some] > 0) & (queue < self.layout.queues))
            np.add.at(found, queue[mine], 1)
        return {number: int(found[number]) for number in np.flatnonzero(found).tolist()}

    def until(self, queue: int, state: EntryState) -> Vector:
        """`until` (wall ns) of the entries of a queue in this state."""
        high = self.high(Counter.ENTRIES_HIGH, self.layout.entries)
        mine = (self._vector("e_queue")[:high] == queue) & (
            self._vector("e_state")[:high] == int(state))
        return np.asarray(self._vector("e_until")[:high][mine])

    def held(self) -> dict[int, list[tuple[int, int]]]:
        """Row of a reader -> (lease, entry number) of each message in its hands."""
        numbers, _ = self.in_state(EntryState.ACTIVE)
        found: dict[int, list[tuple[int, int]]] = {}
        columns = self.rows(("e_reader", "e_lease"), numbers)
        for number, (reader, lease) in zip(numbers.tolist(), columns, strict=True):
            if reader:
                found.setdefault(reader - 1, []).append((lease, number))
        return found

    def sequences(self, numbers: Vector) -> Vector:
        """The sequences of these entries; the caller has bounded `numbers`."""
        return self._vector("e_sequence")[numbers]

    def same(self, numbers: Vector, sequences: Vector) -> list[bool]:
        """Which of these entries are in use and have still this sequence: not another message's."""
        again = self._vector("e_sequence")[numbers] == sequences
        states = self._vector("e_state")[numbers].tolist()
        return [bool(equal) and state in _KNOWN_STATES
                for equal, state in zip(again.tolist(), states, strict=True)]

    def columns(self, numbers: Vector, sequences: Vector, entry: Sequence[str],
                message: Sequence[str]) -> list[Vector]:
        """Copies of these columns of the entries that are in use and still the same, and of their
        messages: an array a column."""
        slots = self._vector("e_message")[numbers]
        inside = slots < self.layout.messages
        slots = np.where(inside, slots, 0)
        found = [self._vector(name)[numbers] for name in entry]
        found += [self._vector(name)[slots] for name in message]
        good = inside & (self._vector("m_qpool")[slots] != 0)
        good &= np.isin(self._vector("e_state")[numbers], _KNOWN_VECTOR)
        good &= self._vector("e_sequence")[numbers] == sequences  # read last, as in `same`
        if not good.all():
            found = [column[good] for column in found]
        return found

    def queue_names(self) -> list[str]:
        """Names by queue number; `#n` where there is none."""
        return names.of_queues(self._buffer, self.layout)

    def reader_name(self, reader: int) -> str:
        return names.of_reader(self._buffer, self.layout, reader)

    def reader_selector(self, reader: int) -> tuple[str, bool]:
        """(what a reader chooses by, whether that is the whole of it); empty: whatever is next."""
        at = self.layout.reader_selectors + reader * READER_SELECTOR_BYTES
        raw = bytes(self._buffer[at : at + READER_SELECTOR_BYTES]).rstrip(b"\0")
        return raw.decode("utf-8", "replace"), len(raw) < READER_SELECTOR_BYTES

    def table(self, name: str) -> Vector:
        """All of a column: a small one."""
        return self._vector(name).copy()

    def _vector(self, name: str) -> Vector:
        """A column over the buffer itself: to be indexed at once, never kept."""
        return self.layout.vector(self._buffer, name)
