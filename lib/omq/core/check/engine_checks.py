"""The part of core.check.invariants that only the manager can check: what is private to it.

Free rows, the heaps of due entries, leases and time-outs, return lanes, limbo, readers, pool slots,
volatile bodies, and whether anybody waits for messages that are there.

Stale items are allowed in lanes and heaps: they are dropped when they come up. Nothing is changed,
not even a stale item.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from typing import Any

import numpy as np

from omq.base.arrays import Vector
from omq.core.check.broken_rules import Report, Rule
from omq.core.engine.barriers import BARRIER, MEMBER
from omq.core.engine.engine import Engine
from omq.core.engine.failures import NOTED
from omq.core.engine.groups import GROUPED
from omq.core.engine.key_turns import Turns
from omq.core.engine.limit_key import NEVER, Key
from omq.core.engine.limits import QueueLimits
from omq.core.engine.state import PERSISTENT, PRIORITIES, Core, Party
from omq.core.engine.waiters_by_id import find
from omq.core.index.slots import Slots
from omq.format.index import Counter, EntryState, QueueFlag
from omq.format.location import number_of
from omq.format.pool import NO_RECORD, PARTS_PER_RECORD
from omq.storage.slots import SlotAllocator
from omq.storage.volatile import VolatileBodies

_READY, _ACTIVE = int(EntryState.READY), int(EntryState.ACTIVE)
_DEFERRED = int(EntryState.DEFERRED)


class EngineChecks:
    """See the module. `run` once, behind IndexChecks."""

    def __init__(self, engine: Engine, parties: Sequence[Party], report: Report) -> None:
        self._engine, self._core, self._t = engine, engine.core, engine.core.t
        self._parties = parties
        self._report = report
        t = self._t
        self._high = min(t.entries.high, t.layout.entries)
        self._state = t.v["e_state"][: self._high]

    def run(self) -> None:
        """All of it."""
        t = self._t
        used = t.v["m_qpool"][: t.layout.messages] != 0
        self._check_free(t.messages, used, "message")
        self._check_free(t.entries, t.v["e_state"][: t.layout.entries] != 0, "entry")
        self._check_heaps()
        self._check_due()
        self._check_lanes()
        self._check_limbo()
        self._check_parties()
        self._check_runnable()
        self._check_rules()
        self._check_numbers()
        self._check_slots(np.flatnonzero(used))
        self._check_failures(np.flatnonzero(used))
        self._check_volatile(np.flatnonzero(used))
        self._check_times()
        self._check_barriers(np.flatnonzero(used))

    def _row(self, row: int) -> str:
        return f"entry {row}"

    def _check_free(self, slots: Slots, used: Vector, what: str) -> None:
        """Every row below the mark is in use, or free once."""
        rows, add = self._report.rows, self._report.add
        high = slots.high
        if high > slots.capacity or slots.top > high:
            add(Rule.FREE, what, f"{slots.top} free of {high} of {slots.capacity}")
            return
        listed = slots.v_stack[: slots.top].astype(np.int64)
        inside = listed < high
        rows(Rule.FREE, ~inside, f"free {what} that was never used", lambda row: f"{what} {row}",
             listed)
        count = np.bincount(listed[inside], minlength=high)[:high]
        rows(Rule.FREE, (count > 0) & used[:high], f"a free {what} is in use",
             lambda row: f"{what} {row}")
        rows(Rule.FREE, count > 1, f"{what} is free twice", lambda row: f"{what} {row}")
        rows(Rule.FREE, (count == 0) & ~used[:high], f"{what} is neither in use nor free",
             lambda row: f"{what} {row}")

    # time

    def _check_heaps(self) -> None:
        engine, core = self._engine, self._core
        heaps: dict[str, Sequence[tuple[Any, ...]]] = {
            "due": core.due, "moments": core.moments, "leases": core.leases,
            "timeouts": [item[:2] for item in engine.timeouts.heap],
            **{f"lane of queue {queue}": lane.items() for queue, lane in core.lanes.items()}}
        for name, heap in heaps.items():
            wrong = sum(heap[(i - 1) // 2] > heap[i] for i in range(1, len(heap)))
            if wrong:
                self._report.add(Rule.HEAP, name, f"{wrong} items stand above earlier ones")

    def _check_due(self) -> None:
        """Each deferred entry wakes once."""
        sequences, leases = self._t.e_sequence, self._t.e_lease
        valid = Tally(entry for _, entry, sequence, lease in (*self._core.due, *self._core.moments)
                      if entry < self._high and self._state[entry] == _DEFERRED
                      and sequences[entry] == sequence and leases[entry] == lease)
        for entry in np.flatnonzero(self._state == _DEFERRED).tolist():
            if valid[entry] != 1 and entry not in self._core.barriers.due:
                self._report.add(Rule.DUE, self._row(entry), f"{valid[entry]} times to wake it")

    # order

    def _check_lanes(self) -> None:
        """Each READY entry that is not in its chain is in its queue's lane. Twice does no harm:
        one that was held and released, both at its place; the second is dropped when it comes
        up."""
        core, t, v, high = self._core, self._t, self._t.v, self._high
        chain = v["e_queue"][:high].astype(np.int64) * PRIORITIES + v["e_priority"][:high]
        chain[chain >= len(v["q_head"])] = 0
        chained = ((v["e_next"][:high] != 0) | (v["e_prev"][:high] != 0)
                   | (v["q_head"][chain] == np.arange(1, high + 1)))
        loose = (self._state == _READY) & ~chained
        for entry in self._waiting_in_groups():
            if not loose[entry]:
                self._report.add(Rule.GROUP, self._row(entry), "waits for its turn, in a chain")
            loose[entry] = False
        loose[check_limits(core, self._report)] = False
        valid: Tally[int] = Tally()
        items, said = sum(map(len, core.lanes.values())), core.t.counters[Counter.RETURNED]
        if items != said:
            self._report.add(Rule.LANE, "return lanes", f"{items} items, the counter says {said}")
        for queue, lane in core.lanes.items():
            for minus, sequence, entry in lane.items():
                if (entry < high and loose[entry] and t.e_sequence[entry] == sequence
                        and t.e_queue[entry] == queue and t.e_priority[entry] == -minus):
                    valid[entry] += 1
        for entry in np.flatnonzero(loose).tolist():
            if not valid[entry]:
                self._report.add(Rule.LANE, self._row(entry), "in no chain and in no lane")

    def _waiting_in_groups(self) -> list[int]:
        """READY entries that are not the first of their group on their queue; rings and counters
        are as the tables have it."""
        t, groups, add = self._t, self._core.groups, self._report.add
        members: dict[int, list[tuple[int, int]]] = {}
        inside = t.v["e_message"][: self._high] < t.layout.messages
        used = np.flatnonzero((self._state != 0) & inside)
        slots = t.v["e_message"][: self._high][used]
        used = used[t.v["m_flags"][slots] & GROUPED != 0] if groups.used else used[:0]
        for entry in used.tolist():
            if group := groups.of(entry):
                members.setdefault(group, []).append((t.e_sequence[entry], entry))
        if members.keys() != groups.fronts.keys():
            add(Rule.GROUP, "fronts", f"{len(groups.fronts)}, there are {len(members)}")
        found: list[int] = []
        for group, listed in members.items():
            order = [entry for _, entry in sorted(listed)]
            if groups.members(group, len(order) + 1) != order:
                add(Rule.GROUP, f"group {group:#x}", f"its ring is not {order}")
            found += [entry for entry in order[1:] if self._state[entry] == _READY]
        counted = Tally(t.e_queue[entry] for entry in found)
        said = {queue: count for queue, count in enumerate(groups.waiting) if count}
        if counted != said or t.counters[Counter.GROUP_WAITING] != len(found):
            add(Rule.GROUP, "waiting", f"{said}, not {dict(counted)}")
        return found

    def _check_runnable(self) -> None:
        """A reader waits, a message is there, and nothing will bring them together."""
        t, core = self._t, self._core
        for queue, line in self._engine.waiters.items():
            waiting = any(w.waiting for w in (*line.main, *line.auxiliary))
            if (waiting and core.ready(queue) and queue not in core.runnable
                    and not t.q_flags[queue] & QueueFlag.SUSPENDED):
                self._report.add(Rule.RUNNABLE, f"queue {queue}",
                                 f"{core.ready(queue)} ready messages, and a reader waits")
        lines, lookers = self._engine.wanted.lines, self._engine.wanted.arrivals.queues
        if lines.keys() | lookers.keys() != core.watched.keys():
            self._report.add(Rule.RUNNABLE, "watched queues", f"{sorted(core.watched)}, and "
                             f"readers wait for certain messages of {sorted(lines)}")
        for queue, wishes in lines.items():
            if queue in core.runnable or t.q_flags[queue] & QueueFlag.SUSPENDED:
                continue
            for by, key in wishes.waiting:
                if find(core, queue, by, key, 1):
                    self._report.add(Rule.RUNNABLE, f"queue {queue}", f"a message with the key "
                                     f"{key:#x} is ready, and a reader waits for it")

    # who has what

    def _check_limbo(self) -> None:
        limbo, t = self._engine.limbo, self._t
        lost = np.flatnonzero((self._state == _ACTIVE) & (t.v["e_reader"][: self._high] == 0))
        for entry in sorted(set(lost.tolist()) - limbo.keys() - self._engine.back.entries):
            self._report.add(Rule.LIMBO, self._row(entry), "active without a reader")
        for entry, lease in limbo.items():
            if entry >= self._high or self._state[entry] != _ACTIVE or t.e_reader[entry]:
                self._report.add(Rule.LIMBO, self._row(entry), "in limbo, and not handed out")
            elif (t.e_lease[entry] ^ lease) & 0xFFFFFFFF:
                self._report.add(Rule.LIMBO, self._row(entry), "in limbo under another lease")

    def _check_parties(self) -> None:
        readers = self._t.v["e_reader"][: self._high][self._state == _ACTIVE]
        held = Tally(readers.tolist())
        known = {party.slot + 1: party for party in (*self._engine.parties.values(),
                                                     *self._parties)}
        for number, party in known.items():
            if party.active != held[number]:
                self._report.add(Rule.READER, f"reader {party.slot}",
                                 f"counts {party.active} messages, holds {held[number]}")
        if self._parties:
            for number in sorted(held.keys() - known.keys() - {0}):
                self._report.add(Rule.READER, f"reader {number - 1}",
                                 f"is gone, and holds {held[number]} messages")

    # the rest

    def _check_rules(self) -> None:
        t = self._t
        for queue, rules in self._core.rules.items():
            flags, name = t.q_flags[queue], t.queue_name(queue)
            said = (name, bool(flags & QueueFlag.PUT_INHIBITED), bool(flags & QueueFlag.SUSPENDED))
            if said != (rules.name, not rules.put_allowed, not rules.get_allowed):
                self._report.add(Rule.QUEUE, f"queue {queue} ({name})", "differs from its rules")

    def _check_numbers(self) -> None:
        core, counters = self._core, self._t.counters
        for counter, value in ((Counter.NEXT_QPOOL, core.next_qpool),
                               (Counter.LAST_LSN, core.block.first_lsn - 1)):
            if counters[counter] != value:
                self._report.add(Rule.COUNTER, counter.name, f"{counters[counter]}, not {value}")
        if core.block.next_qpool != core.next_qpool:
            self._report.add(Rule.NUMBER, "the journal's next QPoolId",
                             f"{core.block.next_qpool}, the engine's {core.next_qpool}")

    def _check_slots(self, used: Vector) -> None:
        """Pool slots of messages are in use, and nothing else is (but what a scan set aside)."""
        core, t, slots = self._core, self._t, self._core.slots
        for slot in sorted(core.runs.keys() - set(used.tolist())):
            self._report.add(Rule.SLOT, f"message {slot}", "is gone, and has a run of records")
        if not isinstance(slots, SlotAllocator):
            return
        wanted: Tally[int] = Tally()
        for slot in used[t.v["m_record"][used] != NO_RECORD].tolist():
            file, record = t.m_file[slot], t.m_record[slot]
            run = core.runs.get(slot, 1)
            wanted[file] += run
            if t.m_parts[slot] > run * PARTS_PER_RECORD:
                self._report.add(Rule.SLOT, f"message {slot}", f"{run} records are too few")
            if not slots.in_use(file, record, run):
                self._report.add(Rule.SLOT, f"record {record} of {file}QP",
                                 f"free, and message {slot} has it")
        for file in slots.files():
            if wanted[file] > slots.live(file):
                self._report.add(Rule.SLOT, f"{file}QP", f"{slots.live(file)} slots in use, "
                                 f"messages have {wanted[file]}")

    def _check_failures(self, used: Vector) -> None:
        """Why a message failed is known of those that say so, on the queue that it is on."""
        failures, v = self._core.failures, self._t.v
        noted = set(v["m_qpool"][used[v["m_flags"][used] & NOTED != 0]].tolist())
        entries = np.flatnonzero(self._state)
        owners, queues = v["e_message"][entries], v["e_queue"][entries]
        there = owners < self._t.layout.messages
        on = zip(v["m_qpool"][owners[there]].tolist(), queues[there].tolist(), strict=True)
        known = {qpool for qpool, queue in on if failures.of(qpool, queue) is not None}
        for qpool in sorted((noted ^ failures.known) | (known ^ failures.known)):
            self._report.add(Rule.MESSAGE, f"message {qpool}", "what is known of its failure is "
                             "not of the queue that it is on")

    def _check_volatile(self, used: Vector) -> None:
        core, t = self._core, self._t
        if not isinstance(core.volatile, VolatileBodies):
            return
        fleeting = used[t.v["m_flags"][used] & PERSISTENT == 0]
        wanted = Tally(number_of(word) for word in t.v["m_location"][fleeting].tolist())
        for number in sorted(wanted.keys() | core.volatile.live.keys()):
            if wanted[number] != core.volatile.live.get(number, 0):
                self._report.add(Rule.VOLATILE, f"file {number}",
                                 f"{core.volatile.live.get(number, 0)} bodies counted, messages "
                                 f"have {wanted[number]}")

    def _check_times(self) -> None:
        """Each message that has a time waits in the wheel, or has been taken out of it."""
        t, times = self._t, self._core.times
        waiting = {(slot, qpool) for _, slot, qpool in (
            times.wheel.waiting() | times.loaded.waiting())}
        for slot in np.flatnonzero(t.v["m_expiry"] * (t.v["m_qpool"] != 0)).tolist():
            if (slot, t.m_qpool[slot]) not in waiting and not times.is_over(slot):
                self._report.add(Rule.TIME, f"message {slot}", "nothing ends it")

    def _check_barriers(self, used: Vector) -> None:
        """Who waits and whom they wait for know each other; both are there."""
        t, barriers, add = self._t, self._core.barriers, self._report.add
        flagged = set(t.v["m_qpool"][used[t.v["m_flags"][used] & MEMBER != 0]].tolist())
        if flagged != set(barriers.members):
            add(Rule.MESSAGE, "barriers", f"members {sorted(barriers.members)}, marked "
                f"{sorted(flagged)}")
        pairs = {(entry, qpool) for qpool, entries in barriers.members.items() for entry in entries}
        if pairs != {(entry, each) for entry, live in barriers.waiting.items() for each in live}:
            add(Rule.MESSAGE, "barriers", "members and barriers do not name each other")
        if t.counters[Counter.BARRIERS_WAITING] != len(barriers.waiting):
            add(Rule.COUNTER, "barriers_waiting", f"counts {t.counters[Counter.BARRIERS_WAITING]} "
                f"of {len(barriers.waiting)}")
        barrier = used[t.v["m_flags"][used] & BARRIER != 0]
        if len(barrier) != len(barriers.waiting):
            add(Rule.MESSAGE, "barriers",
                f"{len(barrier)} are marked, {len(barriers.waiting)} wait")
        for entry, live in barriers.waiting.items():
            if self._state[entry] != _DEFERRED or not t.m_flags[t.e_message[entry]] & BARRIER:
                add(Rule.MESSAGE, self._row(entry), "waits as a barrier and is none")
            if not live and entry not in barriers.due:
                add(Rule.MESSAGE, self._row(entry), "waits for nothing")


def check_limits(core: Core, report: Report) -> list[int]:
    """Limits of work: where the READY entries of queues with keys are, how many of each key readers
    have, and that who may go is in the turn. READY entries that are with their keys: in no chain
    and in no lane."""
    standing: list[int] = []
    keys = ready = 0
    for number, limits in core.limits.queues.items():
        flags = core.t.q_flags[number]
        if not flags & QueueFlag.LIMITED or bool(flags & QueueFlag.KEYED) != limits.rules.keyed:
            report.add(Rule.QUEUE, f"queue {number}", "has limits, its flags say something else")
        if limits.turns is not None:
            standing += _check_turns(core, limits, limits.turns, report)
            keys += len(limits.turns.keys)
            ready += limits.turns.ready
    said = core.t.counters[Counter.LIMIT_KEYS], core.t.counters[Counter.KEYED_READY]
    if said != (keys, ready):
        report.add(Rule.COUNTER, "keys", f"the counters say {said}, there are {keys} and {ready}")
    return standing


def _check_turns(core: Core, limits: QueueLimits, turns: Turns, report: Report) -> list[int]:
    t, high, name = core.t, core.t.entries.high, f"queue {limits.number}"
    state, of = t.v["e_state"][:high], t.v["e_queue"][:high] == limits.number
    there = [entry for entry in np.flatnonzero(of & (state == _READY)).tolist()
             if core.groups.has_turn(entry)]
    if len(there) != turns.ready:
        report.add(Rule.LANE, name, f"{turns.ready} ready by their keys, there are {len(there)}")
    lined = {(key.name, item[2]) for key in turns.keys.values() for item in key.line
             if t.e_sequence[item[2]] == item[1]}
    for entry in there:
        if (core.limits.keys[entry], entry) not in lined:
            report.add(Rule.LANE, f"entry {entry}", "not in the line of its key")
    counts = Tally(core.limits.keys[entry] for entry in there)
    active = Tally(core.limits.keys[entry]
                   for entry in np.flatnonzero(of & (state == _ACTIVE)).tolist())
    for key in turns.keys.values():
        if (key.count, key.in_work) != (counts[key.name], active[key.name]):
            report.add(Rule.LANE, f"{name} key {key.name:#x}",
                       f"counts {key.count} ready and {key.in_work} being processed, there are "
                       f"{counts[key.name]} and {active[key.name]}")
        if key.count and turns.may(key, core.mono_ns) and not _stands(turns, key):
            report.add(Rule.RUNNABLE, f"{name} key {key.name:#x}", "may go, and has no turn")
    if missing := (counts | active).keys() - turns.keys.keys():
        report.add(Rule.LANE, name, f"{len(missing)} keys have messages and are not known")
    return there


def _stands(turns: Turns, key: Key) -> bool:
    """In the ring or the heap, or its time has come, and the next tick puts it there."""
    return key.turned or key.at is not None or key.wakes < NEVER
