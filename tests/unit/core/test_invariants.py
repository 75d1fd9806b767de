"""The check of the index finds every single thing that is damaged by hand, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from omq.core.check.invariants import Rule, check, check_index, snapshot
from omq.core.engine.puts import NewMessage
from omq.core.engine.state import IDEL, POISON, PRIORITIES
from omq.core.index.tables import Tables
from omq.format.index import Counter, EntryState, IndexLayout, QueueFlag, ReaderFlag
from omq.format.wire import Settlement
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from tests.unit.engine.world import A, B, World, make_world

NS = 1_000_000_000
READY, ACTIVE, DEFERRED = (int(s) for s in (EntryState.READY, EntryState.ACTIVE,
                                            EntryState.DEFERRED))


def _given_id(world: World, name: bytes) -> int:
    encoded = encode_outgoing(Outgoing(b"x", message_id=name, correlation_id=b"c"), (A,), 0,
                              world.info.paths, 1 << 18, "test")
    world.begin()
    new = NewMessage(A, 4, encoded.flags & 3, 1, encoded.crc, encoded.correlation, encoded.key, 0,
                     0, memoryview(encoded.payload))
    world.sequence += 1
    qpool = world.engine.put(world.putter, new, world.sequence)
    world.engine.commit()
    return qpool


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Something of everything: chains of several lengths, a lane, deferred, active and poisoned
    messages, one on two queues, one on IDEL, ids and correlation ids, free rows in between."""
    made = make_world(tmp_path / "spool")
    t = made.core.t
    for party in (made.putter, made.reader):
        t.r_flags[party.slot] = ReaderFlag.IN_USE
    t.counters[Counter.READERS_HIGH] = 2
    made.put(body=b"c" * (1 << 19))
    made.settle(Settlement.DONE, *made.give(1))  # a container: on IDEL
    for _ in range(3):
        made.put()
    made.settle(Settlement.DONE, *made.give(2))
    made.settle(Settlement.DEFER, *made.give(1), argument=3600 * NS)
    made.put(B)
    for _ in range(3):
        made.settle(Settlement.FAIL, *made.give(1, B, seconds=0 if not t.q_deferred[B] else 31))
    assert t.q_depth[POISON] == 1 and t.q_depth[IDEL] == 1
    for i in range(6):
        made.put(A, B, priority=4 + i % 2)
    made.put(persistent=False)
    for name in (b"one", b"two"):
        _given_id(made, name)
    made.settle(Settlement.DEFER, *made.give(1, B), argument=3600 * NS)
    first, *_ = made.give(4)
    made.settle(Settlement.RELEASE, first)
    made.settle(Settlement.RELEASE, *made.give(1, B))
    assert t.q_active[A] == 3 and t.q_deferred[B] == 1 and t.q_ready[A] and t.q_ready[B]
    assert findings(made) == set(), "a healthy engine"
    yield made
    made.writer.close()
    made.core.volatile.close()  # type: ignore[attr-defined]


def findings(world: World) -> set[Rule]:
    """Rules of what is found; what the bytes alone show is part of it."""
    found = check(world.engine, [world.putter, world.reader])
    t = world.core.t
    alone = check_index(t.buffer, t.layout)
    assert set(alone) <= set(found)
    assert all(str(each) and each.where for each in found)
    return {each.rule for each in found}


def entry(world: World, state: int, queue: int = A) -> int:
    """A row in this state on this queue."""
    t = world.core.t
    return next(e for e in range(t.entries.high)
                if t.e_state[e] == state and t.e_queue[e] == queue)


def loose(world: World, queue: int = A) -> int:
    """A returned entry."""
    return int(world.core.lanes[queue].first()[2])


def inside(world: World, queue: int = B) -> int:
    """An entry in the middle of a chain."""
    t = world.core.t
    return next(e for e in range(t.entries.high) if t.e_next[e] and t.e_prev[e]
                and t.e_queue[e] == queue)


def message(world: World, on: int = A) -> int:
    return int(world.core.t.e_message[entry(world, READY, on)])


def put_at(column: str, row: Callable[[World], int], value: Callable[[Tables, int], int]
           ) -> Callable[[World], None]:
    """Damage: one value of one column."""
    def damage(world: World) -> None:
        at = row(world)
        getattr(world.core.t, column)[at] = value(world.core.t, at)
    return damage


def of(state: int, queue: int = A) -> Callable[[World], int]:
    return lambda world: entry(world, state, queue)


def _swap(world: World) -> None:
    """Two neighbours of a chain in the wrong order: all links are right, the order is not."""
    t, e = world.core.t, inside(world)
    other = t.e_next[e] - 1
    t.e_sequence[e], t.e_sequence[other] = t.e_sequence[other], t.e_sequence[e]


