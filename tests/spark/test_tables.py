"""The Delta tables that people read: what counts and nothing else, at one version, as pandas,
DuckDB and Spark see it."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from omq.base.errors import BadRequest, Exit, OutBusy
from omqtools.omqspark import main, older_versions, options, parquet, tables, views
from omqtools.omqspark.derived import STORED
from omqtools.omqspark.lake import Lake, all_messages, all_stays
from omqtools.omqspark.out_directory import CURRENT, VERSIONS, Out
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
    with views.database(lake.out) as database:
        whole = database.sql("FROM stays").to_arrow_table().to_pandas()
    assert len(whole) == len(stays)
    for found in (stays, whole):
        assert found["arrived"].dt.tz is not None
        assert found["arrived"].dt.tz.utcoffset(None) == timedelta(0)
    assert (whole["arrived"].astype("int64") - whole["arrived_ns"] // 1000).abs().max() == 0
    assert set(stays["arrived_how"]) >= {"put", "move"}
    names = set(stays["queue_name"])
    assert None not in names and len(names) > 1
    waiting = tables.table(lake, "stays").to_pyarrow_dataset()
    [(count,)] = duckdb.sql(
        "SELECT count(*) FROM waiting WHERE left_lsn IS NULL").fetchall()
    assert count == int(stays["left_lsn"].isna().sum()) > 0
    assert waiting.count_rows() == len(stays)


def test_no_column_is_a_word_of_sql(lake: Lake) -> None:
    """It can be asked for as it is, in DuckDB and in Spark where the standard's words are kept."""
    duckdb = pytest.importorskip("duckdb", reason="make setup-dev installs it")
    lake.spark.conf.set("spark.sql.ansi.enabled", "true")
    lake.spark.conf.set("spark.sql.ansi.enforceReservedKeywords", "true")
    try:
        for name, schema in views.schemas(lake).items():
            tables.frame(lake, name).createOrReplaceTempView(f"of_{name}")
            there = ", ".join(f'1 AS "{column}"' for column in schema.names)
            for column in schema.names:
                assert duckdb.sql(f"SELECT {column} FROM (SELECT {there})").columns == [column]
            asked = [column for column in schema.names if column not in STORED.get(name, ())]
            assert lake.spark.sql(f"SELECT {', '.join(asked)} FROM of_{name}").columns == asked
    finally:
        lake.spark.conf.unset("spark.sql.ansi.enforceReservedKeywords")
        lake.spark.conf.unset("spark.sql.ansi.enabled")


def test_columns_have_their_old_names_in_views(lake: Lake, capsys: pytest.CaptureFixture[str]
                                               ) -> None:
    duckdb = pytest.importorskip("duckdb", reason="make setup-dev installs it")
    asked = {"messages": ("ended_at", "end"), "stays": ("left_at", "left"),
             "operators": ("ordered_at", "at")}
    database = duckdb.connect()
    for name in asked:
        database.register(name, tables.table(lake, name).to_pyarrow_dataset())
        tables.frame(lake, name).createOrReplaceTempView(name)
    asks: dict[str, tuple[str, Any]] = {"duckdb": ('"', database.sql),
                                        "spark": ("`", lake.spark.sql)}
    for engine, (quote, ask) in asks.items():
        assert main.main(["tables", "--out", lake.out, "--old-names", engine]) == 0
        for statement in capsys.readouterr().out.strip().rstrip(";").split(";"):
            ask(statement)
        for name, (now, before) in asked.items():
            old = f"{quote}{before}{quote}"
            found = ask(f"SELECT count(*), count({old}) FROM {name}_6 "
                        f"WHERE {old} IS NOT DISTINCT FROM {now}")
            [(rows, filled)] = found.fetchall() if engine == "duckdb" else found.collect()
            assert rows == tables.frame(lake, name).count() and 0 < filled <= rows, name


def test_tables_with_the_columns_of_another_version_are_refused(tmp_path: Path) -> None:
    for schema, words in ((3, "run --incremental' upgrades it"), (99, "a newer omq-spark")):
        (tmp_path / "tables.json").write_text(json.dumps({"batch": 0, "schema": schema,
                                                          "versions": {"stays": 1}}))
        with pytest.raises(BadRequest, match=words):
            tables.table(Out(str(tmp_path)), "stays")


