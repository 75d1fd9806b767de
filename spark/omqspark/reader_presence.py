"""How many readers a queue had at each time, from what the journal says of readers: READER_UP,
READER_DOWN, and the ends of managers. The replay hands nothing out while nobody was there.

    steps    (queue, at_ns, readers): so many from this time on, until the next step; 0 before
    away     for each reader of a replay the spans in which it is not there, seconds

Reader number i is there while more than i were registered; one that is only asked about, while
anybody was. A queue of which the journal names no reader, or on which messages were handed out
while none was registered (by units of work), has no steps: its readers count as always there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame

from omq.format.frame_rules import About, By, numbers
from omqtools.omqspark.lake import Lake

STEPS: Final = "queue int, at_ns bigint, readers int"
GONE: Final = frozenset(numbers(
    lambda rule: rule.about is About.READER and By.MANAGER in rule.by))
"""A manager says of its own that a reader is gone, never that one has come."""
STRANGE_MAX: Final = 0.01
"""Share of hand-outs to nobody from which on a queue's readers are not known."""
SLACK_NS: Final = 10_000_000  # frames of one turn have times of their own
Span = tuple[float, float]


def steps(lake: Lake) -> DataFrame:
    """STEPS of all queues."""
    known, last = lake.known(), dict[int, int]()
    for record in known.files.values():
        last[record.epoch] = max(last.get(record.epoch, 0), record.time_max)
    types = ", ".join(map(str, numbers(lambda rule: rule.about is About.READER)))
    events = lake.read("bronze").where(f"type IN ({types}) AND queue > 0").select(
        "queue", "epoch", "client", "type", "time_ns", "lsn")
    return events.groupBy("queue").applyInPandas(lambda rows: counted(rows, last), STEPS)


def counted(rows: pd.DataFrame, last: Mapping[int, int]) -> pd.DataFrame:
    """STEPS of one queue. `last`: epoch -> ns of its last frame: then all its readers are gone. A
    reader that is named again, at the head of a file, is there once."""
    there, found = set[int](), list[tuple[int, int, int]]()
    epoch, queue = 0, int(rows["queue"].iloc[0])
    for row in rows.sort_values("lsn").itertuples():
        if row.epoch != epoch:
            if there:
                found.append((queue, last.get(epoch, int(row.time_ns)), 0))
            there, epoch = set(), row.epoch
        (there.discard if row.type in GONE else there.add)(row.client)
        found.append((queue, int(row.time_ns), len(there)))
    if there and epoch != max(last, default=epoch):
        found.append((queue, last[epoch], 0))
    return pd.DataFrame(found, columns=["queue", "at_ns", "readers"])


def there_at(at_ns: Any, frame: pd.DataFrame) -> Any:
    """How many readers there were at some times."""
    times = frame["at_ns"].to_numpy()
    place = np.searchsorted(times, np.asarray(at_ns), side="right")
    return np.concatenate([[0], frame["readers"].to_numpy()])[place]


def is_known(frame: pd.DataFrame, given_ns: Any) -> bool:
    """Whether the steps of a queue fit the hand-outs that there were."""
    if frame.empty:
        return False
    given = np.asarray(given_ns)
    nobody = (there_at(given, frame) == 0) & (there_at(given + SLACK_NS, frame) == 0) & (
        there_at(given - SLACK_NS, frame) == 0)
    return bool(nobody.mean() <= STRANGE_MAX)


def away(frame: pd.DataFrame, span_ns: tuple[int, int], readers: int, had: int
         ) -> list[list[Span]]:
    """Of each of so many readers of a replay, of whom there were `had`: when it is not there, in
    seconds from the first of `span_ns` on, until the second at most: then the last hand-out was."""
    begins = np.concatenate([[-np.inf], (frame["at_ns"].to_numpy() - span_ns[0]) / 1e9])
    last = (span_ns[1] - span_ns[0]) / 1e9
    ends = np.minimum(np.concatenate([begins[1:], [np.inf]]), last)
    count = np.concatenate([[0], frame["readers"].to_numpy()])
    return [_together(begins, ends, count <= (reader if reader < had else 0))
            for reader in range(readers)]


def _together(begins: Any, ends: Any, gone: Any) -> list[Span]:
    found: list[Span] = []
    for begin, end in zip(begins[gone].tolist(), ends[gone].tolist(), strict=True):
        if end <= begin:
            continue
        if found and found[-1][1] >= begin:
            begin = found.pop()[0]
        found.append((begin, end))
    return found
