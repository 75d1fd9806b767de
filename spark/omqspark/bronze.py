"""Archive to bronze: each task decodes its part of the archive and writes Parquet files itself.

The rows never enter the JVM. Measured: Spark's own writer took 6 microseconds of a core for each
event of 28 columns, Arrow's takes half a one. One task alone is the driver's.

    OUT/bronze/batch=N/day=D/part-TTTTT-SS.parquet     task T, its file number S of that day
    OUT/names/batch=N/part-TTTTT-00.parquet            names and texts of its files

A file is written under a name that readers pass over (it begins with a dot) and appears by rename.
Names and bytes depend on the archive only, so a task that is tried again, or twice at once, comes
to the same files. The directory is emptied first; current.json says what counts (pipeline).
Errors: OSError of the file system (full, not there), which fails the run.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from omqtools.omqspark import columns, decode, encodings, plan
from omqtools.omqspark.engine import is_columnar
from omqtools.omqspark.source_read import Task, Work
from omqtools.omqspark.worker_files import forget_attempts

GROUP_ROWS: Final = 256 * 1024
"""Rows of a row group: about 60 MB of memory for each day that a task has open."""
DAYS_OPEN_MAX: Final = 4  # of one task: clocks jump, but not all the time
DAY_NS: Final = 86_400 * 1_000_000_000
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"  # Spark's name for null: rows that only say `bad`
REPEATING: Final = ["type", "flags", "queue", "priority", "attempt", "client", "pid", "uid",
                    "reason", "target", "file", "epoch"]
"""Columns of few different values, where a dictionary pays; on others it costs time and room."""
RISING: Final = ("lsn", "qpool")
"""Columns of which differences take less than what they are; of instants they do not."""
LEVEL: Final = 6
"""Of zstd: a tenth smaller than with 1, and hardly slower; above it 3 % for ten times the work."""
FOUND_MAX: Final = 100
"""Findings that a task tells; of more it tells how many. A file of nothing but damage has one in
each block, and the driver hears of all files."""
Finding = dict[str, Any]


@dataclass
class Written:
    """What a task has written. `more`: kind -> how many findings there are besides `findings`."""

    rows: int
    findings: list[Finding]
    more: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: int, found: list[Finding]) -> Written:
        rest = Counter(str(each["kind"]) for each in found[FOUND_MAX:])
        return cls(rows, found[:FOUND_MAX], dict(rest))


@dataclass
class _Part:
    """One file that is being written."""

    writer: pq.ParquetWriter
    hidden: str
    final: str
    batches: list[pa.RecordBatch] = field(default_factory=list)
    waiting: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.waiting += len(batch)
        if self.waiting >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        if self.batches:
            self.writer.write_table(pa.Table.from_batches(self.batches), GROUP_ROWS)
        self.batches, self.waiting = [], 0


class TaskFiles:
    """The files of one task of a table."""

    def __init__(self, where: str, task: int, table: str = "events") -> None:
        self._fs, self._where = plan.filesystem(where)
        self._task = task
        self._attempt = uuid.uuid4().hex
        self._open: dict[str, _Part] = {}
        self._count: dict[str, int] = {}
        self._schema = columns.arrow_schema(table, list(
            columns.BRONZE if table == "events" else columns.TABLES[table]))
        self._dictionary = REPEATING if table == "events" else ["kind"]

    def add(self, day: str, batch: pa.RecordBatch) -> None:
        part = self._open.get(day)
        if part is None:
            if len(self._open) >= DAYS_OPEN_MAX:
                self._close(next(iter(self._open)))
            part = self._open[day] = self._begin(day)
        part.add(batch)

    def _begin(self, day: str) -> _Part:
        number = self._count[day] = self._count.get(day, -1) + 1
        directory = f"{self._where}/day={day}" if day else self._where
        self._fs.create_dir(directory)
        name = f"part-{self._task:05d}-{number:02d}"
        hidden = f"{directory}/.{name}.{self._attempt}"
        writer = pq.ParquetWriter(hidden, self._schema, filesystem=self._fs, compression="zstd",
                                  compression_level=LEVEL, store_schema=False,
                                  use_dictionary=self._dictionary,
                                  column_encoding=dict.fromkeys(RISING, encodings.DELTA)
                                  if "lsn" in self._schema.names else None)
        return _Part(writer, hidden, f"{directory}/{name}.parquet")

    def _close(self, day: str) -> None:
        part = self._open.pop(day)
        part.flush()
        part.writer.close()
        self._fs.move(part.hidden, part.final)

    def close(self) -> None:
        for day in list(self._open):
            self._close(day)


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """A batch in parts of one day (UTC) each."""
    times = batch.column("time_ns")
    if times.null_count:
        yield NO_DAY, batch
        return
    days = times.to_numpy() // DAY_NS
    one = bool((days == days[0]).all())
    for day in [int(days[0])] if one else np.unique(days).tolist():
        name = f"{datetime.fromtimestamp(day * 86_400, UTC):%Y-%m-%d}"
        yield name, batch if one else batch.filter(pa.array(days == day))


def write_task(work: Work, task: Task, number: int, bronze: str, names: str) -> Written:
    """Write one task's files below `bronze` and `names`; how many events, and what is wrong."""
    files, rows = TaskFiles(bronze, number), 0
    found: list[Finding] = []
    for batch in work.batches(task):
        for day, part in by_day(batch) if len(batch) else ():
            files.add(day, part)
            rows += len(part)
            if day == NO_DAY:
                found += [{"kind": "crc", "file": file, "detail": text} for file, text in zip(
                    part.column("file").to_pylist(), part.column("bad").to_pylist(), strict=True)]
    files.close()
    texts = TaskFiles(names, number, "dict")
    for batch in decode.name_batches(task.splits, list(columns.NAMES), work.where):
        texts.add("", batch)
    texts.close()
    return Written.of(rows, _once(found + block_gaps(task, work.where)))


