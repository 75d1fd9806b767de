"""Parquet files of OUT in and out: by Spark where there are many rows, by the driver where few.
Many rows in an object store go through Spark's Python workers (worker_files.py).

Few rows are read and written by Arrow in the driver, and are one partition for Spark: its own
readers and writers, its shuffles and its adaptive execution cost a JVM that has just started more
than such rows do (ADR 0104). The same Spark expressions say what an event means in both
ways, so the rows are the same; only how they come in and go out differs.

    WHERE/key=value/.../part-NNNNN.parquet    partition columns are in the path, as Spark does it

In the middle of a crash: a folder that is written is one of a batch that does not count yet
(manifest.py); it is emptied first, so a batch that is done again comes to the same files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from omqtools.omqspark import columns, encodings, plan, worker_files
from omqtools.omqspark.engine import is_columnar
from omqtools.omqspark.worker_files import NO_VALUE, fitted, folder, split

FEW_BYTES: Final = 1024 * 1024
"""Of files that the driver reads itself: some 100,000 events (at 7 to 12 bytes), 30 MB of its heap
for as long as a plan names them; or the sketches of 25 queues and hours."""
JOINED_ROWS: Final = 250_000
"""Of small files that become one row group: some 50 MB."""
_TYPES: Final[dict[str, DataType]] = {
    "bigint": LongType(), "int": IntegerType(), "boolean": BooleanType(), "string": StringType(),
    "timestamp": TimestampType(), "array<int>": ArrayType(IntegerType()),
    "array<bigint>": ArrayType(LongType())}
"""Of all tables of columns.py."""
_KINDS: Final[dict[str, DataType]] = {"day": DateType()}  # else numbers


def schema_of(table: str) -> StructType:
    """Of a table of columns.py."""
    return from_arrow_schema(columns.arrow_schema(table, list(columns.TABLES[table])))


def load(spark: SparkSession, paths: Sequence[str], schema: StructType | None = None,
         base: str = "", *, many: bool = False) -> DataFrame:
    """The rows of the files below some folders. Without a schema that of the first file; the
    columns of the paths behind `base` (else: behind each folder) come last. `many`: they are not
    the driver's, whatever their size."""
    found = [(path, info) for path in paths for info in files_of(path)]
    few = not many and _few(info for _, info in found)
    store = bool(paths) and plan.is_store(paths[0])
    if not (few or store) or not (found or schema):
        reader = spark.read.schema(schema) if schema else spark.read
        return (reader.option("basePath", base) if base else reader).parquet(*paths)
    if schema is None:
        fs, _ = plan.filesystem(paths[0])
        with fs.open_input_file(found[0][1].path) as file:
            schema = from_arrow_schema(pq.read_schema(file))
    above = {path: plan.filesystem(base or path)[1] for path in paths}
    values = [_values(info.path, above[path]) for path, info in found]
    apart = list(dict.fromkeys(key for each in values for key in each))
    whole = StructType()
    for name in [*(name for name in schema.names if name not in apart), *apart]:
        kind = schema[name].dataType if name in schema.names else _KINDS.get(name, IntegerType())
        whole = whole.add(name, kind)
    if found and not few:
        return worker_files.frame(spark, [(path, info, each) for (path, info), each in zip(
            found, values, strict=True)], whole)
    arrow = to_arrow_schema(whole, timezone="UTC")
    return local(spark, pa.concat_tables([arrow.empty_table(), *(
        _read(path, info, each, arrow)
        for (path, info), each in zip(found, values, strict=True))]), whole)


def streamed(spark: SparkSession, where: str, schema: pa.Schema) -> DataFrame:
    """The rows of a folder without folders in it, which no process holds as a whole."""
    if is_columnar():
        fs, path = plan.filesystem(where)
        own: Any = spark
        found: DataFrame = own.streamed(ds.dataset(path, schema, "parquet", filesystem=fs))
        return found
    columns_of = from_arrow_schema(schema)
    if plan.is_store(where):
        return load(spark, [where], columns_of)
    return spark.read.schema(columns_of).parquet(where)


def each_file(paths: Iterable[str], schema: StructType, names: Sequence[str]
              ) -> Iterator[pa.Table]:
    """Some columns of the files below some folders, one after the other, without Spark."""
    arrow = no_rows(schema, names).schema
    for path in paths:
        for info in files_of(path):
            yield _read(path, info, {}, arrow)


def pieces(where: str, apart: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a folder piece by piece, file by file, each with the value of a column in its
    path; "": there is none."""
    fs, path = plan.filesystem(where)
    for info in sorted(files_of(where), key=lambda info: str(info.path)):
        value = _values(info.path, path).get(apart, "")
        with fs.open_input_file(info.path) as opened:
            for batch in pq.ParquetFile(opened).iter_batches():
                yield NO_VALUE if value is None else value, batch


def no_rows(schema: StructType, names: Sequence[str]) -> pa.Table:
    """A table of some columns."""
    return to_arrow_schema(StructType([schema[name] for name in names]), timezone="UTC"
                           ).empty_table()


def local(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Rows of the driver, one partition."""
    frame = spark.createDataFrame(table, schema)
    return frame if is_columnar() or not len(table) else frame.coalesce(1)


def rows(spark: SparkSession, values: Sequence[Sequence[Any]],
         kind: StructType | str) -> DataFrame:
    """A few rows that the driver has made. By Arrow: of a list Spark makes a job, with a Python
    process that hands the rows on. `kind`: their schema, or the DDL of it."""
    schema = struct(kind) if isinstance(kind, str) else kind
    arrow = to_arrow_schema(schema, timezone="UTC")
    columns = zip(*values, strict=True) if values else [()] * len(arrow)
    return spark.createDataFrame(pa.Table.from_arrays(
        [pa.array(list(column), field.type) for column, field in zip(columns, arrow, strict=True)],
        schema=arrow), schema)


def struct(ddl: str) -> StructType:
    """Plain columns, "NAME TYPE, ...", without a JVM, which pyspark asks for it."""
    found = StructType()
    for each in ddl.split(","):
        name, kind = each.split()
        found = found.add(name, _TYPES[kind])
    return found


def files_of(where: str) -> Iterator[Any]:
    """The files of rows below a folder, which need not be there."""
    fs, path = plan.filesystem(where)
    for info in fs.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=True)):
        if info.type == pafs.FileType.File and info.base_name.endswith(".parquet") and (
                not info.base_name.startswith((".", "_"))):
            yield info


