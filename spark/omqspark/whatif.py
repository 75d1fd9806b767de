"""What if there were more readers, or fewer: real arrivals and real service times, replayed.

For each queue the arrivals, priorities and the readers' own time for each message (`work_ns`) of a
span are taken from the archive and put through the scheduling rules (replay.py) with the number of
readers asked for. First with the number that there really was: how far the waits then are from
those that happened is the error that every answer has: `error_s`, the mean difference of a
message's wait. Readers take as many messages at once as they were seen to take (`batch`). What the
rules here do not know is in that error: readers that serve several queues, attempts after the
first. Messages that were put off, held or delayed are not replayed; `left_out` says how many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from omqtools.omqspark.replay import percentiles, replay

COLUMNS = ("queue int, readers int, batch int, kind string, messages bigint, p50_s double, "
           "p90_s double, p99_s double, mean_s double, busy double, error_s double, "
           "left_out bigint")

KINDS = ("real", "replayed", "asked")


def whatif(stays: DataFrame, readers: Mapping[int, int], *, from_ns: int = 0,
           to_ns: int = 1 << 62) -> DataFrame:
    """Three rows a queue: kind "real" (what happened), "replayed" (the same readers, replayed),
    "asked" (with `readers`; only for the queues named there)."""
    span = stays.where(F.col("work_ns").isNotNull() & (F.col("arrived_ns") >= from_ns)
                       & (F.col("arrived_ns") < to_ns))
    asked = dict(readers)

    def one(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame(queue_rows(frame, asked))

    chosen = span.select("queue", "arrived_ns", "arrived_lsn", "given_ns", "left_ns", "priority",
                         "work_ns", "reader", "last_epoch",
                         ((F.col("put_off") > 0) | (F.col("until_s") > 0)).alias("apart"))
    if asked:
        chosen = chosen.where(F.col("queue").isin(*asked))
    order = F.array_position(F.array(*map(F.lit, KINDS)), F.col("kind"))
    return chosen.groupBy("queue").applyInPandas(
        lambda frame: next(one(iter([frame]))), COLUMNS).orderBy("queue", order)


def queue_rows(frame: pd.DataFrame, asked: Mapping[int, int]) -> list[dict[str, Any]]:
    queue, had, batch = int(frame["queue"].iloc[0]), readers_seen(frame), batch_seen(frame)
    left_out = int(frame["apart"].sum())
    frame = frame[~frame["apart"]].sort_values(["arrived_ns", "arrived_lsn"], kind="stable")
    if frame.empty:
        return []
    base = int(frame["arrived_ns"].iloc[0])
    arrival = (frame["arrived_ns"].to_numpy() - base) / 1e9
    work = frame["work_ns"].to_numpy() / 1e9
    priority = frame["priority"].fillna(4).to_numpy()
    real = (frame["given_ns"].to_numpy() - frame["arrived_ns"].to_numpy()) / 1e9
    out = [_row(queue, had, "real", real, work, arrival)]
    for kind, count in (("replayed", had), ("asked", asked.get(queue, 0))):
        if count:
            waits = replay(arrival, priority, work, count, batch=batch).start - arrival
            out.append(_row(queue, count, kind, waits, work, arrival))
            if kind == "replayed":
                error = float(np.mean(np.abs(waits - np.maximum(real, 0.0))))
    return [row | {"batch": batch, "error_s": error, "left_out": left_out} for row in out]


def readers_seen(frame: pd.DataFrame) -> int:
    """How many readers there were at once at most. One that begins when another has ended (or has
    died) takes its place: a reader is there from its first hand-out to the end of its last."""
    spans = frame.groupby(["last_epoch", "reader"]).agg(
        begin=("given_ns", "min"), end=("left_ns", "max"))
    times = np.concatenate([spans["begin"].to_numpy(), spans["end"].to_numpy()])
    steps = np.repeat([1, -1], len(spans))
    order = np.lexsort((steps, times))  # at one instant the one that ends goes first
    return max(1, int(np.cumsum(steps[order]).max()))


def batch_seen(frame: pd.DataFrame) -> int:
    """How many messages a reader took at once at most."""
    return int(frame.groupby(["last_epoch", "reader", "given_ns"]).size().max())


def _row(queue: int, readers: int, kind: str, waits: Any, work: Any, arrival: Any
         ) -> dict[str, Any]:
    found = percentiles(np.maximum(waits, 0.0))
    span = float(arrival[-1] - arrival[0]) or 1.0
    return {"queue": queue, "readers": readers, "kind": kind, "messages": len(waits),
            "p50_s": found["p50"], "p90_s": found["p90"], "p99_s": found["p99"],
            "mean_s": float(np.mean(waits)), "busy": float(work.sum() / span / readers)}
