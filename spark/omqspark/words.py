"""What people read beside codes and nanoseconds: timestamps, names of queues, words for frames.

Columns that are added: `NAME` beside `NAME_ns`, a timestamp (an instant, in microseconds; UTC in
the files); `NAME_name` beside the number of a queue; `NAME_how` beside the type of a frame; `day`,
by which tables are partitioned.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from omq.format.frame_rules import By, Comes, Reason
from omq.format.journal import FrameType
from omqtools.omqspark.lifecycle import DIED, is_type

QUEUES: Final = ("queue", "last_queue", "came_from", "went_to", "from_queue", "to_queue")
INSTANTS: Final = {
    "messages": ("born", "first_give", "end", "last"),
    "stays": ("arrived", "given", "last_given", "left")}
DAY_OF: Final = {"messages": "coalesce(born_ns, last_ns)", "stays": "arrived_ns"}


def at(nanoseconds: str) -> Column:
    """The instant of an SQL expression, in whole microseconds; null for null. By `div`: `/` is a
    division of doubles, which do not hold the nanoseconds of today."""
    return F.expr(f"timestamp_micros(({nanoseconds}) div 1000)")


def how(column: str, reason: Column) -> Column:
    """The frame, in small letters; `deleted`: by an operator (as all that come to IDEL by DELETE),
    `died`: with its manager."""
    names = F.create_map(*(F.lit(x) for kind in FrameType for x in (int(kind), kind.name.lower())))
    to_idel = is_type(lambda rule: rule.comes is Comes.IDEL and By.OPERATOR in rule.by, column)
    deleted = to_idel & (reason == int(Reason.OPERATOR))
    return (F.when(F.col(column) == DIED, "died").when(deleted, "deleted")
            .otherwise(F.try_element_at(names, F.col(column))))


def queue_names(names: DataFrame) -> DataFrame:
    """(number, name): what each queue was called last, of the rows of a `names` table."""
    return (names.where("kind = 'queue' AND bad IS NULL")
            .groupBy(F.col("key").cast("int").alias("number"))
            .agg(F.max_by("text", "lsn").alias("name")))


def named(frame: DataFrame, names: DataFrame) -> DataFrame:
    """With the names of the queues in it; null: 0, or a queue that nobody has named."""
    for column in QUEUES:
        if column in frame.columns:
            told = names.select(F.col("number").alias(column),
                                F.col("name").alias(f"{column}_name"))
            frame = frame.join(F.broadcast(told), column, "left")
    return frame


def lived(frame: DataFrame, table: str, names: DataFrame) -> DataFrame:
    """`messages` or `stays` as people read them."""
    operator = F.lit(int(Reason.OPERATOR))
    words = ({"end_how": how("end_type", operator)} if table == "messages" else
             {"arrived_how": how("arrived_by", operator),
              "left_how": how("left_by", F.col("left_reason"))})
    instants = {name: at(f"{name}_ns") for name in INSTANTS[table]}
    day = F.to_date(at(DAY_OF[table]))
    return named(frame.withColumns({**instants, **words, "day": day}), names)
