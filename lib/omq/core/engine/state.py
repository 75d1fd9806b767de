"""What the engine's parts share: tables, the block under construction, and the private structures.

Private to the manager, rebuilt at each start: pool slot allocator, due heap, return lanes, runnable
set. The functions here only change memory; the caller packs the frame for a change first.

Invariants: 1. a state counter of a queue changes together with `e_state`; 2. an entry that comes
back goes to its queue's return lane, a heap by (priority, sequence), so it takes its old place
without walking a chain; lane items are checked when they are popped (lazy deletion).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappush

from omq.base.config import NONE
from omq.core.engine import limited
from omq.core.engine.barriers import Barriers
from omq.core.engine.block import Block
from omq.core.engine.disk_state import DiskState
from omq.core.engine.duplicates import Duplicates
from omq.core.engine.expiry_times import Times
from omq.core.engine.failures import NOTED, Failures
from omq.core.engine.groups import GROUPED, Groups
from omq.core.engine.lanes import Lanes
from omq.core.engine.limits import Limits
from omq.core.engine.rules_of_queue import FIRST_QUEUE, IDEL, POISON, SPECIAL_QUEUES, QueueRules
from omq.core.engine.store_protocols import PoolSlots, VolatileBodies
from omq.fast.party import Party
from omq.format.index import Counter, EntryState, QueueFlag
from omq.format.journal import FrameFlag
from omq.format.location import number_of
from omq.format.pool import NO_RECORD, RecordFlag

__all__ = ["CONTAINER", "FIRST_QUEUE", "HAS_ID", "IDEL", "PERSISTENT", "POISON", "PRIORITIES",
           "REMEMBERS", "REPLAYED", "SPECIAL_QUEUES", "Core", "Party", "Poisoned"]

PRIORITIES = 10
PERSISTENT, CONTAINER = int(FrameFlag.PERSISTENT), int(FrameFlag.CONTAINER)
HAS_ID, REPLAYED = int(RecordFlag.HAS_ID), int(RecordFlag.REPLAYED)  # in m_flags
REMEMBERS = int(RecordFlag.MEMORY)

_DONES = int(Counter.DONES)
_READY, _ACTIVE, _DEFERRED, _HELD, _PREPARED = (int(state) for state in (
    EntryState.READY, EntryState.ACTIVE, EntryState.DEFERRED, EntryState.HELD, EntryState.PREPARED))


@dataclass(slots=True)
class Poisoned:
    """A message that failed too often in this group, for the event log. `to`: where it was put,
    POISON or the dead-letter queue of its queue."""

    qpool: int
    queue: str
    reason: int
    pid: int
    to: str


@dataclass(slots=True)
class Core(Lanes):
    """See the module."""

    slots: PoolSlots
    volatile: VolatileBodies
    uuid: bytes
    block: Block = field(init=False)  # from when the journal is open
    rules: dict[int, QueueRules] = field(default_factory=dict)
    messages_total_max: int = 0
    index_reserve: int = 0  # rows of both tables; see core.engine.puts.rows_kept
    next_qpool: int = 1
    now_ns: int = 0  # wall clock of this group
    # (mono ns, entry, its sequence, its last lease): a later deferral has another lease
    due: list[tuple[int, int, int, int]] = field(default_factory=list)
    # The same by the wall clock: what was said as a moment, and all that a start has found.
    moments: list[tuple[int, int, int, int]] = field(default_factory=list)
    leases: list[tuple[int, int, int]] = field(default_factory=list)  # (mono ns, entry, lease)
    renewed: dict[int, tuple[int, int]] = field(default_factory=dict)  # entry -> lease, mono ns
    runnable: set[int] = field(default_factory=set)  # queues that may have something to give
    runs: dict[int, int] = field(default_factory=dict)  # slot -> pool records, when more than one
    active: int = 0  # messages in readers' hands
    space_left: bool = True
    room: DiskState = field(default_factory=DiskState)
    volatile_lease: int = 0  # of hand-outs from IDEL, which are not journaled
    suspects: set[int] = field(default_factory=set)  # entries; see core.engine.suspect_messages
    suspect_given: bool = False  # in this group
    watched: dict[int, list[int]] = field(default_factory=dict)  # see core.engine.waiters_by_id
    inhibited: set[int] = field(default_factory=set)  # queues that were; core.engine.arrivals
    triggered: set[int] = field(default_factory=set)  # queues that have a trigger
    times: Times = field(init=False)  # core.engine.expiry
    duplicates: Duplicates = field(default_factory=Duplicates)
    failures: Failures = field(default_factory=Failures)
    barriers: Barriers = field(default_factory=Barriers)

    def __post_init__(self) -> None:
        self.times, self.groups = Times(self.t), Groups(self.t)
        self.limits = Limits(self.t, self.groups)
        self.limited = self.limits.queues

    def new_entry(self, slot: int, queue: int, priority: int, sequence: int, until_ns: int = 0,
                  unit: int = 0, *, moment: bool = False) -> int:
        """A message appears on a queue: READY, DEFERRED (until_ns, wall; `moment`: it follows that
        clock), PREPARED (for `unit`)."""
        t = self.t
        entry = t.entries.take()
        assert entry >= 0, "the caller has checked for free entries"
        t.e_message[entry] = slot
        t.e_queue[entry] = queue
        t.e_priority[entry] = priority
        t.e_sequence[entry] = sequence
        t.e_submitted[entry] = self.now_ns
        t.e_until[entry] = until_ns
        t.e_lease[entry] = t.e_attempts[entry] = t.e_retries[entry] = t.e_reader[entry] = 0
        t.e_sibling[entry] = t.m_first[slot]
        t.m_first[slot] = entry + 1
        t.q_ever[queue] += 1
        t.q_depth[queue] += 1
        # One that is PREPARED has its place among its group's, so later ones wait for its unit.
        has_turn = not t.m_flags[slot] & GROUPED or self.groups.arrive(entry)
        keyed = bool(self.limited) and queue in self.limited and self.limits.came(entry, queue)
        if unit:
            t.e_state[entry], t.e_until[entry] = _PREPARED, unit
        elif until_ns:
            t.e_state[entry] = _DEFERRED
            t.q_deferred[queue] += 1
            if moment:
                heappush(self.moments, (until_ns, entry, sequence, 0))
            else:
                self.wake_at(entry, until_ns - self.now_ns)
        else:
            t.e_state[entry] = _READY
            t.q_ready[queue] += 1
            t.e_next[entry] = t.e_prev[entry] = 0
            if not has_turn:
                self.groups.waits(queue, 1)
            elif keyed:
                self.into_lane(entry, queue)
            else:
                t.link(entry, queue * PRIORITIES + priority)
            self.is_ready(queue, entry)
        if self.times.over:
            self.times.seen(slot)
        return entry

    def is_ready(self, queue: int, entry: int) -> None:
        """An entry can be handed out, or has come: who waits on its queue is looked at."""
        self.runnable.add(queue)
        if queue in self.watched:
            self.watched[queue].append(entry)

    def wake_at(self, entry: int, delay_ns: int) -> None:
        """DEFERRED -> READY after `delay_ns` of monotonic time."""
        t = self.t
        heappush(self.due, (self.mono_ns + max(0, delay_ns), entry, t.e_sequence[entry],
                            t.e_lease[entry]))

    def count_state(self, queue: int, state: int, change: int) -> None:
        """Change the counter of one state of a queue."""
        t = self.t
        if state == _READY:
            t.q_ready[queue] += change
        elif state == _ACTIVE:
            t.q_active[queue] += change
            self.active += change
        elif state == _DEFERRED:
            t.q_deferred[queue] += change
        elif state == _HELD:  # PREPARED: the rest of the depth
            t.q_held[queue] += change

    def set_state(self, entry: int, state: int) -> None:
        """Any change of state but into READY through a chain (see `back`)."""
        queue, before = self.t.e_queue[entry], self.t.e_state[entry]
        self.count_state(queue, before, -1)
        self.t.e_state[entry] = state
        self.count_state(queue, state, 1)
        if before == _ACTIVE and self.limited and queue in self.limited:
            limited.left(self, entry, queue)
        if before == _DEFERRED and self.barriers.waiting:
            self.barriers.left(self, entry)
        if self.times.over:
            self.times.seen(self.t.e_message[entry])

    def back(self, entry: int) -> None:
        """READY again, at its old place: into the return lane."""
        t = self.t
        self.set_state(entry, _READY)
        queue = t.e_queue[entry]
        t.e_until[entry] = t.e_next[entry] = t.e_prev[entry] = 0
        group = self.groups.of(entry) if self.groups.fronts else 0
        if group:
            self.groups.look_at(group)
        if group and self.groups.fronts[group] != entry:
            self.groups.waits(queue, 1)
        else:
            self.into_lane(entry, queue)
        self.is_ready(queue, entry)

    def drop_entry(self, entry: int) -> None:
        """The message leaves a queue; the entry is free."""
        t = self.t
        queue, state = t.e_queue[entry], t.e_state[entry]
        if state == _READY:
            self.detach(entry)
        self.count_state(queue, state, -1)
        t.q_depth[queue] -= 1
        slot = t.e_message[entry]
        if state == _DEFERRED and self.barriers.waiting:
            self.barriers.left(self, entry)
        self.part(slot, entry)
        following = whole = -1
        flags = t.m_flags[slot]
        if flags & GROUPED:
            following, whole = self.groups.leave(entry)
        if flags & NOTED:
            self.failures.left(t, slot, queue)
        t.e_state[entry] = t.e_sequence[entry] = 0
        if self.limited and queue in self.limited:
            limited.dropped(self, entry, queue, state)
        self.suspects.discard(entry)
        t.entries.give(entry)
        t.m_parts[slot] -= 1
        if following >= 0 and t.e_state[following] == _READY:
            self._take_turn(following, queue)
        if whole >= 0:  # who waits for it looks
            self.is_ready(queue, whole)

    def _take_turn(self, entry: int, queue: int) -> None:
        """A READY entry has become the first of its group: into its chain if it is behind all that
        is there, else into the lane."""
        t = self.t
        self.groups.waits(queue, -1)
        chain = queue * PRIORITIES + t.e_priority[entry]
        tail = t.q_tail[chain]
        if not t.e_attempts[entry] and (
                not tail or t.e_sequence[tail - 1] < t.e_sequence[entry]) and (
                not self.limited or self.keyed(queue) is None):
            t.link(entry, chain)
        else:
            self.into_lane(entry, queue)
        self.is_ready(queue, entry)

    def drop_message(self, slot: int) -> None:
        """The message is gone: index slot, hash chains, pool slots, volatile body."""
        t = self.t
        t.unindex_id(slot)
        if t.m_corr[slot]:
            t.unindex_correlation(slot)
        record = t.m_record[slot]
        if record != NO_RECORD:
            self.slots.free(t.m_file[slot], record, self.runs.pop(slot, 1) if self.runs else 1)
        elif not t.m_flags[slot] & PERSISTENT:
            self.volatile.release(number_of(t.m_location[slot]))
        t.m_qpool[slot] = 0
        t.messages.give(slot)

    def settled(self, party: Party, count: int) -> None:
        """A reader has ended its work on so many messages that it held."""
        party.active -= count
        self.t.r_processed[party.slot] += count
        self.t.counters[_DONES] += count

    def processed(self, queue: int) -> None:
        """Count a finished message for the hour and for the throughput."""
        t = self.t
        t.q_processed[queue] += 1
        t.q_hour[queue] += 1

    def dead(self, qpool: int, queue: int, reason: int, pid: int) -> Poisoned:
        """That a message of this queue has just failed too often."""
        rules = self.rules[queue]
        return Poisoned(qpool, rules.name, reason, pid, self.t.queue_name(rules.dead_letter))

    def define_queue(self, rules: QueueRules) -> None:
        """Make a queue known to the tables, or change its rules."""
        t, queue = self.t, rules.queue
        self.rules[queue] = rules
        self.inhibited |= set() if rules.get_allowed else {queue}
        flags = QueueFlag.IN_USE | (0 if rules.get_allowed else QueueFlag.SUSPENDED)
        flags |= 0 if rules.put_allowed else QueueFlag.PUT_INHIBITED
        flags |= QueueFlag.LIMITS_TIME if rules.expiry_ns else 0
        flags |= QueueFlag.SPECIAL if queue in SPECIAL_QUEUES else 0
        flags |= QueueFlag.PSEUDO if queue == IDEL else QueueFlag.DRAINS if rules.drains else 0
        if rules.limits is not None or queue in self.limited:
            flags |= limited.define(self, queue, rules.limits)
        t.q_flags[queue] = flags
        t.q_max_depth[queue] = min(rules.max_depth, 0xFFFFFFFF)
        t.q_max_length[queue] = min(rules.max_length, 0xFFFFFFFF)
        if not t.q_started[queue]:
            t.q_started[queue] = t.q_sampled[queue] = self.now_ns
        t.set_queue_name(queue, rules.name)
        t.counters[Counter.QUEUES_HIGH] = max(queue + 1, t.counters[Counter.QUEUES_HIGH])
        (self.triggered.discard if rules.trigger == NONE else self.triggered.add)(queue)
        self.runnable.add(queue)
