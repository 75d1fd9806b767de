"""A start with a clock that is wrong, and is put right later; each step is compared with the
model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.core.engine.state import IDEL
from omq.format.index import EntryState
from omq.format.message import Part
from omq.format.wire import Settlement
from tests.model.driver import A, B, World, draft
from tests.model.instance import NS
from tests.model.reference import Verdict

DAY = 86400


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "spool")
    yield made
    made.close()


def put(world: World, queue: int = A, in_s: int = 0, *, moment: bool = False, live_s: int = 0,
        key: bytes = b"") -> None:
    """One message of the first client."""
    now = world.instance.wall
    part = Part.later(queue, 4, now + in_s * NS if in_s else 0, moment=moment)
    world.put(world.clients[0], draft(
        [part], b"x", given=key, expiry=now + live_s * NS if live_s else 0), key)


def states(world: World, queue: int = A) -> list[EntryState]:
    return [place.state for _, place in world.model.on(queue)]


def start_wrong(world: World, step: int, *, clean: bool) -> None:
    """The manager ends and starts while the clock is `step` seconds off."""
    world.jump(step)
    if clean:
        world.restart()
    else:
        world.crash(lambda count: count, survive=True)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("moment", [True, False])
def test_a_message_that_is_due_soon_does_not_come_a_day_late(world: World, *, clean: bool,
                                                             moment: bool) -> None:
    put(world, in_s=5, moment=moment)
    start_wrong(world, -DAY, clean=clean)
    world.advance(3)
    assert states(world) == [EntryState.DEFERRED]
    world.jump(DAY)  # ntpd has found its servers
    assert states(world) == [EntryState.DEFERRED]
    world.advance(2)
    assert states(world) == [EntryState.READY]


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_with_a_fast_clock_hands_out_early_and_no_more_than_that(world: World, *,
                                                                         clean: bool) -> None:
    """What it may take for due is due; the rest waits for its time."""
    put(world, in_s=3600)
    put(world, in_s=2 * DAY)
    start_wrong(world, DAY, clean=clean)
    assert states(world) == [EntryState.READY, EntryState.DEFERRED]
    world.jump(-DAY)
    world.advance(2 * DAY - 1)
    assert states(world) == [EntryState.READY, EntryState.DEFERRED]
    world.advance(1)
    assert states(world) == [EntryState.READY, EntryState.READY]


def test_a_pause_after_a_failure_ends_at_its_time(world: World) -> None:
    put(world, B)
    reader = next(client for client in world.clients if client.queue == B)
    world.settle(reader, [], want=1)
    (held,) = reader.held.values()
    world.settle(reader, [Verdict(Settlement.FAIL, held.qpool, B, held.lease, 0)])
    assert states(world, B) == [EntryState.DEFERRED]
    start_wrong(world, -DAY, clean=True)
    world.jump(DAY)
    world.advance(6)
    assert EntryState.DEFERRED not in states(world, B)


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_a_time_to_live_ends_at_its_time(world: World, step: int) -> None:
    put(world, B, live_s=5 if step < 0 else 2 * DAY)
    start_wrong(world, step, clean=True)
    world.advance(3)
    assert len(states(world, B)) == 1
    world.jump(-step)
    world.advance(1 if step < 0 else 2 * DAY - 4)
    assert len(states(world, B)) == 1
    world.advance(1)
    assert states(world, B) == []


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_a_key_is_remembered_for_its_time(world: World, step: int) -> None:
    """A has had it for 40 seconds; a clock that runs ahead at a start forgets it."""
    put(world, key=b"key1")
    start_wrong(world, step, clean=True)
    world.jump(-step)
    world.advance(30)
    put(world, key=b"key1")
    assert len(states(world)) == (1 if step < 0 else 2)
    world.advance(11)
    put(world, key=b"key1")
    assert len(states(world)) == 2


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_a_lease_begins_anew_whatever_the_clock_says(world: World, step: int) -> None:
    put(world, B)
    reader = next(client for client in world.clients if client.queue == B)
    world.settle(reader, [], want=1)
    start_wrong(world, step, clean=False)
    world.jump(-step)
    world.advance(19)
    assert states(world, B) == [EntryState.ACTIVE]
    world.advance(2)
    assert states(world, B) != [EntryState.ACTIVE]


def test_what_remembers_a_key_leaves_idel_with_it(world: World) -> None:
    put(world, key=b"key1")
    start_wrong(world, -DAY, clean=True)
    assert states(world, IDEL) == [EntryState.DEFERRED]
    world.jump(DAY)
    world.advance(41)
    assert states(world, IDEL) == [EntryState.READY]
