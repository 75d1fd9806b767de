"""Load and throughput of queues: exponentially damped averages over 1, 5 and 15 minutes.

Load is the number of messages on a queue, throughput the number processed a minute. As in the
original, a sample is taken every few seconds (its dumps show decay 0.920044 = exp(-5/60)). One
vectorised pass over the queue table a sample; nothing is done per message.
"""

from __future__ import annotations

from math import exp

import numpy as np

from omq.base.arrays import Vector
from omq.base.clock import NS_PER_S as NS
from omq.core.index.tables import Tables
from omq.format.index import Counter

WINDOWS_S = (60, 300, 900)
HOUR_S = 3600


class Statistics:
    """Samples the queue table when `due` (monotonic ns) has come."""

    def __init__(self, tables: Tables, period_s: int, mono_ns: int) -> None:
        self._t = tables
        self._period_ns = period_s * NS
        self.due = mono_ns + self._period_ns
        self._last = mono_ns
        self._seen: Vector = tables.v["q_processed"].copy()
        self._peaks: Vector = tables.v["q_depth"].copy()
        self._hour = -1

    def peak(self, queue: int) -> int:
        """The most messages that a sample has seen on it, since it is there or was truncated."""
        return int(self._peaks[queue])

    def forget(self, queue: int) -> None:
        """Its row is as new: it has processed nothing."""
        self._seen[queue] = self._peaks[queue] = 0

    def sample(self, mono_ns: int, wall_ns: int) -> None:
        """Take a sample if it is time."""
        if mono_ns < self.due:
            return
        elapsed_s = (mono_ns - self._last) / NS
        self._last = mono_ns
        self.due = mono_ns + self._period_ns
        t = self._t
        high = int(t.counters[Counter.QUEUES_HIGH])
        depth = t.v["q_depth"][:high]
        processed = t.v["q_processed"][:high]
        np.maximum(self._peaks[:high], depth, out=self._peaks[:high])
        per_minute = (processed - self._seen[:high]) * (60.0 / elapsed_s)
        self._seen[:high] = processed
        for window, load, rate in zip(WINDOWS_S, ("q_load1", "q_load5", "q_load15"),
                                      ("q_rate1", "q_rate5", "q_rate15"), strict=True):
            decay = exp(-elapsed_s / window)
            _damp(t.v[load][:high], depth, decay)
            _damp(t.v[rate][:high], per_minute, decay)
        t.v["q_sampled"][:high] = wall_ns
        self._turn_hour(high, wall_ns)

    def _turn_hour(self, high: int, wall_ns: int) -> None:
        hour = wall_ns // (HOUR_S * NS)
        if self._hour < 0:
            self._hour = hour
        if hour == self._hour:
            return
        t = self._t
        t.v["q_last_hour"][:high] = t.v["q_hour"][:high] if hour == self._hour + 1 else 0
        t.v["q_hour"][:high] = 0
        t.v["q_hour_at"][:high] = wall_ns
        self._hour = hour


def _damp(average: Vector, sample: Vector, decay: float) -> None:
    average *= decay
    average += sample * (1.0 - decay)
    average[average < 1e-6] = np.float64(0.0)
