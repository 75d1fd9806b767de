"""What people read besides codes and nanoseconds: timestamps, names of queues, words for frames.

Columns that are added: `NAME` next to `NAME_ns`, a timestamp (an instant, in microseconds; UTC in
the files); `NAME_name` next to the number of a queue or a client; `NAME_how` next to the type of a
frame; `day`, by which tables are partitioned. No column is named as a word of SQL: RENAMED says
which were (`omq-spark tables --old-names` has views with the names of before).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from omq.format.frame_rules import By, Comes, Reason
from omq.format.journal import FrameType
from omqtools.omqspark.clients import PRODUCER, READER, with_name
from omqtools.omqspark.engine import F, Window
from omqtools.omqspark.lifecycle import DIED, is_type

Names = list[tuple[int, str]]
_HISTORY: Final = pa.list_(pa.struct([("lsn", pa.int64()), ("name", pa.string())]))
QUEUES: Final = ("queue", "last_queue", "came_from", "went_to", "from_queue", "to_queue")
INSTANTS: Final = {
    "messages": {"born": "born", "first_give": "first_give", "ended_at": "end", "last": "last"},
    "stays": {"arrived": "arrived", "ready": "ready", "given": "given",
              "last_given": "last_given", "left_at": "left"}}
"""Timestamp -> the column in ns that it is of, without `_ns`."""
RENAMED: Final = {"messages": {"end": "ended_at"}, "stays": {"left": "left_at"},
                  "operators": {"at": "ordered_at", "order": "order_json"}}
"""Table -> the name of a column before version 7 -> its name."""
NAMED_AT: Final = {
    "messages": {"last_queue": "last_lsn"},
    "stays": {"queue": "left_lsn", "came_from": "arrived_lsn", "went_to": "left_lsn"}}
"""The LSN of which a queue's name is; null: it is there now."""
DAY_OF: Final = {"messages": "coalesce(born_ns, last_ns)", "stays": "arrived_ns"}


def at(nanoseconds: str) -> Column:
    """The instant of an SQL expression, in whole microseconds; null for null. By `div`: `/` is a
    division of doubles, which do not hold the nanoseconds of today."""
    return F.expr(f"timestamp_micros(({nanoseconds}) div 1000)")


def how(column: str, reason: str) -> Column:
    """The frame of the type and with the reason in two columns, in small letters; `deleted`: by an
    operator, `backout`: put by a unit of work in doubt that was backed out, `died`: with its
    manager."""
    names = F.create_map(*(F.lit(x) for kind in FrameType for x in (int(kind), kind.name.lower())))
    to_idel = is_type(lambda rule: rule.comes is Comes.IDEL and By.OPERATOR in rule.by, column)
    deleted = to_idel & (F.col(reason) == int(Reason.OPERATOR))
    undone = to_idel & (F.col(reason) == int(Reason.BACKED_OUT))
    return (F.when(F.col(column) == DIED, "died").when(deleted, "deleted").when(undone, "backout")
            .otherwise(F.try_element_at(names, F.col(column))))


def names_told(names: DataFrame, before: Mapping[str, Names]) -> dict[str, Names]:
    """What each queue was called, from which LSN on, one for each change: what earlier batches knew
    (`before`) and the rows of a `names` table. Each file names all queues; collected are those
    names that a queue did not have before."""
    had = F.lag("text").over(Window.partitionBy("key").orderBy("lsn"))
    rows = names.where("kind = 'queue' AND bad IS NULL").select(
        "key", "lsn", "text", had.alias("had")).where(
        F.col("had").isNull() | (F.col("had") != F.col("text"))).collect()
    found = {number: list(history) for number, history in before.items()}
    for row in sorted(rows, key=lambda row: int(row["lsn"])):
        history = found.setdefault(str(row["key"]), [])
        if not history or history[-1][1] != row["text"]:
            history.append((int(row["lsn"]), str(row["text"])))
    return found


def queue_names(spark: SparkSession, names: Mapping[str, Names]) -> DataFrame:
    """(number, history): the same as a frame, which each table of a batch needs."""
    histories = [[{"lsn": lsn, "name": name} for lsn, name in history]
                 for history in names.values()]
    return spark.createDataFrame(pa.table(
        [pa.array([int(number) for number in names], pa.int32()),
         pa.array(histories, _HISTORY)], ["number", "history"]))


def named(frame: DataFrame, names: DataFrame, when: Mapping[str, str] = {}) -> DataFrame:
    """With the names of the queues in it, as they were at the LSN of the expression in `when`, or
    are; null: 0, or a queue that nobody has named. A number can be another queue's later, when
    nothing is on the first one: so a stay tells the name that the queue had when it ended."""
    for column in QUEUES:
        if column in frame.columns:
            told = names.select(F.col("number").alias(column), F.col("history").alias("_history"))
            frame = frame.join(F.broadcast(told), column, "left")
            name = F.expr(_THEN.format(when[column]) if column in when else _LAST)
            frame = frame.withColumn(f"{column}_name", name).drop("_history")
    return frame


_LAST: Final = "(try_element_at(_history, -1)).name"
_THEN: Final = (f"IF({{0}} IS NULL, {_LAST}, (coalesce(try_element_at(filter(_history, "
                "one -> one.lsn <= {0}), -1), try_element_at(_history, 1))).name)")
"""The name last, or at an LSN; before the first one that is known: that."""


def _reader_named(frame: DataFrame, clients: DataFrame) -> DataFrame:
    """A unit of work takes messages without a reader of a name: then it is its program's."""
    own = ("given_epoch", "reader")
    found = with_name(with_name(frame, clients, READER, *own, "reader_name"), clients, PRODUCER,
                      *own, "_program")
    return found.withColumn("reader_name", F.coalesce("reader_name", "_program")).drop("_program")


def lived(frame: DataFrame, table: str, names: DataFrame, clients: DataFrame) -> DataFrame:
    """`messages` or `stays` as people read them. `clients`: names of programs (clients.py)."""
    words = ({"end_how": how("end_type", "end_reason")} if table == "messages" else
             {"arrived_how": how("arrived_by", "arrived_reason"),
              "left_how": how("left_by", "left_reason")})
    instants = {name: at(f"{of}_ns") for name, of in INSTANTS[table].items()}
    frame = (with_name(frame, clients, PRODUCER, "first_epoch", "producer", "producer_name")
             if table == "messages" else
             _reader_named(frame, clients))
    day = F.to_date(at(DAY_OF[table]))
    told = frame.withColumns({**instants, **words, "day": day})
    return named(told, names, NAMED_AT[table])
