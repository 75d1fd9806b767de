"""The terms of --where as a tree, and how it is tested on a whole queue at once.

A term on what the index has is tested on columns, all messages at a time. One on the payload
(property:, sender, subject ...) lets pass, in a first step, who has the bytes that it needs
somewhere in the payload (core.look.payload_scan); only those are decoded and tested properly.

Invariants: 1. `maybe` leaves out nobody who holds: it may only let too many pass; a negation lets
all pass, so that what its part lets pass hides nobody; 2. `holds` decides, as SQL does: True, False
or unknown.
Errors: those of payload_scan and of core.look.stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from omq.base.arrays import Vector
from omq.base.errors import AccessDenied, OmqError
from omq.base.paths import SpoolPaths
from omq.core.index.copies import IndexCopies
from omq.core.look.message_facts import MessageFacts
from omq.core.look.payload_scan import holding
from omq.core.select.values import Truth, all_of, any_of, not_
from omq.format.pool import RecordFlag

ENTRY: Final = ("e_queue", "e_state", "e_priority", "e_sequence", "e_attempts", "e_retries",
                "e_submitted")
MESSAGE: Final = ("m_qpool", "m_flags", "m_size", "m_parts", "m_pid", "m_lsn", "m_location",
                  "m_offset", "m_length")


@dataclass(slots=True)
class Columns:
    """The entries of one queue in the order of hand-out, as arrays of equal length, with what the
    tests need besides."""

    numbers: Vector  # of the entries
    sequences: Vector
    values: dict[str, Vector]
    queues: list[str]  # names by number
    paths: SpoolPaths
    uuid: bytes
    now_ns: int
    masks: dict[int, Vector] = field(default_factory=dict)  # of terms, by id

    @property
    def count(self) -> int:
        return len(self.numbers)


def columns_of(copies: IndexCopies, queue: int, paths: SpoolPaths, uuid: bytes, now_ns: int
               ) -> Columns:
    """All that is on a queue."""
    numbers, sequences = copies.on_queue(queue)
    found = copies.columns(numbers, sequences, ENTRY, MESSAGE)
    values = dict(zip((*ENTRY, *MESSAGE), found, strict=True))
    kept = values["e_sequence"]
    if len(kept) < len(sequences):  # some left meanwhile
        numbers = numbers[np.isin(sequences, kept)]
    return Columns(numbers, kept, values, copies.queue_names(), paths, uuid, now_ns)


class Node(Protocol):
    """A term, or several."""

    @property
    def deep(self) -> bool:
        """Whether payloads are needed."""

    def maybe(self, columns: Columns, among: Vector) -> Vector:
        """Mask, within `among`, of those that may hold."""

    def holds(self, columns: Columns, row: int, facts: MessageFacts) -> Truth:
        """Whether the one in this row holds, after `maybe`; None: unknown."""


@dataclass(frozen=True, slots=True)
class Term:
    """On columns: `test` gives a mask."""

    test: Callable[[Columns], Vector]
    deep: bool = False

    def maybe(self, columns: Columns, among: Vector) -> Vector:
        return among & self._mask(columns)

    def holds(self, columns: Columns, row: int, facts: MessageFacts) -> bool:
        return bool(self._mask(columns)[row])

    def _mask(self, columns: Columns) -> Vector:
        known = columns.masks.get(id(self))
        if known is None:
            known = columns.masks[id(self)] = self.test(columns)
        return known


@dataclass(frozen=True, slots=True)
class PayloadTerm:
    """On the payload. `needles`: alternatives; all pieces of one of them are in the payload of each
    that holds; none: that cannot be said. `in_body`: they may be in the body instead, which a
    container has elsewhere."""

    test: Callable[[MessageFacts], bool]
    needles: tuple[tuple[bytes, ...], ...] = ()
    in_body: bool = False
    deep: bool = True

    def maybe(self, columns: Columns, among: Vector) -> Vector:
        if not self.needles:
            return among
        values = columns.values
        away = among & (values["m_flags"] & int(RecordFlag.CONTAINER) != 0) if (
            self.in_body) else np.zeros(columns.count, dtype=bool)
        rows, out = np.flatnonzero(among & ~away), away
        single = [pieces[0] for pieces in self.needles if len(pieces) == 1]
        if single:
            out[_holding(columns, rows, single)] = True
        for pieces in self.needles:
            if len(pieces) > 1:
                left = rows[~out[rows]]
                for piece in pieces:
                    left = _holding(columns, left, [piece])
                out[left] = True
        return out

    def holds(self, columns: Columns, row: int, facts: MessageFacts) -> Truth:
        return known(lambda: self.test(facts), facts)


def known(test: Callable[[], Truth], facts: MessageFacts) -> Truth:
    """What a test says; unknown, and noted in `facts`, of a message that cannot be read."""
    try:
        return test()
    except AccessDenied:
        raise  # "it does not hold" would be a guess
    except OmqError as error:
        facts.unreadable = str(error)
        return None


def _holding(columns: Columns, rows: Vector, needles: Sequence[bytes]) -> Vector:
    """Those of these rows whose payload may hold one of the needles."""
    values = columns.values
    return np.asarray(rows[holding(
        columns.paths, values["m_location"][rows], values["m_offset"][rows],
        values["m_length"][rows], needles)])


@dataclass(frozen=True, slots=True)
class AllOf:
    """All hold; the cheap ones are asked first."""

    parts: Sequence[Node]

    @property
    def deep(self) -> bool:
        return any(part.deep for part in self.parts)

    def maybe(self, columns: Columns, among: Vector) -> Vector:
        for part in sorted(self.parts, key=lambda part: part.deep):
            among = part.maybe(columns, among)
        return among

    def holds(self, columns: Columns, row: int, facts: MessageFacts) -> Truth:
        return all_of(part.holds(columns, row, facts)
                      for part in sorted(self.parts, key=lambda part: part.deep))


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One holds at least."""

    parts: Sequence[Node]

    @property
    def deep(self) -> bool:
        return any(part.deep for part in self.parts)

    def maybe(self, columns: Columns, among: Vector) -> Vector:
        out = np.zeros(columns.count, dtype=bool)
        for part in self.parts:
            out |= part.maybe(columns, among & ~out)
        return out

    def holds(self, columns: Columns, row: int, facts: MessageFacts) -> Truth:
        return any_of(part.holds(columns, row, facts) for part in self.parts)


@dataclass(frozen=True, slots=True)
class NotOf:
    """It does not hold, and that is known."""

    part: Node
    deep: bool = True

    def maybe(self, columns: Columns, among: Vector) -> Vector:
        return among  # who passes the sieve of the part may still not hold

    def holds(self, columns: Columns, row: int, facts: MessageFacts) -> Truth:
        return not_(self.part.holds(columns, row, facts))
