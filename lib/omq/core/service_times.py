"""Measured from the journal: how long readers need for a message, and how many come.

A service time is from the hand-out (GIVE) to the end of the reader's work on it (DONE, MOVE, or a
DEFER or POISON by it), matched by the lease. A batch is handed out at once, so the time of each of
its messages is counted from when the one before it ended, if that reader held it. Arrivals are the
frames that put a message on the queue.

Memory: the hand-outs that are open. Errors: those of core.history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omq.core.history import Happening, History
from omq.core.slots import Vector
from omq.format.journal import FrameType

_ENDS: Final = frozenset({FrameType.DONE, FrameType.MOVE, FrameType.DEFER, FrameType.POISON,
                          FrameType.RELEASE_GIVEN})
_SEEN: Final = [int(kind) for kind in (*sorted(_ENDS), FrameType.PUT, FrameType.GIVE)]


@dataclass(slots=True)
class Measured:
    """What was seen of one queue."""

    arrived: int = 0
    finished: int = 0
    busy_ns: int = 0  # sum of service times
    readers: set[int] = field(default_factory=set)  # pids that were handed messages

    @property
    def service_s(self) -> float | None:
        """Mean seconds for a message; None when none was finished."""
        return self.busy_ns / self.finished / 1e9 if self.finished else None


@dataclass(slots=True)
class Times:
    """All queues over the period that was looked at."""

    queues: dict[str, Measured]
    from_ns: int
    to_ns: int

    @property
    def seconds(self) -> float:
        return max(1e-9, (self.to_ns - self.from_ns) / 1e9)


def measure(history: History, since_ns: int, to_ns: int) -> Times:
    """Everything from `since_ns` on, as far as the journal and its archive reach back."""
    times = Times({}, to_ns, to_ns)
    given: dict[tuple[int, str], tuple[int, int]] = {}  # (QPoolId, queue) -> (since, pid)
    free: dict[int, int] = {}  # pid -> when its last message ended

    def queue(name: str) -> Measured:
        return times.queues.setdefault(name, Measured())

    for each in history.read(lambda frames: (frames["time"] >= since_ns) & _mask(frames)):
        times.from_ns = min(times.from_ns, each.time_ns)
        if each.kind is FrameType.PUT:
            for name in each.targets or ((each.queue,) if each.queue else ()):
                queue(name).arrived += 1
        elif each.kind is FrameType.GIVE:
            given[each.qpool, each.queue] = (each.time_ns, each.pid)
            queue(each.queue).readers.add(each.pid)
        else:
            _end(each, given, free, queue(each.queue))
            if each.kind is FrameType.MOVE:
                for name in each.targets:
                    queue(name).arrived += 1
    return times


def _mask(frames: Vector) -> Vector:
    return np.isin(frames["type"], _SEEN)


def _end(each: Happening, given: dict[tuple[int, str], tuple[int, int]], free: dict[int, int],
         measured: Measured) -> None:
    since = given.pop((each.qpool, each.queue), None)
    if since is None or each.kind is FrameType.RELEASE_GIVEN:
        return
    began, pid = since
    began = max(began, free.get(pid, 0))
    free[pid] = each.time_ns
    measured.finished += 1
    measured.busy_ns += max(0, each.time_ns - began)