def _once(found: Sequence[Finding]) -> list[Finding]:
    return list({json.dumps(each, sort_keys=True): each for each in found}.values())


def block_gaps(task: Task, where: str) -> list[Finding]:
    """LSNs missing inside files, as their seals say: in a block, or between two of them."""
    out: list[Finding] = []
    names = ["first_lsn", "last_lsn", "count", "file", "bad"]
    for batch in decode.block_batches(task.splits, names, where):
        if batch.column("bad").null_count < len(batch):
            continue
        first, last, count = (batch.column(name).to_numpy() for name in names[:3])
        gap = last - first + 1 > count
        gap[1:] |= first[1:] > last[:-1] + 1
        out += [{"kind": "gap", "file": batch.column("file")[i].as_py(), "lsn": int(first[i]),
                 "count": 0} for i in np.flatnonzero(gap).tolist()]
    return out


def write(spark: SparkSession, work: Work, tasks: Sequence[Task], bronze: str, names: str
          ) -> Written:
    """All tasks, several on the cluster; what is wrong in their files, a damage once."""
    for where in (bronze, names):
        fs, path = plan.filesystem(where)
        fs.create_dir(path)
        fs.delete_dir_contents(path)

    if len(tasks) == 1 or is_columnar():  # a worker takes longer to start than this takes
        done = [write_task(work, task, number, bronze, names)
                for number, task in enumerate(tasks)]
    else:
        done = _on_workers(spark, work, tasks, bronze, names)
    for where in (bronze, names):
        forget_attempts(*plan.filesystem(where))
    more: Counter[str] = Counter()
    for each in done:
        more.update(each.more)
    return Written(sum(each.rows for each in done),
                   _once([one for each in done for one in each.findings]), dict(more))


def _on_workers(spark: SparkSession, work: Work, tasks: Sequence[Task], bronze: str, names: str
                ) -> list[Written]:
    """Each task's own. A worker gets its part of the plan with its task, not all of it."""
    if not tasks:
        return []
    numbered = spark.sparkContext.parallelize(list(enumerate(tasks)), len(tasks))
    return list(numbered.map(
        lambda one: write_task(work, one[1], one[0], bronze, names)).collect())
