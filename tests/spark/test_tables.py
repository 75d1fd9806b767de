"""The Delta tables that people read: what counts and nothing else, at one version, as pandas,
DuckDB and Spark see it."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from omq.base.errors import BadRequest, Exit, OutBusy
from omqtools.omqspark import main, older, options, tables
from omqtools.omqspark.lake import Lake, all_messages, all_stays
from omqtools.omqspark.out import CURRENT, VERSIONS
from omqtools.omqspark.pipeline import run
from tests.spark.test_spark import rows_of

Made = tuple[Path, dict[str, Any]]


@pytest.fixture
def own(lake: Lake, tmp_path: Path) -> Lake:
    """A copy of the tables, to be changed."""
    shutil.copytree(lake.out, tmp_path / "own")
    return Lake(lake.spark, str(tmp_path / "own"))


def test_every_message_is_there_once_and_all_tables_are_of_one_batch(lake: Lake) -> None:
    said = tables.versions(lake)
    assert said["batch"] == lake.current() == 1
    assert set(said["versions"]) == set(tables.PUBLISHED)
    for name, whole in (("messages", all_messages(lake)), ("stays", all_stays(lake))):
        found = tables.frame(lake, name)
        assert rows_of(found.drop("batch").select(*sorted(set(whole.columns)))) == rows_of(
            whole.select(*sorted(whole.columns)))
        assert whole.count() > 0
    history = tables.table(lake, "messages").history()
    assert [entry["omqBatch"] for entry in history if "omqBatch" in entry] == ["1", "0"]
    assert rows_of(tables.frame(lake, "routes").drop("batch")) == rows_of(lake.gold("routes"))


def test_pandas_and_duckdb_read_them_with_zones_names_and_words(lake: Lake) -> None:
    duckdb = pytest.importorskip("duckdb", reason="make setup-dev installs it")
    stays = tables.table(lake, "stays").to_pandas()
    assert len(stays) == all_stays(lake).count()
    assert stays["arrived"].dt.tz is not None
    assert stays["arrived"].dt.tz.utcoffset(None) == timedelta(0)
    assert (stays["arrived"].astype("int64") - stays["arrived_ns"] // 1000).abs().max() == 0
    assert set(stays["arrived_how"]) >= {"put", "move"}
    names = set(stays["queue_name"])
    assert None not in names and len(names) > 1
    waiting = tables.table(lake, "stays").to_pyarrow_dataset()
    [(count,)] = duckdb.sql(
        "SELECT count(*) FROM waiting WHERE left_lsn IS NULL").fetchall()
    assert count == int(stays["left_lsn"].isna().sum()) > 0
    assert waiting.count_rows() == len(stays)


def test_timestamps_are_whole_numbers_in_the_files(lake: Lake) -> None:
    """Not INT96, which few read."""
    for name, column in (("messages", "born"), ("stays", "arrived"), ("queue_hour", "hour")):
        path = next(Path(lake.path(name)).rglob("*.parquet"))
        columns = pq.ParquetFile(path).schema
        (found,) = [columns.column(n) for n in range(len(columns)) if columns.column(n).name
                    == column]
        assert found.physical_type == "INT64"


def test_they_can_be_read_as_they_were(lake: Lake) -> None:
    """The first commit was that of batch 0: its open messages, and none of batch 1."""
    before = tables.frame(lake, "messages", version=1)
    assert {row["batch"] for row in before.select("batch").distinct().collect()} == {0}
    still = before.where("ended = 0").count()
    assert still > 0
    now = tables.frame(lake, "messages")
    assert now.where("batch = 0 AND ended = 0").count() == 0
    assert now.where("ended = 0").count() > 0
    assert now.where("batch = 1").count() > 0


def test_a_run_that_was_killed_before_the_commit_is_made_good(own: Lake, made: Made) -> None:
    for name in tables.PUBLISHED:
        log = Path(own.path(name), "_delta_log")
        sorted(log.glob("*.json"))[-1].unlink()
    said = tables.versions(own)
    Path(own.path(VERSIONS)).write_text(json.dumps(
        said | {"batch": 0, "versions": {name: n - 1 for name, n in said["versions"].items()}}))
    assert tables.frame(own, "messages").where("batch = 1").count() == 0
    assert run(own.spark, str(made[0] / "archive"), own.out, incremental=True)["batches"] == []
    assert tables.versions(own) == said
    now = tables.frame(own, "messages")
    assert now.where("batch = 1").count() > 0
    assert now.count() == all_messages(own).count()


def test_what_no_kept_version_names_goes(own: Lake) -> None:
    whole = rows_of(tables.frame(own, "messages"))
    stray = Path(own.path("messages", 7), "ended=1", "day=2026-01-01", "part-0.parquet")
    stray.parent.mkdir(parents=True)
    shutil.copy(next(Path(own.path("messages", 0)).rglob("*.parquet")), stray)
    assert tables.vacuum(own, 7) == 0
    assert tables.vacuum(own, 0) > 0
    assert stray.exists(), "no folder was listed"
    assert tables.vacuum(own, 0, left=True) > 0
    assert not stray.exists()
    assert not list(Path(own.path("messages", 0), "ended=0").rglob("*.parquet"))
    assert rows_of(tables.frame(own, "messages")) == whole
    assert rows_of(all_messages(own))


def test_two_runs_at_once_are_refused(own: Lake, made: Made, capsys: pytest.CaptureFixture[str]
                                      ) -> None:
    with own.alone():
        with pytest.raises(OutBusy), Lake(own.spark, own.out).alone():
            pass
        assert OutBusy.exit_code == Exit.TEMPORARY
    with own.alone():
        pass


@pytest.mark.parametrize("version", older.TOLD_ANEW)
def test_tables_of_before_are_told_anew(own: Lake, version: int) -> None:
    """Of version 2, which had no Delta tables and its answers in `gold`, and 3: the events stay,
    and the next run tells all files of them (test_late.py runs over tables of version 1)."""
    before = own.known()
    found = json.loads(Path(own.path(CURRENT)).read_text())
    Path(own.path(CURRENT)).write_text(json.dumps(found | {"version": version}))
    Path(own.path("gold", 1), "routes").mkdir(parents=True)
    with pytest.raises(BadRequest, match="--incremental' upgrades it"):
        own.known()
    known = older.upgraded(own)
    assert (known.batches, known.files) == ([], before.files)
    assert known.next_number > max(batch.number for batch in before.batches)
    left = {path.name for path in Path(own.out).iterdir() if path.is_dir()}
    assert left - {"report"} == {"bronze", "names"}


def test_the_command_lists_them(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    given = options.parser().parse_args(["tables", "--out", lake.out])
    assert main._tables(lake, given) == Exit.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["table"] for row in rows] == list(tables.PUBLISHED)
    assert rows[0]["rows"] == all_messages(lake).count()
    with pytest.raises(BadRequest, match="there are messages"):
        tables.table(lake, "../secrets")