def are_few(paths: Sequence[str]) -> bool:
    """Whether the driver can hold the rows of the files below some folders."""
    return _few(info for path in paths for info in files_of(path))


def _few(files: Iterable[Any]) -> bool:
    if is_columnar():
        return True
    total: int = sum(info.size for info in files)
    return total <= FEW_BYTES


def rows_in(where: str) -> int:
    """How many rows the files below a folder have."""
    fs, _ = plan.filesystem(where)
    return sum(counts(fs, [info.path for info in files_of(where)]))


def counts(fs: pafs.FileSystem, paths: Sequence[str]) -> list[int]:
    """How many rows some files have, by their ends; several at a time: an object store answers
    late."""
    def one(path: str) -> int:
        with fs.open_input_file(path) as file:
            return int(pq.read_metadata(file).num_rows)

    with ThreadPoolExecutor(min(plan.HEADS_AT_ONCE, max(1, len(paths)))) as pool:
        return list(pool.map(one, paths))


def _values(path: str, above: str) -> dict[str, str | None]:
    """What the folders between two paths say: key=value."""
    parts = path[len(above.rstrip("/")) + 1 :].split("/")[:-1]
    found = dict(part.split("=", 1) for part in parts if "=" in part)
    return {key: None if text == NO_VALUE else unquote(text) for key, text in found.items()}


def _read(where: str, info: Any, values: dict[str, str | None], arrow: pa.Schema) -> pa.Table:
    """One file, with the columns of its path, as `arrow` says."""
    fs, _ = plan.filesystem(where)
    with fs.open_input_file(info.path) as opened:
        file = pq.ParquetFile(opened)
        there = set(file.schema_arrow.names)
        table = file.read([name for name in arrow.names if name in there and name not in values])
    return fitted(table, values, arrow)


def save(frame: DataFrame, where: str, apart: Sequence[str] = (), *, few: bool,
         append: bool = False) -> pa.Table | None:
    """Write rows below a folder in place of what is there (or in addition: `append`), apart by some
    columns. `few`: the driver can hold them, and has them."""
    if few:
        table = frame.toArrow()
        _write(table, where, apart, append=append)
        return table
    if plan.is_store(where):
        worker_files.write(frame, where, apart, append=append)
        return None
    keys = encodings.order(frame.columns)
    if keys:  # Spark sorts by `apart` anyway
        frame = frame.sortWithinPartitions(*apart, *keys)
    writer = frame.write.mode("append" if append else "overwrite").options(
        **encodings.spark_how(frame.schema))
    (writer.partitionBy(*apart) if apart else writer).parquet(where)
    return None


def saved(frame: DataFrame, where: str, apart: Sequence[str], *, few: bool) -> DataFrame:
    """Rows as they were written."""
    table = save(frame, where, apart, few=few)
    if table is not None:
        return local(frame.sparkSession, table, frame.schema)
    if plan.is_store(where):
        return load(frame.sparkSession, [where], frame.schema, many=True)
    # With the schema that is known: asking the files is a job of its own, and there is none where
    # there were no rows.
    return frame.sparkSession.read.schema(frame.schema).parquet(where)


def _write(table: pa.Table, where: str, apart: Sequence[str], *, append: bool) -> None:
    fs, path = plan.filesystem(where)
    fs.create_dir(path)
    if not append:
        fs.delete_dir_contents(path)
    name = f"part-{int(append):05d}.parquet"
    for values, rows in split(encodings.by_message(table), apart):
        below = folder(path, values)
        fs.create_dir(below)
        pq.write_table(rows, f"{below}/{name}", filesystem=fs,
                       **encodings.how(rows.schema, len(rows)))


def joined(paths: Sequence[str], where: str, schema: pa.Schema) -> None:
    """The rows of some files as one file below a folder, with these columns; `paths` in the order
    of their rows. No more than one of them, or JOINED_ROWS of small ones, is in memory. A folder
    that is written twice has the file of the second time."""
    fs, path = plan.filesystem(where)
    fs.create_dir(path)
    source = plan.filesystem(paths[0])[0]
    names = [plan.filesystem(each)[1] for each in paths]
    rows = counts(source, names)
    with pq.ParquetWriter(f"{path}/part-00000.parquet", schema, filesystem=fs,
                          **encodings.how(schema, sum(rows))) as writer:
        ready: list[pa.Table] = []
        for each, name, coming in zip(paths, names, rows, strict=True):
            if ready and sum(map(len, ready)) + coming > JOINED_ROWS:
                writer.write_table(encodings.by_message(pa.concat_tables(ready)))
                ready.clear()
            ready.append(_read(each, source.get_file_info([name])[0], {}, schema))
        writer.write_table(encodings.by_message(pa.concat_tables(ready)))
