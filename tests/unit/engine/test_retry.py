"""Pauses between attempts, where a message goes that failed too often, leases that are renewed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.core.check.invariants import check
from omq.core.engine.retry import retry_ns
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import POISON
from omq.format.frame_rules import Reason
from omq.format.index import EntryState
from omq.format.message import Part
from omq.format.wire import Settlement
from tests.unit.engine.world import NS, A, B, World, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    yield made
    assert check(made.engine) == []
    made.writer.close()


def rules(**more: object) -> QueueRules:
    return QueueRules(A, "A", 1000, 1 << 20, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("backoff", "pauses"), [
    ("none", [2, 2, 2, 2, 2]), ("linear", [2, 4, 6, 8, 9]), ("exponential", [2, 4, 8, 9, 9])])
def test_pauses_grow_to_their_maximum(backoff: str, pauses: list[int]) -> None:
    queue = rules(retry_delay_ns=2, death_delay_ns=50, backoff=backoff, retry_max_ns=9)
    assert [retry_ns(queue, Reason.FAILED, n, 1) for n in range(1, 6)] == pauses
    assert retry_ns(queue, Reason.FAILED, 255, 1) == pauses[-1]
    assert retry_ns(queue, Reason.DIED, 1, 1) == 50, "the maximum is one of growth"


def test_deaths_have_the_pause_of_deaths() -> None:
    queue = rules(death_delay_ns=7)
    assert [retry_ns(queue, reason, 3, 1) for reason in (Reason.FAILED, Reason.DIED)] == [7, 7]
    queue = rules(death_delay_ns=7, retry_delay_ns=0)
    assert [retry_ns(queue, reason, 3, 1) for reason in (Reason.FAILED, Reason.LEASE)] == [0, 7]


def test_jitter_spreads_evenly_and_says_the_same_again() -> None:
    queue = rules(death_delay_ns=1000 * NS, jitter=20)
    pauses = [retry_ns(queue, Reason.DIED, 1, qpool) for qpool in range(1, 1001)]
    assert pauses == [retry_ns(queue, Reason.DIED, 1, qpool) for qpool in range(1, 1001)]
    assert 800 * NS <= min(pauses) < 810 * NS and 990 * NS < max(pauses) <= 1000 * NS
    assert 895 * NS < sum(pauses) / 1000 < 905 * NS
    whole = rules(death_delay_ns=NS, jitter=100)
    assert all(0 <= retry_ns(whole, Reason.DIED, n, 5) <= NS for n in range(256))


def test_the_journal_has_the_pause(world: World) -> None:
    world.core.define_queue(rules(retry_delay_ns=2 * NS, backoff="exponential",
                                  retry_max_ns=60 * NS, attempts_max=9))
    world.put(A)
    for pause in (2, 4, 8):
        (given,) = world.give()
        world.settle(Settlement.FAIL, given)
        assert world.give(seconds=pause - 0.001) == []
        world.begin(0.001)
        world.engine.commit()


def test_one_message_may_have_its_own_pause(world: World) -> None:
    world.put(A)
    (given,) = world.give()
    world.settle(Settlement.FAIL, given, argument=NS // 20 + 1)
    assert world.give(seconds=0.049) == []
    (given,) = world.give(seconds=0.001)
    world.settle(Settlement.FAIL, given, argument=1)
    assert len(world.give()) == 1, "no pause at all"


def test_dead_letters_go_to_their_queue_and_begin_anew(world: World) -> None:
    world.core.define_queue(rules(attempts_max=1, dead_letter=B))
    qpool = world.put(A)
    (given,) = world.give()
    world.settle(Settlement.FAIL, given)
    t = world.core.t
    slot = t.slot_of(qpool)
    entry = t.entry_on(slot, B)
    assert entry >= 0 and t.entry_on(slot, POISON) < 0 and t.m_origin[slot] == A
    assert (t.e_attempts[entry], EntryState(t.e_state[entry])) == (0, EntryState.READY)


def test_a_lease_that_is_renewed(world: World) -> None:
    world.core.define_queue(rules(lease_ns=10 * NS))
    world.put(A)
    (given,) = world.give()
    for _ in range(50):
        world.begin(6)
        assert world.engine.renew(world.reader, [given]) == 0
        world.engine.tick()
        world.engine.commit()
    assert len(world.core.leases) == 1, "however often it is asked"
    assert world.engine.renew(world.putter, [given]) == 1, "nobody else's"
    world.begin(10)
    world.engine.tick()
    world.engine.commit()
    assert world.engine.renew(world.reader, [given]) == 1
    assert world.core.renewed == {} and world.reader.active == 0


def test_a_part_is_exact_to_a_hundredth_and_never_early() -> None:
    for until_ns in (1, 5 * NS, 5 * NS + 1, 5 * NS + 10_000_000, 6 * NS - 1,
                     1_700_000_000_123_456_789):
        part = Part.later(A, 4, until_ns)
        assert 0 <= part.until_ns - until_ns < 10_000_000
        assert part.until == -(-until_ns // NS) and 0 <= part.flags <= 99
    assert Part.later(A, 4, 0) == Part(A, 4) and Part(A, 4).until_ns == 0
    assert Part(A, 4, 255, 7).until_ns == 7 * NS - 990_000_000, "what a stranger says is bounded"
