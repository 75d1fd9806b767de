"""Few rows are told by DuckDB in this process, many by Spark: both ways give the same rows, also in
one directory, batch by batch; and what DuckDB has otherwise is written as Spark means it."""

from __future__ import annotations

import os
import random
import time
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omq.base.errors import BadRequest, SparkFailed
from omqtools.omqspark import failures, gold, parquet, pipeline, tables, views
from omqtools.omqspark.answer_tables import Basis
from omqtools.omqspark.audit import audit
from omqtools.omqspark.duck import QUICK_FRAMES, Session
from omqtools.omqspark.engine import F, Window, columnar, is_columnar
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.main import main
from omqtools.omqspark.manifest import Manifest
from omqtools.omqspark.out_directory import AUDITED, LOCK
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests.made import writer
from tests.made.generate import generate
from tests.made.generator import Load
from tests.spark.conftest import generated
from tests.spark.test_late import the_same
from tests.spark.told import no_session, told

Made = tuple[Path, dict[str, Any]]


def types_of(lake: Lake) -> dict[str, list[Any]]:
    return {name: [(field.name, field.type) for field in schema]
            for name, schema in tables.schemas(lake).items()}


def test_both_give_the_same_tables(spark: Any, made: Made, lake: Lake, tmp_path: Path) -> None:
    """All kinds of messages and of damage; then the audit."""
    out, archive = str(tmp_path / "tables"), str(made[0] / "archive")
    few = Lake(Later(no_session), out)
    said = run(few.engine, archive, out, incremental=False, files_per_batch=4)
    assert said["batches"] == [0, 1]
    the_same(Lake(spark, out), lake)
    assert types_of(few) == types_of(lake)
    (Path(lake.out) / AUDITED).unlink(missing_ok=True)
    for _ in range(2):  # the second one knows what was judged
        one, other = (audit(each, archive, pool=made[0]) for each in (few, lake))
        for verdict in (one, other):
            verdict["findings"].sort(key=str)
            del verdict["audited"]
        assert one == other and one["counts"]["lost"] > 0


