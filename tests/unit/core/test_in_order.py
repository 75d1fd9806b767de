"""The first messages of a queue by its chains: the same as by a look at all of them, or None."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from omq.core.check.invariants import check
from omq.core.index.copies import IndexCopies
from omq.core.index.in_order import first_in_order
from omq.core.index.tables import Tables
from omq.format.index import TABLES_AT, Counter, EntryState
from omq.format.wire import Settlement
from tests.unit.engine.world import A, B, World, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path)
    yield made
    made.writer.close()
    made.core.volatile.close()  # type: ignore[attr-defined]


def _both(world: World, queue: int, first: int) -> tuple[list[int], list[int]]:
    """(by the chains, by sorting all), at least one of which is not the other's code."""
    world.begin()
    world.engine.commit()
    t = world.core.t
    copies = IndexCopies(t.buffer, t.layout)
    high = t.counters[Counter.ENTRIES_HIGH]
    assert first_in_order(t.buffer, t.layout, queue, first, high) is not None
    fast = copies.on_queue(queue, first, chains=True)[0].tolist()[:first]
    return fast, copies.on_queue(queue)[0].tolist()[:first]


@pytest.mark.parametrize("seed", range(6))
def test_the_same_as_by_sorting_all(world: World, seed: int) -> None:
    """Messages in every state, in chains and return lanes, over the priorities of two queues."""
    draw = random.Random(seed)
    kinds = (Settlement.DONE, Settlement.DEFER, Settlement.RELEASE, Settlement.FAIL)
    for step in range(60):
        for _ in range(draw.randint(0, 6)):
            world.put(draw.choice((A, B)), priority=draw.randrange(10))
        queue = draw.choice((A, B))
        held = world.give(draw.randint(1, 5), queue)
        for verdict in draw.sample(held, draw.randint(0, len(held))):
            world.settle(int(draw.choice(kinds)), verdict,
                         argument=draw.choice((0, 10**9, 10**12)))
        if step % 7 == 0:
            world.begin(2.0)
            world.engine.tick()
            world.engine.commit()
        for queue in (A, B):
            for first in (1, 3, 20, 500):
                fast, slow = _both(world, queue, first)
                assert fast == slow


def test_a_held_message_and_one_that_came_back(world: World) -> None:
    for _ in range(5):
        world.put(A)
    (first,) = world.give(1, A)
    world.settle(int(Settlement.RELEASE), first)  # READY, in the return lane
    second = world.core.t.q_head[A * 10 + 4] - 1
    world.core.detach(second)
    world.core.set_state(second, int(EntryState.HELD))
    fast, slow = _both(world, A, 3)
    assert fast == slow and fast[:2] == [first.entry, second]
    assert world.core.t.counters[Counter.RETURNED] == 1
    assert check(world.engine) == []
    world.core.lane_pop(A)
    assert world.core.t.counters[Counter.RETURNED] == 0


@pytest.mark.parametrize("spoil", ["cut", "loop", "other queue", "other state", "outside", "tail"])
def test_a_chain_that_cannot_be_right_is_given_up(world: World, spoil: str) -> None:
    """Whatever a link leads to: also what a message taken in the middle of the walk looks like."""
    for _ in range(6):
        world.put(A)
    world.put(B)
    t, chain = world.core.t, A * 10 + 4
    head = t.q_head[chain] - 1
    second = t.e_next[head] - 1
    if spoil == "cut":
        t.e_next[second] = 0
    elif spoil == "loop":
        t.e_next[second] = head + 1
    elif spoil == "other queue":
        t.e_next[second] = t.q_head[B * 10 + 4]
    elif spoil == "other state":
        t.e_state[second] = int(EntryState.ACTIVE)
    elif spoil == "outside":
        t.e_next[second] = 0xFFFFFFFF
    else:
        t.q_tail[chain] = head + 1
    assert first_in_order(t.buffer, t.layout, A, 5 if spoil != "tail" else 50,
                          t.entries.high) is None
    numbers, _ = IndexCopies(t.buffer, t.layout).on_queue(A, 5, chains=True)
    assert len(numbers) == 5, "then all are looked at"


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_end(seed: int) -> None:
    t = Tables.private(60, 80, 8, 8)
    t.buffer[TABLES_AT:] = np.random.default_rng(seed).bytes(len(t.buffer) - TABLES_AT)
    for queue in (0, 3, 7, 8, 70_000):
        found = first_in_order(t.buffer, t.layout, queue, 10, 80)
        assert found is None or len(found) <= 80
    t.release()
