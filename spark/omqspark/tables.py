"""The tables that people use: Delta tables in OUT, one a folder, all of the same run.

    OUT/messages  OUT/stays      partitioned by batch, ended, day (UTC, of birth or arrival)
    OUT/queue_minute ...         the answers (gold.ANSWERS), partitioned by batch, most by day, too
    OUT/tables.json              {"batch": N, "versions": {table: version}}

Spark writes the Parquet files, on as many machines as there are; what is committed here is only
which of them count, by delta-rs (`deltalake`), which needs no JVM. A message is in a table once: a
commit takes in the files of a batch and takes out those of the open messages of the one before, or
of batches that a late file made void, at one version. Whoever reads several tables takes the
versions of tables.json: they are of one batch.

In the middle of a crash: manifest.py says what counts and is renamed first. What is committed here
follows from it, and each run begins by doing that again (`commit` is the same done twice), so the
tables are behind for as long as nobody runs, never wrong. A second run at the same time ends with
OutBusy, in an object store with OutHeld.

Files that no version of the last `keep_days` names are removed by `vacuum`; until then
`DeltaTable(path, version=...)` shows the tables as they were.
Errors: BadRequest (another kind of table; unknown name), NoTables.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import IntegerType, StructType

from omq.base.errors import BadRequest, NoTables
from omqtools.omqspark import parquet, plan, worker_files
from omqtools.omqspark.answer_tables import ALWAYS, Index
from omqtools.omqspark.derived import whole
from omqtools.omqspark.dictionary import described
from omqtools.omqspark.gold import ANSWERS
from omqtools.omqspark.manifest import of_another
from omqtools.omqspark.meanings import MEANINGS
from omqtools.omqspark.out_directory import LIVES, VERSIONS, Out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omqtools.omqspark.lake import Lake
    from omqtools.omqspark.manifest import Manifest

SCHEMA_VERSION: Final = 5
"""Of the columns; a table of another one is made anew by a run without --incremental."""
KEEP_DAYS: Final = 7
CHECKPOINT_COMMITS: Final = 10
"""Commits that are read one by one, at most, to know what a table is: an hourly run reads nine."""
PUBLISHED: Final = (*LIVES, *(answer.name for answer in ANSWERS))
BY_LIFE: Final = ("batch", "ended", "day")
BY_DAY: Final = ("batch", "day")
BY_BATCH: Final = ("batch",)
APART: Final = frozenset(answer.name for answer in ANSWERS if answer.day)
UNCOMMITTABLE: Final = ("hdfs", "viewfs", "webhdfs", "har")


@dataclass(frozen=True, slots=True)
class Written:
    """A Parquet file of a table: path from the table's folder, partition values as in the path."""

    path: str
    size: int
    modified_ms: int
    rows: int
    values: dict[str, str]


def refuse(out: str) -> None:
    """BadRequest where files can be written but not committed: delta-rs knows no HDFS."""
    scheme = out.partition(":")[0].lower()
    if "://" in out and scheme in UNCOMMITTABLE:
        raise BadRequest(reason=f"the tables of {out} cannot be committed: delta-rs does not know "
                                f"{scheme}://; give a directory that all nodes share or an object "
                                "store (the archive may lie on HDFS)")


def partitions(table: str) -> tuple[str, ...]:
    """The columns that a table is partitioned by."""
    return BY_LIFE if table in LIVES else BY_DAY if table in APART else BY_BATCH


def commit(lake: Out, known: Manifest, *, same_rows: bool = False) -> dict[str, int]:
    """Make the tables say what the manifest says; their versions. `same_rows`: only where they lie
    has changed, so who follows a table has nothing to read."""
    index = lake.index(known.current)
    versions = {name: _commit(lake, name, known, index, same_rows) for name in PUBLISHED}
    said = {"batch": known.current, "schema": SCHEMA_VERSION, "versions": versions}
    lake.put(VERSIONS, (json.dumps(said) + "\n").encode())
    return versions


def _commit(lake: Out, name: str, known: Manifest, index: Index, same: bool  # noqa: FBT001
            ) -> int:
    counted = {str(batch.number) for batch in known.batches}
    if name not in LIVES:
        counted = {str(batch) for batch in index.shown[name].values()}
    table = _table(lake, name, index)
    there = files(table)
    gone = [each for each in there if not _counts(name, each.values, known, index)]
    parts = {_part(each.values) for each in there}
    batches = {batch for batch, _ in parts}
    if name in LIVES:
        unread = counted - batches
    else:
        unread = {str(batch) for day, batch in index.shown[name].items()
                  if (str(batch), day) not in parts}
    new = [each for batch in sorted(unread, key=int) for each in _written(lake, name, int(batch))
           if _counts(name, each.values, known, index) and (
               name in LIVES or _part(each.values) not in parts)]
    if gone or new:
        adds = [AddAction(each.path, each.size, each.values, each.modified_ms, not same,
                          json.dumps({"numRecords": each.rows})) for each in new]
        table.create_write_transaction(
            [*adds, *_removals(gone, same)], "append", table.schema(), list(partitions(name)),
            commit_properties=CommitProperties(custom_metadata={
                "omqBatch": str(known.current), "omqInstance": known.uuid}),
            post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False))
        table.update_incremental()
    return int(table.version())


