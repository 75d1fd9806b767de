"""What the report shows, out of the files of the answers, without Spark: a JVM that starts for them
costs more than they do.

Minutes are put together file by file, POINTS_MAX a queue, so the report of two years needs little
more memory than one of a day. Of the other answers all rows are held, without their distributions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from omqtools.omqspark import parquet, plan
from omqtools.omqspark.charts import POINTS_MAX
from omqtools.omqspark.duck_text import PLAIN
from omqtools.omqspark.gold import MINUTE_NS, READER
from omqtools.omqspark.manifest import Manifest
from omqtools.omqspark.out_directory import Out

_MINUTES: Final = ["queue", "minute_ns", "arrivals", "departures", "depth", "oldest_s"]
_WAITING: Final = pa.schema([("queue", pa.int32()), ("qpool", pa.int64()), (
    "arrived", pa.timestamp("us", tz="UTC")), ("arrived_rest", pa.int32()),
    ("left_lsn", pa.int64())])
_ADDED: Final = ["messages", "gives", "failed", "deaths", "busy_s", "works"]


def fetched(out: Out, table: str) -> pd.DataFrame:
    """The rows of a table of answers; instants are UTC, without a zone. Of `readers` one a process,
    of `queue_minute` as many a queue as a line shows."""
    paths, schema = out.shown(table)
    if table == "queue_minute":
        times = parquet.each_file(paths, schema, ["minute_ns"])
        step = step_ns(part["minute_ns"] for part in times)
        return coarse((part.to_pandas() for part in parquet.each_file(paths, schema, _MINUTES)),
                      step)
    names = [name for name in schema.names if name != "day" and not name.endswith("_buckets")]
    rows = pa.concat_tables([parquet.no_rows(schema, names),
                             *parquet.each_file(paths, schema, names)]).to_pandas()
    for name in rows.select_dtypes("datetimetz").columns:
        rows[name] = rows[name].dt.tz_localize(None)
    return whole_readers(rows) if table == "readers" else rows


def step_ns(times: Iterable[pa.ChunkedArray]) -> int:
    """How much time a point of a line is, so that there are POINTS_MAX at most."""
    edges = [pc.min_max(part).as_py() for part in times if len(part)]
    if not edges:
        return MINUTE_NS
    span: int = max(edge["max"] for edge in edges) - min(edge["min"] for edge in edges)
    return -(-(span // MINUTE_NS + 1) // POINTS_MAX) * MINUTE_NS


def coarse(parts: Iterable[pd.DataFrame], step: int) -> pd.DataFrame:
    """Minutes put together: sums, the highest age, and the last depth of each step."""
    found = pd.concat([pd.DataFrame(columns=_MINUTES, dtype="int64"), *(
        _together(part, step) for part in parts)])
    whole = _together(found, step)
    whole["minute"] = pd.to_datetime(whole["minute_ns"] // step * step)
    return whole.drop(columns="minute_ns")


def _together(minutes: pd.DataFrame, step: int) -> pd.DataFrame:
    minutes = minutes.sort_values("minute_ns", kind="stable")
    groups = minutes.groupby(["queue", minutes["minute_ns"].rename("step") // step])
    return groups.agg({"arrivals": "sum", "departures": "sum", "oldest_s": "max", "depth": "last",
                       "minute_ns": "last"}).reset_index("queue").reset_index(drop=True)


def whole_readers(readers: pd.DataFrame) -> pd.DataFrame:
    """The rows of all days as one a reader process."""
    whole = readers.groupby([*READER, "queue_name"], dropna=False, as_index=False).agg(
        dict.fromkeys(_ADDED, "sum") | {"first": "min", "last": "max"})
    whole["span_s"] = (whole["last"] - whole["first"]).dt.total_seconds()
    whole["busy_share"] = (whole["busy_s"] / whole["span_s"]).where(whole["span_s"] > 0)
    return whole


def oldest(out: Out) -> pd.DataFrame:
    """(queue, qpool, waiting, age_s): of what is on each queue at the end of the data, what came
    first, how many there are, and the age of the first then. The rows are as many as wait: they go
    through DuckDB, a piece at a time."""
    fs, where = plan.filesystem(f"{out.path('stays', out.current())}/ended=0")
    if fs.get_file_info([where])[0].type == pafs.FileType.NotFound:
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in (
            ("queue", "int32"), ("qpool", "int64"), ("waiting", "int64"), ("age_s", "float64"))})
    waiting = ds.dataset(where, _WAITING, "parquet", filesystem=fs)
    end_us = max(record.time_max for record in out.known().files.values()) // 1000
    with duckdb.connect(config=PLAIN) as database:
        database.register("waiting", waiting)
        found: pd.DataFrame = database.sql(
            "SELECT queue, arg_min(qpool, (arrived, arrived_rest, qpool)) AS qpool, "
            f"count(*) AS waiting, ({end_us} - epoch_us(min(arrived))) / 1e6 AS age_s FROM waiting "
            "WHERE left_lsn IS NULL GROUP BY queue ORDER BY queue").df()
    return found


def queue_names(out: Out, wanted: Collection[int] | None = None) -> dict[int, str]:
    """Queue number -> its last known name. The newest files first, until all that are `wanted` are
    named: each file names the queues of its frames."""
    known, found = out.known(), dict[int, str]()
    batches: dict[int, dict[int, dict[int, str]]] = {}
    left = None if wanted is None else set(wanted)
    for number in sorted(known.files, reverse=True):
        if left is not None and not left:
            break
        batch = known.files[number].batch
        if batch not in batches:
            batches[batch] = _names_of(out, known, batch)
        for queue, name in batches[batch].get(number, {}).items():
            found.setdefault(queue, name)
        left = left and left - found.keys()
    return found


def _names_of(out: Out, known: Manifest, batch: int) -> dict[int, dict[int, str]]:
    """File -> queue -> its last name there, of what one batch has read."""
    found: dict[int, dict[int, str]] = {}
    names: Sequence[str] = ("file", "lsn", "kind", "key", "text")
    for part in parquet.each_file([out.path("names", batch)], parquet.schema_of("dict"), names):
        rows = part.filter(pc.equal(part["kind"], "queue")).sort_by("lsn")
        for file, queue, name in zip(*(rows[column].to_pylist() for column in (
                "file", "key", "text")), strict=True):
            if file in known.files and known.files[file].batch == batch:
                found.setdefault(file, {})[int(queue)] = str(name)
    return found
