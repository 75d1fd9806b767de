"""Load and throughput against the formulas themselves, with a clock that moves when told.

With a value x that holds for `t` seconds an average a over w seconds becomes
    a * exp(-t / w) + x * (1 - exp(-t / w))
whatever the pieces are in which t goes by. The original's dumps show exp(-5 / 60) = 0.920044.
"""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omq.core.engine.statistics import HOUR_S, WINDOWS_S, Statistics
from omq.core.index.tables import Tables
from omq.format.index import Counter

NS = 1_000_000_000
QUEUE = 3
HOUR = HOUR_S * NS
START = 1_700_000_000 * NS // HOUR * HOUR + HOUR // 2  # half past some hour


class Clocked:
    """Statistics over tables of their own; `after` lets time go by and takes the sample."""

    def __init__(self, period_s: int = 5) -> None:
        self.t = Tables.private(10, 10, 8, 4)
        self.t.counters[Counter.QUEUES_HIGH] = 5
        self.mono, self.wall = 77 * NS, START
        self.statistics = Statistics(self.t, period_s, self.mono)

    def after(self, seconds: float, depth: int | None = None, processed: int = 0) -> None:
        self.mono += int(seconds * NS)
        self.wall += int(seconds * NS)
        if depth is not None:
            self.t.q_depth[QUEUE] = depth
        self.t.q_processed[QUEUE] += processed
        self.t.q_hour[QUEUE] += processed
        self.statistics.sample(self.mono, self.wall)

    def loads(self) -> list[float]:
        return [self.t.v[name][QUEUE] for name in ("q_load1", "q_load5", "q_load15")]

    def rates(self) -> list[float]:
        return [self.t.v[name][QUEUE] for name in ("q_rate1", "q_rate5", "q_rate15")]


def test_the_decay_of_one_sample_is_the_originals() -> None:
    clocked = Clocked()
    clocked.after(5, depth=1)
    assert clocked.loads()[0] == pytest.approx(1 - 0.920044, abs=1e-6)


@pytest.mark.parametrize("minutes", [1, 5, 15, 60])
def test_a_constant_load_is_approached_exponentially(minutes: int) -> None:
    clocked = Clocked()
    for _ in range(minutes * 12):
        clocked.after(5, depth=1000)
    assert clocked.loads() == pytest.approx(
        [1000 * (1 - exp(-60 * minutes / window)) for window in WINDOWS_S])


def test_an_empty_queue_decays_to_nothing() -> None:
    clocked = Clocked()
    clocked.after(5, depth=8)
    first = clocked.loads()
    for _ in range(12):
        clocked.after(5, depth=0)
    assert clocked.loads() == pytest.approx(
        [value * exp(-60 / window) for value, window in zip(first, WINDOWS_S, strict=True)])
    for _ in range(24 * 720):
        clocked.after(5)
    assert clocked.loads() == [0.0, 0.0, 0.0], "not a number that only shrinks for ever"


def test_throughput_is_messages_a_minute() -> None:
    clocked = Clocked()
    for _ in range(720):
        clocked.after(5, processed=50)
    assert clocked.rates() == pytest.approx(
        [600 * (1 - exp(-3600 / window)) for window in WINDOWS_S])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(5, 900), st.integers(0, 1 << 32), st.integers(0, 10**6)),
                min_size=1, max_size=30))
def test_samples_that_come_late_are_weighed_by_their_time(
        samples: list[tuple[float, int, int]]) -> None:
    clocked = Clocked()
    load, rate = [0.0] * 3, [0.0] * 3
    for seconds, depth, processed in samples:
        depth = min(depth, (1 << 32) - 1)
        clocked.after(seconds, depth, processed)
        elapsed = int(seconds * NS) / NS
        for i, window in enumerate(WINDOWS_S):
            decay = exp(-elapsed / window)
            load[i] = load[i] * decay + depth * (1 - decay)
            rate[i] = rate[i] * decay + processed * 60 / elapsed * (1 - decay)
    assert clocked.loads() == pytest.approx(load, rel=1e-9, abs=2e-6)
    assert clocked.rates() == pytest.approx(rate, rel=1e-9, abs=2e-6)


def test_nothing_happens_before_it_is_time() -> None:
    clocked = Clocked()
    due = clocked.statistics.due
    assert due == clocked.mono + 5 * NS
    clocked.after(4.999, depth=100, processed=7)
    assert clocked.loads() == [0.0] * 3 and clocked.t.q_sampled[QUEUE] == 0
    clocked.after(0.001)
    assert clocked.loads()[0] > 0 and clocked.t.q_sampled[QUEUE] == clocked.wall
    assert clocked.statistics.due == clocked.mono + 5 * NS


def test_pieces_of_time_make_no_difference() -> None:
    one, many = Clocked(), Clocked(period_s=1)
    one.after(120, depth=64)
    for _ in range(120):
        many.after(1, depth=64)
    assert one.loads() == pytest.approx(many.loads())


def test_other_queues_are_left_alone() -> None:
    clocked = Clocked()
    clocked.t.q_depth[6] = 9  # above QUEUES_HIGH
    clocked.after(60, depth=3)
    assert clocked.t.q_load1[6] == 0.0 and clocked.t.q_load1[4] == 0.0


def test_a_jump_of_the_wall_clock_changes_no_average() -> None:
    clocked = Clocked()
    clocked.after(5, depth=10)
    clocked.wall += 365 * 24 * HOUR
    clocked.after(55, depth=10)
    assert clocked.loads() == pytest.approx([10 * (1 - exp(-60 / w)) for w in WINDOWS_S])


def test_the_hour_turns_by_the_clock_on_the_wall() -> None:
    clocked = Clocked()
    clocked.after(5, processed=30)
    clocked.after(1790, processed=11)
    assert (clocked.t.q_hour[QUEUE], clocked.t.q_last_hour[QUEUE]) == (41, 0)
    clocked.after(5, processed=1)  # on the stroke of the hour: what was counted until then
    assert (clocked.t.q_hour[QUEUE], clocked.t.q_last_hour[QUEUE]) == (0, 42)
    assert clocked.t.q_hour_at[QUEUE] == clocked.wall
    clocked.after(60, processed=2)
    assert (clocked.t.q_hour[QUEUE], clocked.t.q_last_hour[QUEUE]) == (2, 42)


def test_an_hour_in_which_nothing_was_counted_is_empty() -> None:
    clocked = Clocked()
    clocked.after(5, processed=30)
    clocked.wall += 2 * HOUR
    clocked.after(5, processed=1)
    assert (clocked.t.q_hour[QUEUE], clocked.t.q_last_hour[QUEUE]) == (0, 0)
