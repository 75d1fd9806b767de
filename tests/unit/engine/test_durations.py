"""How long messages wait and readers work, as the index counts it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from omq.core.check.invariants import check
from omq.core.index.copies import IndexCopies
from omq.core.index.histograms import of_journal, of_queues
from omq.format.durations import BINS, EDGES_NS, SIZES, SUM_MASK, size_bin, time_bin
from omq.format.index import Counter
from omq.format.message import Part
from omq.format.wire import Settlement
from tests.unit.engine.world import NS, A, B, World, make_world

DONE, DEFER, FAIL, RELEASE = Settlement.DONE, Settlement.DEFER, Settlement.FAIL, Settlement.RELEASE


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "spool")


def counted(world: World, name: str, queue: int = A) -> dict[int, int]:
    """Place -> how many."""
    column = world.core.t.v[name][queue * BINS : (queue + 1) * BINS]
    return {place: int(column[place]) for place in np.flatnonzero(column).tolist()}


def test_places_meet_without_a_gap() -> None:
    for place, edge in enumerate(EDGES_NS):
        assert (time_bin(edge - 1), time_bin(edge)) == (place, place + 1)
        assert (time_bin(edge * 2 - 1)) == place + 1
    assert (time_bin(0), time_bin(1 << 62)) == (0, BINS - 1)
    for place, most in enumerate(SIZES):
        assert (size_bin(most), size_bin(most + 1)) == (place, place + 1)


def test_a_message_waits_and_is_worked_on(world: World) -> None:
    world.put()
    (given,) = world.give(seconds=2)
    world.begin(0.01)
    world.engine.commit()
    world.settle(DONE, given)
    assert counted(world, "q_waits") == {time_bin(2 * NS): 1}
    assert counted(world, "q_works") == {time_bin(NS // 100): 1}
    t = world.core.t
    assert (t.q_waited_us[A], t.q_worked_us[A]) == (2_000_000, 10_000)


@pytest.mark.parametrize("kind", [DEFER, FAIL, RELEASE])
def test_what_comes_back_has_waited_twice_and_is_not_worked_on(world: World, kind: int) -> None:
    world.put()
    (given,) = world.give(seconds=1)
    world.settle(kind, given, argument=1)
    (again,) = world.give(seconds=30)
    assert counted(world, "q_waits") == {time_bin(NS): 1, time_bin(31 * NS): 1}
    assert counted(world, "q_works") == {}
    world.settle(DONE, again)
    assert counted(world, "q_works") == {0: 1}


def test_a_move_ends_the_work_and_begins_a_wait(world: World) -> None:
    world.put()
    (given,) = world.give()
    world.begin(4)
    world.engine.move(world.reader, given, [Part(B, 4)], (), 3)
    world.engine.commit()
    world.give(queue=B, seconds=1)
    assert counted(world, "q_works") == {time_bin(4 * NS): 1}
    assert counted(world, "q_waits", B) == {time_bin(NS): 1}


def test_what_an_earlier_manager_handed_out_has_no_time(world: World) -> None:
    world.put()
    (given,) = world.give()
    world.core.t.e_until[given.entry] = 0  # as core.load.rebuild leaves it
    world.settle(DONE, given)
    assert counted(world, "q_works") == {}


def test_a_clock_that_was_set_back_counts_as_none(world: World) -> None:
    world.put()
    world.wall -= 3600 * NS
    (given,) = world.give()
    world.wall -= 3600 * NS
    world.begin()
    world.engine.commit()
    world.settle(DONE, given)
    assert counted(world, "q_waits") == counted(world, "q_works") == {0: 1}


def test_a_sum_that_has_no_room_begins_again(world: World) -> None:
    world.put()
    world.core.t.q_waited_us[A] = SUM_MASK
    world.give(seconds=1)
    assert world.core.t.q_waited_us[A] == 999_999


def test_blocks_and_syncs(world: World) -> None:
    t = world.core.t
    for _ in range(40):
        world.put()
    syncs, groups = t.counters[Counter.SYNCS], t.counters[Counter.GROUPS]
    assert sum(t.j_groups) == groups and sum(t.j_syncs) == -(-syncs // 16)
    found = of_journal(IndexCopies(t.buffer, t.layout))
    assert found.groups.total == t.counters[Counter.LAST_LSN]
    assert check(world.engine) == []


def test_a_queue_that_forgets_and_what_readers_of_the_index_see(world: World) -> None:
    world.put()
    world.settle(DONE, *world.give(seconds=1))
    world.put(B)
    seen = of_queues(IndexCopies(world.core.t.buffer, world.core.t.layout))
    assert set(seen) == {A}  # B has handed out nothing
    assert (sum(seen[A].waits.counts), seen[A].waits.total) == (1, 1_000_000)
    assert (sum(seen[A].works.counts), seen[A].works.total) == (1, 0)
    world.engine.queues.reset(A)
    assert of_queues(IndexCopies(world.core.t.buffer, world.core.t.layout)) == {}


def test_the_check_sees_what_cannot_be(world: World) -> None:
    world.put()
    world.give()
    world.core.t.q_works[A * BINS] = 2
    world.core.t.j_groups[5] += 1
    assert {broken.where for broken in check(world.engine)} == {"q_works", "j_groups"}
