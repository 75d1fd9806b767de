"""The histograms of the index as Prometheus metrics.

The index counts by powers of two. Of a queue every second edge goes out, 65 us to 20 hours, so that
a thousand queues are 36,000 series and not twice that; of the journal, all that it can have. A
queue that has handed out nothing since the start has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric

from omq.base.clock import NS_PER_S
from omq.core.index.histograms import Histogram, Journal, Spent
from omq.format.durations import EDGES_NS, SIZES, SYNCS_TIMED

_US: Final = 1_000_000
QUEUE_EDGES: Final = range(0, len(EDGES_NS), 2)
_SYNC_EDGES: Final = range(20)  # to 34 s
_SIZE_EDGES: Final = range(14)  # to 8192 frames


def of_queues(spent: Iterable[tuple[list[str], Spent]], labels: Sequence[str]) -> Iterator[Metric]:
    """`spent`: with the values of the labels, of each queue."""
    waits = HistogramMetricFamily(
        "omq_queue_wait_seconds", "Time from the put of a message on the queue to each of its "
        "hand-outs, delays that were asked for included", labels=labels)
    works = HistogramMetricFamily(
        "omq_queue_work_seconds", "Time from the hand-out of a message to its done or move by the "
        "reader", labels=labels)
    for values, each in spent:
        _times(waits, values, each.waits, QUEUE_EDGES)
        _times(works, values, each.works, QUEUE_EDGES)
    if waits.samples:
        yield from (waits, works)


def of_journal(found: Journal, labels: Sequence[str], values: list[str]) -> Iterator[Metric]:
    """Syncs and groups."""
    syncs = HistogramMetricFamily(
        "omq_journal_sync_seconds", f"How long a sync of the journal took; one in {SYNCS_TIMED} is "
        "timed", labels=labels)
    _times(syncs, values, found.syncs, _SYNC_EDGES)
    groups = HistogramMetricFamily(
        "omq_journal_group_frames", "Frames of a group, which is written as one block",
        labels=labels)
    groups.add_metric(values, _buckets(found.groups.counts, _SIZE_EDGES, [
        float(size) for size in SIZES]), found.groups.total)
    yield from (syncs, groups)


def _times(family: HistogramMetricFamily, values: list[str], found: Histogram, edges: range
           ) -> None:
    family.add_metric(values, _buckets(found.counts, edges, [edge / NS_PER_S for edge in EDGES_NS]),
                      found.total / _US)


def _buckets(counts: Sequence[int], edges: range, limits: Sequence[float]
             ) -> list[tuple[str, float]]:
    """As Prometheus wants them: all that is at most the edge."""
    found = [(repr(limits[place]), float(sum(counts[: place + 1]))) for place in edges]
    return [*found, ("+Inf", float(sum(counts)))]
