"""Tools count by time since boot where they count, whatever the wall clock shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base import clock
from omq.base.paths import SpoolPaths
from omq.cli.look.top_facts import head, moment
from omq.core.index.tables import Tables
from omq.core.index.view import IndexView
from omq.core.look.look import Look, Origin, still_ns
from omq.format.index import Counter

NS = 1_000_000_000
WALL, BOOT = 1_700_000_000 * NS, 1000 * NS


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What they show."""
    shown = {"wall": WALL, "boot": BOOT}
    monkeypatch.setattr(clock, "wall_ns", lambda: shown["wall"])
    monkeypatch.setattr(clock, "monotonic_ns", lambda: shown["boot"])
    return shown


def test_a_heartbeat_of_another_namespace(clocks: dict[str, int]) -> None:
    mine = clock.time_namespace()
    beat = {"heartbeat": WALL - 3 * NS, "boot_beat": BOOT - 5 * NS, "time_namespace": mine}
    assert still_ns(beat) == 5 * NS
    assert still_ns(beat | {"time_namespace": mine + 1}) == 3 * NS
    assert still_ns(beat | {"boot_beat": 0, "time_namespace": 0}) == 3 * NS, "an older manager"
    clocks["wall"] += 86400 * NS
    assert still_ns(beat) == 5 * NS


@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_rates_do_not_follow_the_clock(clocks: dict[str, int], step_s: int, tmp_path: Path
                                       ) -> None:
    tables = Tables.private(10, 10)
    tables.counters[Counter.CHECKPOINT_TIME] = WALL
    with IndexView.of(tables, SpoolPaths(tmp_path)) as view:
        seen = Look(view, Origin.LIVING, "")
        before = moment(seen, clock.wall_ns())
        tables.counters[Counter.PUTS] += 50
        clocks["boot"] += 5 * NS
        clocks["wall"] += (5 + step_s) * NS
        now = moment(seen, clock.wall_ns(), before)
    assert now.rates["puts"] == 10.0
    assert not any(" -" in line for line in head(now))
