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

import numpy as np

from omq.base.arrays import Vector
from omq.core.history.frames import History
from omq.format.frame_rules import Comes, Hand, mask
from omq.format.pool import PartState
from omq.storage.journal_scan import Block

_HANDS: Final = mask(lambda rule: rule.hand is not Hand.NOTHING)
_PLAIN: Final = mask(lambda rule: rule.makes and rule.comes is Comes.NAMED)  # without parts
_NAMED: Final = mask(lambda rule: rule.comes is Comes.NAMED)
_GIVEN: Final = frozenset(np.flatnonzero(mask(lambda rule: rule.hand is Hand.GIVEN)).tolist())
_UNTOUCHED: Final = frozenset(np.flatnonzero(
    mask(lambda rule: rule.is_in(PartState.READY))).tolist())


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

    def of(self, name: str) -> Measured:
        """What was seen of a queue, to be added to."""
        return self.queues.setdefault(name, Measured())


def measure(history: History, since_ns: int, to_ns: int) -> Times:
    """Everything from `since_ns` on, as far as the journal and its archive reach back."""
    times = Times({}, to_ns, to_ns)
    hands = _Hands()
    for block in history.learned():
        frames, types = block.frames, block.frames["type"]
        seen = (frames["time"] >= since_ns) & (_HANDS[types] | _NAMED[types])
        if not seen.any():
            continue
        times.from_ns = min(times.from_ns, int(frames["time"][seen].min()))
        _arrivals(history, block, np.flatnonzero(seen & _NAMED[types]), times)
        hands.take(history, frames[seen & _HANDS[types]], times)
    return times


def _arrivals(history: History, block: Block, rows: Vector, times: Times) -> None:
    """Puts on one queue are counted by columns; the payload of others is looked at."""
    frames = block.frames
    plain = _PLAIN[frames["type"][rows]] & (frames["parts"][rows] == 0)
    queues, counts = np.unique(frames["queue"][rows[plain]], return_counts=True)
    for queue, count in zip(queues.tolist(), counts.tolist(), strict=True):
        if queue:
            times.of(history.queue_name(queue)).arrived += count
    for row in rows[~plain].tolist():
        for name in history.targets_of(block, row):
            times.of(name).arrived += 1


class _Hands:
    """Hand-outs that are open, and since when each reader has no more to do."""

    def __init__(self) -> None:
        self._given: dict[tuple[int, int], tuple[int, int]] = {}  # QPoolId, queue -> since, pid
        self._free: dict[int, int] = {}  # pid -> when its last message ended

    def take(self, history: History, frames: Vector, times: Times) -> None:
        """Frames of hand-outs and of their ends, in order."""
        measured = {queue: times.of(history.queue_name(queue))
                    for queue in np.unique(frames["queue"]).tolist()}
        columns = (frames[name].tolist() for name in ("type", "qpool", "queue", "time", "pid"))
        for kind, qpool, queue, time_ns, pid in zip(*columns, strict=True):
            if kind in _GIVEN:
                self._given[qpool, queue] = (time_ns, pid)
                measured[queue].readers.add(pid)
                continue
            since = self._given.pop((qpool, queue), None)
            if since is None or kind in _UNTOUCHED:
                continue
            began = max(since[0], self._free.get(since[1], 0))
            self._free[since[1]] = time_ns
            measured[queue].finished += 1
            measured[queue].busy_ns += max(0, time_ns - began)
