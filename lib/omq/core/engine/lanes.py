"""Where READY messages stand: in a chain of their queue, in its return lane, or after the first of
their group. A lane is a heap (omq.fast.lane) of messages that came back, next to the chains (ADR
0007).

Invariant: an item is (-priority, sequence, entry); one that is no longer true is dropped when it
comes up, and the counter RETURNED says how many items there are, stale ones too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from omq.base import limits as base_limits
from omq.core.engine import limited
from omq.core.engine.groups import Groups
from omq.core.engine.key_turns import Turns
from omq.core.engine.limits import Limits, QueueLimits
from omq.core.index.tables import Tables
from omq.fast.lane import Lane
from omq.format.index import Counter, EntryState

PRIORITIES = base_limits.PRIORITIES
_READY, _RETURNED = int(EntryState.READY), int(Counter.RETURNED)


@dataclass(slots=True)
class Lanes:
    """See the module: the lanes of the queues of `t`, by queue."""

    t: Tables
    lanes: dict[int, Lane] = field(init=False, default_factory=dict)
    groups: Groups = field(init=False)
    limits: Limits = field(init=False)
    limited: dict[int, QueueLimits] = field(init=False)  # those of `limits`
    mono_ns: int = field(init=False, default=0)  # monotonic clock of this group

    def keyed(self, queue: int) -> Turns | None:
        """The keys of a queue that has some: its READY entries are there."""
        limits = self.limited.get(queue)
        return limits.turns if limits is not None else None

    def into_lane(self, entry: int, queue: int) -> None:
        """A READY entry takes its old place."""
        if self.limited and (turns := self.keyed(queue)) is not None:
            turns.enter(entry, self.limits.keys[entry], self.mono_ns)
            return
        self.lane_push(entry, queue)

    def lane_push(self, entry: int, queue: int) -> None:
        """Into the return lane, whatever the limits of the queue are."""
        t, lane = self.t, self.lanes.get(queue)
        if lane is None:
            lane = self.lanes[queue] = Lane()
        lane.push(t.e_priority[entry], t.e_sequence[entry], entry)
        t.counters[_RETURNED] += 1

    def lane_top(self, queue: int) -> tuple[int, int, int] | None:
        """The first valid item of a return lane; stale ones are dropped."""
        lane, t = self.lanes.get(queue), self.t
        while lane:
            item: tuple[int, int, int] = lane.first()
            entry = item[2]
            if (t.e_state[entry] == _READY and t.e_sequence[entry] == item[1]
                    and t.e_queue[entry] == queue and not self.in_chain(entry)):
                return item
            self.lane_pop(queue)
        return None

    def lane_pop(self, queue: int) -> tuple[int, int, int]:
        """Take the first item off a return lane."""
        lane = self.lanes[queue]
        item: tuple[int, int, int] = lane.first()
        self.t.counters[_RETURNED] -= 1
        lane.drop()
        return item

    def in_chain(self, entry: int) -> bool:
        """Is a READY entry in the chain (rather than in the return lane)?"""
        t = self.t
        if t.e_prev[entry] or t.e_next[entry]:
            return True
        chain = t.e_queue[entry] * PRIORITIES + t.e_priority[entry]
        return bool(t.q_head[chain] == entry + 1)

    def detach(self, entry: int) -> None:
        """Take a READY entry out of its chain or lane (a lane item just becomes stale)."""
        if not self.groups.has_turn(entry):
            self.groups.waits(self.t.e_queue[entry], -1)
        elif self.limited and (turns := self.keyed(self.t.e_queue[entry])) is not None:
            turns.detach(entry, self.limits.keys[entry])
        elif self.in_chain(entry):
            t = self.t
            t.unlink(entry, t.e_queue[entry] * PRIORITIES + t.e_priority[entry])
            t.e_next[entry] = t.e_prev[entry] = 0

    def part(self, slot: int, entry: int) -> None:
        """Off the list of the entries of its message."""
        t = self.t
        at = t.m_first[slot]
        if at == entry + 1:
            t.m_first[slot] = t.e_sibling[entry]
            return
        while t.e_sibling[at - 1] != entry + 1:
            at = t.e_sibling[at - 1]
        t.e_sibling[at - 1] = t.e_sibling[entry]

    def oldest_ns(self, queue: int) -> int:
        """When the oldest came of the messages that are first in their priority; 0: none is READY.
        One that came back stands for those that came back with it."""
        t, at = self.t, queue * PRIORITIES
        firsts = [t.q_head[chain] - 1 for chain in range(at, at + PRIORITIES) if t.q_head[chain]]
        if (top := self.lane_top(queue)) is not None:
            firsts.append(top[2])
        if self.limited and self.keyed(queue) is not None:
            firsts = self.limits.oldest(queue)
        return min((t.e_submitted[entry] for entry in firsts), default=0)

    def ready(self, queue: int) -> int:
        """Entries of a queue that can be handed out."""
        there = int(self.t.q_ready[queue]) - self.groups.waiting[queue]
        if self.limited and queue in self.limited:
            return limited.ready(self, self.limited[queue], there)
        return there
