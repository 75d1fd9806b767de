"""The tables of answers, from stays and messages: queues by minute and hour, readers, poison,
programs, hand-outs, operators, sizes, routes. lib/omq/docs/DATA-DICTIONARY.md has every column and
unit.

An answer is made of parts that can be merged, apart by day (answer_tables.py): a batch adds the
part of what ended in it, so a run costs what is new, not what there is. Percentiles come from
distributions in buckets (buckets.py), which are shown next to them (`wait_buckets`,
`ready_wait_buckets` ...).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame

from omq.format.frame_rules import About, By, Hand, Reason
from omq.format.journal import FrameFlag
from omq.format.pool import PartState
from omqtools.omqspark import clients
from omqtools.omqspark.answer_tables import Answer, Basis
from omqtools.omqspark.buckets import COUNT, OF, VALUE, gathered, once, percentiles, spread
from omqtools.omqspark.engine import F, Window
from omqtools.omqspark.lifecycle import NS_PER_S, given_out, has, is_type, poisoned
from omqtools.omqspark.readable_columns import at, how

MINUTE_NS = 60 * NS_PER_S
HOUR_NS = 3600 * NS_PER_S
DAY_NS = 24 * HOUR_NS
OLDEST_NS = 800 * DAY_NS
READER = ["queue", "epoch", "reader", "reader_pid"]
PROGRAM = ["program", "pid", "uid"]
CLIENT = ["epoch", "client", "pid", "uid", "queue"]
GOT = ("got", "got_bytes", "finished", "gives", "failed", "deaths")
HAND_OUT_COUNTS = ("gives", "give_bytes", "again", "done", "deferred", "returned", "failed",
                   "deaths")
HOUR_TIMES = {"wait": "wait_ns", "ready_wait": "ready_wait_ns", "service": "service_ns"}


def _floor(column: str, unit: int) -> Column:
    return F.col(column) - F.pmod(F.col(column), F.lit(unit))


def _minutes(basis: Basis) -> DataFrame:
    """Arrivals and departures in each minute, and the age of the oldest at its end. In the last one
    this is the end of the data, for what is still there then."""
    stays, none = basis.stays, F.lit(None).cast("bigint")
    came = stays.select("queue", _floor("arrived_ns", MINUTE_NS).alias("minute_ns"),
                        F.lit(1).alias("arrivals"), F.lit(0).alias("departures"),
                        none.alias("oldest_ns"))
    left = stays.where("left_ns IS NOT NULL").select(
        "queue", _floor("left_ns", MINUTE_NS), F.lit(0), F.lit(1), none)
    behind = basis.end_ns - basis.end_ns % MINUTE_NS + MINUTE_NS
    until = F.coalesce("left_ns", F.lit(behind)).alias("until")
    return came.union(left).union(_oldest(stays.select("queue", "arrived_ns", until),
                                          basis.end_ns, basis.from_ns))


def _oldest(spans: DataFrame, end_ns: int, from_ns: int) -> DataFrame:
    """The age of a queue's oldest message at the end of each minute in which one is there, or at
    `end_ns`, if that is earlier.

    Who arrived before and stays longer hides a message; so each is the oldest from where those
    before it end, and no minute has two rows, however many messages wait and however long. None is
    the oldest for more than OLDEST_NS: of a clock that began in 1970, or was set to 2200 for a
    moment, each queue would have as many rows as there are minutes in between."""
    first = _floor("arrived_ns", MINUTE_NS)
    end = F.least(_floor("until", MINUTE_NS), first + OLDEST_NS)
    few = (spans.select("queue", "arrived_ns", first.alias("first"), end.alias("end"))
           .where(F.col("end") > F.col("first")).groupBy("queue", "first", "end")
           .agg(F.min("arrived_ns").alias("arrived_ns")))
    before = Window.partitionBy("queue").orderBy("arrived_ns", "end").rowsBetween(
        Window.unboundedPreceding, -1)
    shown = few.withColumn("begin", F.greatest(
        "first", F.lit(from_ns), F.max("end").over(before))).where(
        F.col("begin") < F.col("end"))
    minutes = F.explode(F.sequence("begin", F.col("end") - MINUTE_NS, F.lit(MINUTE_NS)))
    return shown.select("queue", "arrived_ns", minutes.alias("minute_ns")).select(
        "queue", "minute_ns", F.lit(0), F.lit(0),
        F.least(F.col("minute_ns") + MINUTE_NS, F.lit(end_ns)) - F.col("arrived_ns"))


def _depth(minutes: DataFrame, stays: DataFrame) -> DataFrame:
    """Counted back from what is on the queue at the end, so days before need not be read."""
    later = Window.partitionBy("queue").orderBy(F.desc("minute_ns")).rowsBetween(
        Window.unboundedPreceding, -1)
    waiting = stays.where("left_ns IS NULL").groupBy("queue").agg(F.count("*").alias("waiting"))
    came_later = F.coalesce(F.sum(F.col("arrivals") - F.col("departures")).over(later), F.lit(0))
    return minutes.join(F.broadcast(waiting), "queue", "left").select(
        "queue", "minute_ns", "arrivals", "departures",
        (F.coalesce("oldest_ns", F.lit(0)) / NS_PER_S).alias("oldest_s"),
        (F.coalesce("waiting", F.lit(0)) - came_later).alias("depth"),
        at("minute_ns").alias("minute"), "day")


def _hours(basis: Basis) -> DataFrame:
    """Waits, service times and load of each queue by the hour in which messages arrived."""
    rows = spread(basis.stays.withColumn("hour_ns", _floor("arrived_ns", HOUR_NS)), HOUR_TIMES)
    return rows.groupBy("queue", "hour_ns", OF, VALUE).agg(
        F.count("*").alias(COUNT), F.count(once("queue")).alias("arrivals"),
        F.count(once("left_ns")).alias("departures"),
        F.max(once("wait_ns")).alias("wait_max_ns"),
        F.max(once("ready_wait_ns")).alias("ready_wait_max_ns"),
        F.sum(once("service_ns")).alias("served_ns"), F.sum(once("failed")).alias("failed"),
        F.sum(once("deaths")).alias("deaths"), F.sum(once("size")).alias("bytes"))


def _hour(hours: DataFrame, _stays: DataFrame) -> DataFrame:
    found = hours.groupBy("day", "queue", "hour_ns").agg(
        *(F.sum(name).alias(name) for name in ("arrivals", "departures")),
        *(column for name in HOUR_TIMES for column in gathered(name)),
        *(F.max(name).alias(name) for name in ("wait_max_ns", "ready_wait_max_ns")),
        *(F.sum(name).alias(name) for name in ("served_ns", "failed", "deaths", "bytes")))
    for name in HOUR_TIMES:
        found = percentiles(found, name)
    return found.withColumns({
        "wait_max_s": F.col("wait_max_ns") / NS_PER_S,
        "ready_wait_max_s": F.col("ready_wait_max_ns") / NS_PER_S,
        "load": F.col("served_ns") / HOUR_NS,
        "hour": at("hour_ns")}).drop("wait_max_ns", "ready_wait_max_ns", "served_ns")


def _works(basis: Basis) -> DataFrame:
    """Each reader process and day: what it did, how long it worked."""
    done = basis.stays.where("work_ns IS NOT NULL").withColumns({
        "epoch": F.col("last_epoch"), "day_ns": _floor("left_ns", DAY_NS)})
    return spread(done, {"work": "work_ns"}).groupBy(*READER, "day_ns", OF, VALUE).agg(
        F.count("*").alias(COUNT), F.max("reader_name").alias("reader_name"),
        F.count(once("queue")).alias("messages"), F.sum(once("gives")).alias("gives"),
        F.sum(once("failed")).alias("failed"), F.sum(once("deaths")).alias("deaths"),
        F.sum(once("work_ns")).alias("busy_ns"), F.min(once("given_ns")).alias("first_ns"),
        F.max(once("left_ns")).alias("last_ns"), F.max(once("left_lsn")).alias("last_lsn"))


def _busy(works: DataFrame, _stays: DataFrame) -> DataFrame:
    span = F.col("last_ns") - F.col("first_ns")
    found = works.groupBy("day", *READER, "day_ns").agg(
        F.max("reader_name").alias("reader_name"),
        *(F.sum(name).alias(name) for name in ("messages", "gives", "failed", "deaths", "busy_ns")),
        *gathered("work"), F.min("first_ns").alias("first_ns"), F.max("last_ns").alias("last_ns"))
    return percentiles(found, "work").withColumns({
        "busy_s": F.col("busy_ns") / NS_PER_S, "span_s": span / NS_PER_S,
        "busy_share": F.when(span > 0, F.col("busy_ns") / span),
        "first": at("first_ns"), "last": at("last_ns")}).drop(
        "busy_ns", "first_ns", "last_ns", "day_ns")


def _failures(basis: Basis) -> DataFrame:
    """Failed attempts and poisoned messages by queue, reader, size class and sender."""
    senders = basis.messages.select("qpool", "producer_pid", "producer_uid", "producer_name")
    failed = (F.col("failed") > 0) | is_type(poisoned, "left_by")
    return (basis.stays.where(failed).join(senders, "qpool", "left")
            .groupBy("queue", "reader", "reader_pid", "producer_pid", "producer_uid",
                     size_class().alias("size_class"),
                     _floor("arrived_ns", DAY_NS).alias("day_ns"))
            .agg(F.max("reader_name").alias("reader_name"),
                 F.max("producer_name").alias("producer_name"),
                 F.sum("failed").alias("failed"), F.sum("deaths").alias("deaths"),
                 F.count_if(is_type(poisoned, "left_by")).alias("poisoned"),
                 F.min("qpool").alias("example")))


def _programs(basis: Basis) -> DataFrame:
    """What each process put and got: messages that it put by the day of birth, hand-outs to it by
    the day on which the message came to the queue."""
    none, nothing = F.lit(None).cast("bigint"), F.lit(0).cast("bigint")
    put = basis.messages.where("born_ns IS NOT NULL").select(
        F.col("producer_name").alias("program"), F.col("producer_pid").alias("pid"),
        F.col("producer_uid").alias("uid"), _floor("born_ns", DAY_NS).alias("day_ns"),
        F.lit(1).cast("bigint").alias("put"), F.col("size").alias("put_bytes"),
        *(nothing.alias(name) for name in GOT), none.alias("ready_wait_ns"))
    got = basis.stays.where("reader IS NOT NULL").select(
        F.col("reader_name").alias("program"), F.col("reader_pid").alias("pid"),
        F.col("reader_uid").alias("uid"), _floor("arrived_ns", DAY_NS).alias("day_ns"),
        nothing.alias("put"), nothing.alias("put_bytes"), F.lit(1).cast("bigint").alias("got"),
        F.col("size").alias("got_bytes"), F.col("left_ns").isNotNull().cast("bigint").alias(
            "finished"), "gives", "failed", "deaths", "ready_wait_ns")
    return spread(put.unionByName(got), {"ready_wait": "ready_wait_ns"}).groupBy(
        *PROGRAM, "day_ns", OF, VALUE).agg(F.count("*").alias(COUNT), *(
            F.coalesce(F.sum(once(name)), F.lit(0)).alias(name)
            for name in ("put", "put_bytes", *GOT)))


def _program(parts: DataFrame, _stays: DataFrame) -> DataFrame:
    found = parts.groupBy("day", *PROGRAM).agg(
        *(F.sum(name).alias(name) for name in ("put", "put_bytes", *GOT)), *gathered("ready_wait"))
    return percentiles(found, "ready_wait")


def _hand_outs(basis: Basis) -> DataFrame:
    """What each client got of each queue, and what it made of it.

    `programs` has messages and their last readers; a message that one process failed and another
    one finished is there with the second. Here each GIVE counts for who got it, and each answer for
    who gave it or died before. Made of the events of a batch alone, each of which is of one batch:
    so days that are shown anew add up to those of one run. The name of a client is that in the file
    of its events, as each file names whom it speaks of."""
    given, failed = is_type(given_out), has(FrameFlag.FAILED)
    answered = is_type(lambda rule: rule.hand is Hand.FINISHED)
    deferred, ready = (is_type(lambda rule, state=state: (  # type: ignore[misc]
        rule.hand is Hand.FINISHED and rule.is_in(state))) for state in (
        PartState.DEFERRED, PartState.READY))
    died = is_type(lambda rule: rule.reasoned) & (F.col("reason") == int(Reason.DIED))
    told = basis.events.where((F.col("qpool") > 0) & (given | answered)).withColumn(
        "day_ns", _floor("time_ns", DAY_NS)).groupBy(
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
    producer, reader = clients.PRODUCER, clients.READER
    names = basis.names.where(f"kind IN ('{producer}', '{reader}') AND bad IS NULL").groupBy(
        "file", "epoch", F.col("key").alias("client")).agg(
        F.max(F.when(F.col("kind") == reader, F.col("text"))).alias("reader_name"),
        F.max(F.when(F.col("kind") == producer, F.col("text"))).alias("own_name"))
    return told.join(names, ["file", "epoch", "client"], "left").groupBy(*CLIENT, "day_ns").agg(
        F.max(F.coalesce("reader_name", "own_name")).alias("program"),
        *(F.sum(name).alias(name) for name in HAND_OUT_COUNTS))


def size_class() -> Column:
    """The next power of two: 1024 holds sizes 513 to 1024."""
    return (F.when(F.col("size") > 1, F.expr("shiftleft(1L, length(bin(size - 1)))"))
            .when(F.col("size") == 1, 1).otherwise(0))


def _orders(basis: Basis) -> DataFrame:
    """Who did what: orders with their text, and how many messages each changed. The frames of a
    unit of work are in one file, so no later batch adds to them."""
    events = basis.events
    done = events.where(
        (F.col("unit") > 0)
        & is_type(lambda rule: rule.changes and By.OPERATOR in rule.by)).groupBy("unit").agg(
        F.count("*").alias("messages"))
    texts = basis.names.where("kind = 'text'").groupBy("lsn").agg(
        F.first("text").alias("order_json"))
    orders = events.where(is_type(lambda rule: rule.about is About.OPERATOR)).select(
        "lsn", "time_ns", "uid", "pid")
    return (orders.join(texts, "lsn", "left")
            .join(done.withColumnRenamed("unit", "lsn"), "lsn", "left").na.fill(0, ["messages"]))


def _undayed(parts: DataFrame, _stays: DataFrame) -> DataFrame:
    return parts.drop("day_ns")


def _dated(orders: DataFrame, _stays: DataFrame) -> DataFrame:
    return orders.withColumn("ordered_at", at("time_ns")).drop("time_ns")


def _sizes(basis: Basis) -> DataFrame:
    """Bodies by queue and size class; what the journal needed for them."""
    frames = F.col("gives") + F.lit(2)  # put or move, hand-outs, end
    disk = F.col("size") + 160 + 128 * frames
    return basis.stays.groupBy("queue", size_class().alias("size_class")).agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes"),
        F.max("size").alias("largest"), F.sum(disk).alias("journal_bytes"))


def _amplified(sizes: DataFrame, _stays: DataFrame) -> DataFrame:
    return sizes.withColumn("amplification", F.when(
        F.col("bytes") > 0, F.col("journal_bytes") / F.col("bytes")))


def _routes(basis: Basis) -> DataFrame:
    """Flow between queues: 0 is the outside. `came` counts arrivals on `to_queue`, `departed` stays
    that ended on `from_queue`: a message that goes onto several queues departs once and comes to
    each, so for every queue `came` less `departed` is what is there."""
    stays, none = basis.stays, F.lit(0).cast("bigint")
    came = stays.select(
        F.col("came_from").alias("from_queue"), F.col("queue").alias("to_queue"),
        how("arrived_by", "arrived_reason").alias("how"),
        F.lit(1).cast("bigint").alias("came"),
        none.alias("departed"), "size")
    left = stays.where("left_ns IS NOT NULL").select(
        F.col("queue").alias("from_queue"), F.coalesce("went_to", F.lit(0)).alias("to_queue"),
        how("left_by", "left_reason").alias("how"), none.alias("came"),
        F.lit(1).cast("bigint").alias("departed"), "size")
    return came.unionByName(left).groupBy("from_queue", "to_queue", "how").agg(
        F.sum("came").alias("came"), F.sum("departed").alias("departed"),
        F.sum(F.when((F.col("came") > 0) | (F.col("to_queue") == 0), F.col("size")).otherwise(0)
              ).alias("bytes"))


def _flow(routes: DataFrame, _stays: DataFrame) -> DataFrame:
    """`messages`: who came, or of those that went nowhere who departed."""
    return routes.withColumn("messages", F.when(F.col("to_queue") == 0, F.col("departed"))
                             .otherwise(F.col("came")))


ANSWERS: Final = (
    Answer("queue_minute", ["queue", "minute_ns"],
           {"arrivals": "sum", "departures": "sum", "oldest_ns": "max"}, _minutes, _depth,
           day="minute_ns"),
    Answer("queue_hour", ["queue", "hour_ns", OF, VALUE],
           {COUNT: "sum", "arrivals": "sum", "departures": "sum", "wait_max_ns": "max",
            "ready_wait_max_ns": "max", "served_ns": "sum", "failed": "sum", "deaths": "sum",
            "bytes": "sum"}, _hours, _hour, day="hour_ns", of_stay="arrived_ns"),
    Answer("readers", [*READER, "day_ns", OF, VALUE],
           {COUNT: "sum", "reader_name": "max", "messages": "sum", "gives": "sum",
            "failed": "sum", "deaths": "sum", "busy_ns": "sum", "first_ns": "min",
            "last_ns": "max", "last_lsn": "max"}, _works, _busy, day="day_ns", of_stay="left_ns"),
    Answer("poison", ["queue", "reader", "reader_pid", "producer_pid", "producer_uid",
                      "size_class", "day_ns"],
           {"reader_name": "max", "producer_name": "max", "failed": "sum", "deaths": "sum",
            "poisoned": "sum", "example": "min"}, _failures, _undayed, day="day_ns",
           of_stay="arrived_ns"),
    Answer("programs", [*PROGRAM, "day_ns", OF, VALUE],
           {COUNT: "sum", **dict.fromkeys(("put", "put_bytes", *GOT), "sum")}, _programs,
           _program, day="day_ns", of_stay="arrived_ns"),
    Answer("hand_outs", [*CLIENT, "day_ns"],
           {"program": "max"} | dict.fromkeys(HAND_OUT_COUNTS, "sum"), _hand_outs, _undayed,
           by_event=True, day="day_ns"),
    Answer("operators", ["lsn", "time_ns"],
           {"uid": "max", "pid": "max", "order_json": "max", "messages": "max"},
           _orders, _dated, by_event=True, day="time_ns"),
    Answer("sizes", ["queue", "size_class"],
           {"messages": "sum", "bytes": "sum", "largest": "max", "journal_bytes": "sum"}, _sizes,
           _amplified),
    Answer("routes", ["from_queue", "to_queue", "how"],
           {"came": "sum", "departed": "sum", "bytes": "sum"}, _routes, _flow),
)
