"""The timing wheel: everything comes out at its time, once, and nothing that has ended."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from omq.core.engine import wheel as wheels
from omq.core.engine.wheel import BITS, LOOK_FROM, NEVER, Wheel
from omq.core.index.tables import Tables

SECOND = 1_000_000_000
DISTANCES = (0, 1, SECOND // 3, SECOND, 70 * SECOND, 5_000 * SECOND, 400_000 * SECOND,
             30 * 366 * 86_400 * SECOND)


@pytest.fixture
def tables() -> Iterator[Tables]:
    made = Tables.private(50_000, 100)
    made.v["m_qpool"][:] = np.arange(1, 50_001)
    yield made
    made.release()


def slots_of(rows: np.ndarray) -> list[int]:
    return [int(slot) for slot in rows[:, 1]]


@pytest.mark.parametrize("seed", range(20))
def test_each_comes_out_at_its_time(tables: Tables, seed: int,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Random adds, alone and in bulk, ends and steps of time, beside a dictionary."""
    monkeypatch.setattr(wheels, "CHUNK", 7)
    monkeypatch.setattr(wheels, "NEAR_MAX", 2)
    chance, wheel = random.Random(seed), Wheel(tables)
    now, free, due = 50 * SECOND, list(range(2_000)), dict[int, int]()
    for _ in range(300):
        count = chance.choice([1, 1, 1, 40])
        times, slots = [], []
        for _ in range(min(count, len(free))):
            times.append(now + chance.choice(DISTANCES) + chance.randrange(-SECOND, SECOND))
            slots.append(free.pop())
        if count == 1 and slots:
            wheel.add(times[0], slots[0], now)
        elif slots:
            wheel.add_many(np.array(times, np.int64), np.array(slots), now)
        due |= dict(zip(slots, times, strict=True))
        for slot in chance.sample(sorted(due), min(len(due), chance.choice([0, 0, 5]))):
            del due[slot]
            tables.m_qpool[slot] += 100_000  # another message is in its place
            free.append(slot)
        now += chance.choice([0, 1, SECOND // 5, 2 * SECOND, 90 * SECOND, 10_000 * SECOND])
        expected = sorted(slot for slot, time in due.items() if time <= now)
        if expected:
            assert wheel.next() <= now
        assert sorted(slots_of(wheel.advance(now))) == expected
        for slot in expected:
            del due[slot]
        assert {slot for _, slot, _ in wheel.waiting()} == set(due)
        assert wheel.next() <= min(due.values(), default=NEVER)


def test_nobody_waits(tables: Tables) -> None:
    wheel = Wheel(tables)
    assert wheel.next() == NEVER and len(wheel.advance(1 << 50)) == 0


def test_next_says_exactly_when(tables: Tables) -> None:
    """In the end: the bucket's beginning first, then the time itself."""
    wheel, time = Wheel(tables), (7 << BITS) + 12_345
    wheel.add(time, 3, 0)
    assert wheel.next() == 7 << BITS
    assert len(wheel.advance(7 << BITS)) == 0 and wheel.next() == time
    assert len(wheel.advance(time - 1)) == 0
    assert slots_of(wheel.advance(time)) == [3]


def test_far_times_and_times_gone_by_are_taken(tables: Tables) -> None:
    wheel = Wheel(tables)
    wheel.add(1 << 70, 1, 5)
    wheel.add(-(1 << 70), 2, 5)
    assert slots_of(wheel.advance(5)) == [2]
    assert len(wheel.advance(1 << 61)) == 0


def test_those_that_have_ended_do_not_pile_up(tables: Tables) -> None:
    """A flow of messages with a long time, each done at once: the bucket stays small."""
    wheel = Wheel(tables)
    for qpool in range(1, 40 * LOOK_FROM):
        tables.m_qpool[0] = qpool
        wheel.add(3600 * SECOND, 0, 0)
    assert sum(len(bucket.items) for bucket in wheel._buckets.values()) <= 3 * LOOK_FROM
    assert len(wheel.waiting()) == 1


def test_a_wide_bucket_is_split_in_pieces(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all at once: CHUNK rows a call, before their time."""
    monkeypatch.setattr(wheels, "CHUNK", 1000)
    wheel, count = Wheel(tables), 10_000
    start = 2 << BITS + 6
    times = start + np.arange(count, dtype=np.int64) * 1_000_000
    wheel.add_many(times, np.arange(count), 0)
    sizes = []
    now = start - wheels.LEAD_NS
    assert wheel.next() == now
    while wheel.next() <= now:
        assert len(wheel.advance(now)) == 0
        sizes.append(sum(len(rows) for _, _, rows in wheel._opening))
    assert sizes == list(range(9_000, -1, -1_000))
    assert slots_of(wheel.advance(start + 5_000_000)) == [0, 1, 2, 3, 4, 5]
