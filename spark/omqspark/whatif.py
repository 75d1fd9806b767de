"""What if there were more readers, or fewer: real arrivals and real service times, replayed.

For each queue the arrivals, priorities and the readers' own time for each message (`work_ns`) of a
span are taken from the archive and put through the scheduling rules (replay.py) with the number of
readers asked for. First with the number that there really was: how far the waits then are from
those that happened is the error that every answer has: `error_s`, the mean difference of a
message's wait, and `error_share`, that as a share of the mean wait (or of the mean work, if waits
are shorter). Above ERROR_SHARE_MAX there is no answer: `refused`. Readers take as many messages at
once as they were seen to take (`batch`), and do one after another. While a reader was not there
(dead and not back yet, stopped, its manager down) it gets nothing in the replay
(reader_presence.py).

What takes a reader's time and has no wait to be told is replayed as a load: it comes when it really
began, and goes first. That is the last attempt of a message that was put off, held, or given again
(failed, its reader died, its unit was backed out; `left_out` says how many of these), and what the
queue's readers did for other queues. A delayed message comes when its time has come.

A reader that works on several messages at once, as the service that sends mail does (ADR 0030), is
known by ending them in another order than it got them in (ADR 0097). It is replayed as a window: as
many places as it was seen to have messages in hand, each message in one of them for as long as it
was in hand. What the rules here do not know is in the error: failed attempts before the last one,
and that a message would be in hand for a shorter or longer time if others were not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from omq.base.clock import NS_PER_S
from omqtools.omqspark.reader_presence import away, is_known
from omqtools.omqspark.replay import ERROR_SHARE_MAX, percentiles, replay

COLUMNS = ("queue int, readers int, batch int, at_once int, kind string, messages bigint, "
           "p50_s double, p90_s double, p99_s double, mean_s double, busy double, error_s double, "
           "left_out bigint, error_share double, refused boolean")

_NAMES = [column.split()[0] for column in COLUMNS.split(", ")]
KINDS = ("real", "replayed", "asked")
OUT_OF_TURN_MIN = 0.02
"""Who does one after another may end a few in another order: an attempt that was given back. Of a
mail service's messages, whose peers are of different speed, a good part is out of turn."""
FIRST = 10  # before all priorities
EARLIER_NS = 1_000_000
"""A load is there when its reader becomes free for it, or another message would be taken first."""
TOLD = ("p50_s", "p90_s", "p99_s", "mean_s", "busy")


def whatif(stays: DataFrame, readers: Mapping[int, int], steps: DataFrame, *, from_ns: int = 0,
           to_ns: int = 1 << 62) -> DataFrame:
    """Three rows a queue: kind "real" (what happened), "replayed" (the same readers, replayed),
    "asked" (with `readers`; only for the queues named there). `steps`: presence.STEPS."""
    asked = dict(readers)
    chosen = replayable(stays, from_ns, to_ns)
    if asked:
        chosen = chosen.where(F.col("queue").isin(*asked))
    order = F.array_position(F.array(*map(F.lit, KINDS)), F.col("kind"))
    return chosen.groupBy("queue").cogroup(steps.groupBy("queue")).applyInPandas(
        lambda frame, there: pd.DataFrame(
            [] if frame.empty else queue_rows(frame, asked, there), columns=_NAMES), COLUMNS
    ).orderBy("queue", order)


def replayable(stays: DataFrame, from_ns: int, to_ns: int) -> DataFrame:
    """What the replay needs to know of stays that arrived in a span."""
    span = stays.where(F.col("work_ns").isNotNull() & (F.col("arrived_ns") >= from_ns)
                       & (F.col("arrived_ns") < to_ns))
    again = (F.col("put_off") > 0) | (F.col("gives") > 1)
    ready = F.greatest("arrived_ns", F.col("until_s") * NS_PER_S)
    own = span.select(
        "queue", F.when(again, F.col("last_given_ns")).otherwise(ready).alias("arrived_ns"),
        "arrived_lsn", F.when(again, F.col("last_given_ns")).otherwise(F.col("given_ns")
                                                                       ).alias("given_ns"),
        "left_ns", "priority", "work_ns", "reader", "last_epoch", again.alias("apart"),
        F.expr("false").alias("elsewhere"))
    reader = ["last_epoch", "reader"]
    several = own.groupBy(*reader).agg(F.collect_set("queue").alias("queues")).where(
        "size(queues) > 1")
    began = F.col("left_ns") - F.col("work_ns")
    other = own.join(several, reader).withColumn("at", F.explode("queues")).where("at != queue")
    return own.unionByName(other.withColumns({
        "queue": F.col("at"), "arrived_ns": began, "given_ns": began, "apart": F.expr("true"),
        "elsewhere": F.expr("true")}).select(*own.columns))


