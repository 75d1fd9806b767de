"""The tables that people use: Delta tables in OUT, one a folder, all of the same run.

    OUT/messages  OUT/stays      partitioned by batch, ended, day (UTC, of birth or arrival)
    OUT/queue_minute ...         the answers (gold.ANSWERS), partitioned by batch
    OUT/tables.json              {"batch": N, "versions": {table: version}}

Spark writes the Parquet files, on as many machines as there are; what is committed here is only
which of them count, by delta-rs (`deltalake`), which needs no JVM. A message is in a table once: a
commit takes in the files of a batch and takes out those of the open messages of the one before, or
of batches that a late file made void, at one version. Whoever reads several tables takes the
versions of tables.json: they are of one batch.

In the middle of a crash: manifest.py says what counts and is renamed first. What is committed here
follows from it, and each run begins by doing that again (`commit` is the same done twice), so the
tables are behind for as long as nobody runs, never wrong. A second run at the same time ends with
OutBusy where OUT is a local path; elsewhere the later of two commits of one version fails.

Files that no version of the last `keep_days` names are removed by `vacuum`; until then
`DeltaTable(path, version=...)` shows the tables as they were.
Errors: BadRequest (another kind of table; unknown name), NoArchive.
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
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.pandas.types import to_arrow_schema

from omq.base.errors import BadRequest, NoArchive
from omqtools.omqspark import plan
from omqtools.omqspark.lake import ANSWERS, LIVES, VERSIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omqtools.omqspark.lake import Lake
    from omqtools.omqspark.manifest import Manifest

SCHEMA_VERSION: Final = 1
"""Of the columns; a table of another one is made anew by a run without --incremental."""
KEEP_DAYS: Final = 7
PUBLISHED: Final = (*LIVES, *ANSWERS)
BY_LIFE: Final = ("batch", "ended", "day")
BY_BATCH: Final = ("batch",)


@dataclass(frozen=True, slots=True)
class Written:
    """A Parquet file of a table: path from the table's folder, partition values as in the path."""

    path: str
    size: int
    modified_ms: int
    rows: int
    values: dict[str, str]


def partitions(table: str) -> tuple[str, ...]:
    """The columns that a table is partitioned by."""
    return BY_LIFE if table in LIVES else BY_BATCH


def commit(lake: Lake, known: Manifest) -> dict[str, int]:
    """Make the tables say what the manifest says; their versions."""
    versions = {name: _commit(lake, name, known) for name in PUBLISHED}
    said = {"batch": known.current, "schema": SCHEMA_VERSION, "versions": versions}
    lake.put(VERSIONS, (json.dumps(said) + "\n").encode())
    return versions


def _commit(lake: Lake, name: str, known: Manifest) -> int:
    counted = {str(batch.number) for batch in known.batches}
    if name not in LIVES:
        counted &= {str(known.current)}
    table = _table(lake, name, next(iter(sorted(counted))))
    there = files(table)
    gone = [each for each in there if not _counts(each.values, counted, known)]
    batches = {each.values["batch"] for each in there}
    new = [each for batch in sorted(counted - batches, key=int)
           for each in _written(lake, name, int(batch)) if _counts(each.values, counted, known)]
    if gone or new:
        adds = [AddAction(each.path, each.size, each.values, each.modified_ms, True,  # noqa: FBT003
                          json.dumps({"numRecords": each.rows})) for each in new]
        table.create_write_transaction(
            [*adds, *_removals(gone)], "append", table.schema(), list(partitions(name)),
            commit_properties=CommitProperties(custom_metadata={
                "omqBatch": str(known.current), "omqInstance": known.uuid}),
            post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False))
        table.update_incremental()
    return int(table.version())


def _counts(values: dict[str, str], counted: set[str], known: Manifest) -> bool:
    """Open messages are those at the end of the current batch."""
    return values["batch"] in counted and (
        values.get("ended", "1") == "1" or values["batch"] == str(known.current))


def _removals(gone: list[Written]) -> list[RemoveAction]:
    now_ms = time.time_ns() // 1_000_000
    return [RemoveAction(each.path, data_change=True, deletion_timestamp=now_ms, size=each.size,
                         partition_values=dict(each.values)) for each in gone]


def files(table: DeltaTable) -> list[Written]:
    """The files that count in a table."""
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    keys = table.metadata().partition_columns
    return [Written(row["path"], row["size_bytes"], int(row["modification_time"]),
                    row["num_records"], {key: str(row[f"partition.{key}"]) for key in keys})
            for row in rows]


def _table(lake: Lake, name: str, batch: str) -> DeltaTable:
    """The Delta table, made if it is not there; its columns are those of the files of a batch."""
    where = lake.path(name)
    if DeltaTable.is_deltatable(where):
        return DeltaTable(where)
    frame = lake.spark.read.option("basePath", where).parquet(lake.path(name, int(batch)))
    return DeltaTable.create(
        where, _schema(frame), partition_by=list(partitions(name)), name=f"omq {name}",
        configuration={"omq.schemaVersion": str(SCHEMA_VERSION)}, raise_if_key_not_exists=False)


def _schema(frame: DataFrame) -> pa.Schema:
    schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
    return schema


def _written(lake: Lake, name: str, batch: int) -> Iterator[Written]:
    """The files of a batch."""
    fs, root = plan.filesystem(lake.path(name))
    _, where = plan.filesystem(lake.path(name, batch))
    for info in fs.get_file_info(pafs.FileSelector(where, recursive=True)):
        if info.type != pafs.FileType.File or not info.base_name.endswith(".parquet"):
            continue
        tail = info.path[len(root.rstrip("/")) + 1 :]
        values = dict(part.split("=", 1) for part in tail.split("/")[:-1])
        with fs.open_input_file(info.path) as file:
            rows = pq.read_metadata(file).num_rows
        yield Written(tail, info.size, info.mtime_ns // 1_000_000, rows,
                      {key: unquote(value) for key, value in values.items()})


def versions(lake: Lake) -> dict[str, Any]:
    """What tables.json says. NoArchive: no run has published tables there."""
    data = lake.get(VERSIONS)
    if data is None:
        raise NoArchive(path=lake.out)
    found: dict[str, Any] = json.loads(data)
    return found


def table(lake: Lake, name: str, version: int | None = None) -> DeltaTable:
    """A table as of the last run, or at a version of its own. BadRequest: there is none so named.
    """
    known = versions(lake)["versions"]
    if name not in known:
        raise BadRequest(reason=f"no table {name!r} in {lake.out}; there are "
                                f"{', '.join(sorted(known))}")
    return DeltaTable(lake.path(name), version=known[name] if version is None else version)


def frame(lake: Lake, name: str, version: int | None = None) -> DataFrame:
    """The same for Spark, without any jar: the files that count, with their partition columns."""
    found = table(lake, name, version)
    paths = [f"{lake.path(name)}/{each.path}" for each in files(found)]
    if not paths:
        raise NoArchive(path=lake.path(name))
    return lake.spark.read.option("basePath", lake.path(name)).parquet(*paths)


def vacuum(lake: Lake, keep_days: float) -> int:
    """Remove the files that no version of the last `keep_days` days names; how many."""
    removed = 0
    for name, version in versions(lake)["versions"].items():
        found = DeltaTable(lake.path(name))
        removed += len(found.vacuum(int(keep_days * 24), dry_run=False, full=True,
                                    enforce_retention_duration=False, keep_versions=[version]))
    return removed
