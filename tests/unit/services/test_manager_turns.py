"""Whether a queue manager turns, by its beat and the looker's own time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omq.base.clock import NS_PER_S
from omq.base.paths import SpoolPaths
from omq.format.index import Counter
from omq.services.standby.manager_turns import ManagerTurns


class Told:
    """In place of the look at an index."""

    def __init__(self) -> None:
        self.beat = 1
        self.index: Any = None
        self.runs(7)

    def runs(self, epoch: int) -> None:
        self.index = SimpleNamespace(epoch=epoch, counter=self.counter)

    def counter(self, which: Counter) -> int:
        assert which is Counter.BOOT_BEAT
        return self.beat

    def look(self) -> int:
        return 0


def test_a_beat_that_does_not_move_is_counted_by_what_the_looker_saw(tmp_path: Path) -> None:
    now, told = [0], Told()
    turns = ManagerTurns(SpoolPaths(tmp_path), lambda: now[0])
    assert turns.still_s() == 0.0, "there is none"
    turns._index = told  # type: ignore[assignment]

    def after(seconds: float) -> float:
        now[0] += int(seconds * NS_PER_S)
        return turns.still_s()

    assert after(1) == 0.0, "the first look"
    assert [after(0.5) for _ in range(4)] == [0.5, 1.0, 1.5, 2.0]
    assert after(3600) == 3.0, "the looker was stopped, too"
    told.beat += 1
    assert after(0.5) == 0.0 and after(0.5) == 0.5
    told.runs(8)
    assert after(0.5) == 0.0, "another manager"
    assert after(-5) == 0.0 and after(1) == 1.0
    told.index = None
    assert after(1) == 0.0, "none runs"
