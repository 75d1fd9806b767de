"""What a reader has put off is ready again when it finds the room, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.errors import BadRequest
from omq.base.limits import RECALL_MAX
from omq.core.engine.operate import Action, Item, Order, operate
from omq.format.index import EntryState
from omq.format.wire import Settlement
from tests.unit.engine.test_engine import counters_agree
from tests.unit.engine.world import NS, A, B, World, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    yield made
    counters_agree(made)
    made.writer.close()
    made.core.volatile.close()  # type: ignore[attr-defined]


def state(world: World, qpool: int, queue: int = A) -> EntryState:
    t = world.core.t
    return EntryState(t.e_state[t.entry_on(t.slot_of(qpool), queue)])


def put_off(world: World, seconds: float, count: int = 1) -> list[int]:
    made = [world.put(A) for _ in range(count)]
    given = world.give(count)
    world.begin()
    world.engine.settle(world.reader, [
        replace(each, kind=int(Settlement.DEFER), argument=int(seconds * NS)) for each in given], 1)
    world.engine.commit()
    return made


def called(world: World, *qpools: int, queue: int = A) -> list[int]:
    """Those that were passed over."""
    world.begin()
    passed = world.engine.recall.these(world.reader, queue, qpools)
    world.engine.commit()
    return passed


def test_what_was_put_off_is_ready_and_comes_in_its_old_place(world: World) -> None:
    first, second, third = put_off(world, 300.0, 3)
    late = world.put(A)
    assert called(world, third, first) == []
    assert [each.qpool for each in world.give(9)] == [first, third, late]
    assert state(world, second) is EntryState.DEFERRED


def test_its_old_time_means_nothing_to_it(world: World) -> None:
    (qpool,) = put_off(world, 5.0)
    assert called(world, qpool) == []
    (given,) = world.give()
    world.begin(10.0)
    world.engine.tick()
    world.engine.commit()
    assert state(world, qpool) is EntryState.ACTIVE
    assert given.qpool == qpool


def test_whatever_is_no_deferred_message_of_the_queue_is_passed_over(world: World) -> None:
    (waits,) = put_off(world, 300.0)
    (held,) = put_off(world, 300.0)
    world.begin()
    operate(world.core, world.reader, Order(Action.HOLD, (Item(held, A),), b"{}"),
            world.engine.forget_reader)
    world.engine.commit()
    ready, other = world.put(A), world.put(B)
    assert called(world, waits, waits, held, ready, other, 0, -1, 1 << 60) == [
        held, ready, other, 0, -1, 1 << 60]
    assert state(world, held) is EntryState.HELD
    assert called(world, waits) == [waits]
    with pytest.raises(BadRequest):
        world.engine.recall.these(world.reader, A, range(1, RECALL_MAX + 2))


def test_who_has_started_calls_back_what_is_due_soon(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omq.core.engine.recall.RECALL_MAX", 2)
    soon = put_off(world, 300.0, 3)
    (later,) = put_off(world, 301.0)
    failed = world.put(A)
    (given,) = world.give()
    world.begin()
    world.engine.settle(world.reader, [
        replace(given, kind=int(Settlement.FAIL), argument=1 + 10 * NS)], 1)
    world.engine.commit()
    at_its_time = world.put(A, delay_s=100.0)
    counts, before = [], world.core.block.lsn
    (new,) = put_off(world, 60.0)
    for _ in range(3):
        world.begin()
        counts.append(world.engine.recall.due(world.reader, A, 300 * NS, before))
        world.engine.commit()
    assert counts == [2, 1, 0]
    assert [each.qpool for each in world.give(9)] == soon
    assert {state(world, each) for each in (later, failed, new, at_its_time)} == {
        EntryState.DEFERRED}