@dataclass(frozen=True)
class Past:
    """What happened on a queue, in seconds from its first arrival (`base_ns`) on. `judged`: which
    rows have a wait; `real`, `replayed`: theirs; `left_out`, `error_s`, `error_share`: see the
    module."""

    base_ns: int
    arrival: Any
    work: Any
    priority: Any
    judged: Any
    real: Any
    readers: int
    batch: int
    at_once: int
    left_out: int
    there: pd.DataFrame | None = None
    last_ns: int = 0

    @classmethod
    def of(cls, frame: pd.DataFrame, there: pd.DataFrame | None = None) -> Past | None:
        """None: nothing of it can be replayed. `there`: presence.STEPS of the queue."""
        if frame["apart"].all():
            return None
        own = frame[~frame["elsewhere"]]
        frame = frame.assign(arrived_ns=frame["arrived_ns"].where(
            ~frame["apart"], frame["arrived_ns"] - EARLIER_NS)).sort_values(
            ["arrived_ns", "arrived_lsn"], kind="stable")
        judged = ~frame["apart"].to_numpy(bool)
        base = int(frame["arrived_ns"].iloc[0])
        arrival = (frame["arrived_ns"].to_numpy() - base) / 1e9
        real = (frame["given_ns"].to_numpy() - frame["arrived_ns"].to_numpy())[judged] / 1e9
        priority = np.where(judged, frame["priority"].fillna(4).to_numpy(), FIRST)
        several = out_of_turn(own) > OUT_OF_TURN_MIN
        held = frame["left_ns"] - frame["given_ns"]
        work = (held if several else frame["work_ns"]).to_numpy() / 1e9
        return cls(base, arrival, work, priority, judged, real, readers_seen(own),
                   1 if several else batch_seen(own), in_hand_seen(own) if several else 1,
                   int(own["apart"].sum()), _known(own, there), int(own["given_ns"].max()))

    def waits(self, readers: int) -> Any:
        """Each judged message's wait if there were so many."""
        gone = [] if self.there is None else [
            spans for spans in away(self.there, (self.base_ns, self.last_ns), readers, self.readers)
            for _ in range(self.at_once)]
        done = replay(self.arrival, self.priority, self.work, readers * self.at_once,
                      batch=self.batch, away=gone)
        return (done.start - self.arrival)[self.judged]

    @cached_property
    def replayed(self) -> Any:
        return self.waits(self.readers)

    @property
    def came_ns(self) -> Any:
        """When each judged message came."""
        return self.base_ns + np.round(self.arrival[self.judged] * 1e9).astype("<i8")

    @property
    def error_s(self) -> float:
        return float(np.mean(np.abs(self.replayed - np.maximum(self.real, 0.0))))

    @property
    def error_share(self) -> float:
        usual = max(float(np.mean(np.maximum(self.real, 0.0))), float(np.mean(self.work)))
        return self.error_s / usual if usual else 0.0


def _known(own: pd.DataFrame, there: pd.DataFrame | None) -> pd.DataFrame | None:
    if there is None:
        return None
    ordered = there.sort_values("at_ns", kind="stable")
    return ordered if is_known(ordered, own["given_ns"]) else None


def queue_rows(frame: pd.DataFrame, asked: Mapping[int, int], there: pd.DataFrame | None = None
               ) -> list[dict[str, Any]]:
    """The rows of one queue."""
    queue, past = int(frame["queue"].iloc[0]), Past.of(frame, there)
    if past is None:
        return []
    refused = past.error_share > ERROR_SHARE_MAX
    out = [_row(queue, past.readers, "real", past.real, past),
           _row(queue, past.readers, "replayed", past.replayed, past)]
    if count := asked.get(queue, 0):
        out.append(_row(queue, count, "asked", past.replayed if refused else past.waits(count),
                        past))
        if refused:
            out[-1] |= dict.fromkeys(TOLD)
    same = {"batch": past.batch, "at_once": past.at_once, "error_s": past.error_s,
            "left_out": past.left_out, "error_share": past.error_share}
    return [row | same | {"refused": refused and row["kind"] == "asked"} for row in out]


def readers_seen(frame: pd.DataFrame) -> int:
    """How many readers there were at once at most. One that begins when another has ended (or has
    died) takes its place: a reader is there from its first hand-out to the end of its last."""
    spans = frame.groupby(["last_epoch", "reader"]).agg(
        begin=("given_ns", "min"), end=("left_ns", "max"))
    return _most(spans["begin"].to_numpy(), spans["end"].to_numpy())


def in_hand_seen(frame: pd.DataFrame) -> int:
    """How many messages one reader had in hand at once at most."""
    return max(_most(part["given_ns"].to_numpy(), part["left_ns"].to_numpy())
               for _, part in frame.groupby(["last_epoch", "reader"]))


def _most(begins: Any, ends: Any) -> int:
    """Of spans, how many there are at one instant at most."""
    times = np.concatenate([begins, ends])
    steps = np.repeat([1, -1], len(begins))
    order = np.lexsort((steps, times))  # at one instant the one that ends goes first
    return max(1, int(np.cumsum(steps[order]).max()))


def out_of_turn(frame: pd.DataFrame) -> float:
    """The share of messages that ended before one that their reader had got earlier. Of those that
    it got together none is earlier."""
    one = frame.sort_values(["last_epoch", "reader", "given_ns"], kind="stable")
    together = one.groupby(["last_epoch", "reader", "given_ns"])["left_ns"].max()
    before = together.groupby(["last_epoch", "reader"]).cummax().groupby(
        ["last_epoch", "reader"]).shift()
    place = pd.MultiIndex.from_frame(one[["last_epoch", "reader", "given_ns"]])
    return float(np.mean(one["left_ns"].to_numpy() < before.reindex(place).to_numpy()))


def batch_seen(frame: pd.DataFrame) -> int:
    """How many messages a reader took at once at most."""
    return int(frame.groupby(["last_epoch", "reader", "given_ns"]).size().max())


def _row(queue: int, readers: int, kind: str, waits: Any, past: Past) -> dict[str, Any]:
    found = percentiles(np.maximum(waits, 0.0))
    span = float(past.arrival[-1] - past.arrival[0]) or 1.0
    return {"queue": queue, "readers": readers, "kind": kind, "messages": len(waits),
            "p50_s": found["p50"], "p90_s": found["p90"], "p99_s": found["p99"],
            "mean_s": float(np.mean(waits)),
            "busy": float(past.work.sum() / span / readers / past.at_once)}
