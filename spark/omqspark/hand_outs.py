"""Accounting per hand-out: what each client got of each queue, and what it made of it.

`programs` has messages and their last readers; a message that one process failed and another one
finished is there with the second. Here each GIVE counts for who got it, and each answer for who
gave it or died before. Made of the events of a batch alone, each of which is of one batch: so days
that are shown anew add up to those of one run. The name of a client is that in the file of its
events, as each file names whom it speaks of.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from omq.format.frame_rules import Hand, Reason
from omq.format.journal import FrameFlag
from omq.format.pool import PartState
from omqtools.omqspark.answer_tables import Answer, Basis
from omqtools.omqspark.clients import PRODUCER, READER
from omqtools.omqspark.engine import F
from omqtools.omqspark.lifecycle import NS_PER_S, given_out, has, is_type

DAY_NS: Final = 86_400 * NS_PER_S
CLIENT: Final = ["epoch", "client", "pid", "uid", "queue"]
COUNTS: Final = ("gives", "give_bytes", "again", "done", "deferred", "returned", "failed", "deaths")


def _part(basis: Basis) -> DataFrame:
    given, failed = is_type(given_out), has(FrameFlag.FAILED)
    answered = is_type(lambda rule: rule.hand is Hand.FINISHED)
    deferred, ready = (is_type(lambda rule, state=state: (  # type: ignore[misc]
        rule.hand is Hand.FINISHED and rule.is_in(state))) for state in (
        PartState.DEFERRED, PartState.READY))
    died = is_type(lambda rule: rule.reasoned) & (F.col("reason") == int(Reason.DIED))
    told = basis.events.where((F.col("qpool") > 0) & (given | answered)).withColumn(
        "day_ns", F.col("time_ns") - F.pmod("time_ns", F.lit(DAY_NS))).groupBy(
        "file", *CLIENT, "day_ns").agg(
        F.count_if(given).alias("gives"),
        F.coalesce(F.sum(F.when(given, F.col("size"))), F.lit(0)).alias("give_bytes"),
        F.count_if(given & (F.col("attempt") > 1)).alias("again"),
        F.count_if(is_type(lambda rule: rule.hand is Hand.FINISHED and rule.leaves)
                   & ~failed).alias("done"),
        F.count_if(deferred & ~failed).alias("deferred"),
        F.count_if(ready & ~failed).alias("returned"),
        F.count_if(answered & failed).alias("failed"),
        F.count_if(answered & failed & died).alias("deaths"))
    names = basis.names.where(f"kind IN ('{PRODUCER}', '{READER}') AND bad IS NULL").groupBy(
        "file", "epoch", F.col("key").alias("client")).agg(
        F.max(F.when(F.col("kind") == READER, F.col("text"))).alias("reader_name"),
        F.max(F.when(F.col("kind") == PRODUCER, F.col("text"))).alias("own_name"))
    return told.join(names, ["file", "epoch", "client"], "left").groupBy(*CLIENT, "day_ns").agg(
        F.max(F.coalesce("reader_name", "own_name")).alias("program"),
        *(F.sum(name).alias(name) for name in COUNTS))


def _shown(parts: DataFrame, _stays: DataFrame) -> DataFrame:
    return parts.drop("day_ns")


HAND_OUTS: Final = Answer(
    "hand_outs", [*CLIENT, "day_ns"], {"program": "max"} | dict.fromkeys(COUNTS, "sum"), _part,
    _shown, by_event=True, day="day_ns")
