"""Somebody sets the clock: delays go on, moments follow it, and so does what a start has found."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from omq.core.check.invariants import check
from omq.core.engine.deadlines import FOLLOW_NS
from omq.core.engine.rules_of_queue import QueueRules
from omq.format.message import Part
from omq.format.wire import Settlement
from omq.ipc.wire import outgoing
from tests.unit.engine.test_duplicates import keyed
from tests.unit.engine.world import NS, A, World, make_world

HOUR, DAY = 3600, 86400
STEPS = pytest.mark.parametrize("step", [-DAY, -HOUR, HOUR, DAY])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    monkeypatch.setattr(outgoing, "clock", SimpleNamespace(wall_ns=lambda: made.wall))
    yield made
    assert check(made.engine) == []
    made.writer.close()


def at(world: World, seconds: float) -> datetime:
    """So many seconds from now by the wall clock."""
    return datetime.fromtimestamp(world.wall / NS + seconds, UTC)


@STEPS
def test_a_delay_goes_on(world: World, step: int) -> None:
    world.put(A, delay_s=0)
    (given,) = world.give()
    world.settle(Settlement.DEFER, given, argument=5 * NS)
    world.wall += step * NS
    assert world.give(seconds=4.9) == []
    assert len(world.give(seconds=0.1)) == 1


@STEPS
def test_a_pause_after_a_failure_goes_on(world: World, step: int) -> None:
    world.core.define_queue(QueueRules(A, "A", 1000, 1 << 20, retry_delay_ns=5 * NS))
    world.put(A)
    (given,) = world.give()
    world.settle(Settlement.FAIL, given)
    world.wall += step * NS
    assert world.give(seconds=4.9) == []
    assert len(world.give(seconds=0.1)) == 1


@STEPS
def test_a_lease_goes_on(world: World, step: int) -> None:
    world.core.define_queue(QueueRules(A, "A", 1000, 1 << 20, lease_ns=5 * NS, death_delay_ns=0))
    world.put(A)
    assert len(world.give()) == 1
    world.wall += step * NS
    assert world.give(seconds=4.9) == []
    assert world.give(seconds=0.2) == [], "it has come back in this group"
    assert len(world.give()) == 1


@STEPS
def test_a_time_to_live_goes_on(world: World, step: int) -> None:
    world.put(A, expiry_ns=5 * NS)
    world.wall += step * NS
    world.begin(4.9)
    world.engine.tick()
    world.engine.commit()
    assert world.core.t.q_depth[A] == 1
    assert world.give(seconds=0.2) == [] and world.core.t.q_depth[A] == 0


@STEPS
def test_what_a_queue_has_had_is_remembered_as_long(world: World, step: int) -> None:
    world.core.define_queue(QueueRules(A, "A", 1000, 1 << 20, dedupe_ns=60 * NS, dedupe_keys_max=5))
    world.begin()
    world.engine.units.commit(world.putter, (), [keyed(world, "k")], 1)
    world.engine.commit()
    world.wall += step * NS
    world.begin(59.9)
    assert world.core.duplicates.count(world.core, "A") == 1
    world.engine.commit()
    world.begin(0.2)
    assert world.core.duplicates.count(world.core, "A") == 0
    world.engine.commit()


def test_a_moment_follows_a_clock_that_was_slow(world: World) -> None:
    world.put(A, at=at(world, HOUR + 5))
    assert world.give() == []
    world.wall += HOUR * NS
    assert world.give(seconds=4.9) == []
    assert len(world.give(seconds=0.1)) == 1


def test_a_moment_follows_a_clock_that_was_fast(world: World) -> None:
    world.put(A, at=at(world, 5))
    world.wall -= HOUR * NS
    assert world.give(seconds=HOUR - 1) == []
    assert len(world.give(seconds=6)) == 1


def test_a_moment_on_the_way_to_a_second_queue_follows_the_clock(world: World) -> None:
    world.put(A)
    (given,) = world.give()
    world.begin()
    world.engine.move(world.reader, given, [Part.later(
        4, 4, world.wall + (HOUR + 5) * NS, moment=True)], (), 7)
    world.engine.commit()
    world.wall += HOUR * NS
    assert world.give(queue=4) == []
    assert len(world.give(queue=4, seconds=5)) == 1


def test_an_idle_manager_looks_each_second_while_a_moment_is_waited_for(world: World) -> None:
    world.core.define_queue(QueueRules(A, "A", 1000, 1 << 20))
    world.begin()
    world.engine.statistics.due = world.mono + DAY * NS
    world.engine.commit()
    assert world.engine.next_deadline() > world.mono + HOUR * NS
    world.put(A, at=at(world, HOUR))
    assert world.engine.next_deadline() == world.mono + FOLLOW_NS


def test_both_steps_of_a_clock_that_is_set_wrong_for_a_while(world: World) -> None:
    """A delay does not care, a moment that has come has come."""
    delayed, moment = world.put(A, delay_s=30), world.put(A, at=at(world, 60))
    for step, came in ((-DAY, []), (DAY, []), (DAY, [moment]), (-DAY, [])):
        world.wall += step * NS
        assert world.ids(world.give(2)) == came
    assert world.ids(world.give(2, seconds=30)) == [delayed]