def _ring(world: World) -> None:
    t, e = world.core.t, inside(world)
    t.e_next[e], t.e_prev[e] = e + 1, e + 1


def _in_another_chain(world: World) -> None:
    """One with a QPoolId, as others: from the links alone it shows that they were moved alike."""
    t = world.core.t
    slot = message(world)
    assert t.m_key[slot] == t.m_qpool[slot]
    t.unindex_id(slot)
    bucket = int(np.flatnonzero(t.v["b_id"] == 0)[0])
    t.b_id[bucket], t.m_idnext[slot], t.m_idprev[slot] = slot + 1, 0, 0
    assert Rule.ID_INDEX in {each.rule for each in check_index(t.buffer, t.layout)}


def _correlated_in_another_chain(world: World) -> None:
    """All of them: only who knows the secret sees it."""
    t = world.core.t
    slots = np.flatnonzero(t.v["m_corr"])
    for slot in slots.tolist():
        t.unindex_correlation(slot)
    t.bucket = lambda key: key * 5 & t.mask
    for slot in slots.tolist():
        t.index_correlation(slot, t.m_corr[slot])
    assert check_index(t.buffer, t.layout) == []


def _cut_out(world: World) -> None:
    """In no chain and in no lane: it would never be handed out."""
    t, e = world.core.t, inside(world)
    t.unlink(e, B * PRIORITIES + t.e_priority[e])
    t.e_next[e] = t.e_prev[e] = 0


def _twice_on_a_queue(world: World) -> None:
    t = world.core.t
    slot = int(t.e_message[inside(world)])
    world.core.new_entry(slot, B, 4, t.m_lsn[slot])
    t.m_parts[slot] += 1
    t.publish()


def _same_qpool(world: World) -> None:
    t = world.core.t
    one, other = (slot for slot in range(t.messages.high) if t.m_flags[slot] & 8)
    t.m_qpool[one] = t.m_qpool[other]


def _same_record(world: World) -> None:
    t = world.core.t
    one = message(world, B)
    other = next(s for s in range(t.messages.high) if t.m_qpool[s] and s != one
                 and t.m_flags[s] & 1)
    t.m_record[one] = t.m_record[other]


def _forget(attribute: str) -> Callable[[World], None]:
    def damage(world: World) -> None:
        getattr(world.core, attribute).clear()
    return damage


def _row_lost(world: World) -> None:
    world.core.t.messages.take()


def _waiting(world: World) -> None:
    world.begin()
    world.engine.wait(world.reader, A, 1, 9, -1, auxiliary=False)
    world.engine.commit()
    world.core.runnable.clear()


