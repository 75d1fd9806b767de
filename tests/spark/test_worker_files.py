"""Tables in a store that Spark has no file system for: its Python workers read and write them
(worker_files.py). Here such a store is a folder that nobody takes for one; with a real S3 server
and executors: test_cluster.py."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql.classic.dataframe import DataFrame

from omqtools.omqspark import parquet, plan, tables, worker_files
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.state import biography, state_at

ROWS = pa.table({
    "day": pa.array([datetime.date(2026, 1, 1)] * 4 + [datetime.date(2026, 1, 2)] * 3 + [None] * 2),
    "qpool": [4, 1, 3, 2, 7, 6, 5, 9, 8], "name": [f"n{at}" for at in range(9)]})
SCHEMA = ROWS.schema


@pytest.fixture
def in_store(by_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are many, and lie where Spark cannot."""
    monkeypatch.setattr(plan, "is_store", lambda _: True)


def test_only_an_address_is_a_store() -> None:
    assert [plan.is_store(where) for where in (
        "s3://bucket/tables", "gs://bucket/tables", "/srv/tables", "tables", "file:///srv/tables",
        "file:/srv/tables")] == [True, True, False, False, False, False]


def test_rows_come_back_as_they_were(spark: Any, in_store: None, lake: Lake, tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind of table: messages by what has ended and day, hours with their distributions,
    rows that no folder keeps apart; Spark's own writer has no part in it."""
    by_spark = {name: tables.frame(lake, name) for name in ("messages", "queue_hour", "sizes")}
    monkeypatch.setattr(DataFrame, "write", property(lambda _: pytest.fail("Spark's own writer")))
    for name, frame in by_spark.items():
        where = f"{tmp_path}/{name}"
        saved = parquet.saved(frame, where, tables.partitions(name), few=False)
        assert set(saved.columns) == set(frame.columns)
        assert saved.count() == frame.count() > 0
        assert not saved.select(*frame.columns).exceptAll(frame).count(), name
    for path in (tmp_path / "messages").rglob("*.parquet"):
        numbers = pq.ParquetFile(path).read(["qpool"])["qpool"].to_pylist()
        assert numbers == sorted(numbers), "in the order in which Spark and Arrow write"
    assert parquet.streamed(spark, f"{tmp_path}/messages", pa.schema([("qpool", pa.int64())])
                            ).count() == by_spark["messages"].count()


def test_who_knows_the_tables_reads_them(spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
                                         ) -> None:
    by_spark = tables.frame(lake, "stays").select("qpool", "left_lsn", "day", "batch")
    monkeypatch.setattr(plan, "is_store", lambda _: True)
    by_workers = tables.frame(lake, "stays").select(*by_spark.columns)
    assert by_workers.count() == by_spark.count() > 0
    assert not by_workers.exceptAll(by_spark).count()


def test_what_executors_have_written_is_not_read_by_the_driver(
        spark: Any, in_store: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small its files are: plans of a batch name all of them, and its heap holds each."""
    monkeypatch.setattr(parquet, "FEW_BYTES", 1 << 40)
    monkeypatch.setattr(parquet, "_read", lambda *_: pytest.fail("the driver reads"))
    saved = parquet.saved(spark.createDataFrame(ROWS), str(tmp_path), ["day"], few=False)
    assert saved.count() == len(ROWS)


def test_the_past_is_read_there(spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was on the queues, and what became of messages."""
    def seen() -> list[list[Any]]:
        return [sorted(map(str, frame.collect())) for frame in (
            state_at(lake, lsn=5000), biography(lake, "failed > 0"))]

    monkeypatch.setattr(parquet, "FEW_BYTES", -1)
    by_spark = seen()
    monkeypatch.setattr(plan, "is_store", lambda _: True)
    assert seen() == by_spark and all(by_spark)


def test_files_are_apart_and_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the columns of their path, of which one has no value; a group has no more than it may."""
    monkeypatch.setattr(worker_files, "GROUP_ROWS", 2)
    out = list(worker_files._of_task(ROWS.to_batches(max_chunksize=1), SCHEMA, str(tmp_path),
                                     ["day"], False))  # noqa: FBT003
    found = {(Path(final).parent.name, Path(final).name): pq.read_metadata(hidden)
             for hidden, final in zip(*out[0].columns, strict=True)
             for hidden, final in [(hidden.as_py(), final.as_py())]}
    assert {key: (each.num_rows, each.num_row_groups) for key, each in found.items()} == {
        ("day=2026-01-01", "part-000000-00.parquet"): (4, 2),
        ("day=2026-01-02", "part-000000-01.parquet"): (3, 2),
        (f"day={worker_files.NO_VALUE}", "part-000000-02.parquet"): (2, 1)}
    assert not list(parquet.files_of(str(tmp_path))), "nothing is seen before it counts"


def test_what_an_attempt_wrote_that_does_not_count_is_never_seen(
        spark: Any, tmp_path: Path) -> None:
    """A task that was tried twice has the files of one attempt, also where the other one writes
    behind that; who writes beside others leaves them alone, else nothing is left of before."""
    where, again = str(tmp_path), ROWS.to_batches()

    def attempt() -> None:
        assert list(worker_files._of_task(again, SCHEMA, where, ["day"], False))  # noqa: FBT003

    def rows() -> list[tuple[Any, ...]]:
        found = [(where, info, parquet._values(info.path, where))
                 for info in parquet.files_of(where)]
        schema = spark.createDataFrame(ROWS).schema
        return sorted((tuple(row) for row in worker_files.frame(spark, found, schema).collect()),
                      key=str)

    given = sorted((tuple(row.values()) for row in ROWS.to_pylist()), key=str)
    frame = spark.createDataFrame(ROWS)
    worker_files.write(frame, where, ["day"], append=False)
    attempt()
    assert rows() == given
    worker_files.write(frame, where, ["day"], append=True)
    assert rows() == sorted(given * 2, key=str)
    assert not list(tmp_path.rglob(".part-*")), "what was left is gone"
    attempt()
    worker_files.write(frame, where, ["day"], append=False)
    assert rows() == given


def test_no_rows_are_no_files(spark: Any, in_store: None, tmp_path: Path) -> None:
    frame = spark.createDataFrame(ROWS.slice(0, 0))
    assert parquet.saved(frame, str(tmp_path), ["day"], few=False).count() == 0
    assert not list(parquet.files_of(str(tmp_path)))


def test_a_file_that_is_gone_ends_what_reads_it_by_its_name(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "gone.parquet"
    pq.write_table(ROWS, path)
    info = pafs.LocalFileSystem().get_file_info([str(path)])[0]
    rows = worker_files.frame(spark, [(str(tmp_path), info, {})],
                              spark.createDataFrame(ROWS).schema)
    assert rows.count() == len(ROWS)
    path.unlink()
    with pytest.raises(PythonException, match=r"gone\.parquet"):
        rows.collect()
