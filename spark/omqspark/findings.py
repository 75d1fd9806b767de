"""What the audit calls a finding, out of messages and stays: rows (kind, qpool, lsn, final).
`final`: nothing that follows can change it.

    duplicated     two PUTs, or two ends, of one QPoolId
    resurrected    a frame of a message behind its end
    attempts       more attempts than the limit
    out_of_order   handed out for the first time after a later one of the same queue, priority and
                   producer; not judged where the message was put off, held, delayed or handed out
                   again, where the reader chose it or it is of a group (the GIVE says so), or where
                   a manager was started in between
    lost           persistent, put, without an end, and neither in the pool nor ended in the journal
                   after the archive (pool.py)

Where rows of an earlier time are not looked at again (audited.py), order is judged with what
`turns` says of them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from omq.format.frame_rules import GIVEN_OUT_OF_TURN, Argument
from omqtools.omqspark.engine import F, Window
from omqtools.omqspark.lifecycle import is_type

LINE: Final = ("queue", "priority", "producer_pid")
"""Messages with the same of these are handed out in the order of their arrival."""


def message_findings(messages: DataFrame, attempts_max: int) -> DataFrame:
    """duplicated, resurrected, attempts."""
    by_id = messages.groupBy("qpool").agg(
        F.sum("puts").alias("puts"), F.sum("ends").alias("ends"),
        F.min("end_lsn").alias("end_lsn"), F.max("last_lsn").alias("last_lsn"),
        F.max("attempts_max").alias("attempts_max"))
    checks = {
        "duplicated": (F.col("puts") > 1) | (F.col("ends") > 1),
        "resurrected": (F.col("last_lsn") > F.col("end_lsn")) & (F.col("puts") <= 1)
        & (F.col("ends") <= 1),
        "attempts": F.col("attempts_max") > attempts_max}
    parts = F.array(*(F.when(test, F.lit(kind)) for kind, test in checks.items()))
    return (by_id.withColumn("kind", F.explode(parts)).where("kind IS NOT NULL")
            .select("kind", "qpool", F.col("last_lsn").alias("lsn"),
                    F.col("end_lsn").isNotNull().alias("final")))


def chosen(events: DataFrame) -> DataFrame:
    """The hand-outs that say that they do not follow the order of arrival: (given_lsn)."""
    return events.where(
        is_type(lambda rule: rule.argument is Argument.TURN)
        & (F.col("argument") == GIVEN_OUT_OF_TURN)).select(F.col("lsn").alias("given_lsn"))


def lines(stays: DataFrame, messages: DataFrame) -> DataFrame:
    """The stays whose first hand-out must have come in its turn, as far as they say so
    themselves."""
    return stays.join(messages.select("qpool", "producer_pid"), "qpool").where(
        "given_lsn IS NOT NULL AND put_off = 0 AND until_s = 0 AND queue != 2 "
        "AND first_epoch = given_epoch AND producer_pid IS NOT NULL AND gives = 1").select(
        "qpool", *LINE, "arrived_lsn", "given_lsn")


def in_turn(lines: DataFrame, chosen: DataFrame) -> DataFrame:
    """Those of `lines` that no hand-out of `chosen` takes out."""
    return lines.join(chosen, "given_lsn", "left_anti").select(
        "qpool", *LINE, "arrived_lsn", "given_lsn")


def latest(lines: DataFrame, turns: DataFrame | None) -> DataFrame:
    """Of each line the latest arrival that was handed out: (*LINE, latest); with what was known
    before of some."""
    found = lines.groupBy(*LINE).agg(F.max("arrived_lsn").alias("latest"))
    if turns is None:
        return found
    return found.unionByName(turns).groupBy(*LINE).agg(F.max("latest").alias("latest"))


def out_of_order(lines: DataFrame, turns: DataFrame | None = None) -> DataFrame:
    """First hand-outs that came after a later arrival's. `turns`: of lines that were judged
    before, which were all handed out before these: (*LINE, latest), the latest arrival."""
    before = Window.partitionBy(*LINE).orderBy("given_lsn").rowsBetween(
        Window.unboundedPreceding, -1)
    told = lines.withColumn("here", F.max("arrived_lsn").over(before))
    latest = F.col("here")
    if turns is not None:
        told = told.join(F.broadcast(turns), list(LINE), "left")
        latest = F.greatest("here", "latest")
    return (told.where(F.col("arrived_lsn") < latest)
            .select(F.lit("out_of_order").alias("kind"), "qpool", F.col("given_lsn").alias("lsn"),
                    F.expr("true").alias("final")))


def lost(messages: DataFrame, there: DataFrame, checkpoint: int | None = None) -> DataFrame:
    """Persistent, put up to the checkpoint, no end, and not in the pool nor ended after the
    archive: `there` (qpool), any number of times."""
    judged = messages if checkpoint is None else messages.where(F.col("born_lsn") <= checkpoint)
    return (judged.where("puts > 0 AND ends = 0 AND persistent").join(there, "qpool", "left_anti")
            .select(F.lit("lost").alias("kind"), "qpool", F.col("last_lsn").alias("lsn"),
                    F.expr("false").alias("final")))
