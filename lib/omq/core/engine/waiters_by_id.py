"""Readers that wait for certain messages: those with this correlation id, or this message id.

Both ids are in the index as 64-bit keys with a hash chain each, so that finding a message costs
the same at any depth, and after a restart (the chains are made anew with the tables). The reader
compares the whole id with what it gets (ipc.client.reader): two ids may have one key, if somebody
makes them so. A message that comes to a queue which is waited for in this way, or comes back to it,
is noted in `core.watched`; only its key is looked up, however many wait. A queue without such
readers is not in `core.watched`, and pays one look into a dictionary. Readers that look at all that
comes (core.engine.arrivals) hear of it here, too; one message under a cursor is named by its entry.

Of several messages with one key the first in the order of hand-out is given, as ever. Their chain
is walked for WALK_MAX steps at most: longer ones, as a hostile submitter can make them, cost one
pass over the columns by numpy instead.

Invariants: 1. who waits for a READY message and is not served is in `again`, or the queue is in
`core.runnable`; 2. they come before those who take whatever is next; 3. nothing here is durable:
a hand-out is a GIVE frame like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omq.base.errors import SpoolFull
from omq.core.engine.arrivals import Arrivals
from omq.core.engine.backlog import Backlog
from omq.core.engine.expiry import gone_by
from omq.core.engine.gives import give_these
from omq.core.engine.groups import GROUPED
from omq.core.engine.limited import admits, admits_whole
from omq.core.engine.state import Core
from omq.core.engine.waiting import Waiter
from omq.format.index import Counter, EntryState, QueueFlag
from omq.format.wire import Key

WALK_MAX: Final = 256
_READY, _SUSPENDED = int(EntryState.READY), int(QueueFlag.SUSPENDED)
_GIVES = int(Counter.GIVES)


IdAndKey = tuple[int, int]  # which id, and its key


@dataclass(slots=True)
class _Line:
    """Those who wait on one queue: for each wish by the turn in which they came."""

    waiting: dict[IdAndKey, dict[int, Waiter]] = field(default_factory=dict)
    fresh: list[IdAndKey] = field(default_factory=list)  # of this group: look what is there
    again: bool = False  # look for all of them


class WaitersById:
    """See the module. `again`: queues that the next group must look at once more; `serves`: `give`,
    or what does the same (omq.fast.find_by_id)."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._turn = 0
        self.arrivals, self.backlog = Arrivals(core), Backlog(core)
        self.lines: dict[int, _Line] = {}
        self.again: set[int] = set()
        self.serves: Callable[[Waiter, list[tuple[Waiter, list[int]]]], bool] = self.give

    def add(self, waiter: Waiter) -> None:
        """It waits from now on."""
        if waiter.by == Key.ARRIVAL:
            self.arrivals.add(waiter)
            return
        line = self.lines.setdefault(waiter.queue, _Line())
        self._core.watched.setdefault(waiter.queue, [])
        wish = (waiter.by, waiter.key)
        self._turn += 1
        waiter.turn = self._turn
        line.waiting.setdefault(wish, {})[self._turn] = waiter
        line.fresh.append(wish)

    def drop(self, waiter: Waiter) -> None:
        """It does not wait any more."""
        if waiter.by == Key.ARRIVAL:
            self.arrivals.drop(waiter)
            return
        waiter.waiting = False
        line, wish = self.lines[waiter.queue], (waiter.by, waiter.key)
        del line.waiting[wish][waiter.turn]
        if not line.waiting[wish]:
            del line.waiting[wish]
        if not line.waiting:
            del self.lines[waiter.queue]
            self._unwatch(waiter.queue)

    def forget(self, client: int, queue: int) -> None:
        """A client reads this queue no more."""
        self.arrivals.forget(client, queue)
        self.backlog.forget(client)
        self._unwatch(queue)

    def _unwatch(self, queue: int) -> None:
        if queue not in self.lines and queue not in self.arrivals.queues:
            self._core.watched.pop(queue, None)

    def serve(self) -> list[tuple[Waiter, list[int]]]:
        """Hand out what came and is waited for, in a group."""
        out: list[tuple[Waiter, list[int]]] = []
        core, self.again = self._core, set()
        for queue in sorted(core.runnable & core.watched.keys()):
            line, arrived = self.lines.get(queue), core.watched[queue]
            core.watched[queue] = []
            if core.t.q_flags[queue] & _SUSPENDED:  # until it is defined anew
                if line is not None:
                    line.again, line.fresh = True, []
                continue
            out += self.arrivals.tell(queue, arrived)
            if line is None:
                continue
            fresh, line.fresh = line.fresh, []
            wishes = set(line.waiting) if line.again else {*fresh, *self._of(arrived)}
            line.again = False
            found = [each for wish in wishes for each in line.waiting.get(wish, {}).values()]
            for waiter in sorted(found, key=lambda each: each.turn):
                if not self.serves(waiter, out):
                    line.again = True
                    self.again.add(queue)
        return out

    def _of(self, arrived: list[int]) -> Iterator[IdAndKey]:
        """What may be waited for of these."""
        t = self._core.t
        for entry in arrived:
            slot = t.e_message[entry]
            yield int(Key.CORRELATION), t.m_corr[slot]
            yield int(Key.MESSAGE_ID), t.m_key[slot]
            if t.m_flags[slot] & GROUPED:
                yield int(Key.GROUP), 0

    def give(self, waiter: Waiter, out: list[tuple[Waiter, list[int]]]) -> bool:
        """What is there for it. False: not now, although something is."""
        core = self._core
        found = find(core, waiter.queue, waiter.by, waiter.key, waiter.want)
        if not found:
            return True
        try:
            given = give_these(core, waiter.party, waiter.queue, found, waiter.sequence,
                               whole=waiter.by == Key.GROUP)
        except SpoolFull:  # no journal file for it: tried again with the next group
            core.space_left = False
            return False
        if not given:  # a suspect, and this group has handed out one
            return False
        self.drop(waiter)
        out.append((waiter, given))
        core.t.counters[_GIVES] += len(given)
        return True


