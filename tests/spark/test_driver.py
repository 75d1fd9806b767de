"""What comes to the driver, and goes from it to Spark, does not grow with the data."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from omqtools.omqspark import bronze, ids, parquet, report_tables
from omqtools.omqspark.audit import audit
from omqtools.omqspark.columns import BRONZE
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.out_directory import BESIDE, Out
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.source_read import Work
from tests.spark.conftest import generated

MESSAGES = 3000
BOUND = 40
"""Rows: of queues, days and kinds there are some tens; of messages, stays and events thousands."""
RESULT = "200k"
"""Bytes that all tasks of a stage may send to the driver, broadcasts too."""


@pytest.fixture
def passed(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """Each time that rows went through the driver: how, and how many."""
    from pyspark.core.rdd import RDD
    from pyspark.sql import SparkSession
    from pyspark.sql.classic.dataframe import DataFrame

    seen: list[tuple[str, int]] = []

    def watch(owner: Any, name: str, rows: Any) -> None:
        real = getattr(owner, name)

        def watched(self: Any, *args: Any, **options: Any) -> Any:
            found = real(self, *args, **options)
            seen.append((name, rows(found, args)))
            return found

        monkeypatch.setattr(owner, name, watched)

    for owner, name in ((DataFrame, "collect"), (DataFrame, "toArrow"), (DataFrame, "toPandas"),
                        (RDD, "collect")):
        watch(owner, name, lambda found, _: len(found))
    watch(SparkSession, "createDataFrame", lambda _, args: len(args[0]))
    own = spark.sparkContext._jsc.sc().conf()
    own.set("spark.driver.maxResultSize", RESULT)
    yield seen
    own.remove("spark.driver.maxResultSize")


def test_a_run_and_an_audit_pass_no_rows_through_the_driver(
        spark: Any, by_spark: None, passed: list[tuple[str, int]],
        tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    """Two batches and the pool, of what Spark does itself."""
    made, truth = generated(tmp_path_factory, MESSAGES, file_frames=2000)
    assert truth["frames"] > 100 * BOUND
    lake = Lake(spark, str(tmp_path / "tables"))
    done = run(spark, str(made / "archive"), lake.out, incremental=False, files_per_batch=7)
    assert len(done["batches"]) == 2
    assert audit(lake, str(made / "archive"), pool=made)["clean"]
    assert {name for name, _ in passed} >= {"collect", "createDataFrame"}
    assert not [one for one in passed if one[1] > BOUND]
    assert not list((tmp_path / "tables" / BESIDE).iterdir()), "what the audit had beside it"
    for path in (tmp_path / "tables" / "stays").rglob("*.parquet"):
        numbers = pq.ParquetFile(path).read(["qpool"])["qpool"].to_pylist()
        assert numbers == sorted(numbers), "Spark writes in the order in which Arrow does"


def test_a_task_tells_some_findings_and_counts_the_rest(
        made: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work({"path": str(made[0] / "archive")}, list(BRONZE))
    task, *_ = work.tasks(work.listing())
    where = str(tmp_path / "bronze"), str(tmp_path / "names")
    whole = bronze.write_task(work, task, 0, *where)
    assert whole.findings and not whole.more
    monkeypatch.setattr(bronze, "FOUND_MAX", 0)
    some = bronze.write_task(work, task, 0, *where)
    assert some.rows == whole.rows and not some.findings
    assert some.more == Counter(each["kind"] for each in whole.findings)


def test_ids_are_written_piece_by_piece_and_gone_behind_it(tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "GROUP", 4)
    out = Out(str(tmp_path))
    with ids.ids(out) as keep:
        for first in range(0, 30, 3):
            keep(np.arange(first, first + 3))
        keep.close()
        (path,) = Path(keep.where).iterdir()
        assert pq.read_table(path)["qpool"].to_pylist() == list(range(30))
        assert pq.read_metadata(path).num_row_groups > 3
        with ids.ids(out):  # another audit, at the same time
            assert path.exists()
        left = Path(keep.where).with_name("left")
        left.mkdir()
        os.utime(left, times=(0, time.time() - 2 * ids.LEFT_S))
        with ids.ids(out):
            assert not left.exists() and path.exists(), "what a killed one left goes a day later"
    assert not list((tmp_path / BESIDE).iterdir())


def test_a_pool_of_nobody_is_a_file_without_rows(tmp_path: Path) -> None:
    with ids.ids(Out(str(tmp_path))) as keep:
        keep.close()
        assert len(pq.read_table(keep.where)) == 0


def test_who_waits_is_looked_at_without_pandas(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many may wait as there is room for: of them one row a queue becomes a frame."""
    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("a file as a whole")

    monkeypatch.setattr(parquet, "each_file", refused)
    found = report_tables.oldest(lake)
    assert isinstance(found, pd.DataFrame) and 0 < len(found) < BOUND


def test_nobody_waits_where_nothing_is_open(tmp_path: Path) -> None:
    assert report_tables.oldest(Out(str(tmp_path))).empty
