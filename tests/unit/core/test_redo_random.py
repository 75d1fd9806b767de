"""Redo against the engine: whatever was done, in whatever pieces, with cuts in between."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omq.core.engine.operate import Action
from omq.core.redo.redo import Redo
from omq.format.wire import Settlement
from omq.storage import durable
from tests.unit.core.redo_world import (
    QUEUES,
    TIME_NS,
    Cut,
    CutDisk,
    QuietDisk,
    World,
    contents,
    found,
)

Step = tuple[str, int, int]
STEPS = ("put", "put", "put many", "put wide", "give", "give", "done", "done", "done", "defer",
         "release", "move", "move wide", "unit", "done unit", "poison", "relocate", "block",
         "operate", "operate", "operate", "block")
steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 1000), st.integers(1, 40)), max_size=60)
quick = settings(max_examples=40, deadline=None,
                 suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = durable.use(QuietDisk())
    yield
    durable.use(before)


def run(world: World, listed: list[Step]) -> None:
    for name, a, b in listed:
        step(world, name, a, b)
    world.commit()


def step(world: World, name: str, a: int, b: int) -> None:
    few, queue = list(QUEUES)[:5], QUEUES[a % 5]
    if name == "put":
        world.put([queue], b"x" * b, message_id=b"given%d" % a if a % 7 == 0 else b"",
                  group=b"g" if a % 5 == 0 else b"", flags=a % 11 != 0, priority=a % 10)
    elif name == "put many":
        for i in range(b):
            world.put([few[i % 5]], b"y" * i)
    elif name == "put wide":
        world.put(list(QUEUES)[: b], until=TIME_NS // 10**9 + 5 if a % 3 == 0 else 0)
    elif name == "give":
        world.give(queue, b)
    elif name == "block":
        world.commit()
    elif name == "relocate":
        world.commit()  # only bodies that have been on the disk for long are ever moved
        if world.live():
            world.relocate(world.live()[a % len(world.live())])
    elif name == "operate":
        operate(world, a, b)
    else:
        with_entry(world, name, a, b)


def operate(world: World, a: int, b: int) -> None:
    """Any operator's command on any message of any state; many are refused."""
    if not world.live():
        return
    t, action = world.core.t, list(Action)[b % len(Action)]
    slot = world.live()[a % len(world.live())]
    queues = [t.e_queue[entry] for entry in t.entries_of(slot)]
    queue = QUEUES[a % 9] if action is Action.RESTORE else queues[b % len(queues)]
    targets = [] if a % 3 == 0 else [QUEUES[(a + i) % 40] for i in range(b % 3 + 1)]
    world.operate(action, slot, queue, targets, keep_s=60 if a % 4 else 0)


def with_entry(world: World, name: str, a: int, b: int) -> None:
    entries = world.active()
    if not entries:
        return
    entry = entries[a % len(entries)]
    queues = [QUEUES[(a + i) % len(QUEUES)] for i in range(b % 30 + 1)]
    if name == "done":
        for each in entries[: b % 5 + 1]:
            world.settle(each)
    elif name == "defer":
        world.settle(entry, Settlement.DEFER, b * 10**9 + 1)
    elif name == "release":
        world.settle(entry, Settlement.RELEASE)
    elif name == "move":
        world.move(entry, queues[:3])
    elif name == "move wide":
        world.move(entry, queues)
    elif name == "unit":
        world.move(entry, queues[:1], [queues[:2], queues[:1]])
    elif name == "done unit":
        world.move(entry, [], [queues[:1], queues])
    elif name == "poison":
        world.poison(entry)


@quick
@given(steps, st.lists(st.integers(1, 30), max_size=10))
def test_the_pool_says_what_the_engine_says(listed: list[Step], cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "spool")
        run(world, listed)
        expected = world.expected()
        blocks = world.blocks()
        results = []
        for pieces, many in (([len(blocks)], 1), ([1] * len(blocks), 1000), (cuts, 1)):
            results.append(pool_after(world, pieces, many))
            assert results[-1][0] == expected
        assert results[0][1] == results[1][1] == results[2][1], "the bytes differ"
        world.close()


def pool_after(world: World, pieces: list[int], many: int) -> tuple[object, dict[str, bytes]]:
    """The pool made in one go from `pieces` of blocks at a time; then it is emptied again."""
    pool = world.pool()
    redo = Redo(pool, many=many)
    blocks = world.blocks()
    while blocks:
        count = pieces.pop(0) if pieces else 7
        redo.apply(blocks[:count])
        blocks = blocks[count:]
    assert redo.findings == []
    world.checkpoint(pool, redo)
    out = found(pool), contents(pool, world.paths.root)
    pool.close()
    for path in world.paths.msgpool.iterdir():
        path.unlink()
    return out


SEVEN = [("put", 1, 1), ("put", 1, 1), ("put many", 0, 5)]


@pytest.mark.dies
@quick
@given(steps, st.lists(st.tuples(st.integers(1, 6), st.integers(0, 12)), min_size=1, max_size=6))
@example(SEVEN, [(3, 1), (1, 2)])  # a chunk that was cut leaves its table, the next is whole
@example(SEVEN, [(1, 0), (1, 1), (1, 3)])
@example(SEVEN, [(1, 1), (1, 1), (1, 2)])
def test_a_cut_checkpoint_is_repeated(listed: list[Step], cuts: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "spool")
        run(world, listed)
        blocks = world.blocks()
        pool = world.pool()
        world.checkpoint(pool, Redo(pool))  # as the first start takes one, with nothing in it
        pool.close()
        seen = 0
        for count, writes in cuts:
            pool = world.pool()
            redo = world.restart(pool)
            assert pool.findings == []
            seen = min(len(blocks), max(seen, sum(b.header.last_lsn <= redo.lsn for b in blocks))
                       + count)
            durable.use(CutDisk(writes))
            try:
                redo.apply(blocks[:seen])
                world.checkpoint(pool, redo)
            except Cut:
                pass
            finally:
                durable.use(QuietDisk())
                pool.close()
        assert world.recover() == world.expected()
        world.close()


@pytest.mark.dies  # hypothesis gives up examples in the middle
@quick
@given(steps, st.data())
def test_checkpoints_in_between_change_nothing(listed: list[Step], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "spool")
        run(world, listed)
        pool = world.pool()
        redo = Redo(pool, many=data.draw(st.sampled_from((1, 8))))
        for block in world.blocks():
            redo.apply([block])
            if data.draw(st.booleans()):
                world.checkpoint(pool, redo)
        world.checkpoint(pool, redo)
        assert found(pool) == world.expected()
        # From any older position, over this pool, the answer is the same.
        start = data.draw(st.integers(0, world.lsn))
        again = Redo(pool, lsn=start, many=data.draw(st.sampled_from((1, 8))))
        again.apply(world.blocks(start))
        world.checkpoint(pool, again)
        assert found(pool) == world.expected()
        pool.close()
        world.close()
