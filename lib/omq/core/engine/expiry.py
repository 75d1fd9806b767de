"""Expiry: a message whose time is over leaves the queues on which nobody has it.

Its time is that of its put, or what the queue allows at most from then on (`expiry_max_s`), if that
is less: it counts from the moment of the put by the monotonic clock, so a clock that is set moves
nothing while the manager runs. A start knows only what the pool says: for what it finds the wall
clock decides, also when that is put right later.

Nobody is handed a message after its time. When it comes, the entries that are READY or DEFERRED
leave, to the queue that theirs names (`expired_to`) or for good, each with an EXPIRE frame. What a
reader has, or an operator holds, is left to them; it leaves when it comes back. IDEL, POISON and
the queues that others name (`expired_to`, `dead_letter`) keep what they have. A message that has
come to such a queue and is nowhere else has no time any more (TIMELESS): whoever takes it up again
is not fooled by it.

Work is bounded: at most PER_GROUP messages a group, `times.behind` while there are more. Until then
they are still on their queues, and `none_left` keeps them from readers.

In the middle of a crash: EXPIRE is in a block or it is not. If not, the message is on its
queue, its time is over, and the next start does it again.
Errors: SpoolFull where the disk has no room for the frame; tried again each RETRY_NS.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from omq.base.arrays import Vector, distinct
from omq.base.errors import SpoolFull
from omq.core.engine.barrier_ends import failing, room
from omq.core.engine.barriers import MEMBER
from omq.core.engine.deadlines import until
from omq.core.engine.failures import NOTED
from omq.core.engine.gives import next_ready
from omq.core.engine.groups import GROUPED
from omq.core.engine.settle import frame_for, last_of, off
from omq.core.engine.state import CONTAINER, PERSISTENT, PRIORITIES, Core
from omq.core.engine.transitions import Event, after
from omq.core.engine.wheel import NEVER
from omq.format.index import Counter, EntryState
from omq.format.journal import FrameFlag, FrameType

PER_GROUP: Final = 1000
LAG_NS: Final = 20_000_000
MANY: Final = 12  # from here on numpy is quicker than one by one
RETRY_NS: Final = 1_000_000_000
_LAST = int(FrameFlag.LAST_PART)
_TIMELESS, _EXPIRED = int(FrameFlag.TIMELESS), int(Counter.EXPIRED)
_READY, _DEFERRED = int(EntryState.READY), int(EntryState.DEFERRED)
_LEAVE = (_READY, _DEFERRED)


class Expiry:
    """What is to expire now. `due`: when a group is wanted for it (monotonic ns); if nothing else
    makes one, those of LAG_NS share it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._work: list[list[int]] = []  # slots whose time is over
        self._paused_until = 0

    @property
    def next_ns(self) -> int:
        """Before that (monotonic ns) a tick finds nothing to do, if the wall clock does not bring
        what a start has found."""
        return 0 if self._work or self._core.times.came_back else self._core.times.wheel.next()

    @property
    def due(self) -> int:
        if self._work or self._core.times.came_back:
            return self._paused_until
        core, best = self._core, self._core.times.wheel.next()
        if (loaded := core.times.loaded.next()) != NEVER:
            best = min(best, until(core, loaded))
        return best + LAG_NS

    def tick(self) -> None:
        """Whose time has come leaves, some of them in this group."""
        core = self._core
        now = core.mono_ns
        for wheel, moment in ((core.times.wheel, now), (core.times.loaded, core.now_ns)):
            if wheel.next() <= moment:
                rows = wheel.advance(moment)
                if len(rows):
                    core.times.end(rows)
                    self._work.append(rows[::-1, 1].tolist())
        if core.times.came_back:
            self._work.append(core.times.came_back)
            core.times.came_back = []
        if self._work and now >= self._paused_until:
            try:
                self._expire(PER_GROUP)
            except SpoolFull:
                core.space_left = False
                self._paused_until = now + RETRY_NS
        core.times.behind = bool(self._work)

    def counted(self) -> list[tuple[str, int]]:
        """How many have left which queue since this was asked last."""
        times = self._core.times
        expired, times.expired = times.expired, {}
        rules = self._core.rules  # a queue may be gone that messages have left
        return [(rules[queue].name, count) for queue, count in sorted(expired.items())
                if queue in rules]

    def _expire(self, count: int) -> None:
        while self._work and count > 0:
            slots = self._work[0]
            if len(slots) >= MANY:
                chosen = slots[-count:]
                left = discard_many(self._core, chosen)
                count -= len(chosen) - len(left)
                slots[-len(chosen) :] = left
            while slots and count > 0:
                if self._core.times.is_over(slots[-1]):
                    expire(self._core, slots[-1])
                slots.pop()
                count -= 1
            if not slots:
                self._work.pop(0)


def none_left(core: Core, queue: int) -> bool:
    """While there are more than a group may do: whether this queue has nothing for readers in this
    group, after what goes next on it and is over has been done away with."""
    try:
        for _ in range(PER_GROUP):
            entry = next_ready(core, queue)
            if entry < 0:
                return True
            if not gone_by(core, entry):
                return False
            expire(core, core.t.e_message[entry])
    except SpoolFull:
        core.space_left = False
    return True


def gone_by(core: Core, entry: int) -> bool:
    """Its time is over, and its queue lets such messages go."""
    return (core.times.is_over(core.t.e_message[entry])
            and core.rules[core.t.e_queue[entry]].expires)


