"""One Spark session of tests/bench/analytics.py: measures some ways over one archive, prints JSON.

A session of its own for each, because master and memory are fixed when the JVM starts. Times are
the quickest of RUNS (of scans: SCANS) after one to warm up: seconds of the wall clock, and of
processor of this process with all its descendants (the JVM, its Python workers), which others on
the machine disturb less. `python tests/bench/analytics_session.py ARCHIVE SCRATCH WAY...`
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omqtools.omqspark import bronze, columns, decode, plan
from omqtools.omqspark.lifecycle import lifecycle
from omqtools.omqspark.session import session
from omqtools.omqspark.source_read import FAILFAST, Work

RUNS = int(os.environ.get("RUNS", "2"))
SCANS = 6  # of what ends at once: the JVM compiles a scan anew in the first ones
FEW = ["lsn", "time_ns", "type", "queue", "qpool"]
SCANNED = ("source", "failfast", "parquet")
TICK = os.sysconf("SC_CLK_TCK")


class TupleSource(DataSource):
    """The same events as Python tuples: what the Arrow way is measured against."""

    @classmethod
    def name(cls) -> str:
        return "omqj_tuples"

    def schema(self) -> str:
        return columns.ddl("events")

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(self.options["path"])


class TupleReader(DataSourceReader):
    def __init__(self, where: str) -> None:
        self.where = where

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in tasks(self.where)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        names = list(columns.EVENTS)
        for batch in decode.event_batches(partition.value, names, (), self.where):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def tasks(where: str) -> list[list[plan.Split]]:
    return plan.splits(plan.heads(where, plan.listing(where)), plan.SPLIT_BYTES)


def processor_s(root: int) -> float:
    """Seconds of processor of a process and its descendants, with those that have ended."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue  # it has just ended
            rest = text[text.rindex(")") + 2 :].split()
            children.setdefault(int(rest[1]), []).append(int(name))
            used[int(name)] = sum(map(int, rest[11:15]))
    total, left = 0, [root]
    while left:
        one = left.pop()
        total += used.get(one, 0)
        left += children.get(one, [])
    return total / TICK


def timed(work: Callable[[], Any], runs: int) -> tuple[float, float]:
    """(seconds, seconds of processor) of the quickest run; one more is made before, if several."""
    if runs > 1:
        work()
    found = []
    for _ in range(runs):
        start, used = time.perf_counter(), processor_s(os.getpid())
        work()
        found.append((time.perf_counter() - start, processor_s(os.getpid()) - used))
    return min(found)


def ways(spark: Any, where: str, scratch: str) -> dict[str, Callable[[], Any]]:
    """What can be measured, by name."""
    table = f"{scratch}/bronze"

    def noop(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def source() -> Any:  # a reader keeps what it was told, so each use has its own
        return spark.read.format("omqj").option("path", where)

    def to_bronze() -> None:
        work = Work({"path": where}, list(columns.BRONZE))
        bronze.write(spark, work, work.tasks(work.listing()), table, f"{scratch}/names")

    def written() -> Any:
        return spark.read.schema(columns.ddl("events")).parquet(table).withColumn(
            "ts", F.expr("timestamp_micros(time_ns div 1000)"))

    spark.dataSource.register(TupleSource)
    few = ",".join(FEW)
    return {
        "source": lambda: noop(source().load()),
        "source_5": lambda: noop(source().option("columns", few).load()),
        "failfast": lambda: noop(source().option("mode", FAILFAST).load()),
        "failfast_5": lambda: noop(source().option("mode", FAILFAST).option("columns", few).load()),
        "tuples": lambda: noop(spark.read.format("omqj_tuples").option("path", where).load()),
        "bronze": to_bronze,
        "parquet": lambda: noop(written()),
        "parquet_5": lambda: noop(written().select(*FEW)),
        "lifecycle": lambda: lifecycle(written()).write.mode("overwrite").parquet(
            f"{scratch}/messages")}


def main(argv: list[str]) -> int:
    where, scratch, *wanted = argv
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    found: dict[str, Any] = {"master": spark.sparkContext.master}
    known = ways(spark, where, scratch)
    for name in wanted:
        runs = 1 if name == "tuples" else SCANS if name.startswith(SCANNED) else RUNS
        found[name] = [round(value, 3) for value in timed(known[name], runs)]
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
