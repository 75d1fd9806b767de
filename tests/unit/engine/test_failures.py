"""Why messages failed: remembered while they are on the queue that they failed their way to, and no
longer; when their first attempt failed; the bounds of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omq.core.check.invariants import check
from omq.core.engine.expiry import MANY
from omq.core.engine.failures import NOTED
from omq.core.engine.state import POISON
from omq.format.failure_note import FailureNote
from omq.format.frame_rules import Reason
from omq.format.wire import Settlement
from tests.unit.engine.world import NS, START_NS, A, B, World, make_world

FAIL, DONE, DEFER = int(Settlement.FAIL), int(Settlement.DONE), int(Settlement.DEFER)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A is retried once, at once; what fails there twice goes to B."""
    made = make_world(tmp_path / "spool")
    rules = replace(made.core.rules[A], attempts_max=2, retry_delay_ns=0, dead_letter=B)
    made.core.define_queue(rules)
    made.core.define_queue(replace(made.core.rules[B], attempts_max=1))
    yield made
    assert check(made.engine, [made.putter, made.reader]) == []
    made.writer.close()


def fails(world: World, queue: int = A, text: bytes = b"no price", seconds: float = 10.0) -> int:
    """The next message of a queue fails; its QPoolId."""
    (verdict,) = world.give(1, queue, seconds=seconds)
    verdict.text = text
    assert world.settle(FAIL, verdict, argument=1) == 0
    return verdict.qpool


def known(world: World, qpool: int, queue: int) -> FailureNote | None:
    slot = world.core.t.slot_of(qpool)
    note = world.engine.failures.of(qpool, queue)
    assert note is None or world.core.t.m_flags[slot] & NOTED
    return note


def test_what_is_known(world: World) -> None:
    qpool = world.put()
    fails(world, text=b"first")
    assert known(world, qpool, A) is None
    fails(world, text=b"second")
    assert known(world, qpool, B) == FailureNote(
        B, "A", Reason.FAILED, 2, START_NS + 10 * NS, START_NS + 20 * NS, "second")
    assert known(world, qpool, A) is None and known(world, qpool, POISON) is None
    fails(world, B, b"third")
    assert known(world, qpool, POISON) == FailureNote(
        POISON, "B", Reason.FAILED, 1, START_NS + 30 * NS, START_NS + 30 * NS, "third")
    assert known(world, qpool, B) is None


def test_a_deferral_is_no_failure(world: World) -> None:
    qpool = world.put()
    (verdict,) = world.give()
    world.settle(DEFER, verdict)
    fails(world)
    (verdict,) = world.give(seconds=1)
    world.settle(DEFER, verdict)
    fails(world)
    note = known(world, qpool, B)
    assert note is not None
    assert (note.first_ns, note.last_ns) == (START_NS + 10 * NS, START_NS + 21 * NS)


@pytest.mark.parametrize("count", [1, MANY + 3])
def test_who_is_done_leaves_nothing(world: World, count: int) -> None:
    """Alone and many together; whoever has their rows then has failed nowhere."""
    for _ in range(count):
        world.put()
        fails(world)
        fails(world)
    given = world.give(count, B)
    while len(given) < count:
        given += world.give(count, B)
    assert len(world.engine.failures.known) == count
    world.settle(DONE, *given)
    assert not world.engine.failures.known
    for queue in (A, B):
        for _ in range(count):
            qpool = world.put(queue)
            assert known(world, qpool, queue) is None
            assert not world.core.t.m_flags[world.core.t.slot_of(qpool)] & NOTED


def test_beyond_the_bound_nothing_is_kept(world: World) -> None:
    world.engine.failures.known_max = 2
    ids = [world.put() for _ in range(4)]
    for _ in range(8):
        fails(world)
    assert len(world.engine.failures.known) == 2
    notes = [note for qpool in ids if (note := known(world, qpool, B)) is not None]
    assert len(notes) == 2
    fails(world, B)  # what is known of one may be known of it further on
    assert len(world.engine.failures.known) == 2


def test_of_first_failures_the_oldest_are_forgotten(world: World) -> None:
    world.engine.failures.known_max = 1
    older, newer = world.put(), world.put()
    given = world.give(2, seconds=10)
    world.settle(FAIL, *given, argument=1)
    for _ in range(2):
        fails(world)
    assert [known(world, qpool, B) is None for qpool in (older, newer)].count(False) == 1
    world.engine.failures.known_max = 0
    qpool = world.put()
    for _ in range(2):
        fails(world)
    assert known(world, qpool, B) is None