def find(core: Core, queue: int, by: int, key: int, want: int) -> list[int]:
    """Up to `want` READY entries of a queue whose messages have this key, in the order of
    hand-out."""
    t = core.t
    if by == Key.CURSOR:
        return _under(core, queue, key)
    if by == Key.GROUP:
        found = core.groups.whole(queue, want, lambda entry: gone_by(core, entry))
        return found if queue not in core.limited or admits_whole(core, found) else []
    correlated = by == Key.CORRELATION
    at = (t.b_corr if correlated else t.b_id)[t.bucket(key)]
    links, keys = (t.m_corrnext, t.m_corr) if correlated else (t.m_idnext, t.m_key)
    found = []
    steps = 0
    while at and steps < WALK_MAX:
        slot, steps = at - 1, steps + 1
        if keys[slot] == key:
            entry = t.m_first[slot]
            while entry and t.e_queue[entry - 1] != queue and steps < WALK_MAX:
                entry, steps = t.e_sibling[entry - 1], steps + 1
            if (entry and t.e_queue[entry - 1] == queue and t.e_state[entry - 1] == _READY
                    and not gone_by(core, entry - 1) and _has_turn(core, queue, entry - 1)):
                found.append(entry - 1)
        at = links[slot]
    if at or steps >= WALK_MAX:
        return _find_many(core, queue, "m_corr" if correlated else "m_key", key, want)
    found.sort(key=lambda entry: (-t.e_priority[entry], t.e_sequence[entry]))
    return found[:want]


def _has_turn(core: Core, queue: int, entry: int) -> bool:
    """In its group, and by the limits of its queue."""
    return core.groups.has_turn(entry) and (queue not in core.limited or admits(core, entry))


def cursor(qpool: int, entry: int) -> int:
    """The key of Key.CURSOR."""
    return qpool << 32 | entry & 0xFFFFFFFF


def _under(core: Core, queue: int, key: int) -> list[int]:
    """The READY message under a cursor, if it is still there."""
    t, entry = core.t, key & 0xFFFFFFFF
    there = (entry < t.entries.high and t.e_state[entry] == _READY and t.e_queue[entry] == queue
             and t.m_qpool[t.e_message[entry]] == key >> 32 and not gone_by(core, entry)
             and _has_turn(core, queue, entry))
    return [entry] if there else []


def _find_many(core: Core, queue: int, column: str, key: int, want: int) -> list[int]:
    """The same by a pass over the tables."""
    v, high = core.t.v, core.t.entries.high
    there = np.flatnonzero((v["e_queue"][:high] == queue) & (v["e_state"][:high] == _READY))
    there = there[v[column][v["e_message"][there]] == np.uint64(key)]
    if core.rules[queue].expires:
        there = there[~core.times.are_over(v["e_message"][there])]
    if core.groups.waiting[queue] or queue in core.limited:
        turns = [_has_turn(core, queue, entry) for entry in there.tolist()]
        there = there[np.array(turns, dtype=bool)]
    order = np.lexsort((v["e_sequence"][there], -v["e_priority"][there].astype(np.int64)))
    return [int(entry) for entry in there[order[:want]]]
