"""Time travel and biographies: what was on each queue at an instant, and what happened to one
message."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from omq.format.journal import FrameFlag, FrameType
from omq.format.pool import PartState
from omqtools.omqspark.lake import Lake, all_messages
from omqtools.omqspark.lifecycle import NS_PER_S, Ends, has, is_type, stays

READY, DEFERRED = PartState.READY.name, PartState.DEFERRED.name


def bronze(lake: Lake) -> DataFrame:
    """All events that could be read and count."""
    return lake.read("bronze").where("bad IS NULL")


def state_at(lake: Lake, *, lsn: int | None = None, time_ns: int | None = None) -> DataFrame:
    """Every queue's messages at an LSN (that frame included) or a time: one row each, in the order
    in which they would be handed out. `state` is that of the index: a message whose time has come
    by then (by the last frame up to the LSN) is READY, which leaves no frame."""
    events, now_ns = bronze(lake), time_ns
    ends = lake.known().epoch_ends()
    if lsn is not None:
        events = events.where(F.col("lsn") <= lsn)
        ends = [end for end in ends if end[1] <= lsn]
    if time_ns is not None:
        events = events.where(F.col("time_ns") <= time_ns)
        ends = [end for end in ends if end[2] <= time_ns]
    else:
        latest = events.agg(F.max("time_ns")).first()
        now_ns = int(latest[0] or 0) if latest else 0
    return state_of(events, ends, F.lit(now_ns)).orderBy(
        "queue", F.desc("priority"), "arrived_lsn")


def state_of(events: DataFrame, ends: Ends, now_ns: Column) -> DataFrame:
    """What is on the queues behind these events, when it is `now_ns`; in no order."""
    here = stays(events, ends).where("left_lsn IS NULL")
    last = events.where(is_type(lambda rule: rule.entry is not None)).groupBy("qpool", "queue").agg(
        F.max_by("type", "lsn").alias("last_type"), F.max_by("argument", "lsn").alias("argument"),
        F.max("lsn").alias("state_lsn"))
    doubtful = events.where(is_type(lambda rule: rule.makes) & has(FrameFlag.PREPARED)).select(
        "qpool", F.col("lsn").alias("arrived_lsn"), F.lit(1).alias("in_doubt"))
    # Where it was put, until a frame says otherwise; not where it was moved to afterwards.
    here = here.join(doubtful, ["qpool", "arrived_lsn"], "left")
    joined = here.join(last, ["qpool", "queue"], "left").withColumn(
        "since", F.when(F.col("state_lsn") > F.col("arrived_lsn"), F.col("last_type")))
    deferred, held, active, prepared = (is_type(methodcaller("is_in", state), "since") for state in
                                        (PartState.DEFERRED, PartState.HELD, PartState.ACTIVE,
                                         PartState.PREPARED))
    until = F.when(deferred, F.col("argument")).when(
        F.col("since").isNull() & (F.col("until_s") > 0), F.col("until_s") * NS_PER_S)
    return joined.select(
        "queue", "qpool", "priority", "arrived_lsn", "arrived_ns", "attempts", "size",
        F.when(active, PartState.ACTIVE.name).when(held, PartState.HELD.name)
        .when(prepared | (F.col("since").isNull() & F.col("in_doubt").isNotNull()),
              PartState.PREPARED.name)
        .when(until > now_ns, DEFERRED).otherwise(READY).alias("state"),
        until.alias("until_ns"))


def biography(lake: Lake, condition: str) -> DataFrame:
    """All events of the messages for which `condition` holds (a condition over the columns of the
    table messages, for instance "qpool = 42" or "producer_pid = 1005 AND failed > 0")."""
    chosen = all_messages(lake).where(condition).select("qpool")
    texts = lake.read("names").where("kind = 'text'").groupBy("lsn").agg(
        F.first("text").alias("text"))
    return bronze(lake).join(chosen, "qpool", "left_semi").join(texts, "lsn", "left").orderBy(
        "qpool", "lsn")


def told(row: Any, names: dict[int, str]) -> str:
    """One event of a biography as a line for people."""
    kind = FrameType(row["type"]).name if row["type"] in set(FrameType) else str(row["type"])
    queue = names.get(row["queue"], str(row["queue"]))
    words = [f"{row['ts']}", f"lsn {row['lsn']}", kind, queue]
    if row["onto"]:
        words.append("onto " + ", ".join(names.get(q, str(q)) for q in row["onto"]))
    if row["attempt"]:
        words.append(f"attempt {row['attempt']}")
    if row["pid"]:
        words.append(f"pid {row['pid']}")
    if row["text"]:
        words.append(repr(row["text"]))
    return "  ".join(words)
