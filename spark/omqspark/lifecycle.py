"""Events to messages and stays: one row a message, one row a stay of a message on a queue.

A message is born by PUT and ends by the frame with LAST_PART. A stay begins with the frame that put
the message on the queue (PUT, MOVE, POISON, or DONE/DELETE onto IDEL) and ends with the one that
took it off (DONE, MOVE, POISON, DELETE). A message that comes to a queue again has a second stay.

All are aggregations by message over events in any order: a batch repeated gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame

from omq.format.frame_rules import RULES, Argument, Comes, Hand, Reason, Rule, numbers
from omq.format.journal import FrameFlag, FrameType
from omq.format.pool import PartState
from omqtools.omqspark import parquet
from omqtools.omqspark.engine import F, Window

IDEL_QUEUE = 1
NS_PER_S = 1_000_000_000
LEAVES, COMES, STAYS = 0, 1, 2  # roles: at one LSN a message leaves before it comes
NOTHING = 3  # it comes to a queue that it is on
DIED = 0
"""`end_type`, `left_by` of a message that is not persistent and ended with its manager."""
Ends = Sequence[tuple[int, int, int]]
"""(epoch, LSN, ns): where the manager of the epoch was followed by another."""


def _made(rule: Rule) -> bool:
    return rule.makes


def given_out(rule: Rule) -> bool:
    return rule.hand is Hand.GIVEN


def moved(rule: Rule) -> bool:
    """From one queue to others."""
    return rule.leaves and rule.comes is Comes.NAMED


def poisoned(rule: Rule) -> bool:
    """It failed too often (its row gives reasons; an expired one needs none)."""
    return rule.comes is Comes.TARGET and rule.reasoned


def _to_target(rule: Rule) -> bool:
    return rule.comes is Comes.TARGET


def is_type(holds: Callable[[Rule], bool], column: str = "type") -> Column:
    """Whether the frame type in a column is one whose row is so."""
    return F.col(column).isin(*numbers(holds))


def has(flag: FrameFlag) -> Column:
    """Whether an event carries a flag."""
    return F.col("flags").bitwiseAND(int(flag)) != 0


def _if(holds: Callable[[Rule], bool], column: str) -> Column:
    return F.when(is_type(holds), F.col(column))


def lifecycle(events: DataFrame, ends_of_epochs: Ends = ()) -> DataFrame:
    """One row a message, in ONE aggregation. Times in ns; null where it did not happen."""
    ends = has(FrameFlag.LAST_PART)
    end_lsn = F.min(F.when(ends, F.col("lsn")))
    # What ended a message that idel.server removed is the frame that brought it to IDEL.
    swept = F.bool_or(ends & (F.col("queue") == IDEL_QUEUE))
    to_idel = F.when(_to_idel(), F.col("lsn"))

    def of_end(column: str) -> Column:
        return F.when(swept, F.max_by(column, to_idel)).otherwise(
            F.min(F.when(ends, F.col(column))))

    found = events.where("qpool > 0").groupBy("qpool").agg(
        F.min(_if(_made, "lsn")).alias("born_lsn"),
        F.min(_if(_made, "time_ns")).alias("born_ns"),
        F.max(_if(_made, "pid")).alias("producer_pid"),
        F.max(_if(_made, "client")).alias("producer"),
        F.max(_if(_made, "uid")).alias("producer_uid"),
        F.max("size").alias("size"),
        F.max(_if(_made, "priority")).alias("priority"),
        F.max(_if(_made, "correlation")).alias("correlation"),
        F.bool_or(has(FrameFlag.PERSISTENT)).alias("persistent"),
        F.max("group_id").alias("group_id"),
        F.max("group_sequence").alias("group_sequence"),
        F.bool_or("group_last").alias("group_last"),
        F.count_if(is_type(_made)).alias("puts"),
        F.count_if(is_type(given_out)).alias("gives"),
        F.count_if(is_type(moved)).alias("moves"),
        F.count_if(is_type(lambda rule: rule.is_in(PartState.DEFERRED))).alias("defers"),
        F.count_if(has(FrameFlag.FAILED)).alias("failed"),
        F.count_if(is_type(poisoned)).alias("poisoned"),
        F.max(_if(given_out, "attempt")).alias("attempts_max"),
        F.min(_if(given_out, "time_ns")).alias("first_give_ns"),
        end_lsn.alias("end_lsn"),
        F.min(F.when(ends, F.col("time_ns"))).alias("end_ns"),
        F.coalesce(of_end("type"), F.min(F.when(ends, F.col("type")))).alias("end_type"),
        of_end("reason").alias("end_reason"),
        F.count_if(ends).alias("ends"),
        F.min("lsn").alias("first_lsn"),
        F.max("lsn").alias("last_lsn"),
        F.max("time_ns").alias("last_ns"),
        F.max_by("queue", "lsn").alias("last_queue"),
        F.bit_or(F.expr(f"shiftleft(1L, type % {64})")).alias("seen"),
        F.bit_or(F.expr("shiftleft(1L, queue % 64)")).alias("queues_seen"),
        F.min("epoch").alias("first_epoch"),
        F.max("epoch").alias("last_epoch"),
    )
    # A reader's death is counted at its manager: a frame after the end is what the audit looks for
    found = _died(found, ends_of_epochs, "end", F.col("persistent"))
    return found.withColumn("life_ns", F.col("end_ns") - F.col("born_ns"))


def _died(rows: DataFrame, ends: Ends, name: str, persistent: Column) -> DataFrame:
    """Messages that are not persistent end where the next manager begins: `name`_lsn, _ns and _by
    or _type are filled in where they are null."""
    if not ends:
        return rows
    over = parquet.rows(rows.sparkSession, ends,
                        "last_epoch bigint, over_lsn bigint, over_ns bigint")
    kind = "end_type" if name == "end" else f"{name}_by"
    gone = F.col("over_lsn").isNotNull() & F.col(f"{name}_lsn").isNull() & ~persistent
    filled = {f"{name}_ns": F.greatest("over_ns", "last_ns" if name == "end" else "arrived_ns"),
              kind: F.lit(DIED), f"{name}_lsn": F.col("over_lsn")}
    return rows.join(F.broadcast(over), "last_epoch", "left").withColumns({
        column: F.when(gone, value).otherwise(F.col(column)) for column, value in filled.items()
    }).select(*rows.columns)  # in the same order, whether an epoch has ended or not


def roles(rules: Mapping[FrameType, Rule]) -> str:
    """SQL: what an event is to which queues, structs (role, at)."""
    cases = "".join(f" WHEN {int(kind)} THEN {_touched(rule)}" for kind, rule in rules.items()
                    if rule.makes or rule.leaves)
    return f"CASE type{cases} ELSE array(struct({STAYS} AS role, queue AS at)) END"


_IDEL = (f"IF(flags & {int(FrameFlag.TO_IDEL)} != 0, "
         f"array(struct({COMES} AS role, {IDEL_QUEUE} AS at)), array())")


def _touched(rule: Rule) -> str:
    named = "IF(size(onto) > 0, onto, array(queue))" if rule.makes else "coalesce(onto, array())"
    comes = {
        Comes.NOWHERE: "array()",
        Comes.NAMED: f"transform({named}, q -> struct({COMES} AS role, q AS at))",
        Comes.TARGET: f"IF(target > 0, array(struct({COMES} AS role, target AS at)), {_IDEL})",
        Comes.IDEL: _IDEL,
    }[rule.comes]
    if not rule.leaves:
        return comes
    return f"concat(IF(queue > 0, array(struct({LEAVES} AS role, queue AS at)), array()), {comes})"


def stays(events: DataFrame, ends_of_epochs: Ends = ()) -> DataFrame:
    """One row a stay; `left_ns` is null while it lasts."""
    visited = _visits(events)
    comes, leaves, is_here = (F.col("role") == role for role in (COMES, LEAVES, STAYS))
    given = is_type(given_out) & is_here
    counts = is_type(_counts) & is_here
    freed = is_type(_frees) & is_here
    place = F.greatest(F.array_position("onto", F.col("at")), F.lit(1)).cast("int")
    died = (F.col("reason") == int(Reason.DIED)) & is_type(lambda rule: rule.reasoned)
    found = visited.groupBy("qpool", F.col("at").alias("queue"), "visit").agg(
        F.min(F.when(comes, F.col("time_ns"))).alias("arrived_ns"),
        F.min(F.when(comes, F.col("lsn"))).alias("arrived_lsn"),
        F.min(F.when(comes, F.col("type"))).alias("arrived_by"),
        F.min(F.when(comes & is_type(lambda rule: rule.reasoned), F.col("reason"))
              ).alias("arrived_reason"),
        F.max(F.when(comes, F.when(is_type(_made), 0).otherwise(F.col("queue")))
              ).alias("came_from"),
        F.max(F.when(comes, F.coalesce(F.try_element_at("onto_priority", place),
                                       F.col("priority")))).alias("priority"),
        F.max(F.when(comes, F.coalesce(F.try_element_at("until_s", place), F.when(
            is_type(_kept), F.expr(f"(argument + {NS_PER_S - 1}) div {NS_PER_S}")), F.lit(0)))
              ).alias("until_s"),
        F.min(F.when(given, F.col("time_ns"))).alias("given_ns"),
        F.min(F.when(given, F.col("lsn"))).alias("given_lsn"),
        F.max(F.when(given, F.col("time_ns"))).alias("last_given_ns"),
        *(rule(F.when(freed, F.col("time_ns"))).alias(name) for rule, name in (
            (F.min, "freed_ns"), (F.max, "last_freed_ns"))),
        F.max_by(F.when(given, F.col("client")), F.when(given, F.col("lsn"))).alias("reader"),
        F.max_by(F.when(given, F.col("pid")), F.when(given, F.col("lsn"))).alias("reader_pid"),
        F.max_by(F.when(given, F.col("uid")), F.when(given, F.col("lsn"))).alias("reader_uid"),
        F.max_by(F.when(counts, F.col("attempt")).when(comes & is_type(poisoned), F.col("attempt"))
                 .when(comes, 0), F.when(counts | comes, F.col("lsn"))).alias("attempts"),
        F.count_if(given).alias("gives"),
        F.count_if(has(FrameFlag.FAILED) & ~comes).alias("failed"),
        F.count_if(died & ~comes).alias("deaths"),
        F.count_if(is_type(lambda rule: rule.puts_off) & is_here).alias("put_off"),
        F.max(F.when(leaves, F.col("time_ns"))).alias("left_ns"),
        F.max(F.when(leaves, F.col("lsn"))).alias("left_lsn"),
        F.max(F.when(leaves, F.col("type"))).alias("left_by"),
        F.max(F.when(leaves & is_type(lambda rule: rule.reasoned), F.col("reason"))
              ).alias("left_reason"),
        F.max(F.when(leaves, _goes_to())).alias("went_to"),
        F.max("size").alias("size"),
        F.bool_or(has(FrameFlag.PERSISTENT)).alias("persistent"),
        F.min("epoch").alias("first_epoch"),
        F.max(F.when(given, F.col("epoch"))).alias("given_epoch"),
        F.max("epoch").alias("last_epoch"),
        F.max("lsn").alias("last_lsn"),
    ).where("queue > 0 AND arrived_ns IS NOT NULL")
    return (_died(found, ends_of_epochs, "left", F.col("persistent")).drop("persistent")
            .withColumn("ready_ns", _ready()).drop("freed_ns", "last_freed_ns")
            .withColumn("wait_ns", F.col("given_ns") - F.col("arrived_ns"))
            .withColumn("ready_wait_ns", F.col("given_ns") - F.col("ready_ns"))
            .withColumn("service_ns", F.col("left_ns") - F.col("last_given_ns")))


def _ready() -> Column:
    """When a reader could first have got the message, ns: it had come, the delay of its sender was
    over, an operator had released it or its sender's unit was committed. A hand-out shows that it
    was ready (a restart rounds delays). Of releases on both sides of it the first counts."""
    given = F.coalesce("given_ns", F.lit((1 << 63) - 1))
    freed = F.coalesce(*(F.when(F.col(name) <= given, F.col(name))
                         for name in ("last_freed_ns", "freed_ns")))
    ready = F.greatest("arrived_ns", F.col("until_s") * NS_PER_S, freed)
    return F.greatest("arrived_ns", F.least(ready, given))


def _kept(rule: Rule) -> bool:
    """On IDEL for a time, in which it can be brought back."""
    return rule.comes is Comes.IDEL and rule.argument is Argument.UNTIL


def _frees(rule: Rule) -> bool:
    """No reader had it, and one can from now on: a hold ends, or a unit in doubt."""
    return rule.is_in(PartState.READY) and rule.hand is Hand.NOTHING


def _counts(rule: Rule) -> bool:
    return rule.entry is not None and rule.entry.attempts


def _to_idel() -> Column:
    """The frame brings its message to IDEL, of itself or by its name."""
    named = is_type(moved) & F.array_contains(F.coalesce("onto", F.array()), IDEL_QUEUE)
    return named | _ends_on_idel()


def _ends_on_idel() -> Column:
    return has(FrameFlag.TO_IDEL) & is_type(lambda rule: rule.comes in (Comes.IDEL, Comes.TARGET))


def _goes_to() -> Column:
    """The queue that a message leaves for; 0: none."""
    return (F.when(is_type(moved), F.try_element_at("onto", F.lit(1)))
            .when(is_type(_to_target) & (F.col("target") > 0), F.col("target"))
            .when(_ends_on_idel(), IDEL_QUEUE).otherwise(0))


def _visits(events: DataFrame) -> DataFrame:
    """A row for each event and queue that it touches: `at`, `role`, `visit`."""
    touched = (events.where("qpool > 0").withColumn("roles", F.expr(roles(RULES)))
               .withColumn("one", F.explode("roles"))
               .select("*", F.col("one.role").alias("role"), F.col("one.at").alias("at"))
               .drop("roles", "one"))
    order = Window.partitionBy("qpool", "at").orderBy("lsn", "role")
    # The frame that leaves comes first at one LSN, so it still belongs to the visit before it. Who
    # comes to a queue that it is on stays there: nothing happens.
    there = F.last(F.when(F.col("role") != STAYS, F.col("role")), ignorenulls=True).over(
        order.rowsBetween(Window.unboundedPreceding, -1)) == COMES
    again = (F.col("role") == COMES) & F.coalesce(there, F.lit(False))  # noqa: FBT003
    known = touched.withColumn("role", F.when(again, NOTHING).otherwise(F.col("role")))
    return known.where(F.col("role") != NOTHING).withColumn(
        "visit", F.sum(F.when(F.col("role") == COMES, 1).otherwise(0)).over(
            order.rowsBetween(Window.unboundedPreceding, 0)))


def with_work(stays: DataFrame, before: DataFrame | None, worked: DataFrame | None = None
              ) -> DataFrame:
    """`work_ns`: the reader's own time for a message that has left; null for others. Of messages
    that a reader took together, each begins when the one before it was finished. `before`: readers
    of earlier batches, whose last message then ended (`last_lsn`, `last_ns`). `worked`: what
    earlier batches told of stays that had left when their message was still on another queue
    (`qpool`, `queue`, `visit`, `worked_ns`): what came before them is not among these stays."""
    key, names = ["last_epoch", "reader", "reader_pid"], [*stays.columns, "work_ns"]
    gone = F.col("left_ns").isNotNull() & F.col("reader").isNotNull()
    # Who has not left needs no neighbour: spread, or all of them would be one task's.
    spread = F.when(gone, F.lit(-1)).otherwise(F.pmod("qpool", F.lit(1024)))
    order = Window.partitionBy(*key, gone, spread).orderBy("left_lsn", "qpool", "queue")
    ended_ns = F.lag("left_ns").over(order)
    if before is not None:
        ended = before.groupBy(F.col("epoch").alias("last_epoch"), "reader", "reader_pid").agg(
            F.max("last_lsn").alias("before_lsn"),
            F.max_by("last_ns", "last_lsn").alias("before_ns"))
        stays = stays.join(ended, key, "left")
        # The LSNs say what ended last: a clock may have been ahead for a while.
        behind = F.coalesce(F.lag("left_lsn").over(order), F.lit(0))
        ended_ns = F.when((F.col("before_lsn") < F.col("left_lsn")) & (
            behind < F.col("before_lsn")), F.col("before_ns")).otherwise(ended_ns)
    work = F.greatest(F.col("left_ns") - F.greatest(F.col("last_given_ns"), ended_ns), F.lit(0))
    found = stays.withColumn("work_ns", F.when(gone, work)).select(*names)
    if worked is None:
        return found
    return found.join(worked, ["qpool", "queue", "visit"], "left").withColumn(
        "work_ns", F.coalesce("worked_ns", "work_ns")).select(*names)
