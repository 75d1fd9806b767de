"""The tables of answers, from stays and messages: queues by minute and hour, readers, poison,
operators, sizes, routes. See lib/omq/docs/ANALYTICS.md for every column and unit.

Percentiles come from KLL sketches with k = 4000, which can be merged and are right to the 99.9th;
the sketch itself is kept beside them (`wait_sketch`, `service_sketch`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from omqspark.lifecycle import DELETE, DONE, HOLD, MOVE, NS_PER_S, OPERATOR, POISON, RELEASE

MINUTE_NS = 60 * NS_PER_S
HOUR_NS = 3600 * NS_PER_S
SKETCH_K = 4000
AGE_MINUTES_MAX = 1440
"""A message that waits longer than a day counts as a day old in `oldest_s`."""


def _at(nanoseconds: Column) -> Column:
    return F.timestamp_micros(F.floor(nanoseconds / 1000).cast("bigint"))


def _floor(column: str, unit: int) -> Column:
    return F.col(column) - F.pmod(F.col(column), F.lit(unit))


def queue_minute(stays: DataFrame) -> DataFrame:
    """Arrivals, departures, depth and oldest age of each queue at the end of each minute."""
    came = stays.groupBy("queue", _floor("arrived_ns", MINUTE_NS).alias("minute_ns")).agg(
        F.count("*").alias("arrivals"))
    left = stays.where("left_ns IS NOT NULL").groupBy(
        "queue", _floor("left_ns", MINUTE_NS).alias("minute_ns")).agg(
        F.count("*").alias("departures"))
    last = stays.agg(F.max(F.coalesce("left_ns", "given_ns", "arrived_ns"))).first()
    end = int(last[0] or 0) if last is not None else 0
    until = F.least(F.coalesce("left_ns", F.lit(end)),
                    F.col("arrived_ns") + AGE_MINUTES_MAX * MINUTE_NS)
    first = _floor("arrived_ns", MINUTE_NS)
    over = stays.where(until >= first + MINUTE_NS).select(
        "queue", "arrived_ns",
        F.explode(F.sequence(first, until - F.pmod(until, F.lit(MINUTE_NS)) - MINUTE_NS,
                             F.lit(MINUTE_NS))).alias("minute_ns"))
    oldest = over.groupBy("queue", "minute_ns").agg(
        ((F.max(F.col("minute_ns") + MINUTE_NS - F.col("arrived_ns"))) / NS_PER_S).alias(
            "oldest_s"))
    keys = ["queue", "minute_ns"]
    run = Window.partitionBy("queue").orderBy("minute_ns")
    joined = came.join(left, keys, "full_outer").join(oldest, keys, "full_outer").na.fill(
        0, ["arrivals", "departures", "oldest_s"])
    return joined.withColumn(
        "depth", F.sum(F.col("arrivals") - F.col("departures")).over(run)).withColumn(
        "minute", _at(F.col("minute_ns")))


def _sketch(column: str, name: str) -> list[Column]:
    """The sketch over what is not null, and whether there is any."""
    return [F.kll_sketch_agg_bigint(column, F.lit(SKETCH_K)).alias(f"{name}_sketch"),
            F.count(column).alias(f"{name}s")]


def _quantiles(frame: DataFrame, name: str) -> DataFrame:
    for label, quantile in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        value = F.kll_sketch_get_quantile_bigint(f"{name}_sketch", F.lit(quantile))
        frame = frame.withColumn(f"{name}_{label}_s",
                                 F.when(F.col(f"{name}s") > 0, value / NS_PER_S))
    return frame


def queue_hour(stays: DataFrame) -> DataFrame:
    """Waits, service times and load of each queue by the hour in which messages arrived."""
    found = stays.groupBy("queue", _floor("arrived_ns", HOUR_NS).alias("hour_ns")).agg(
        F.count("*").alias("arrivals"), F.count("left_ns").alias("departures"),
        *_sketch("wait_ns", "wait"), *_sketch("service_ns", "service"),
        (F.max("wait_ns") / NS_PER_S).alias("wait_max_s"),
        (F.sum("service_ns") / HOUR_NS).alias("load"),
        F.sum("failed").alias("failed"), F.sum("deaths").alias("deaths"),
        F.sum("size").alias("bytes"))
    return _quantiles(_quantiles(found, "wait"), "service").withColumn(
        "hour", _at(F.col("hour_ns")))


def with_work(stays: DataFrame) -> DataFrame:
    """`work_ns`: the reader's own time for a message. Of messages that it took together, each
    begins when the one before it was finished."""
    order = Window.partitionBy("last_epoch", "reader", "reader_pid").orderBy("left_lsn")
    begin = F.greatest(F.col("last_given_ns"), F.coalesce(F.lag("left_ns").over(order), F.lit(0)))
    return stays.where("left_ns IS NOT NULL AND reader IS NOT NULL").withColumn(
        "work_ns", F.greatest(F.col("left_ns") - begin, F.lit(0)))


def readers(stays: DataFrame) -> DataFrame:
    """Each reader process: what it did, how busy it was."""
    found = with_work(stays).groupBy("queue", F.col("last_epoch").alias("epoch"), "reader",
                                     "reader_pid").agg(
        F.count("*").alias("messages"), F.sum("gives").alias("gives"),
        F.sum("failed").alias("failed"), F.sum("deaths").alias("deaths"),
        (F.sum("work_ns") / NS_PER_S).alias("busy_s"),
        *_sketch("work_ns", "work"),
        _at(F.min("given_ns")).alias("first"), _at(F.max("left_ns")).alias("last"),
        ((F.max("left_ns") - F.min("given_ns")) / NS_PER_S).alias("span_s"))
    return _quantiles(found, "work").withColumn(
        "busy_share", F.when(F.col("span_s") > 0, F.col("busy_s") / F.col("span_s")))


def poison(stays: DataFrame, messages: DataFrame) -> DataFrame:
    """Failed attempts and poisoned messages by queue, reader, size class and sender."""
    senders = messages.select("qpool", "producer_pid", "producer_uid")
    return (stays.where(f"failed > 0 OR left_by = {POISON}").join(senders, "qpool", "left")
            .groupBy("queue", "reader", "reader_pid", "producer_pid", "producer_uid",
                     size_class().alias("size_class"))
            .agg(F.sum("failed").alias("failed"), F.sum("deaths").alias("deaths"),
                 F.count_if(F.col("left_by") == POISON).alias("poisoned"),
                 F.min("qpool").alias("example")))


def size_class() -> Column:
    """The next power of two: 1024 holds sizes 513 to 1024."""
    return F.when(F.col("size") > 0, F.pow(F.lit(2.0), F.ceil(F.log2("size"))).cast("bigint")
                  ).otherwise(0)


def operators(events: DataFrame, names: DataFrame) -> DataFrame:
    """Who did what: orders with their text, and how many messages each changed."""
    done = events.where(
        (F.col("unit") > 0)
        & F.col("type").isin(HOLD, RELEASE, MOVE, DELETE)).groupBy("unit").agg(
        F.count("*").alias("messages"))
    texts = names.where("kind = 'text'").groupBy("lsn").agg(F.first("text").alias("order"))
    orders = events.where(F.col("type") == OPERATOR).select(
        F.col("lsn"), _at(F.col("time_ns")).alias("at"), "uid", "pid")
    return (orders.join(texts, "lsn", "left")
            .join(done.withColumnRenamed("unit", "lsn"), "lsn", "left").na.fill(0, ["messages"]))


def sizes(stays: DataFrame) -> DataFrame:
    """Bodies by queue and size class; what the journal needed for them."""
    frames = F.col("gives") + F.lit(2)  # put or move, hand-outs, end
    disk = F.col("size") + 160 + 128 * frames
    return stays.groupBy("queue", size_class().alias("size_class")).agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes"),
        F.max("size").alias("largest"), F.sum(disk).alias("journal_bytes")).withColumn(
        "amplification", F.when(F.col("bytes") > 0, F.col("journal_bytes") / F.col("bytes")))


def routes(stays: DataFrame) -> DataFrame:
    """Flow between queues: 0 is the outside (put, or gone)."""
    came = stays.where("came_from = 0 OR came_from = queue OR arrived_by = 1").select(
        F.lit(0).alias("from_queue"), F.col("queue").alias("to_queue"), "size")
    left = stays.where("left_ns IS NOT NULL").select(
        F.col("queue").alias("from_queue"),
        F.when(F.col("left_by") == MOVE, F.col("went_to"))
        .when(F.col("left_by") == POISON, F.lit(2))
        .when(F.col("left_by").isin(DONE, DELETE), F.lit(0)).alias("to_queue"), "size")
    return came.unionByName(left).groupBy("from_queue", "to_queue").agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes"))