DAMAGE: dict[str, tuple[Callable[[World], None], set[Rule]]] = {
    "state": (put_at("e_state", of(DEFERRED), lambda t, e: 9),
              {Rule.ENTRY, Rule.QUEUE, Rule.PARTS, Rule.SIBLING}),
    "no message": (put_at("e_message", of(ACTIVE), lambda t, e: t.messages.high + 5),
                   {Rule.ENTRY, Rule.QUEUE, Rule.PARTS, Rule.SIBLING}),
    "another's message": (put_at("e_message", inside, lambda t, e: t.e_message[t.e_next[e] - 1]),
                          {Rule.PARTS, Rule.SIBLING, Rule.TWICE}),
    "no queue": (put_at("e_queue", of(ACTIVE), lambda t, e: 60),
                 {Rule.ENTRY, Rule.QUEUE, Rule.PARTS, Rule.SIBLING}),
    "another queue": (put_at("e_queue", of(DEFERRED), lambda t, e: POISON), {Rule.QUEUE}),
    "priority": (put_at("e_priority", of(DEFERRED), lambda t, e: 10),
                 {Rule.ENTRY, Rule.QUEUE, Rule.PARTS, Rule.SIBLING}),
    "no defer time": (put_at("e_until", of(DEFERRED), lambda t, e: 0), {Rule.ENTRY}),
    "ready with a time": (put_at("e_until", of(READY), lambda t, e: 1), {Rule.ENTRY}),
    "parts": (put_at("m_parts", message, lambda t, m: t.m_parts[m] + 1), {Rule.PARTS}),
    "twice on a queue": (_twice_on_a_queue, {Rule.TWICE}),
    "first entry": (put_at("m_first", message, lambda t, m: 0), {Rule.SIBLING}),
    "first entry outside": (put_at("m_first", message, lambda t, m: 1 << 30), {Rule.SIBLING}),
    "sibling ring": (put_at("e_sibling", inside, lambda t, e: e + 1), {Rule.SIBLING}),
    "idel and a queue": (put_at("e_queue", inside, lambda t, e: IDEL),
                         {Rule.IDEL, Rule.QUEUE, Rule.CHAIN}),
    "idel flags": (put_at("q_flags", lambda w: IDEL, lambda t, q: QueueFlag.IN_USE), {Rule.IDEL}),
    "depth": (put_at("q_depth", lambda w: A, lambda t, q: t.q_depth[q] + 1), {Rule.QUEUE}),
    "ready count": (put_at("q_ready", lambda w: B, lambda t, q: 0), {Rule.QUEUE}),
    "active count": (put_at("q_active", lambda w: A, lambda t, q: 99), {Rule.QUEUE}),
    "deferred count": (put_at("q_deferred", lambda w: B, lambda t, q: 0), {Rule.QUEUE}),
    "held count": (put_at("q_held", lambda w: B, lambda t, q: 1), {Rule.QUEUE}),
    "suspended": (put_at("q_flags", lambda w: A, lambda t, q: t.q_flags[q] | QueueFlag.SUSPENDED),
                  {Rule.QUEUE}),
    "queue name": (lambda w: w.core.t.set_queue_name(B, "A"), {Rule.QUEUE}),
    "average": (lambda w: w.core.t.v["q_load1"].__setitem__(A, np.nan), {Rule.QUEUE}),
    "next link": (put_at("e_next", inside, lambda t, e: 0), {Rule.CHAIN}),
    "link outside": (put_at("e_next", inside, lambda t, e: 1 << 31), {Rule.CHAIN}),
    "previous link": (put_at("e_prev", inside, lambda t, e: 0), {Rule.CHAIN}),
    "ring": (_ring, {Rule.CHAIN}),
    "order": (_swap, {Rule.CHAIN}),
    "wrong chain": (put_at("e_priority", inside, lambda t, e: 9), {Rule.CHAIN}),
    "active and linked": (put_at("e_next", of(ACTIVE), lambda t, e: 1), {Rule.CHAIN}),
    "head": (put_at("q_head", lambda w: B * PRIORITIES + 4, lambda t, c: t.e_next[t.q_head[c] - 1]),
             {Rule.CHAIN}),
    "no head": (put_at("q_head", lambda w: B * PRIORITIES + 4, lambda t, c: 0), {Rule.CHAIN}),
    "tail": (put_at("q_tail", lambda w: B * PRIORITIES + 4, lambda t, c: 0), {Rule.CHAIN}),
    "tail outside": (put_at("q_tail", lambda w: B * PRIORITIES + 4, lambda t, c: 1 << 31),
                     {Rule.CHAIN}),
    "cut out": (_cut_out, {Rule.LANE}),
    "id bucket": (put_at("b_id", lambda w: w.core.t.bucket(w.core.t.m_key[message(w)]),
                         lambda t, b: 0), {Rule.ID_INDEX}),
    "id link": (put_at("m_idnext", message, lambda t, m: m + 1), {Rule.ID_INDEX}),
    "id link back": (put_at("m_idprev", message, lambda t, m: m + 2), {Rule.ID_INDEX}),
    "id in another chain": (_in_another_chain, {Rule.ID_INDEX}),
    "correlation in another chain": (_correlated_in_another_chain, {Rule.CORRELATION}),
    "key": (put_at("m_key", message, lambda t, m: 5), {Rule.ID_INDEX, Rule.MESSAGE}),
    "correlation": (lambda w: w.core.t.b_corr.__setitem__(
        int(np.flatnonzero(w.core.t.v["b_corr"])[0]), 0), {Rule.CORRELATION}),
    "qpool twice": (_same_qpool, {Rule.NUMBER}),
    "qpool to come": (put_at("m_qpool", lambda w: w.core.t.find(w.core.next_qpool - 1)
                             if w.core.t.find(w.core.next_qpool - 1) >= 0 else
                             w.core.t.slot_of(w.core.next_qpool - 1),
                             lambda t, m: 1 << 40), {Rule.NUMBER}),
    "lsn to come": (put_at("m_lsn", message, lambda t, m: 1 << 40), {Rule.NUMBER}),
    "sequence": (put_at("e_sequence", of(ACTIVE), lambda t, e: 0), {Rule.NUMBER}),
    "counters": (lambda w: w.core.t.counters.__setitem__(Counter.MESSAGES, 0), {Rule.COUNTER}),
    "high water": (lambda w: w.core.t.counters.__setitem__(Counter.LAST_LSN, 1 << 40),
                   {Rule.COUNTER}),
    "no record": (put_at("m_record", message, lambda t, m: 0xFFFFFFFF), {Rule.MESSAGE}),
    "record twice": (_same_record, {Rule.SLOT}),
    "record free": (lambda w: w.core.slots.free(w.core.t.m_file[message(w)],
                                                w.core.t.m_record[message(w)]), {Rule.SLOT}),
    "run of nobody": (lambda w: w.core.runs.__setitem__(1999, 2), {Rule.SLOT}),
    "volatile": (lambda w: w.core.volatile.live.__setitem__(1, 7),  # type: ignore[attr-defined]
                 {Rule.VOLATILE}),
    "reader of a ready one": (put_at("e_reader", of(READY), lambda t, e: 2), {Rule.READER}),
    "reader gone": (put_at("r_flags", lambda w: 1, lambda t, r: 0), {Rule.READER}),
    "reader unknown": (put_at("e_reader", of(ACTIVE), lambda t, e: 40), {Rule.READER}),
    "reader's count": (lambda w: setattr(w.reader, "active", 0), {Rule.READER}),
    "no reader": (put_at("e_reader", of(ACTIVE), lambda t, e: 0), {Rule.LIMBO, Rule.READER}),
    "limbo": (lambda w: w.engine.limbo.__setitem__(entry(w, READY), 5), {Rule.LIMBO}),
    "free row in use": (lambda w: w.core.t.entries.give(entry(w, READY)), {Rule.FREE}),
    "row lost": (_row_lost, {Rule.FREE}),
    "due": (_forget("due"), {Rule.DUE}),
    "due twice": (lambda w: w.core.due.extend(w.core.due[:1] * 2), {Rule.DUE}),
    "lanes": (_forget("lanes"), {Rule.LANE}),
    "a turn that nobody waits for": (lambda w: w.core.groups.waiting.__setitem__(A, 3),
                                     {Rule.GROUP}),
    "a group of nobody": (lambda w: w.core.groups.fronts.count.__setitem__(0, 99), {Rule.GROUP}),
    "heap": (lambda w: w.core.due.append((0, 0, 0, 0)), {Rule.HEAP}),
    "runnable": (_waiting, {Rule.RUNNABLE}),
    "a time that nothing ends": (put_at("m_expiry", message, lambda t, m: 1 << 61), {Rule.TIME}),
    "next qpool": (lambda w: setattr(w.core.block, "next_qpool", 1), {Rule.NUMBER}),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(world: World, name: str) -> None:
    damage, expected = DAMAGE[name]
    damage(world)
    found = findings(world)
    assert expected <= found, found


def test_every_rule_has_its_damage() -> None:
    assert set().union(*(expected for _, expected in DAMAGE.values())) == set(Rule)


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_raise_nothing(world: World, seed: int) -> None:
    t = world.core.t
    random = np.random.default_rng(seed)
    raw = np.frombuffer(t.buffer, "u1")
    columns = [(at, at + 8) for _, at, _ in t.layout.columns.values()]
    columns += [(2048, 4096), (t.layout.queue_names, t.layout.size)]
    for first, last in columns:
        for at in random.integers(first, last, 3).tolist():
            raw[at] = random.integers(0, 256)
    for e in random.integers(0, t.entries.high, 5).tolist():
        for name in ("e_message", "e_next", "e_prev", "e_sibling"):
            getattr(t, name)[e] = int(random.integers(0, 1 << 32))
    assert check(world.engine, [world.reader])


def test_a_wholly_random_index_raises_nothing() -> None:
    layout = IndexLayout.of(100, 100, 8, 8)
    raw = np.random.default_rng(1).integers(0, 256, layout.size, dtype="u1").tobytes()
    found = check_index(memoryview(raw), layout)
    assert {Rule.COUNTER, Rule.CHAIN, Rule.ID_INDEX} <= {each.rule for each in found}
    assert check_index(memoryview(bytes(layout.size)), layout) == []


def test_a_snapshot_is_taken_between_groups(world: World) -> None:
    t = world.core.t
    copy = snapshot(t.buffer, t.layout.size)
    assert copy is not None and check_index(copy, t.layout) == []
    world.begin()
    assert snapshot(t.buffer, t.layout.size) is None
    world.engine.commit()


def test_long_lists_are_cut(world: World) -> None:
    t = world.core.t
    t.v["m_parts"][: t.messages.high] += 1
    found = [each for each in check_index(t.buffer, t.layout) if each.rule is Rule.PARTS]
    assert len(found) == 11 and "more" in found[-1].where
