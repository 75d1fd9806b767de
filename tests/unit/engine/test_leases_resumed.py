"""Messages that an earlier manager handed out: who counts them, and how long they may be kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import LeaseLost
from omq.core.engine.operate import Action, Item, Order, operate
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.settle import Verdict
from omq.core.engine.state import POISON, Party
from omq.format.frame_rules import Reason
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


def unseen(world: World, count: int) -> list[Verdict]:
    """Messages that the manager was handing to the reader, in one batch, when it died."""
    given = in_limbo(world, count)
    world.begin()
    span = (given[0].lease, given[-1].lease)
    assert world.engine.adopt(world.reader, A, [], span) == 0
    world.engine.commit()
    assert not world.engine.limbo
    return given


def test_what_a_manager_died_of_counts_and_goes_alone(world: World) -> None:
    """One suspect a group, and its reader gets nothing else; the next one follows at once."""
    first, second = world.ids(unseen(world, 2))
    third = world.put()
    assert world.ids(world.give(3)) == [first]
    assert world.engine.next_deadline() > world.core.mono_ns, "nobody waits"
    assert world.ids(world.give(3)) == [second]
    assert world.ids(world.give(3)) == [third]
    entries = range(world.core.t.entries.high)
    assert [world.core.t.e_attempts[e] for e in entries] == [2, 2, 1]
    assert not world.core.suspects


def test_two_readers_do_not_get_two_suspects(world: World) -> None:
    """Nor does the second reader get what stands behind its suspect; other queues go on."""
    unseen(world, 2)
    elsewhere = world.put(B)
    readers = [Party(3 + i, 2 + i, 103 + i, 0, 13 + i) for i in range(3)]
    world.begin()
    for reader, queue in zip(readers, (A, A, B), strict=True):
        world.engine.wait(reader, queue, 5, 1, -1, auxiliary=False)
    got = {waiter.party.client: len(entries) for waiter, entries in world.engine.dispatch()}
    assert got == {3: 1, 5: 1} and readers[2].active == 1
    world.engine.commit()
    assert world.engine.next_deadline() <= world.core.mono_ns
    world.begin()
    ((waiter, _),) = world.engine.dispatch()
    world.engine.commit()
    assert waiter.party is readers[1]
    assert elsewhere and world.engine.next_deadline() > world.core.mono_ns


def test_what_killed_enough_managers_goes_to_poison(world: World) -> None:
    world.core.define_queue(QueueRules(A, "A", 1000, 1 << 20, attempts_max=2))
    (given,) = unseen(world, 1)
    (again,) = world.give(1)
    world.core.t.e_reader[again.entry] = world.reader.active = 0
    tag = lease_tag(again.lease, world.reader.token)
    world.core.t.e_lease[again.entry] = world.engine.limbo[again.entry] = tag
    world.begin()
    world.engine.adopt(world.reader, A, [], (again.lease, again.lease))
    world.engine.commit()
    (poisoned,) = world.engine.poisoned
    assert (poisoned.qpool, poisoned.queue, poisoned.reason) == (given.qpool, "A", Reason.UNSEEN)
    assert world.core.t.q_ready[POISON] == 1 and not world.core.suspects


def test_a_suspect_that_leaves_its_queue_is_none(world: World) -> None:
    """Its entry may become another message's."""
    (given,) = unseen(world, 1)
    assert world.core.suspects == {given.entry}
    world.begin()
    order = Order(Action.DELETE, (Item(given.qpool, A),), b"{}")
    assert operate(world.core, world.putter, order, world.engine.forget_reader).done
    world.engine.commit()
    assert not world.core.suspects
