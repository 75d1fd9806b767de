"""How many readers a queue needs, hour by hour, for a wait that is wished: `omq-spark advise`.

Each queue's day is replayed (whatif.py) with one reader, two, three ...; an hour needs the smallest
number with which 95 of 100 messages that arrived in it waited no longer than wished. A number holds
for the whole day in its replay, so an hour after a busy one is not asked for less than it takes to
work off what that one left, with its own number. Days are separate: what is still on the queue at
midnight counts for the day on which it arrived.

No advice where the replay of what happened is more than ERROR_SHARE_MAX off (`refused`), nor where
READERS_MAX readers do not help (`readers` null): then the work itself takes longer.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from omq.base.clock import NS_PER_S
from omqtools.omqspark.replay import ERROR_SHARE_MAX
from omqtools.omqspark.whatif import Past, replayable

HOUR_NS: Final = 3600 * NS_PER_S
DAY_NS: Final = 24 * HOUR_NS
READERS_MAX: Final = 256
QUANTILE: Final = 0.95
COLUMNS: Final = ("queue int, hour_ns bigint, arrivals bigint, readers int, p95_s double, "
                  "had int, had_p95_s double, error_share double, refused boolean")
_NAMES: Final = [column.split()[0] for column in COLUMNS.split(", ")]


def advise(stays: DataFrame, wished_s: float, steps: DataFrame, *, from_ns: int = 0,
           to_ns: int = 1 << 62) -> DataFrame:
    """A row a queue and hour: `readers` for the wished wait, next to what there was (`had`).
    `steps`: presence.STEPS."""
    chosen = replayable(stays, from_ns, to_ns).withColumn(
        "of_day", F.expr(f"arrived_ns div {DAY_NS}"))
    return chosen.groupBy("queue").cogroup(steps.groupBy("queue")).applyInPandas(
        lambda frame, there: pd.DataFrame([
            row for _, day in frame.groupby("of_day") for row in day_rows(day, wished_s, there)],
            columns=_NAMES), COLUMNS
    ).orderBy("queue", "hour_ns")


def day_rows(frame: pd.DataFrame, wished_s: float, there: pd.DataFrame | None = None
             ) -> list[dict[str, Any]]:
    """The rows of one queue and day."""
    past = Past.of(frame, there)
    if past is None:
        return []
    hours = past.came_ns // HOUR_NS
    refused = past.error_share > ERROR_SHARE_MAX
    needed = {} if refused else _needed(past, hours, wished_s)
    out = []
    for hour in np.unique(hours).tolist():
        mine = hours == hour
        readers, wait_s = needed.get(hour, (None, None))
        out.append({
            "queue": int(frame["queue"].iloc[0]), "hour_ns": hour * HOUR_NS,
            "arrivals": int(mine.sum()), "readers": readers, "p95_s": wait_s,
            "had": past.readers, "had_p95_s": _p95(past.real[mine]),
            "error_share": past.error_share, "refused": refused})
    return out


def _needed(past: Past, hours: Any, wished_s: float) -> dict[int, tuple[int, float]]:
    """Hour -> (readers, the wait that 95 of 100 then have at most)."""
    left, found = set(np.unique(hours).tolist()), {}
    for readers in range(1, READERS_MAX + 1):
        waits = past.waits(readers)
        for hour in sorted(left):
            wait_s = _p95(waits[hours == hour])
            if wait_s <= wished_s:
                found[hour] = (readers, wait_s)
                left.discard(hour)
        if not left or not waits.any():
            break
    return found


def _p95(waits: Any) -> float:
    return float(np.quantile(np.maximum(waits, 0.0), QUANTILE))
