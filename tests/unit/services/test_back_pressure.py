"""Back-pressure: how long the manager pauses, when it begins and when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omq.base.settings import DEFAULTS
from omq.services.manager.back_pressure import (
    DISK_STEEPNESS,
    PAUSE_MAX_NS,
    PROGRESS_S,
    STEEPNESS,
    BackPressure,
    Lag,
    LagLimits,
    lag_limits,
)

LIMIT = 1000
MS = 1_000_000
SECOND = 1000 * MS


class World:
    """A pool.writer that has taken one checkpoint, at LSN 10, at one second."""

    def __init__(self, limit: int = LIMIT, limit_bytes: int = 0) -> None:
        self.slept: list[float] = []
        self.pressure = BackPressure(LagLimits(limit, limit_bytes), 0, self.slept.append)
        assert not self.pressure.after_group(Lag(0), 10, 0, SECOND)

    def group(self, lag: int | Lag, work_ns: int = MS, now_ns: int = 2 * SECOND,
              checkpoint: int = 10) -> bool:
        lag = Lag(lag) if isinstance(lag, int) else lag
        return self.pressure.after_group(lag, checkpoint, now_ns - work_ns, now_ns)


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
    never = BackPressure(LagLimits(LIMIT), 10, slept.append)
    assert not never.after_group(Lag(LIMIT * 9), 10, 0, SECOND) and not never.active and not slept
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
    assert lag_limits(replace(DEFAULTS, checkpoint_lag_frames_max=frames,
                              checkpoint_journal_bytes_max=journal_bytes)).frames == limit


@pytest.mark.parametrize(("limit_bytes", "file_bytes", "limit"), [
    (512 << 20, 64 << 20, 512 << 20), (1, 64 << 20, 256 << 20), (1 << 30, 1 << 20, 1 << 30),
    (0, 64 << 20, 0)])
def test_bytes_have_room_for_two_checkpoints_and_two_files(limit_bytes: int, file_bytes: int,
                                                           limit: int) -> None:
    assert lag_limits(replace(DEFAULTS, checkpoint_lag_bytes_max=limit_bytes,
                              journal_file_bytes=file_bytes)).bytes == limit


def test_large_messages_are_few_frames_and_much_journal() -> None:
    """20,000 frames are no lag; the gigabyte that they are of is."""
    world = World(1_000_000, 512 << 20)
    assert not world.group(Lag(20_000, 512 << 20)) and not world.slept
    assert world.group(Lag(20_000, 1 << 30)) and world.pressure.active
    assert world.slept == [pytest.approx(MS * STEEPNESS / SECOND)]
    assert world.group(Lag(20_000, 255 << 20)) and not world.pressure.active


def test_a_disk_that_runs_short_slows_before_it_refuses() -> None:
    world = World()
    assert not world.group(Lag(0, room=0.0)) and not world.slept
    assert world.group(Lag(0, room=0.01)) and world.pressure.active
    assert world.slept == [pytest.approx(0.01 * DISK_STEEPNESS * STEEPNESS * MS / SECOND)]
    assert not world.group(Lag(0, room=1.0), work_ns=10 * MS)
    assert world.slept[1] == pytest.approx(PAUSE_MAX_NS / SECOND)
    assert world.group(Lag(0, room=0.0)) and not world.pressure.active


def test_the_worst_strain_counts() -> None:
    world = World(LIMIT, 1000)
    world.group(Lag(LIMIT * 2, 1500, 0.05))
    world.group(Lag(LIMIT * 2, 3000, 0.05))
    world.group(Lag(LIMIT * 2, 3000, 0.5))
    assert [round(each * SECOND / MS / STEEPNESS, 3) for each in world.slept] == [1, 2, 4]


def test_no_limit() -> None:
    world = World(limit=0)
    assert not world.group(1 << 40) and not world.slept
