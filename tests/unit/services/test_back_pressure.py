"""Back-pressure: how long the manager pauses, when it begins and when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omq.base.settings import DEFAULTS
from omq.services.manager.back_pressure import (
    PAUSE_MAX_NS,
    PROGRESS_S,
    STEEPNESS,
    BackPressure,
    lag_limit,
)

LIMIT = 1000
MS = 1_000_000
SECOND = 1000 * MS


class World:
    """A pool.writer that has taken one checkpoint, at LSN 10, at one second."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.slept: list[float] = []
        self.pressure = BackPressure(limit, 0, self.slept.append)
        assert not self.pressure.after_group(10, 10, 0, SECOND)

    def group(self, lag: int, work_ns: int = MS, now_ns: int = 2 * SECOND, checkpoint: int = 10
              ) -> bool:
        return self.pressure.after_group(checkpoint + lag, checkpoint, now_ns - work_ns, now_ns)


def test_nothing_up_to_the_limit() -> None:
    world = World()
    assert not world.group(LIMIT) and not world.slept and not world.pressure.active


@pytest.mark.parametrize(("lag", "pause_ns"), [
    (LIMIT * 2, MS * STEEPNESS), (LIMIT * 3 // 2, MS * STEEPNESS // 2),
    (LIMIT * 1000, PAUSE_MAX_NS)])
def test_a_pause_follows_the_work_and_the_lag(lag: int, pause_ns: int) -> None:
    world = World()
    assert world.group(lag) and world.pressure.active
    assert world.slept == [pytest.approx(pause_ns / SECOND)]
    assert not world.group(lag), "it is told once"
    assert world.pressure.paused_ms == 2 * pause_ns // MS


def test_it_is_over_well_below_the_limit() -> None:
    """A checkpoint is a leap back; it would be told with each of them."""
    world = World()
    assert world.group(LIMIT + 1)
    assert not world.group(LIMIT - 1) and world.pressure.active
    assert len(world.slept) == 1
    assert not world.group(LIMIT // 2) and world.pressure.active
    assert world.group(LIMIT // 2 - 1) and not world.pressure.active


def test_nobody_waits_for_a_writer_that_takes_no_checkpoints() -> None:
    slept: list[float] = []
    never = BackPressure(LIMIT, 10, slept.append)
    assert not never.after_group(LIMIT * 9, 10, 0, SECOND) and not never.active and not slept
    world = World()
    assert world.group(LIMIT * 2)
    stuck = (1 + PROGRESS_S) * SECOND
    assert world.group(LIMIT * 2, now_ns=stuck) and not world.pressure.active
    assert len(world.slept) == 1
    assert world.group(LIMIT * 2, now_ns=stuck, checkpoint=11) and world.pressure.active


@pytest.mark.parametrize(("frames", "journal_bytes", "limit"), [
    (1_000_000, 64 << 20, 1_048_576), (2_000_000, 64 << 20, 2_000_000), (1, 64 << 10, 1024),
    (0, 64 << 20, 0)])
def test_the_limit_leaves_room_for_two_checkpoints(frames: int, journal_bytes: int, limit: int
                                                   ) -> None:
    assert lag_limit(replace(DEFAULTS, checkpoint_lag_frames_max=frames,
                             checkpoint_journal_bytes_max=journal_bytes)) == limit


def test_no_limit() -> None:
    world = World(limit=0)
    assert not world.group(1 << 40) and not world.slept
