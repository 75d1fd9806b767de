"""Messages that an earlier manager handed out: who counts them, and how long they may be kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import LeaseLost
from omq.core.settle import Verdict
from omq.core.state import QueueRules
from omq.format.message import Part
from omq.format.pool import lease_tag
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
        tag = lease_tag(verdict.lease, world.reader.token)
        world.core.t.e_lease[verdict.entry] = world.engine.limbo[verdict.entry] = tag
    world.reader.active = 0
    world.engine.parties.clear()
    return given


def claim(world: World, given: list[Verdict]) -> None:
    """The reader registers again and says what it holds."""
    world.begin()
    held = [(verdict.qpool, verdict.lease) for verdict in given]
    assert world.engine.adopt(world.reader, A, held, (0, 0)) == len(given)
    world.engine.commit()


@pytest.mark.parametrize("kind", [Settlement.DONE, Settlement.RELEASE])
def test_what_came_out_of_limbo_is_counted_once(world: World, kind: int) -> None:
    """Else the reader's next message would be its zeroth, and stay behind when it dies."""
    given = in_limbo(world, 1)
    claim(world, given)
    assert world.settle(kind, *given) == 0
    assert world.reader.active == 0 and not world.engine.limbo
    _next_comes_back(world)


@pytest.mark.parametrize("kind", [Settlement.DONE, Settlement.RELEASE])
def test_what_nobody_claimed_cannot_be_settled(world: World, kind: int) -> None:
    """Nor does it make the reader's count negative: its next message comes back when it dies."""
    given = in_limbo(world, 1)
    assert world.settle(kind, *given) == 1
    assert world.reader.active == 0 and len(world.engine.limbo) == 1
    _next_comes_back(world)


def _next_comes_back(world: World) -> None:
    world.put()
    world.give(1)
    world.begin()
    assert world.engine.forget(world.reader, [], {}, orderly=False) == 1
    world.engine.commit()


def test_what_came_out_of_limbo_can_be_moved(world: World) -> None:
    (given,) = in_limbo(world, 1)
    claim(world, [given])
    world.begin()
    world.engine.move(world.reader, given, [Part(B, 4)], [], 7)
    world.engine.commit()
    assert world.reader.active == 0 and not world.engine.limbo


def test_what_nobody_claimed_cannot_be_moved(world: World) -> None:
    (given,) = in_limbo(world, 1)
    world.begin()
    with pytest.raises(LeaseLost):
        world.engine.move(world.reader, given, [Part(B, 4)], [], 7)
    assert world.engine.adopt(world.reader, B, [(given.qpool, given.lease)], (0, 0)) == 0
    world.engine.commit()
    assert world.reader.active == 0 and len(world.engine.limbo) == 1


def test_a_reader_that_came_back_has_a_lease(world: World) -> None:
    world.core.define_queue(QueueRules(A, "A", 1000, 1 << 20, lease_ns=20 * NS))
    given = in_limbo(world, 2)
    world.core.leases.clear()
    claim(world, given)
    assert world.give(1, seconds=19) == [] and world.reader.active == 2
    world.give(1, seconds=2)
    assert world.reader.active == 0
    assert world.core.t.q_deferred[A] == 2