@pytest.mark.parametrize("seed", range(2))
def test_each_batch_may_be_told_by_either(spark: Any, made: Made, lake: Lake, seed: int,
                                          tmp_path: Path) -> None:
    pick, out = random.Random(seed), str(tmp_path / "tables")
    files = sorted((made[0] / "archive").glob("*.oma"))
    here = tmp_path / "archive"
    here.mkdir()
    told = []
    for at in range(0, len(files), 3):
        for path in files[at : at + 3]:
            (here / path.name).write_bytes(path.read_bytes())
        by_duck = bool(at // 3 + seed & 1) if at < 6 else pick.random() < 0.5
        told.append(by_duck)
        run(Later(no_session) if by_duck else spark, str(here), out, incremental=True)
    assert set(told) == {True, False}
    the_same(Lake(spark, out), lake)


def test_how_many_rows_are_few(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                               ) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(spark)
        return spark

    later = Later(make, few_frames=10)
    lake: Any = Lake(later, str(tmp_path))
    with lake.told_by(9):
        assert is_columnar() and lake.few and isinstance(lake.spark, Session)
    assert not made and not is_columnar()
    with lake.told_by(10):
        assert not is_columnar() and lake.spark is spark
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with lake.told_by(9):
        assert not is_columnar(), "under spark-submit"
    assert made == [spark], "once, when somebody needs it"


@pytest.mark.parametrize(("memory", "frames"), [("1g", 1 << 20), ("512m", 1 << 19)])
def test_memory_says_how_many_are_few(memory: str, frames: int) -> None:
    later = Later(no_session, memory=memory)
    assert later.is_few(frames - 1) and not later.is_few(frames)
    assert not Later(no_session, few_frames=0, memory=memory).is_few(0), "never"


@pytest.mark.parametrize(("memory", "threads"), [("64m", 2), ("256m", 8), ("1g", 32), ("8g", 64),
                                                 ("16m", 1)])
def test_threads_are_as_many_as_memory_has_buffers_for(memory: str, threads: int,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    session = Session(memory)
    assert session.table("SELECT current_setting('threads') AS n").to_pylist() == [{"n": threads}]
    session.close()


@pytest.mark.parametrize(("memory", "frames", "least"), [
    ("64m", 70_000, "69m"), ("64m", 65_536, "65m"), ("256m", 300_000, "293m"),
    ("256m", 10**8, "512m"), ("511m", 10**8, "512m")])
def test_too_little_memory_is_refused_with_what_would_do(memory: str, frames: int, least: str
                                                         ) -> None:
    """Where neither DuckDB nor Spark has room; and the least has it."""
    with pytest.raises(BadRequest, match=f"file 7 has {frames}: give --memory {least} or more"):
        Later(no_session, memory=memory).refuse(frames, "file 7")
    enough = Later(no_session, memory=least)
    enough.refuse(frames, "file 7")
    assert enough.is_few(frames) or least == "512m"
    Later(no_session, memory=memory).refuse(int(memory[:-1]) * 1024 - 1, "file 7")
    Later(no_session, memory="512m").refuse(10**9, "file 7")  # Spark has it
    with pytest.raises(BadRequest, match="Spark needs more than --memory 511m: give --memory 512m"):
        assert Later(no_session, 0, "511m").spark


def test_too_little_memory_is_known_before_anything_is_written(made: Made, tmp_path: Path,
                                                               capsys: Any) -> None:
    """A file with more events than memory has room for; and sizes that are none."""
    archive = tmp_path / "archive"
    generate(tmp_path, 14_000, faults=0, load=Load(), file_frames=80_000)
    out = tmp_path / "tables"
    words = ["--archive", str(archive), "--out", str(out), "--incremental"]
    for memory, said in (("64m", "file 1 has [0-9]+: give --memory (6[5-9]|[78][0-9])m or more"),):
        with pytest.raises(BadRequest, match=said):
            main(["run", *words, "--memory", memory])
    assert not [path for path in out.iterdir() if path.name != LOCK]
    for memory in ("63m", "1m", "64", "0g", "-1g", "1e9m"):
        with pytest.raises(SystemExit) as ended:
            main(["run", *words, "--memory", memory])
        assert ended.value.code == 2
    assert "63m is too little for anything: give 64m or more" in capsys.readouterr().err
    assert main(["run", *words, "--memory", "100m"]) == 0
    assert main(["audit", *words[:4], "--memory", "64m"]) == 0, "in steps, whatever files have"


def test_a_run_is_cut_into_batches_that_need_no_spark(
        made: Made, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many files at once as are few, with what is still open; also when --files-per-batch says
    fewer. A file that is not few by itself goes to Spark, with as many others as it may take."""
    archive, out = str(made[0] / "archive"), str(tmp_path / "tables")
    frames = [record.frames for _, record in sorted(lake.known().files.items())]
    bound = frames[0] + 500
    assert sum(frames) > 2 * bound
    did = run(Later(no_session, bound), archive, out, incremental=False)
    files = [batch.files for batch in Lake(Later(no_session), out).known().batches]
    assert len(did["batches"]) == len(files) > 2 and files[:2] == [[1], [2]]
    by_number = lake.known().files
    assert all(sum(by_number[number].frames for number in each) < bound for each in files)
    assert max(map(len, files)) > 2
    run(Later(no_session, bound), archive, str(tmp_path / "one"), incremental=False,
        files_per_batch=1)
    one = Lake(Later(no_session), str(tmp_path / "one"))
    assert [batch.files for batch in one.known().batches] == [[number] for number in by_number]
    assert told(out) == told(tmp_path / "one")
    said: list[str] = []
    with pytest.raises(AssertionError, match="a JVM for few rows"):
        run(Later(no_session, frames[0]), archive, str(tmp_path / "spark"), incremental=False,
            files_per_batch=3, say=said.append)
    assert said[-1].startswith("0 of "), "nothing was told by halves"
    job: Any = type("Job", (), {"new": {}})
    many: Any = Lake(Later(no_session, frames[0]), lake.out)
    assert pipeline._next(many, Manifest(files=by_number), job, [1, 2, 3]) == [1, 2, 3]
    two: Any = Lake(Later(no_session, sum(frames[:2]) + 1), lake.out)
    assert pipeline._next(two, Manifest(files=by_number), job, [1, 2, 3]) == [1, 2]
    monkeypatch.setattr(parquet, "rows_in", lambda path: 1)
    assert pipeline._next(two, lake.known(), job, [1, 2, 3]) == [1], "what is open has its room"


ROWS = pa.table({"k": [1, 1, 1], "n": [3, 1, 2], "v": pa.array([None, 5, 7], pa.int64()),
                 "yes": pa.array([None, None, None], pa.bool_())})


@pytest.fixture(params=["duckdb", "spark"])
def rows(request: pytest.FixtureRequest) -> Any:
    """ROWS in each of the engines, while expressions are its own."""
    if request.param == "spark":
        yield request.getfixturevalue("spark").createDataFrame(ROWS)
        return
    session = Session("100m")
    with columnar():
        yield session.createDataFrame(ROWS)
    session.close()


def one(rows: Any, *columns: Any) -> list[Any]:
    return list(rows.groupBy("k").agg(*columns).drop("k").toArrow().to_pylist()[0].values())


def test_what_the_engines_have_otherwise(rows: Any) -> None:
    assert one(rows, F.max_by("v", "n").alias("a"), F.count_if("yes").alias("b"),
               F.sum("v").alias("c"), F.bit_or(F.expr("shiftleft(1L, n + 60)")).alias("d"),
               F.array_sort(F.collect_list("v")).alias("e"),
               F.array_sort(F.collect_list(F.when(F.col("yes"), F.col("v")))).alias("f")) == [
        None, 0, 12, -(1 << 63) + (1 << 62) + (1 << 61), [5, 7], []]
    wide = rows.groupBy("k").agg(F.sum("v").alias("v"), F.count_if("yes").alias("yes")).schema
    assert {field.dataType.simpleString() for field in wide} == {"bigint"}
    first = F.lag("n").over(Window.partitionBy("k").orderBy("v"))
    found = rows.select("n", first.alias("before")).toArrow().to_pylist()
    assert {row["n"]: row["before"] for row in found} == {3: None, 1: 3, 2: 1}, "nulls are first"
    assert rows.where(F.col("n").isin()).toArrow().num_rows == 0
    assert rows.select((F.col("v") / 2).alias("half")).toArrow()["half"].to_pylist() == [
        None, 2.5, 3.5]
    joined = rows.join(rows.select("n", F.col("v").alias("w")), "n", "left")
    assert joined.columns == ["n", "k", "v", "yes", "w"], "what is joined on comes first"


def test_few_frames_are_asked_for_in_another_way_with_the_same_rows_and_types() -> None:
    text = """SELECT n, n * 2 AS twice, n % 2 = 0 AS even, 'x' || n AS name, NULL::BIGINT AS gone,
        DATE '2026-01-31' + n::INTEGER AS day, n::FLOAT / 3 AS third, [n, NULL] AS list,
        TIMESTAMPTZ '2026-01-31 12:00:00.123456+02' AS instant, n::HUGEINT AS huge,
        [struct_pack(value_ns := n, n := 1)] AS buckets FROM range(10000) AS t(n) ORDER BY n"""
    few, many, unsaid = (Session("64m", QUICK_FRAMES - 1), Session("64m", QUICK_FRAMES),
                         Session("64m"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = few.table(text)
    assert found.schema == many.table(text).schema == few.types(text)
    assert found.equals(many.table(text)) and len(found) == 10_000
    assert (few._quick, many._quick, unsaid._quick) == (True, False, False)
    for session in (few, many, unsaid):
        session.close()


NAMES = ["it's", 'say "x"', "x'; DROP TABLE t1; --", "back\\slash", "{curly} %s", "NaN", "null",
         "\u202eevil\u0000nul", "\U0001f600" * 40, "line\nbreak", "day=2026/x",
         "1L div 2 -> size(x)"]
"""Of queues: what SQL, paths of partitions or a formatter could take for its own."""


def test_strange_names_in_another_zone_are_the_same(
        spark: Any, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    for place, number in enumerate(list(writer.NAMED)):
        monkeypatch.setitem(writer.NAMED, number, f"{NAMES[place % len(NAMES)][:60]}{place}")
    source, _ = generated(tmp_path_factory, 150, file_frames=400, stories=1)
    few = Lake(Later(no_session), str(tmp_path / "few"))
    with monkeypatch.context() as there:
        there.setenv("TZ", "America/St_Johns")
        time.tzset()
        run(few.engine, str(source / "archive"), few.out, incremental=False, files_per_batch=2)
    time.tzset()
    many = str(tmp_path / "many")
    run(spark, str(source / "archive"), many, incremental=False)
    the_same(Lake(spark, few.out), Lake(spark, many))
    with views.database(few.out) as database:
        found = {row[0] for row in database.sql("SELECT queue_name FROM queue_hour").fetchall()}
    assert len(found) > 5 and found <= set(writer.NAMED.values())


@pytest.mark.parametrize("cut", [1, 9, 18])
def test_what_is_cut_anywhere_is_made_good(made: Made, tmp_path: Path, cut: int,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the second of three batches, when so many of its files are written."""
    archive, files = tmp_path / "archive", sorted((made[0] / "archive").glob("*.oma"))
    archive.mkdir()
    for path in files[:2]:
        (archive / path.name).write_bytes(path.read_bytes())
    out, once = str(tmp_path / "out"), str(tmp_path / "once")
    run(Later(no_session), str(archive), out, incremental=True)
    (archive / files[2].name).write_bytes(files[2].read_bytes())
    written: list[str] = []
    real = pq.write_table

    def write(table: pa.Table, where: str, **how: Any) -> None:
        if len(written) == cut:
            raise KeyboardInterrupt
        written.append(where)
        real(table, where, **how)

    with monkeypatch.context() as there, pytest.raises(KeyboardInterrupt):
        there.setattr(pq, "write_table", write)
        run(Later(no_session), str(archive), out, incremental=True)
    (archive / files[3].name).write_bytes(files[3].read_bytes())
    run(Later(no_session), str(archive), out, incremental=True)
    run(Later(no_session), str(archive), once, incremental=False)
    told = [rows_by(where) for where in (out, once)]
    assert told[0] == told[1] and min(count for count, _ in told[0].values()) > 0


def rows_by(out: str) -> dict[str, Any]:
    """Of each table how many rows there are, and a number of all of them without their batch."""
    with views.database(out) as database:
        return {name: database.sql(
            f"SELECT count(*), sum(hash(one)::HUGEINT) FROM (SELECT * EXCLUDE (batch) FROM {name}) "
            "AS one").fetchall()[0] for name in tables.PUBLISHED}


def test_a_clock_that_jumps_by_decades_makes_few_rows() -> None:
    """Messages of 1970 that wait still, and one of 2200."""
    now, minute = 1_767_225_600 * 10**9, 60 * 10**9
    session = Session("200m")
    with columnar():
        rows: Any = session.createDataFrame(pa.table({
            "queue": [1, 1, 2], "arrived_ns": [5 * minute, now, 7_258_118_400 * 10**9],
            "left_ns": pa.array([None, None, None], pa.int64())}))
        end = 7_258_118_400 * 10**9 + minute
        found = gold._minutes(Basis(rows, rows, rows, rows, end)).where("oldest_ns IS NOT NULL")
        counted = found.groupBy("queue").count().toArrow().to_pylist()
        first = found.where(F.col("minute_ns") == now).toArrow().to_pylist()
    session.close()
    assert {row["queue"]: row["count"] for row in counted} == {
        1: 2 * gold.OLDEST_NS // minute, 2: 2}
    assert [row["oldest_ns"] for row in first] == [minute], "who came later is the oldest then"


def test_memory_is_bounded_and_what_does_not_fit_is_told(tmp_path: Path) -> None:
    session: Any = Session("1m")
    wide = pa.table({"k": list(range(300_000)), "text": ["x" * 50] * 300_000})
    with pytest.raises(SparkFailed, match="--memory"), failures.told(), columnar():
        session.createDataFrame(wide).groupBy("k").agg(
            F.collect_list("text").alias("all")).toArrow()
    session.close()
