"""Messages come back although the disk is full, and only to those who may claim them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omq.base.errors import SpoolFull
from omq.core.engine.settle import Verdict
from omq.core.engine.state import Party
from omq.format.index import EntryState
from omq.format.pool import lease_tag
from tests.unit.engine.world import NS, A, World, make_world

DONE = 1


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "spool")


@contextmanager
def full_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No journal file for another frame."""
    def refuse(frames: int, payload_bytes: int) -> None:
        raise SpoolFull(path="the journal", detail="test")

    with monkeypatch.context() as patch:
        patch.setattr(world.core.block, "reserve", refuse)
        yield


def turn(world: World, seconds: float = 0.0) -> None:
    world.begin(seconds)
    world.engine.tick()
    world.engine.commit()


def state(world: World, verdict: Verdict) -> EntryState:
    return EntryState(world.core.t.e_state[verdict.entry])


def test_a_lease_that_ends_on_a_full_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.core.rules[A].lease_ns = 10 * NS
    world.put()
    (given,) = world.give()
    with full_disk(world, monkeypatch):
        turn(world, 11)
        assert state(world, given) is EntryState.ACTIVE
        assert not world.core.space_left and world.reader.active == 0
        turn(world, 5)
    assert world.engine.next_deadline() <= world.core.mono_ns + NS
    assert world.settle(DONE, given) == 1  # its reader's word does not count any more
    turn(world, 2)
    assert state(world, given) is EntryState.DEFERRED
    (again,) = world.give(seconds=40)
    assert again.qpool == given.qpool and world.core.t.e_attempts[again.entry] == 2


def test_a_reader_that_dies_on_a_full_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        world.put()
    given = world.give(3)
    with full_disk(world, monkeypatch):
        world.begin()
        assert world.engine.forget(world.reader, [], {"reader": "test"}, orderly=False) == 3
        world.engine.commit()
    newcomer = Party(3, world.reader.slot, 103, 0, 13)  # the row of the reader table is free again
    assert world.settle(DONE, *given, reader=newcomer) == 3
    turn(world, 2)
    assert [state(world, one) for one in given] == [EntryState.DEFERRED] * 3
    assert newcomer.active == 0


def test_a_reader_that_leaves_on_a_full_disk(world: World, monkeypatch: pytest.MonkeyPatch
                                             ) -> None:
    world.put()
    (given,) = world.give()
    with full_disk(world, monkeypatch):
        world.begin()
        world.engine.forget(world.reader, [], {}, orderly=True)
        world.engine.commit()
    turn(world, 2)
    assert state(world, given) is EntryState.READY
    (again,) = world.give()
    assert world.core.t.e_attempts[again.entry] == 1  # the first one is not counted


def limbo(world: World, given: Verdict) -> None:
    """As after a restart of the manager: ACTIVE, and nobody holds it."""
    t = world.core.t
    tag = lease_tag(given.lease, world.reader.token)
    t.e_reader[given.entry], t.e_lease[given.entry] = 0, tag
    world.engine.limbo[given.entry] = tag
    world.engine.limbo_until = world.core.mono_ns + 30 * NS
    world.reader.active = 0


def test_limbo_belongs_to_the_token_that_it_was_given_to(world: World) -> None:
    world.put()
    (given,) = world.give()
    limbo(world, given)
    stranger = Party(3, 2, 103, 0, 13)
    claim = [(given.qpool, given.lease)]
    assert world.settle(DONE, given, reader=stranger) == 1
    assert world.engine.adopt(stranger, A, claim, (given.lease, given.lease)) == 0
    assert world.settle(DONE, given, reader=stranger) == 1
    assert world.settle(DONE, given) == 1  # not claimed yet
    assert world.engine.adopt(world.reader, A, claim, (0, 0)) == 1
    assert world.settle(DONE, given) == 0


def test_what_never_reached_its_reader_is_free_at_once(world: World) -> None:
    world.put()
    (given,) = world.give()
    limbo(world, given)
    assert world.engine.adopt(world.reader, A, [], (given.lease, given.lease)) == 0
    assert state(world, given) is EntryState.READY and not world.engine.limbo


def test_limbo_that_ends_on_a_full_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put()
    (given,) = world.give()
    limbo(world, given)
    with full_disk(world, monkeypatch):
        assert world.engine.adopt(world.reader, A, [], (given.lease, given.lease)) == 0
        turn(world, 31)
        assert state(world, given) is EntryState.ACTIVE
    turn(world, 2)
    assert state(world, given) is EntryState.DEFERRED
