"""Readers that wait: who shares a backlog, and what is left of waits that are over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.core.engine.state import Party
from omq.core.engine.waiting import FOREVER, TIMEOUTS_MAX, Timeouts, Waiter
from tests.unit.engine.world import A, World, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    yield made
    made.writer.close()
    made.core.volatile.close()  # type: ignore[attr-defined]


def test_a_wait_that_is_over_takes_no_share_of_a_backlog(world: World) -> None:
    for _ in range(9):
        assert world.give(1) == []
    ids = [world.put() for _ in range(10)]
    assert world.ids(world.give(10)) == ids


def test_a_reader_that_is_gone_takes_no_share(world: World) -> None:
    world.begin()
    party = Party(7, 5, 107, 0, 17)
    waiter = world.engine.wait(party, A, 1, 1, -1, auxiliary=True)
    world.engine.forget(party, [waiter], {}, orderly=True)
    world.engine.commit()
    ids = [world.put() for _ in range(2)]
    assert world.ids(world.give(2)) == ids
    assert len(world.engine.waiters[A]) == 0


def test_answered_waits_do_not_pile_up() -> None:
    timeouts = Timeouts()
    party = Party(1, 0, 1, 0, 1)
    waiting = [Waiter(party, A, 1, i, 10**9 + i, auxiliary=False) for i in range(100)]
    for waiter in waiting:
        timeouts.add(waiter.deadline, waiter)
    for i in range(5 * TIMEOUTS_MAX):
        timeouts.add(10**6 + i, Waiter(party, A, 1, i, 10**6 + i, auxiliary=False, waiting=False))
        assert len(timeouts.heap) <= TIMEOUTS_MAX
    assert timeouts.next() == 10**9
    assert timeouts.over(10**9 + 49) == waiting[:50]
    assert timeouts.over(FOREVER) == waiting[50:]
    assert timeouts.next() == FOREVER


def test_more_waits_than_the_limit_are_kept() -> None:
    timeouts = Timeouts()
    party = Party(1, 0, 1, 0, 1)
    for i in range(3 * TIMEOUTS_MAX):
        timeouts.add(i, Waiter(party, A, 1, i, i, auxiliary=False))
    assert len(timeouts.over(FOREVER)) == 3 * TIMEOUTS_MAX


def test_a_wait_that_is_cancelled_ends_once(world: World) -> None:
    world.begin()
    waiter = world.engine.wait(world.reader, A, 1, 1, 10**9, auxiliary=False)
    world.engine.cancel(waiter)
    assert world.engine.expire() == [waiter] and world.engine.expire() == []
    world.engine.commit()
