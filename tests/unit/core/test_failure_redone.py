"""What the manager knows of a failure is what redo makes of the journal, as far as its record has
room for it: after every step, from one checkpoint to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from omq.core.engine.operate import Action
from omq.core.engine.state import POISON, Core
from omq.core.index.tables import Tables
from omq.core.load.rebuild import load
from omq.storage.slots import SlotAllocator
from tests.unit.core.redo_world import QUEUES, World

FROM, DEAD, ELSEWHERE = QUEUES[0], QUEUES[1], QUEUES[2]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "spool")
    made.core.define_queue(replace(made.core.rules[FROM], dead_letter=DEAD))
    yield made
    made.close()


def fails(world: World, queue: int) -> int:
    """The next message of a queue fails too often; its slot."""
    (entry,) = world.give(queue)
    slot = world.core.t.e_message[entry]
    world.poison(entry)
    world.commit()
    return slot


def note(world: World, slot: int) -> Any:
    """What all three say: the manager, redo with its pool, and a start from that pool."""
    expected = world.expected()
    assert world.recover() == expected
    core = Core(Tables.private(2000, 8000), SlotAllocator(), cast(Any, None), world.info.uuid)
    pool = world.pool()
    load(core, pool, core.slots)  # type: ignore[arg-type]
    pool.close()
    qpool = world.core.t.m_qpool[slot]
    loaded = core.t.slot_of(qpool)
    found = [core.failures.of(qpool, core.t.e_queue[each]) for each in core.t.entries_of(loaded)]
    assert [each for each in found if each is not None] == [
        each for each in [world.note_of(slot)] if each is not None]
    core.t.release()
    return world.note_of(slot)


@pytest.mark.parametrize("many", [1, 2, 13, 14, 15, 16, 17, 40])
def test_on_however_many_queues_it_is(world: World, many: int) -> None:
    world.put([FROM, *QUEUES[2:]][:many])
    world.commit()
    slot = fails(world, FROM)
    found = note(world, slot)
    assert (found is None) is (many >= 15)
    if found is not None:
        assert (found.to, found.reason) == (DEAD, 2) and found.queue == world.core.rules[FROM].name


def test_a_further_failure_and_who_ends_it(world: World) -> None:
    world.put([FROM])
    world.commit()
    slot = fails(world, FROM)
    assert note(world, slot).to == DEAD
    assert fails(world, DEAD) == slot
    assert note(world, slot).to == POISON
    (entry,) = world.give(POISON)
    world.commit()
    assert note(world, slot).to == POISON  # in a reader's hands
    world.move(entry, [FROM])
    world.commit()
    assert note(world, slot) is None
    fails(world, FROM)
    assert note(world, slot).to == DEAD
    world.operate(Action.DELETE, slot, DEAD)
    world.commit()
    assert note(world, slot) is None
    world.operate(Action.RESTORE, slot, DEAD)
    world.commit()
    assert note(world, slot) is None


def test_where_it_is_already(world: World) -> None:
    """It fails its way to a queue that it was put on."""
    world.put([FROM, DEAD, ELSEWHERE])
    world.commit()
    slot = fails(world, FROM)
    assert note(world, slot).to == DEAD
    world.operate(Action.MOVE, slot, ELSEWHERE, [QUEUES[7]])
    world.commit()
    assert note(world, slot).to == DEAD
    world.operate(Action.MOVE, slot, DEAD, [QUEUES[8]])
    world.commit()
    assert note(world, slot) is None
