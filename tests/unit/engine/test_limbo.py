"""Messages that an earlier manager handed out: who counts them, and how long they may be kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import LeaseLost
from omq.core.settle import Verdict
from omq.core.state import QueueRules
from omq.format.message import Part
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


def in_limbo(world: World, count: int) -> list[Verdict]:
    """Messages as they are after a restart: handed out, and nobody has them."""
    for _ in range(count):
        world.put()
    given = world.give(count)
    for verdict in given:
        world.core.t.e_reader[verdict.entry] = 0
        world.engine.limbo[verdict.entry] = verdict.lease & 0xFFFFFFFF
    world.reader.active = 0
    world.engine.parties.clear()
    return given


def claimed(world: World, count: int) -> list[Verdict]:
    """Messages of a restart that their reader has claimed."""
    given = in_limbo(world, count)
    world.begin()
    held = [(verdict.qpool, verdict.lease) for verdict in given]
    assert world.engine.adopt(world.reader, A, held, (0, 0)) == count
    world.engine.commit()
    return given


@pytest.mark.parametrize("kind", list(Settlement))
def test_what_nobody_has_claimed_nobody_settles(world: World, kind: int) -> None:
    """The lease stands in an index that the whole group may read: it proves nothing."""
    given = in_limbo(world, 1)
    assert world.settle(kind, *given) == 1
    world.begin()
    with pytest.raises(LeaseLost):
        world.engine.move(world.reader, given[0], [Part(B, 4)], [], 7)
    assert world.engine.adopt(world.reader, B, [(given[0].qpool, given[0].lease)], (0, 0)) == 0
    world.engine.commit()
    assert len(world.engine.limbo) == 1 and world.reader.active == 0


@pytest.mark.parametrize("kind", [Settlement.DONE, Settlement.RELEASE])
def test_settling_what_was_claimed_counts_right(world: World, kind: int) -> None:
    """Else the reader's next message would be its zeroth, and stay behind when it dies."""
    given = claimed(world, 1)
    assert world.settle(kind, *given) == 0
    assert world.reader.active == 0 and not world.engine.limbo
    world.put()
    world.give(1)
    world.begin()
    assert world.engine.forget(world.reader, [], {}, orderly=False) == 1
    world.engine.commit()


def test_moving_what_was_claimed_does_too(world: World) -> None:
    (given,) = claimed(world, 1)
    world.begin()
    world.engine.move(world.reader, given, [Part(B, 4)], [], 7)
    world.engine.commit()
    assert world.reader.active == 0 and not world.engine.limbo


def test_a_reader_that_came_back_has_a_lease(world: World) -> None:
    world.core.define_queue(QueueRules(A, "A", 1000, 1 << 20, lease_ns=20 * NS))
    given = in_limbo(world, 2)
    world.core.leases.clear()
    world.begin()
    held = [(verdict.qpool, verdict.lease) for verdict in given]
    assert world.engine.adopt(world.reader, A, held, (0, 0)) == 2
    world.engine.commit()
    assert world.give(1, seconds=19) == [] and world.reader.active == 2
    world.give(1, seconds=2)
    assert world.reader.active == 0
    assert world.core.t.q_deferred[A] == 2
