"""The last hour of some figures, for sparklines: a point every web_ring_period_s, in memory.

Invariants: 1. all series have their points at the same times; one that was not there has gaps; 2. a
series whose figure is not told any more goes when its last point has left the hour; 3. memory is
bounded by the number of series, four bytes a point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from omq.base.arrays import Vector

HOUR_S: Final = 3600


class Ring:
    """See the module. One thread adds; what `series` gives is a copy."""

    def __init__(self, period_s: int) -> None:
        self.period_s = period_s
        self.points = HOUR_S // period_s
        self._at = 0
        self._kept: dict[str, Vector] = {}

    def add(self, figures: Mapping[str, float]) -> None:
        """The next point of each series."""
        for name in figures.keys() - self._kept.keys():
            self._kept[name] = np.full(self.points, math.nan, dtype="<f4")
        for name, values in tuple(self._kept.items()):
            values[self._at] = figures.get(name, math.nan)
            if name not in figures and np.isnan(values).all():
                del self._kept[name]
        self._at = (self._at + 1) % self.points

    def series(self, name: str) -> list[float]:
        """Its points, the oldest first; NaN where there is none; empty: no such series."""
        values = self._kept.get(name)
        if values is None:
            return []
        at = self._at
        found: list[float] = np.concatenate((values[at:], values[:at])).tolist()
        return found
