"""Groups: messages of one group go to one reader at a time, in the order in which they came to
their queue; those of different groups go in parallel (ADR 0053).

A message of a group waits until it is the first of its group on its queue, its *front*; only the
front is in a chain or a return lane, so only it can be handed out, and nobody looks at the
others, however many they are. The front stays the front whatever happens to it: in a reader's
hands, deferred, held by an operator. When it leaves the queue the next one takes its turn. On IDEL
and POISON there are no groups: what is there holds up nobody.

A group on a queue is a ring: `after` and `before` lead from entry to entry in order, the front's
`before` is the last one, and `fronts` (core.engine.group_fronts) has the front. Rings and keys are
private to the manager, made when the first message with a group comes, and made anew at a start
from the pool records. A group's key is the hash of its id: two groups with one key would be served
as one, in order.

*Whole groups*: members may have numbers from 1, one of them is the last. When it is there and as
many members as its number, the group is a candidate (core.engine.candidates); whether it is whole
is checked by a walk along its members when somebody wants one. What is not, or has a member that
is not READY, is none any more, until a member comes or comes back: so each change of a group costs
one such walk at most, however many candidates there are.

Invariants: 1. each entry of a message with GROUPED on a queue of users is in one ring, in the order
of e_sequence; 2. an entry that is ACTIVE was its group's front when it was handed out, or its
whole group was handed out with it; 3. a READY one that is not the front is in no chain and no lane,
and is counted in `waiting`.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from omq.base.arrays import Vector
from omq.core.engine.candidates import Candidates
from omq.core.engine.group_fronts import QUEUE_BITS, Fronts
from omq.core.index.tables import Tables
from omq.format.index import Counter, EntryState
from omq.format.message import LAST_IN_GROUP
from omq.format.pool import RecordFlag

GROUPED: Final = int(RecordFlag.GROUPED)  # in m_flags
FIRST_QUEUE: Final = 3
WHOLE_MAX: Final = 1000
"""Members of a group that can be had whole: as many as a hand-out has messages."""
_READY, _WAITING = int(EntryState.READY), int(Counter.GROUP_WAITING)
_NUMBER: Final = LAST_IN_GROUP - 1


@dataclass(slots=True)
class _Numbered:
    """Members of a group on a queue with numbers, and the numbers of those that say they are the
    last: a submitter may say so of several."""

    members: int = 0
    lasts: Tally[int] = field(default_factory=Tally)


class Groups:
    """See the module."""

    def __init__(self, tables: Tables) -> None:
        self._t = tables
        self.waiting = memoryview(bytearray(8 * tables.layout.queues)).cast("q")
        # READY entries that are not a front, by queue
        self.candidates: dict[int, Candidates] = {}  # by queue
        self.numbered: dict[int, _Numbered] = {}  # groups that have members with numbers
        self.keys: Any = memoryview(b"")  # by slot
        self.fronts = Fronts(tables, self.keys)
        self.numbers: Any = self.keys
        self.after: Any = self.keys  # by entry
        self.before: Any = self.keys

    def begin(self) -> None:
        """Make the arrays, before the first message of a group."""
        if not self.used:
            layout = self._t.layout
            self.keys = np.zeros(layout.messages, "<u8").data
            self.fronts = Fronts(self._t, self.keys)
            self.numbers = np.zeros(layout.messages, "<u4").data
            self.after = np.zeros(layout.entries, "<u4").data
            self.before = np.zeros(layout.entries, "<u4").data

    @property
    def used(self) -> bool:
        """Some message has had a group."""
        return len(self.keys) > 0

    def born(self, slot: int, key: int, number: int) -> None:
        """A message of a group, before its entries. `number`: of the descriptor, with
        LAST_IN_GROUP."""
        self.begin()
        self.keys[slot], self.numbers[slot] = key, number

    def of(self, entry: int) -> int:
        """The group of an entry on its queue; 0: it is in none."""
        t = self._t
        slot, queue = t.e_message[entry], t.e_queue[entry]
        if not t.m_flags[slot] & GROUPED or queue < FIRST_QUEUE:
            return 0
        return int(queue << QUEUE_BITS | self.keys[slot])

    def has_turn(self, entry: int) -> bool:
        """It is in no group, or its group's front."""
        group = self.of(entry)
        return not group or self.fronts[group] == entry

    def waits(self, queue: int, change: int) -> None:
        """So many more READY entries wait for their turn."""
        self.waiting[queue] += change
        self._t.counters[_WAITING] += change

    # rings

    def arrive(self, entry: int) -> bool:
        """It comes to its queue, as the last one. Whether it has the turn."""
        group = self.of(entry)
        if not group:
            return True
        after, before = self.after, self.before
        front = self.fronts.get(group, entry)
        if front == entry:
            self.fronts[group] = after[entry] = before[entry] = entry
        else:
            last = before[front]
            after[last] = before[front] = entry
            before[entry], after[entry] = last, front
        self.count(entry, group, 1)
        return bool(front == entry)

    def leave(self, entry: int) -> tuple[int, int]:
        """It leaves its queue. The entry that has the turn now, and the front of its group if that
        may be whole now; -1: none has the turn that had it not, it is not."""
        group = self.of(entry)
        if not group:
            return -1, -1
        following, last = int(self.after[entry]), self.before[entry]
        was_front = self.fronts[group] == entry
        if following == entry:
            del self.fronts[group]
            self.count(entry, group, -1)
            return -1, -1
        self.after[last], self.before[following] = following, last
        if was_front:
            self.fronts[group] = following
        self.count(entry, group, -1)
        whole = group in self.candidates.get(group >> QUEUE_BITS, ())
        return following if was_front else -1, self.fronts[group] if whole else -1

    def members(self, group: int, most: int) -> list[int]:
        """The entries of a group on a queue, in order; empty: there are more than `most`."""
        first = self.fronts.get(group, -1)
        if first < 0:
            return []
        out, at = [first], self.after[first]
        while at != first:
            if len(out) == most:
                return []
            out.append(at)
            at = self.after[at]
        return out

    # whole groups

    def number(self, entry: int) -> int:
        """The number of a message in its group, 0: it has none."""
        return int(self.numbers[self._t.e_message[entry]] & _NUMBER)

    def count(self, entry: int, group: int, change: int) -> None:
        """A member comes or goes; nothing changes if it has no number, and its group none with
        one."""
        said = int(self.numbers[self._t.e_message[entry]])
        if said:
            known = self.numbered.setdefault(group, _Numbered())
            known.members += change
            if said & LAST_IN_GROUP:
                number = said & _NUMBER
                known.lasts[number] += change
                if not known.lasts[number]:
                    del known.lasts[number]
            if not known.members:
                del self.numbered[group]
        if said or self.numbered:  # the last one with a number may have left just now
            self.look_at(group)

    def look_at(self, group: int) -> None:
        """Something of it has changed: it may be whole now, or no more."""
        known, queue = self.numbered.get(group), group >> QUEUE_BITS
        if known is not None and known.members <= WHOLE_MAX and known.lasts[known.members]:
            self.candidates.setdefault(queue, Candidates()).add(group, known.members)
        elif queue in self.candidates:
            self.candidates[queue].drop(group)

    def whole(self, queue: int, most: int, is_over: Callable[[int], bool]) -> list[int]:
        """The entries of the first whole group of a queue that has `most` messages or fewer, by
        their numbers; all READY, and none is over."""
        t, groups = self._t, self.candidates.get(queue)
        while groups is not None and (group := groups.first(most)) >= 0:
            count = self.numbered[group].members
            found = sorted(self.members(group, count), key=self.number)
            if ([self.number(entry) for entry in found] == [*range(1, count + 1)]
                    and all(t.e_state[entry] == _READY and not is_over(entry)
                            for entry in found)):
                return found
            groups.drop(group)
        return []

    # a start

    def load(self, keys: Vector, numbers: Vector) -> Vector:
        """All messages are in the tables, in slots as these arrays have them, all entries in
        theirs. A mask of the entries that wait for their turn."""
        v, count = self._t.v, self._t.entries.high
        waits = np.zeros(count, dtype=bool)
        grouped = np.flatnonzero(keys)
        if not len(grouped):
            return waits
        self.begin()
        np.asarray(self.keys)[: len(keys)] = keys
        np.asarray(self.numbers)[: len(numbers)] = numbers
        v["m_flags"][grouped] |= np.uint16(GROUPED)
        slots, queues = v["e_message"][:count], v["e_queue"][:count]
        members = np.flatnonzero((keys[slots] != 0) & (queues >= FIRST_QUEUE))
        order = np.lexsort((v["e_sequence"][members], keys[slots[members]], queues[members]))
        members = members[order]
        if not len(members):  # all of them are on POISON
            return waits
        where, what = queues[members], keys[slots[members]]
        apart = (where[1:] != where[:-1]) | (what[1:] != what[:-1])
        starts = np.flatnonzero(np.concatenate(([True], apart)))[: len(members)]
        ends = np.append(starts[1:], len(members))
        after, before = np.asarray(self.after), np.asarray(self.before)
        after[members], before[members] = np.roll(members, -1), np.roll(members, 1)
        after[members[ends - 1]], before[members[starts]] = members[starts], members[ends - 1]
        self.fronts.load(where[starts], what[starts], members[starts])
        for at in np.flatnonzero(numbers[slots[members]]).tolist():
            self.count(int(members[at]), self.of(int(members[at])), 1)
        waits[members] = True
        waits[members[starts]] = False
        waits &= v["e_state"][:count] == _READY
        for queue, many in enumerate(np.bincount(queues[waits]).tolist()):
            if many:
                self.waits(queue, many)
        return waits
