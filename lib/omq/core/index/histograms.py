"""What the index says of times: its histograms (format.durations), as copies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omq.core.index.copies import IndexCopies
from omq.format.durations import BINS
from omq.format.index import Counter


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of places, and the sum of what they count: microseconds, or frames."""

    counts: tuple[int, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Spent:
    """Of one queue: from put to hand-out, from hand-out to done."""

    waits: Histogram
    works: Histogram


@dataclass(frozen=True, slots=True)
class Journal:
    """Of the journal: its syncs, and its blocks by their frames."""

    syncs: Histogram
    groups: Histogram


def of_queues(copies: IndexCopies) -> dict[int, Spent]:
    """By the number of the queue; those that have handed out nothing are not in it."""
    queues = copies.high(Counter.QUEUES_HIGH, copies.layout.queues)
    waits, works = (copies.table(name)[: queues * BINS].reshape(queues, BINS)
                    for name in ("q_waits", "q_works"))
    waited, worked = (copies.table(name)[:queues].tolist()
                      for name in ("q_waited_us", "q_worked_us"))
    return {queue: Spent(Histogram(tuple(waits[queue].tolist()), waited[queue]),
                         Histogram(tuple(works[queue].tolist()), worked[queue]))
            for queue in np.flatnonzero(waits.any(axis=1)).tolist()}


def of_journal(copies: IndexCopies) -> Journal:
    """Since the start of the manager."""
    counters = copies.counters()
    return Journal(Histogram(tuple(copies.table("j_syncs").tolist()), counters[Counter.SYNC_US]),
                   Histogram(tuple(copies.table("j_groups").tolist()), counters[Counter.FRAMES]))
