"""Operator commands: each action on each state, refusals, and what can be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import (
    BadRequest,
    MessageBusy,
    MessageChanged,
    NoMessage,
    NotInState,
    QueueFull,
    UnknownQueue,
)
from omq.core.engine.operate import ITEMS_MAX, Action, Item, Order, Outcome, operate
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import IDEL, POISON, REPLAYED, Party
from omq.format.index import EntryState
from omq.format.wire import Settlement
from tests.unit.engine.test_engine import counters_agree
from tests.unit.engine.world import NS, A, B, World, make_world

OPERATOR = Party(9, 7, 999, 0, 99)
HOLD, RELEASE, MOVE = Action.HOLD, Action.RELEASE, Action.MOVE
DELETE, RESTORE = Action.DELETE, Action.RESTORE


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    yield made
    counters_agree(made)
    made.writer.close()
    made.core.volatile.close()  # type: ignore[attr-defined]


def order(world: World, action: Action, *items: Item, targets: tuple[int, ...] = (),
          priority: int | None = None, keep_s: int = 0, force: bool = False) -> Outcome:
    world.begin()
    outcome = operate(world.core, OPERATOR, Order(
        action, items, b'{"reason": "test"}', targets, priority, keep_s * NS, force),
        world.engine.forget_reader)
    world.engine.commit()
    return outcome


def refusal(outcome: Outcome) -> type[Exception]:
    """The one refusal of an order that did nothing."""
    assert outcome.done == [] and outcome.lsn == 0
    (only,) = outcome.refused
    return type(only[1])


def state(world: World, qpool: int, queue: int = A) -> EntryState | None:
    t = world.core.t
    entry = t.entry_on(t.slot_of(qpool), queue)
    return EntryState(t.e_state[entry]) if entry >= 0 else None


def test_a_held_message_is_given_to_nobody_and_keeps_its_place(world: World) -> None:
    ids = [world.put() for _ in range(3)]
    assert order(world, HOLD, Item(ids[0], A)).done == ids[:1]
    assert state(world, ids[0]) is EntryState.HELD
    given = world.give(10)
    assert world.ids(given) == ids[1:]
    world.settle(Settlement.RELEASE, *given)
    assert order(world, RELEASE, Item(ids[0], A)).done == ids[:1]
    assert world.ids(world.give(10)) == ids


def test_release_ends_a_defer(world: World) -> None:
    first = world.put()
    world.settle(Settlement.DEFER, *world.give(1), argument=3600 * NS)
    order(world, RELEASE, Item(first, A))
    assert world.ids(world.give(1)) == [first]


def test_a_held_message_that_was_deferred_stays_held_when_its_time_comes(world: World) -> None:
    first = world.put()
    world.settle(Settlement.DEFER, *world.give(1), argument=60 * NS)
    order(world, HOLD, Item(first, A))
    assert world.give(1, seconds=3600) == []
    assert state(world, first) is EntryState.HELD


@pytest.mark.parametrize("action", [HOLD, RELEASE, MOVE, DELETE])
def test_a_message_in_a_readers_hands_is_refused(world: World, action: Action) -> None:
    first = world.put()
    given = world.give(1)
    outcome = order(world, action, Item(first, A), targets=(B,) if action is MOVE else ())
    assert refusal(outcome) is MessageBusy
    assert world.settle(Settlement.DONE, *given) == 0


@pytest.mark.parametrize("action", [HOLD, MOVE, DELETE])
def test_force_takes_it_back_and_the_reader_has_lost_it(world: World, action: Action) -> None:
    first = world.put()
    given = world.give(1)
    outcome = order(world, action, Item(first, A), targets=(B,) if action is MOVE else (),
                    keep_s=60, force=True)
    assert outcome.done == [first] and world.reader.active == 0
    assert world.settle(Settlement.DONE, *given) == 1
    there = {HOLD: (A, EntryState.HELD), MOVE: (B, EntryState.READY),
             DELETE: (IDEL, EntryState.DEFERRED)}[action]
    assert state(world, first, there[0]) is there[1]


def test_move_to_several_queues_is_one_step(world: World) -> None:
    first = world.put(priority=2)
    assert order(world, MOVE, Item(first, A), targets=(A, B), priority=8).done == [first]
    for queue in (A, B):
        given = world.give(1, queue)
        assert world.ids(given) == [first]
        assert world.core.t.e_priority[given[0].entry] == 8
        world.settle(Settlement.DONE, *given)
    assert world.core.t.messages.used == 0


def test_replay_from_poison_goes_back_and_is_marked(world: World) -> None:
    first = world.put(B)
    for _ in range(3):
        world.settle(Settlement.FAIL, *world.give(1, B, seconds=31))
    assert state(world, first, POISON) is EntryState.READY
    order(world, MOVE, Item(first, POISON))
    t = world.core.t
    slot = t.slot_of(first)
    assert state(world, first, B) is EntryState.READY and state(world, first, POISON) is None
    assert t.m_flags[slot] & REPLAYED
    given = world.give(1, B)
    assert t.e_attempts[given[0].entry] == 1


def test_replay_without_a_known_origin_is_refused(world: World) -> None:
    assert refusal(order(world, MOVE, Item(world.put(), A))) is UnknownQueue


@pytest.mark.parametrize("queue", [IDEL, POISON])
def test_nobody_moves_to_the_managers_own_queues(world: World, queue: int) -> None:
    assert refusal(order(world, MOVE, Item(world.put(), A), targets=(queue,))) is BadRequest


def test_a_full_queue_refuses_a_move_and_nothing_changes(world: World) -> None:
    world.core.define_queue(QueueRules(5, "SMALL", 1, 1 << 20))
    world.put(5)
    first = world.put()
    assert refusal(order(world, MOVE, Item(first, A), targets=(5,))) is QueueFull
    assert world.ids(world.give(1)) == [first]


def test_a_delete_is_taken_back_until_its_time_is_over(world: World) -> None:
    first, second = world.put(priority=7), world.put()
    order(world, DELETE, Item(first, A), Item(second, A), keep_s=60)
    assert world.give(10) == [] and state(world, first, IDEL) is EntryState.DEFERRED
    assert world.give(10, IDEL) == []
    assert order(world, RESTORE, Item(first, A)).done == [first]
    given = world.give(10)
    assert world.ids(given) == [first] and world.core.t.e_priority[given[0].entry] == 7
    assert world.ids(world.give(10, IDEL, seconds=61)) == [second]
    assert refusal(order(world, RESTORE, Item(second, A))) is MessageBusy


def test_a_delete_without_keeping_is_at_once(world: World) -> None:
    first = world.put()
    order(world, DELETE, Item(first, A))
    assert world.core.t.messages.used == 0
    assert refusal(order(world, RESTORE, Item(first, A))) is NoMessage


def test_deleting_on_idel_ends_the_waiting(world: World) -> None:
    first = world.put()
    order(world, DELETE, Item(first, A), keep_s=3600)
    order(world, DELETE, Item(first, IDEL))
    assert world.ids(world.give(1, IDEL)) == [first]


def test_delete_on_one_of_two_queues_leaves_the_other_and_can_be_taken_back(world: World) -> None:
    first = world.put(A, B)
    order(world, DELETE, Item(first, A), keep_s=60)
    assert state(world, first, IDEL) is None
    order(world, RESTORE, Item(first, A))
    for queue in (A, B):
        world.settle(Settlement.DONE, *world.give(1, queue))
    assert world.core.t.messages.used == 0


def test_restore_on_a_queue_where_it_is_says_so(world: World) -> None:
    assert refusal(order(world, RESTORE, Item(world.put(), A))) is NotInState


@pytest.mark.parametrize("action", [HOLD, RELEASE])
def test_what_waits_to_be_deleted_is_not_held_or_released(world: World, action: Action) -> None:
    first = world.put()
    order(world, DELETE, Item(first, A), keep_s=60)
    assert refusal(order(world, action, Item(first, IDEL))) is NotInState


def test_an_action_that_changes_nothing_is_refused(world: World) -> None:
    first = world.put()
    assert refusal(order(world, RELEASE, Item(first, A))) is NotInState
    order(world, HOLD, Item(first, A))
    assert refusal(order(world, HOLD, Item(first, A))) is NotInState


def test_a_plan_refuses_what_has_changed_since(world: World) -> None:
    first, second = world.put(), world.put()
    t = world.core.t
    looked = [Item(q, A, t.m_lsn[t.slot_of(q)]) for q in (first, second)]
    order(world, HOLD, Item(first, A))
    outcome = order(world, DELETE, *looked)
    assert outcome.done == [second]
    assert [(q, type(e)) for q, e in outcome.refused] == [(first, MessageChanged)]


def test_unknown_messages_and_queues_are_refused_one_by_one(world: World) -> None:
    first = world.put()
    outcome = order(world, HOLD, Item(first, B), Item(4711, A), Item(-1, A), Item(first, A))
    assert outcome.done == [first]
    assert [type(e) for _, e in outcome.refused] == [NoMessage] * 3


def test_the_same_message_twice_in_one_order_is_done_once(world: World) -> None:
    first = world.put()
    outcome = order(world, DELETE, Item(first, A), Item(first, A))
    assert outcome.done == [first] and type(outcome.refused[0][1]) is NoMessage


def test_an_order_is_bounded(world: World) -> None:
    with pytest.raises(BadRequest):
        order(world, HOLD, *[Item(1, A)] * (ITEMS_MAX + 1))


def test_a_put_of_the_same_group_can_be_deleted(world: World) -> None:
    """Its slot is taken again before the group is on the disk: both bodies lie where they say."""
    world.put(body=b"before")
    first = world.put(body=b"first", commit=False)
    operate(world.core, OPERATOR, Order(DELETE, (Item(first, A),), b"{}"),
            world.engine.forget_reader)
    second = world.put(body=b"second")
    t = world.core.t
    slot = t.slot_of(second)
    assert slot == world.core.t.messages.high - 1, "the slot was not taken again"
    (file,) = world.info.paths.journal.glob(f"*{world.writer.file_number}*")
    assert file.read_bytes()[t.m_offset[slot]:][: t.m_length[slot]].endswith(b"second")
