"""Measured from the journal: how long readers need for a message, and how many come.

A service time is from the hand-out (GIVE) to the end of the reader's work on it (DONE, MOVE, or a
DEFER or POISON by it), matched by the lease. A batch is handed out at once, so the time of each of
its messages is counted from when the one before it ended, if that reader held it. Arrivals are the
frames that put a message on the queue.

Memory: the hand-outs that are open. Errors: those of core.history.frames.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from omq.core.history.frames import Happening, History
from omq.format.frame_rules import Comes, Hand, mask
from omq.format.pool import PartState

_SEEN: Final = mask(lambda rule: rule.makes or rule.hand is not Hand.NOTHING)


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

    for each in history.read(lambda frames: (frames["time"] >= since_ns) & _SEEN[frames["type"]]):
        times.from_ns = min(times.from_ns, each.time_ns)
        if each.rule.hand is Hand.GIVEN:
            given[each.qpool, each.queue] = (each.time_ns, each.pid)
            queue(each.queue).readers.add(each.pid)
        elif each.rule.hand is Hand.FINISHED:
            _end(each, given, free, queue(each.queue))
        if each.rule.comes is Comes.NAMED:
            own = (each.queue,) if each.rule.makes and each.queue else ()
            for name in each.targets or own:
                queue(name).arrived += 1
    return times


def _end(each: Happening, given: dict[tuple[int, str], tuple[int, int]], free: dict[int, int],
         measured: Measured) -> None:
    since = given.pop((each.qpool, each.queue), None)
    if since is None or each.rule.is_in(PartState.READY):  # untouched
        return
    began, pid = since
    began = max(began, free.get(pid, 0))
    free[pid] = each.time_ns
    measured.finished += 1
    measured.busy_ns += max(0, each.time_ns - began)
