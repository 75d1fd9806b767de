"""The scheduling rules of one queue, as a plain function: who gets which message when.

The rules are those of the queue manager (lib/omq/docs/ARCHITECTURE.md): a free reader gets the
READY message of the highest priority, of these the one submitted first; with several free readers
the main one (number 0) is preferred, then the auxiliaries in order. A reader that asks for a batch
gets at once what is there, up to so many, does one after another, and asks again when all are done.
What-if replays real arrivals through this, the generator makes archives with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import itemgetter

import numpy as np

from omq.base.arrays import Vector

Spans = Sequence[tuple[float, float]]
ERROR_SHARE_MAX = 0.2
"""What cannot tell the past is not asked about the future."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """For each message: when it was handed out, to which reader; and when readers are free."""

    start: Vector
    reader: Vector
    free: list[float]


def replay(arrival: Vector, priority: Vector, service: Vector, readers: int,
           free: Sequence[float] = (), batch: int = 1, away: Sequence[Spans] = ()) -> Replayed:
    """Arrivals in ascending order; all times in one unit. `free`: readers are busy until then;
    `batch`: messages that a reader takes at most at once; `away`: of each reader the spans, in
    order and apart, in which it gets nothing (what it has it finishes)."""
    assert readers > 0 and batch > 0
    count = len(arrival)
    start, taken = [0.0] * count, [0] * count
    ends = [*free, *([0.0] * readers)][:readers]
    busy = sorted((end, i) for i, end in enumerate(ends))
    idle: list[int] = []
    waiting: list[tuple[int, int]] = []
    times, ranks, work = arrival.tolist(), (-priority.astype(int)).tolist(), service.tolist()

    def give(reader: int, now: float) -> None:
        ends[reader] = now
        for _ in range(min(batch, len(waiting))):
            message = heappop(waiting)[1]
            start[message], taken[message] = now, reader
            ends[reader] += work[message]
        heappush(busy, (ends[reader], reader))

    def asks(reader: int, now: float) -> None:
        """It is free, and there or not."""
        back = _back(away[reader], now) if away else now
        if back > now:
            heappush(busy, (back, reader))
        elif waiting:
            give(reader, now)
        else:
            heappush(idle, reader)

    for message, now in enumerate(times):
        while busy and busy[0][0] <= now:
            end, reader = heappop(busy)
            asks(reader, end)
        heappush(waiting, (ranks[message], message))
        while idle and waiting:
            asks(heappop(idle), now)
    while waiting:
        end, reader = heappop(busy)
        asks(reader, max(end, times[-1]))
    return Replayed(np.array(start), np.array(taken), ends)


def _back(spans: Spans, now: float) -> float:
    """When a reader is there again; `now`: it is."""
    place = bisect_right(spans, now, key=itemgetter(0)) - 1
    return max(now, spans[place][1]) if place >= 0 else now


def percentiles(waits: Vector, wanted: Sequence[float] = (0.5, 0.9, 0.99)) -> dict[str, float]:
    """{"p50": ...} of the waits; nothing of no waits."""
    if not len(waits):
        return {}
    found = np.quantile(waits, list(wanted))
    return {f"p{round(q * 100)}": float(v) for q, v in zip(wanted, found, strict=True)}