def expire(core: Core, slot: int) -> None:
    """Off the queues that it leaves now. SpoolFull: it is still on the others."""
    for entry in core.t.entries_of(slot):
        if core.t.e_state[entry] in _LEAVE and core.rules[core.t.e_queue[entry]].expires:
            frames, size = room(core, (slot,))
            core.block.reserve(1 + frames, size)
            _leave(core, slot, entry)


def discard_many(core: Core, slots: list[int]) -> list[int]:
    """Those that only go away: persistent, READY on one queue that discards, in its chain. The
    others are left, and all if it is not worth it. SpoolFull."""
    t, v = core.t, core.t.v
    rows = distinct(np.array(slots))
    entries = v["m_first"][rows].astype(np.int64) - 1  # -1: the slot is free, and not over
    queues = v["e_queue"][entries].astype(np.int64)
    chains = queues * PRIORITIES + v["e_priority"][entries]
    discards = np.zeros(t.layout.queues, bool)
    discards[[queue for queue, rules in core.rules.items()
              if rules.expires and not rules.expired_to]] = True
    plain = ((v["m_parts"][rows] == 1) & core.times.are_over(rows)
             & (v["m_flags"][rows] & (PERSISTENT | CONTAINER | GROUPED | NOTED | MEMBER)
                == PERSISTENT)
             & (v["e_state"][entries] == _READY) & discards[queues]
             & ((v["e_prev"][entries] | v["e_next"][entries] != 0)
                | (v["q_head"][chains] == entries + 1)))
    if core.runs or np.count_nonzero(plain) < MANY:
        return slots
    rows, entries, queues, chains = rows[plain], entries[plain], queues[plain], chains[plain]
    core.block.reserve(len(rows), 0)
    _frames(core, entries, rows)
    for entry, chain in zip(entries.tolist(), chains.tolist(), strict=True):
        t.unlink(entry, chain)
    v["e_next"][entries] = v["e_prev"][entries] = 0
    core.suspects.difference_update(entries.tolist())
    for queue, count in enumerate(np.bincount(queues).tolist()):
        if count:
            t.q_ready[queue] -= count
            t.q_depth[queue] -= count
            t.q_expired[queue] += count
            core.times.expired[queue] = core.times.expired.get(queue, 0) + count
    t.counters[_EXPIRED] += len(rows)
    free_many(core, entries, rows)
    gone = set(rows.tolist())
    return [slot for slot in slots if slot not in gone]


def _frames(core: Core, entries: Vector, slots: Vector) -> None:
    """As `_leave` has them."""
    v, count = core.t.v, len(slots)
    frames = core.block.rows(count, FrameType.EXPIRE)
    frames["priority"] = v["e_priority"][entries]
    frames["flags"] = PERSISTENT | _LAST
    frames["queue"] = v["e_queue"][entries]
    frames["qpool"], frames["size"] = v["m_qpool"][slots], v["m_size"][slots]
    frames["file"], frames["record"] = v["m_file"][slots], v["m_record"][slots]
    frames["lease"] = v["e_lease"][entries]
    frames["parts"] = 1
    core.block.close_rows(count)


def _leave(core: Core, slot: int, entry: int) -> None:
    t = core.t
    queue, priority = t.e_queue[entry], t.e_priority[entry]
    assert after(Event.EXPIRE, t.e_state[entry]) is EntryState.FREE
    target = core.rules[queue].expired_to
    others = {t.e_queue[other] for other in t.entries_of(slot) if other != entry}
    rest = others | {target} if target else others
    flags = 0
    if not rest:
        flags = last_of(core, slot)
    elif not any(core.rules[other].expires for other in rest):
        flags = _TIMELESS
    if t.m_flags[slot] & MEMBER:
        failing(core, slot, f"it expired on {core.rules[queue].name}")
    t.e_attempts[entry] = 0
    lsn = frame_for(core, FrameType.EXPIRE, flags, entry, None, target=target,
                    parts=core.runs.get(slot, 1) if flags & _LAST else 0)
    off(core, entry, flags, lsn)
    t.counters[_EXPIRED] += 1
    t.q_expired[queue] += 1
    core.times.expired[queue] = core.times.expired.get(queue, 0) + 1
    if flags & _TIMELESS:
        t.m_expiry[slot] = core.times.over[slot] = 0
    if target:
        t.m_origin[slot] = queue
        if target not in others:
            t.m_parts[slot] += 1
            core.new_entry(slot, target, priority, lsn)


def free_many(core: Core, entries: Vector, slots: Vector) -> None:
    """Messages that are gone, many at once: their rows, hash chains and pool slots are free.

    `entries` of the messages in `slots`; none of them twice. They are persistent, on one queue and
    in one pool record each, and in none of its chains any more; the frames are the caller's."""
    t, v = core.t, core.t.v
    v["e_state"][entries] = 0
    v["e_sequence"][entries] = 0
    v["e_reader"][entries] = 0
    t.entries.give_many(entries)
    buckets = t.buckets.of_each(v["m_key"][slots])
    heads = v["b_id"][buckets] == slots + 1
    v["b_id"][buckets[heads]] = after = v["m_idnext"][slots[heads]]
    v["m_idprev"][after[after != 0] - 1] = 0
    for slot in slots[~heads].tolist():
        t.unindex_id(slot)
    for slot in slots[v["m_corr"][slots] != 0].tolist():
        t.unindex_correlation(slot)
    core.slots.free_many(v["m_file"][slots], v["m_record"][slots])
    v["m_qpool"][slots] = 0
    v["m_first"][slots] = 0
    v["m_parts"][slots] = 0
    t.messages.give_many(slots)
