"""Speed of the archive's analytics, as ratios within one run: `python tests/bench/analytics.py`.

Makes an archive (MESSAGES, default 400,000: 2 million events), then measures: decoding without
Spark; the data source into nothing, against a source that gives Python rows and against Spark's own
Parquet; archive to bronze; the life cycle of all messages. Prints one JSON object. Not a test: it
asserts nothing about time.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omq.format.archive import Section
from omqspark import columns, decode, plan
from omqspark.generate import generate
from omqspark.generator import Load
from omqspark.lifecycle import lifecycle
from omqspark.session import session

RUNS = 3


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
        found = plan.heads(self.where, plan.listing(self.where))
        return [InputPartition(task) for task in plan.splits(found, plan.SPLIT_BYTES)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        names = list(columns.EVENTS)
        for batch in decode.event_batches(partition.value, names, (), self.where):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def best(work: Callable[[], Any]) -> float:
    """Seconds of the quickest of RUNS, after one to warm up."""
    work()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def decoded(where: str, names: list[str]) -> None:
    found = plan.heads(where, plan.listing(where))
    for task in plan.splits(found, plan.SPLIT_BYTES):
        for _ in decode.event_batches(task, names, (), where):
            pass


def blocks_only(where: str) -> None:
    fs, _ = plan.filesystem(where)
    found = plan.heads(where, plan.listing(where))
    for split in (split for task in plan.splits(found, 1 << 40) for split in task):
        reader, file = plan.open_split(fs, split)
        for _ in file.blocks(Section.FRAMES):  # type: ignore[union-attr]
            pass
        reader.close()


def measure(spark: Any, where: str, scratch: str, frames: int) -> dict[str, float]:
    """Seconds of each way."""
    few = ["lsn", "time_ns", "type", "queue", "qpool"]

    def noop(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def source() -> Any:  # a reader keeps what it was told, so each use has its own
        return spark.read.format("omqj").option("path", where)

    bronze = f"{scratch}/bronze"

    def to_bronze() -> None:
        source().load().write.mode("overwrite").parquet(bronze)

    spark.dataSource.register(TupleSource)
    found = {
        "decode_blocks": best(lambda: blocks_only(where)),
        "decode_all_columns": best(lambda: decoded(where, list(columns.EVENTS))),
        "decode_5_columns": best(lambda: decoded(where, few)),
        "source_noop": best(lambda: noop(source().load())),
        "source_noop_5_columns": best(lambda: noop(source().schema(", ".join(
            f"{name} {columns.EVENTS[name][0]}" for name in few)).load())),
        "to_bronze": best(to_bronze)}
    found["parquet_noop"] = best(lambda: noop(spark.read.parquet(bronze)))
    found["lifecycle"] = best(lambda: noop(lifecycle(spark.read.parquet(bronze))))
    start = time.perf_counter()
    noop(spark.read.format("omqj_tuples").option("path", where).load())
    found["tuples_noop"] = time.perf_counter() - start
    return found


def main() -> int:
    messages = int(os.environ.get("MESSAGES", "400000"))
    scratch = tempfile.mkdtemp(prefix="omq-bench-")
    try:
        truth = generate(Path(scratch) / "made", messages, faults=0, load=Load(),
                         file_frames=400_000)
        where, frames = f"{scratch}/made/archive", int(truth["frames"])
        size = sum(path.stat().st_size for path in Path(where).iterdir())
        spark = session()
        try:
            found = measure(spark, where, scratch, frames)
        finally:
            spark.stop()
        said = {"events": frames, "bytes_per_event": round(size / frames, 1),
                "cores": os.cpu_count(),
                "seconds": {key: round(value, 2) for key, value in found.items()},
                "million_events_per_second": {
                    key: round(frames / value / 1e6, 2) for key, value in found.items()},
                "source_to_tuples": round(found["tuples_noop"] / found["source_noop"], 1),
                "source_to_parquet": round(found["parquet_noop"] / found["source_noop"], 2)}
        sys.stdout.write(json.dumps(said, indent=1) + "\n")
    finally:
        shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
