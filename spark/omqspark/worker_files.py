"""Parquet files of an object store, written and read by Spark's Python workers.

Spark's own readers and writers know S3 only with a jar that pyspark does not bring; pyarrow knows
it, and is there (ADR 0156). So rows go through Arrow to a worker, which writes them:

    WHERE/key=value/.../.part-ATTTTT-NN.ATTEMPT   hidden: file N of task T; A: 1 if added to others
    WHERE/key=value/.../part-ATTTTT-NN.parquet    the same once its task has counted

Invariants: 1. a file is seen only if the attempt that wrote it is the one that Spark counts: the
driver renames what the tasks' results name. What another attempt has written, or writes later,
stays hidden, which readers pass over. 2. A worker holds one row group.

In the middle of a crash: the folder is one of a batch that does not count yet (manifest.py), and is
emptied when that is done again. Parts of an upload that was cut are in no listing; the store's own
rule removes them.
Errors: OSError of the file system, which fails the task and then the run.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omqtools.omqspark import encodings, plan

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"  # Spark's name for null in a path
GROUP_ROWS: Final = 256 * 1024
"""Rows of a row group, which a worker holds until they are written: some 60 MB."""
READ_ROWS: Final = 16 * 1024
TASK_BYTES: Final = 32 * 1024 * 1024
"""Of files that one task reads: a task costs some 50 ms of its worker, whatever it has to do."""
HIDDEN: Final = ".part-"
TOLD: Final = "hidden string, final string"


def split(table: pa.Table, apart: Sequence[str]) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """The rows of each combination of some columns, without these."""
    if not apart:
        yield {}, table
        return
    keys = list(apart)
    for values in table.select(keys).group_by(keys, use_threads=False).aggregate([]).to_pylist():
        mine = pa.scalar(True)  # noqa: FBT003
        for key, value in values.items():
            mine = pc.and_(mine, pc.is_null(table[key]) if value is None else pc.fill_null(
                pc.equal(table[key], pa.scalar(value, table[key].type)), False))  # noqa: FBT003
        yield values, table.filter(mine).drop_columns(keys)


def folder(path: str, values: dict[str, Any]) -> str:
    """Where the rows with these values lie."""
    return "/".join([path, *(f"{key}={NO_VALUE if value is None else value}"
                             for key, value in values.items())])


def fitted(table: pa.Table, values: dict[str, str | None], arrow: pa.Schema) -> pa.Table:
    """Rows of a file, with the columns that its path says, as `arrow` has them."""
    there, arrays = set(table.column_names), []
    for field in arrow:
        if field.name in values:
            value = pa.scalar(values[field.name], pa.string()).cast(field.type)
            arrays.append(pa.repeat(value, len(table)))
        elif field.name in there:
            arrays.append(table[field.name].cast(field.type))
        else:
            arrays.append(pa.nulls(len(table), field.type))
    return pa.Table.from_arrays(arrays, schema=arrow)


class _Written:
    """The files of one task, one after the other: rows come in the order of `apart`."""

    def __init__(self, where: str, append: bool) -> None:  # noqa: FBT001
        self._fs, self._path = plan.filesystem(where)
        context = TaskContext.get()
        self._name = f"{int(append)}{context.partitionId() if context else 0:05d}"
        self._attempt, self._count = uuid.uuid4().hex, 0
        self._values: dict[str, Any] = {}
        self._held: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self.files: list[tuple[str, str]] = []

    def add(self, values: dict[str, Any], rows: pa.Table) -> None:
        if values != self._values:
            self.close()
            self._values = values
        self._held.append(rows)
        if sum(map(len, self._held)) >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        self._held = []
        if self._writer is None:
            where = folder(self._path, self._values)
            self._fs.create_dir(where)
            name = f"part-{self._name}-{self._count:02d}"
            self._count += 1
            self.files.append((f"{where}/.{name}.{self._attempt}", f"{where}/{name}.parquet"))
            self._writer = pq.ParquetWriter(self.files[-1][0], rows.schema, filesystem=self._fs,
                                            **encodings.how(rows.schema, len(rows)))
        self._writer.write_table(rows, GROUP_ROWS)

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
        self._writer = None


def write(frame: DataFrame, where: str, apart: Sequence[str], *, append: bool) -> None:
    """Write rows below a folder in place of what is there, or in addition: see the module."""
    fs, path = plan.filesystem(where)
    fs.create_dir(path)
    if not append:
        fs.delete_dir_contents(path)
    keys = [*apart, *encodings.order(frame.columns)]
    ordered = frame.sortWithinPartitions(*keys) if keys else frame
    arrow = to_arrow_schema(frame.schema, timezone="UTC")
    schema = pa.schema([field.with_nullable(True) for field in arrow])  # noqa: FBT003
    names = list(apart)
    done = ordered.mapInArrow(
        lambda batches: _of_task(batches, schema, where, names, append), TOLD).collect()
    with ThreadPoolExecutor(plan.HEADS_AT_ONCE) as pool:
        list(pool.map(lambda row: fs.move(row["hidden"], row["final"]), done))
    forget_attempts(fs, path)


def _of_task(batches: Iterable[pa.RecordBatch], schema: pa.Schema, where: str, apart: list[str],
             append: bool) -> Iterator[pa.RecordBatch]:  # noqa: FBT001
    """Write what comes; then which files there are."""
    out = _Written(where, append)
    for batch in batches:
        for values, rows in split(pa.Table.from_batches([batch]).cast(schema), apart):
            out.add(values, rows)
    out.close()
    yield pa.RecordBatch.from_arrays([pa.array([one[at] for one in out.files], pa.string())
                                      for at in (0, 1)], names=["hidden", "final"])


def forget_attempts(fs: Any, path: str) -> None:
    """Remove what tasks left that were cut and tried again."""
    for info in fs.get_file_info(pafs.FileSelector(path, recursive=True)):
        if info.base_name.startswith(HIDDEN):
            fs.delete_file(info.path)


def frame(spark: SparkSession, files: Sequence[tuple[str, Any, dict[str, str | None]]],
          schema: StructType) -> DataFrame:
    """The rows of some files, which tasks read: (a place in the file system, what it says of the
    file, columns of its path)."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    told = pa.table({"where": [where for where, _, _ in files],
                     "path": [info.path for _, info, _ in files],
                     "apart": [json.dumps(values) for _, _, values in files]})
    size = sum(info.size for _, info, _ in files)
    tasks = max(spark.sparkContext.defaultParallelism, -(-size // TASK_BYTES))
    return spark.createDataFrame(told).repartition(min(tasks, len(files))).mapInArrow(
        lambda batches: _rows_of(batches, arrow), schema)


def _rows_of(batches: Iterable[pa.RecordBatch], arrow: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of the files that come, piece by piece."""
    for batch in batches:
        for one in batch.to_pylist():
            fs, _ = plan.filesystem(one["where"])
            values = json.loads(one["apart"])
            with fs.open_input_file(one["path"]) as opened:
                file = pq.ParquetFile(opened)
                there = set(file.schema_arrow.names)
                names = [name for name in arrow.names if name in there and name not in values]
                for rows in file.iter_batches(READ_ROWS, columns=names):
                    yield from fitted(pa.Table.from_batches([rows]), values, arrow).to_batches()