def _part(values: dict[str, str]) -> tuple[str, str]:
    return values["batch"], values.get("day", ALWAYS)


def _counts(name: str, values: dict[str, str], known: Manifest, index: Index) -> bool:
    """Open messages are those at the end of the current batch; a day is shown by one batch."""
    batch, day = _part(values)
    if name not in LIVES:
        return index.shown[name].get(day) == int(batch)
    return batch in {str(one.number) for one in known.batches} and (
        values["ended"] == "1" or batch == str(known.current))


def _removals(gone: list[Written], same: bool) -> list[RemoveAction]:  # noqa: FBT001
    now_ms = time.time_ns() // 1_000_000
    return [RemoveAction(each.path, data_change=not same, deletion_timestamp=now_ms, size=each.size,
                         partition_values=dict(each.values)) for each in gone]


def files(table: DeltaTable) -> list[Written]:
    """The files that count in a table."""
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    keys = table.metadata().partition_columns
    return [Written(row["path"], row["size_bytes"], int(row["modification_time"]),
                    row["num_records"], {key: str(row[f"partition.{key}"]) for key in keys})
            for row in rows]


def _table(lake: Out, name: str, index: Index) -> DeltaTable:
    """The Delta table, made if it is not there; its columns are those of the last batch."""
    where = lake.path(name)
    if DeltaTable.is_deltatable(where):
        return DeltaTable(where)
    found = StructType.fromJson(json.loads(index.schemas[name])).add("batch", IntegerType())
    schema: pa.Schema = to_arrow_schema(found, timezone="UTC")
    return DeltaTable.create(
        where, described(name, schema), partition_by=list(partitions(name)), name=f"omq {name}",
        description=f"A row: {MEANINGS[name].row}.",
        configuration={"omq.schemaVersion": str(SCHEMA_VERSION),
                       "delta.checkpointInterval": str(CHECKPOINT_COMMITS)},
        raise_if_key_not_exists=False)


def _written(lake: Out, name: str, batch: int) -> Iterator[Written]:
    """The files of a batch."""
    fs, root = plan.filesystem(lake.path(name))
    _, where = plan.filesystem(lake.path(name, batch))
    infos = [info for info in fs.get_file_info(pafs.FileSelector(where, recursive=True))
             if info.type == pafs.FileType.File and info.base_name.endswith(".parquet")]
    for info, rows in zip(infos, parquet.counts(fs, [info.path for info in infos]), strict=True):
        tail = info.path[len(root.rstrip("/")) + 1 :]
        values = dict(part.split("=", 1) for part in tail.split("/")[:-1])
        yield Written(tail, info.size, info.mtime_ns // 1_000_000, rows,
                      {key: unquote(value) for key, value in values.items()})


def versions(lake: Out) -> dict[str, Any]:
    """What tables.json says. NoTables: no run has published tables there; BadRequest: they have
    the columns of another omq-spark."""
    data = lake.get(VERSIONS)
    if data is None:
        raise NoTables(path=lake.out)
    found: dict[str, Any] = json.loads(data)
    if found.get("schema") != SCHEMA_VERSION:
        raise of_another(lake.out, int(found.get("schema", 0)), SCHEMA_VERSION)
    return found


def table(lake: Out, name: str, version: int | None = None) -> DeltaTable:
    """A table as of the last run, or at a version of its own. BadRequest: there is none so named.
    """
    known = versions(lake)["versions"]
    if name not in known:
        raise BadRequest(reason=f"no table {name!r} in {lake.out}; there are "
                                f"{', '.join(sorted(known))}")
    return DeltaTable(lake.path(name), version=known[name] if version is None else version)


def schemas(lake: Out) -> dict[str, pa.Schema]:
    """The columns of each table that are stored, as of the last run."""
    return {name: pa.schema(table(lake, name).schema().to_arrow())
            for name in versions(lake)["versions"]}


def frame(lake: Lake, name: str, version: int | None = None) -> DataFrame:
    """The same for Spark, without any jar: the files that count, with their partition columns, and
    with those that follow from others (derived.py)."""
    found = table(lake, name, version)
    root, there = lake.path(name), files(found)
    schema = pa.schema(found.schema().to_arrow())
    if not there:
        return whole(lake.spark.createDataFrame(schema.empty_table()), name)
    paths = [f"{root}/{each.path}" for each in there]
    if not plan.is_store(root):
        return whole(lake.spark.read.option("basePath", root).parquet(*paths), name)
    fs, _ = plan.filesystem(root)
    infos = fs.get_file_info([plan.filesystem(path)[1] for path in paths])
    return whole(worker_files.frame(lake.spark, [
        (root, info, {**each.values}) for info, each in zip(infos, there, strict=True)],
        from_arrow_schema(schema)), name)


def vacuum(lake: Out, keep_days: float, *, left: bool = False) -> int:
    """Remove the files that no version of the last `keep_days` days names; how many. `left`: also
    those that no version has ever named, which killed runs have left: each folder is listed."""
    removed = 0
    for name, version in versions(lake)["versions"].items():
        found = DeltaTable(lake.path(name))
        removed += len(found.vacuum(int(keep_days * 24), dry_run=False, full=left,
                                    enforce_retention_duration=False, keep_versions=[version]))
    return removed
