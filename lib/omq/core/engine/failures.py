"""Why messages are on dead-letter queues, for those who read them.

A message that fails too often takes what is known of it along to the queue that it is put on: from
which queue it came, the cause, what its reader said, how many attempts there were, and when the
first and the last of them failed (format.failure_note). It is known while the message is on that
queue: whoever moves, replays or deletes it there ends it, and a further failure takes its place.

In the middle of a crash: the POISON frame has it in its evidence packet. Redo makes a note in the
pool record of the same packet by the same rules (core.redo.changes), and a start takes the notes of
the records (`load`). So what is here is what a start would find, but for what a record has no room
for; of messages that are not persistent it is here alone, as they are.

When the first attempt failed is remembered here until the message has gone (`attempt`); it comes
into the packet with the last one. A manager that has started in between does not know it.

Both are bounded by `known_max` (failures_known_max): beyond it new notes are not kept in memory,
and of first failures the oldest are forgotten. Invariant: NOTED in `m_flags` if and only if there
is a note of that message here.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final

from omq.core.index.tables import Tables
from omq.format.failure_note import FailureNote
from omq.format.pool import RecordFlag

NOTED: Final = int(RecordFlag.NOTED)  # in m_flags
KNOWN_MAX: Final = 100_000
"""For who does not say otherwise; see failures_known_max."""


class Failures:
    """See the module."""

    def __init__(self) -> None:
        self.known_max = KNOWN_MAX
        self._notes: dict[int, FailureNote] = {}  # by QPoolId
        self._firsts: dict[int, tuple[int, int]] = {}  # entry -> its sequence, wall clock ns

    @property
    def known(self) -> frozenset[int]:
        """The QPoolIds of the messages of which there is a note; for checks."""
        return frozenset(self._notes)

    def everything(self) -> tuple[object, ...]:
        """All that is kept; for comparisons."""
        return sorted(self._notes.items(), key=itemgetter(0)), sorted(self._firsts.items())

    def attempt(self, t: Tables, entry: int, now_ns: int) -> None:
        """An attempt on this entry failed, which is counted already."""
        if t.e_attempts[entry] != 1 or self.first(t, entry):
            return
        self._firsts.pop(entry, None)  # of a message that had this row before
        while self._firsts and len(self._firsts) >= self.known_max:
            del self._firsts[next(iter(self._firsts))]
        self._firsts[entry] = (t.e_sequence[entry], now_ns)

    def first(self, t: Tables, entry: int) -> int:
        """When the first attempt on this entry failed; 0: it is not known."""
        sequence, first_ns = self._firsts.get(entry, (0, 0))
        return first_ns if sequence == t.e_sequence[entry] else 0

    def note(self, t: Tables, slot: int, note: FailureNote | None) -> None:
        """The message has failed its way to `note.to`, where it is now."""
        qpool = t.m_qpool[slot]
        if note is None or (qpool not in self._notes and len(self._notes) >= self.known_max):
            return
        self._notes[qpool] = note
        t.m_flags[slot] |= NOTED

    def left(self, t: Tables, slot: int, queue: int) -> None:
        """The message has left this queue."""
        note = self._notes.get(t.m_qpool[slot])
        if note is not None and note.to == queue:
            del self._notes[t.m_qpool[slot]]
            t.m_flags[slot] &= ~NOTED

    def of(self, qpool: int, queue: int) -> FailureNote | None:
        """How this message came to this queue, if it failed its way there and that is known."""
        note = self._notes.get(qpool)
        return note if note is not None and note.to == queue else None

    def load(self, t: Tables, notes: Iterable[tuple[int, FailureNote]]) -> None:
        """By slot, as the pool has them; into tables that have the messages."""
        for slot, note in notes:
            self.note(t, slot, note)