def test_programs_are_named_and_counted(lake: Lake) -> None:
    """Who puts, who gets, and who causes attempts once more, by name."""
    messages, stays = all_messages(lake), all_stays(lake)
    assert messages.where("producer IS NOT NULL AND producer_name IS NULL").count() == 0
    assert stays.where("reader IS NOT NULL AND reader_name IS NULL").count() == 0
    rows = lake.gold("programs").collect()
    born = messages.where("born_ns IS NOT NULL").groupBy("producer_name").agg(
        F.count("*"), F.sum("size")).collect()
    assert len(born) > 1
    for name, count, size in born:
        mine = [row for row in rows if row["program"] == name]
        assert (sum(r["put"] for r in mine), sum(r["put_bytes"] for r in mine)) == (count, size)
    for name, got, gives, failed in stays.where("reader IS NOT NULL").groupBy("reader_name").agg(
            F.count("*"), F.sum("gives"), F.sum("failed")).collect():
        mine = [row for row in rows if row["program"] == name]
        assert [sum(row[column] for row in mine) for column in ("got", "gives", "failed")] == [
            got, gives, failed]
    poison = lake.gold("poison").where("failed > 0").collect()
    assert poison and all(row["reader_name"] and row["producer_name"] for row in poison
                          if row["reader"] is not None)


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


@pytest.mark.parametrize("version", older_versions.TOLD_ANEW)
def test_tables_of_before_are_told_anew(own: Lake, version: int) -> None:
    """Of version 2, which had no Delta tables and its answers in `gold`, and 3: the events stay,
    and the next run tells all files of them (test_late.py runs over tables of version 1)."""
    before = own.known()
    found = json.loads(Path(own.path(CURRENT)).read_text())
    Path(own.path(CURRENT)).write_text(json.dumps(found | {"version": version}))
    Path(own.path("gold", 1), "routes").mkdir(parents=True)
    with pytest.raises(BadRequest, match="--incremental' upgrades it"):
        own.known()
    known = older_versions.upgraded(own)
    assert (known.batches, known.files) == ([], before.files)
    assert known.next_number > max(batch.number for batch in before.batches)
    left = {path.name for path in Path(own.out).iterdir() if path.is_dir()}
    assert left - {"report", "beside"} == {"bronze", "names"}  # an audit's place is empty


def test_the_command_lists_them(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    given = options.parser().parse_args(["tables", "--out", lake.out])
    assert main._tables(lake, given) == Exit.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["table"] for row in rows] == list(tables.PUBLISHED)
    assert rows[0]["rows"] == all_messages(lake).count()
    with pytest.raises(BadRequest, match="there are hand_outs, messages"):
        tables.table(lake, "../secrets")


@pytest.mark.parametrize("few", [True, False])
def test_what_goes_up_is_written_as_differences(spark: Any, tmp_path: Path, *, few: bool
                                                ) -> None:
    """Half of the bytes, by Arrow and by Spark, and everybody reads the same rows."""
    duckdb = pytest.importorskip("duckdb", reason="make setup-dev installs it")
    rows = pa.table({
        "qpool": pa.array(range(20_000)), "queue": pa.array([n % 7 for n in range(20_000)]),
        "born_ns": pa.array([1_767_225_600_000_000_000 + n * 1_000_003 for n in range(20_000)]),
        "born": pa.array([1_767_225_600_000_000 + n * 1000 for n in range(20_000)],
                         pa.timestamp("us", tz="UTC"))})
    parquet.save(parquet.local(spark, rows, from_arrow_schema(rows.schema)),
                 str(tmp_path / "new"), few=few)
    (path,) = (tmp_path / "new").glob("*.parquet")
    pq.write_table(rows, tmp_path / "plain.parquet", compression="zstd")
    assert path.stat().st_size < 0.5 * (tmp_path / "plain.parquet").stat().st_size
    assert pq.read_table(path).equals(rows)
    assert spark.read.parquet(str(path)).toArrow().cast(rows.schema).equals(rows)
    assert duckdb.sql(f"SELECT sum(qpool), sum(born_ns - {rows['born_ns'][0]}) FROM '{path}'"
                      ).fetchall() == [(19_999 * 10_000, 19_999 * 10_000 * 1_000_003)]
