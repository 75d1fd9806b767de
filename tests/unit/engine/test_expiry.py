"""Messages whose time is over: never handed out, gone by their time without anybody asking."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import SpoolFull
from omq.core.check.invariants import check
from omq.core.engine import expiry
from omq.core.engine.operate import Action, Item, Order
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import CONTAINER, IDEL, POISON, SPECIAL_QUEUES
from omq.format.index import Counter, EntryState, QueueFlag
from omq.format.wire import Settlement
from tests.unit.engine.world import NS, A, B, World, make_world

LATE = 5


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    made.core.define_queue(QueueRules(LATE, "LATE", 1000, 1 << 20, expires=False))
    yield made
    assert check(made.engine) == []
    made.writer.close()


def pass_time(world: World, seconds: float = 0.0) -> None:
    """A group in which nobody asks for anything."""
    world.begin(seconds)
    world.engine.tick()
    world.engine.commit()


def on(world: World, queue: int) -> list[int]:
    t = world.core.t
    return sorted(t.m_qpool[t.e_message[e]] for e in range(t.entries.high)
                  if t.e_state[e] and t.e_queue[e] == queue)


def behind(world: World) -> bool:
    return world.core.times.behind


def late_goes(world: World, queue: int = A, **more: object) -> None:
    world.core.define_queue(QueueRules(queue, "A" if queue == A else "B", 1000, 1 << 20,
                                       expired_to=LATE, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("persistent", [True, False])
def test_it_leaves_at_its_time_without_anybody_asking(world: World, *, persistent: bool) -> None:
    first = world.put(A, expiry_ns=5 * NS, persistent=persistent)
    other = world.put(A)
    pass_time(world, 4.999)
    assert on(world, A) == [first, other]
    assert world.engine.next_deadline() <= world.mono + NS // 1000 + expiry.LAG_NS
    pass_time(world, 0.001)
    assert on(world, A) == [other] and world.core.t.slot_of(first) < 0
    assert world.core.t.counters[Counter.EXPIRED] == world.core.t.q_expired[A] == 1
    assert world.core.times.expired == {A: 1}


def test_it_is_handed_out_until_then_and_not_behind(world: World) -> None:
    world.put(A, expiry_ns=5 * NS)
    world.put(A, expiry_ns=5 * NS)
    assert len(world.give(1, seconds=4.999)) == 1
    assert world.give(1, seconds=0.001) == []


def test_what_was_late_before_it_came_is_never_handed_out(world: World) -> None:
    world.put(A, expiry_ns=-NS)
    assert world.give() == [] and on(world, A) == []


def test_what_a_reader_has_is_left_to_it(world: World) -> None:
    done, back = world.put(A, expiry_ns=5 * NS), world.put(A, expiry_ns=5 * NS)
    given = world.give(2)
    pass_time(world, 60)
    assert on(world, A) == [done, back]
    assert world.settle(Settlement.DONE, given[0]) == 0
    assert world.settle(Settlement.RELEASE, given[1]) == 0
    assert world.give() == [] and on(world, A) == []
    assert world.core.t.counters[Counter.EXPIRED] == 1


@pytest.mark.parametrize("kind", [Settlement.DEFER, Settlement.FAIL])
def test_it_does_not_wait_for_the_end_of_a_deferral(world: World, kind: int) -> None:
    world.put(A, expiry_ns=5 * NS)
    (given,) = world.give()
    pass_time(world, 60)
    world.settle(kind, given, argument=3600 * NS)
    pass_time(world)
    assert on(world, A) == []


def test_deferred_ones_expire_too(world: World) -> None:
    world.put(A, expiry_ns=5 * NS)
    (given,) = world.give()
    world.settle(Settlement.DEFER, given, argument=3600 * NS)
    pass_time(world, 5)
    assert on(world, A) == []


def test_it_goes_where_its_queue_sends_it_and_has_no_time_there(world: World) -> None:
    late_goes(world)
    qpool = world.put(A, priority=7, expiry_ns=5 * NS)
    pass_time(world, 5)
    assert on(world, A) == [] and on(world, LATE) == [qpool]
    slot = world.core.t.slot_of(qpool)
    assert world.core.t.m_expiry[slot] == 0 and world.core.t.m_origin[slot] == A
    (given,) = world.give(1, LATE, seconds=3600)
    assert given.qpool == qpool and world.core.t.e_priority[given.entry] == 7


def test_who_takes_it_up_again_has_it(world: World) -> None:
    late_goes(world)
    qpool = world.put(A, expiry_ns=5 * NS)
    pass_time(world, 5)
    world.begin()
    world.engine.operate(world.putter, Order(Action.MOVE, (Item(qpool, LATE),), b"{}", (B,)))
    world.engine.commit()
    assert world.ids(world.give(1, B, seconds=60)) == [qpool]


def test_each_queue_of_a_message_for_itself(world: World) -> None:
    """On B a reader has it: what came to LATE keeps its time until that is decided."""
    late_goes(world)
    qpool = world.put(A, B, expiry_ns=5 * NS)
    (given,) = world.give(1, B)
    pass_time(world, 5)
    assert on(world, A) == [] and on(world, B) == on(world, LATE) == [qpool]
    slot = world.core.t.slot_of(qpool)
    assert world.core.t.m_expiry[slot] != 0
    world.settle(Settlement.RELEASE, given)
    pass_time(world)
    assert on(world, B) == [] and on(world, LATE) == [qpool]
    assert world.core.t.m_expiry[slot] == 0


def test_the_queue_limits_the_time(world: World) -> None:
    world.core.define_queue(QueueRules(A, "A", 1000, 1 << 20, expiry_ns=10 * NS))
    assert world.core.t.q_flags[A] & QueueFlag.LIMITS_TIME
    long, none, short = (world.put(A, expiry_ns=3600 * NS), world.put(A),
                         world.put(A, expiry_ns=2 * NS))
    elsewhere = world.put(A, B)
    pass_time(world, 2)
    assert on(world, A) == [long, none, elsewhere] and short not in on(world, A)
    pass_time(world, 8)
    assert on(world, A) == [] and on(world, B) == [], "a message has one time: the least"


def test_a_clock_that_is_set_moves_nothing(world: World) -> None:
    qpool = world.put(A, expiry_ns=5 * NS)
    world.wall += 86_400 * NS
    pass_time(world, 4.9)
    assert on(world, A) == [qpool]
    world.wall -= 10 * 86_400 * NS
    pass_time(world, 0.1)
    assert on(world, A) == []


def test_a_queue_that_keeps_lets_go_when_its_rules_change(world: World) -> None:
    world.core.define_queue(QueueRules(A, "A", 1000, 1 << 20, expires=False))
    qpool = world.put(A, expiry_ns=5 * NS)
    pass_time(world, 60)
    assert on(world, A) == [qpool]
    world.begin()
    world.engine.books.define_queues([QueueRules(A, "A", 1000, 1 << 20)])
    world.engine.tick()
    world.engine.commit()
    assert on(world, A) == []


def test_many_at_once_are_done_in_bounded_pieces(world: World, monkeypatch: pytest.MonkeyPatch
                                                 ) -> None:
    """While they are, none of them is handed out, and what is not late is, also behind them."""
    monkeypatch.setattr(expiry, "PER_GROUP", 10)
    for _ in range(100):
        world.put(A, expiry_ns=5 * NS)
    good = [world.put(A), world.put(A)]
    other = world.put(B)
    pass_time(world, 5)
    assert len(on(world, A)) == 92 and behind(world)
    assert world.engine.next_deadline() <= world.mono
    assert world.ids(world.give(5, B)) == [other]
    got: list[int] = []
    groups = 0
    while len(got) < 2 and groups < 12:
        groups += 1
        before = len(on(world, A))
        got += world.ids(world.give(5, A))
        assert before - len(on(world, A)) <= 20, "what is due, and what stood in the way"
    assert got == good and 4 <= groups <= 10
    while behind(world):
        pass_time(world)
    assert world.core.t.q_expired[A] == 100
    assert world.core.t.counters[Counter.EXPIRED] == 100


def test_a_batch_does_not_reach_over_what_is_late(world: World, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    """Good, late, good in one chain, and no room in this group to do away with the late one."""
    first = world.put(A, priority=9)
    late = [world.put(A, priority=8, expiry_ns=5 * NS) for _ in range(3)]
    last = world.put(A)
    monkeypatch.setattr(expiry, "PER_GROUP", 1)
    given = world.ids(world.give(20, seconds=5))
    assert given == [first]
    while len(given) < 2:
        given += world.ids(world.give(20))
    assert given == [first, last] and not set(late) & set(given)


def test_without_room_on_the_disk_it_stays_and_nobody_gets_it(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    qpool = world.put(A, expiry_ns=5 * NS)
    reserve, block = world.core.block.reserve, world.core.block

    def full(*_: int) -> None:
        raise SpoolFull(path="journal", detail="no room")

    monkeypatch.setattr(type(block), "reserve", full)
    pass_time(world, 5)
    assert on(world, A) == [qpool] and world.engine.next_deadline() > world.mono
    monkeypatch.undo()
    assert block.reserve == reserve
    assert world.give() == []
    pass_time(world, 1)
    assert on(world, A) == []


def test_an_operators_hold_keeps_it(world: World) -> None:
    qpool = world.put(A, expiry_ns=5 * NS)
    for action, left in ((Action.HOLD, [qpool]), (Action.RELEASE, [])):
        world.begin()
        world.engine.operate(world.putter, Order(action, (Item(qpool, A),), b"{}"))
        world.engine.tick()
        world.engine.commit()
        pass_time(world, 6)
        assert on(world, A) == left


def test_a_container_waits_for_the_deleter(world: World) -> None:
    qpool = world.put(A, expiry_ns=5 * NS)
    world.core.t.m_flags[world.core.t.slot_of(qpool)] |= CONTAINER
    pass_time(world, 5)
    assert on(world, A) == [] and on(world, IDEL) == [qpool]
    entry = world.core.t.entry_on(world.core.t.slot_of(qpool), IDEL)
    assert world.core.t.e_state[entry] == EntryState.READY


@pytest.mark.parametrize("queue", [IDEL, POISON])
def test_what_is_where_it_ends_has_no_time(world: World, queue: int) -> None:
    """As configured or not; on IDEL it would leave for IDEL, with a frame each group."""
    world.core.define_queue(QueueRules(queue, SPECIAL_QUEUES[queue], 1000, 1 << 20, expires=True))
    qpool = world.put(A, expiry_ns=500 * NS)
    world.core.t.m_flags[world.core.t.slot_of(qpool)] |= CONTAINER
    if queue == POISON:
        for _ in range(world.core.rules[A].attempts_max):
            world.settle(Settlement.FAIL, *world.give(seconds=31))
        assert on(world, POISON) == [qpool]
    pass_time(world, 500)
    frames = world.core.block.lsn
    pass_time(world, 1)
    pass_time(world, 1)
    assert on(world, queue) == [qpool]
    assert world.core.block.lsn == frames
