"""What is not stored is told as it was, by Spark, by DuckDB and in views; and OUT is small."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omqtools.omqspark import derived, main, tables, views
from omqtools.omqspark.compact import compact
from omqtools.omqspark.duck import Session
from omqtools.omqspark.engine import columnar
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.out_directory import LIVES, Out
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests import share
from tests.spark.conftest import generated
from tests.spark.told import no_session, told

NOW = 1_767_225_600_123_456_789
AIM = 1.5
"""Times the archive that OUT takes at most, where days have as much in them as a busy instance."""


def micros(time_ns: int | None) -> int | None:
    """As Spark's `div` has it: towards zero."""
    return None if time_ns is None else abs(time_ns) // 1000 * (1 if time_ns >= 0 else -1)


def less(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one - other


def some(pick: random.Random, share: float = 0.8) -> int | None:
    """A time, near or far, also before 1970, where a clock was set so; or none."""
    return pick.choice([NOW + pick.randrange(10**12), NOW - 5, 0, -1, -1_500, 999, 1_000]
                       ) if pick.random() < share else None


def a_message(pick: random.Random, qpool: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "qpool": qpool, "born_lsn": pick.choice([None, 7, 1 << 60]),
        "end_lsn": pick.choice([None, 9, 1 << 62]), "first_lsn": pick.randrange(1 << 60),
        "last_lsn": pick.randrange(1 << 62)}
    row |= {f"{name}_ns": some(pick) for name in ("born", "first_give", "end")}
    row |= {"last_ns": some(pick, 1.0)}
    row["life_ns"] = less(row["end_ns"], row["born_ns"])
    return row | {name: micros(row[f"{of}_ns"]) for name, of in {
        "born": "born", "first_give": "first_give", "ended_at": "end", "last": "last"}.items()}


def a_stay(pick: random.Random, qpool: int) -> dict[str, Any]:
    """What a stay can be: handed out or not, again or not, left with and without that."""
    given = some(pick)
    row: dict[str, Any] = {
        "qpool": qpool, "arrived_lsn": 5, "arrived_ns": some(pick, 1.0), "given_ns": given,
        "last_given_ns": None if given is None else some(pick, 1.0), "left_ns": some(pick),
        "ready_ns": some(pick, 1.0), "left_lsn": pick.choice([None, 3, 1 << 61]),
        "last_lsn": pick.randrange(1 << 62)}
    row["wait_ns"] = less(given, row["arrived_ns"])
    row["ready_wait_ns"] = less(given, row["ready_ns"])
    row["service_ns"] = less(row["left_ns"], row["last_given_ns"])
    service = row["service_ns"]
    row["work_ns"] = None if service is None else pick.choice([None, 0, service])
    return row | {name: micros(row[f"{of}_ns"]) for name, of in {
        "arrived": "arrived", "ready": "ready", "given": "given", "last_given": "last_given",
        "left_at": "left"}.items()}


MAKE = {"messages": a_message, "stays": a_stay}


def rows(table: str) -> pa.Table:
    pick = random.Random(5)
    made = [MAKE[table](pick, number) for number in range(400)]
    instants = {"born", "first_give", "ended_at", "last", "arrived", "ready", "given", "last_given",
                "left_at"}
    return pa.table({name: pa.array([row[name] for row in made], pa.timestamp("us", tz="UTC")
                                    if name in instants else pa.int64()) for name in made[0]})


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
@pytest.mark.parametrize("table", LIVES)
def test_what_is_packed_comes_out_as_it_was(table: str, engine: str,
                                            request: pytest.FixtureRequest) -> None:
    """Also through a view, which has no help of this package."""
    before = rows(table)
    assert set(derived.names(table)) <= set(before.schema.names)

    def through(session: Any) -> tuple[pa.Table, pa.Table]:
        stored = derived.packed(session.createDataFrame(before), table).toArrow()
        return stored, derived.whole(session.createDataFrame(stored), table).toArrow()

    if engine == "spark":
        spark = request.getfixturevalue("spark")
        stored, after = through(spark)
        spark.createDataFrame(stored).createOrReplaceTempView(table)
        (mine,) = [one for one in views.statements(engine).split(";\n") if f" {table}_whole" in one]
        spark.sql(mine)
        seen = spark.table(f"{table}_whole").toArrow()
    else:
        session = Session("200m")
        with columnar():
            stored, after = through(session)
        session.close()
        duckdb = pytest.importorskip("duckdb")
        own = duckdb.connect()
        own.register("source", stored)
        seen = own.sql(views.selected(table, "source", engine)).to_arrow_table()
    assert not {*derived.names(table)} & {*stored.schema.names}
    for found in (after, seen):
        told = found.select(before.schema.names).cast(before.schema).sort_by("qpool")
        assert told.to_pylist() == before.to_pylist()
    assert set(after.schema.names) == set(before.schema.names)


def test_a_database_has_all_tables_with_all_columns(lake: Lake) -> None:
    with views.database(lake.out) as database:
        for name in tables.PUBLISHED:
            spark = tables.frame(lake, name)
            seen = database.table(name)
            assert set(spark.columns) <= set(seen.columns), name
            told = ", ".join(spark.columns)
            assert database.sql(f"SELECT count(*) FROM (SELECT {told} FROM {name})").fetchall() == [
                (spark.count(),)], name
        first = database.sql("SELECT arrived, arrived_ns, given, given_ns FROM stays "
                             "WHERE given_ns IS NOT NULL LIMIT 1").to_arrow_table()
        assert first.schema.field("given").type == pa.timestamp("us", tz="UTC")
        (row,) = first.to_pylist()
        assert row["given"].timestamp() == pytest.approx(row["given_ns"] / 1e9)


def test_views_are_printed(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    for engine in views.QUOTES:
        assert main.main(["tables", "--out", lake.out, "--views", engine]) == 0
        assert capsys.readouterr().out == views.statements(engine)


@pytest.mark.parametrize(("messages", "batches"), share.of_cases([(40_000, 3), (20_000, 12)]))
def test_out_is_small_behind_maintenance(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path,
                                         messages: int, batches: int) -> None:
    """All of it, of large batches and of small ones; and no row has changed."""
    made, _ = generated(tmp_path_factory, messages, file_frames=8400 if batches > 3 else 70_000,
                        rate=60.0)
    archive, out = made / "archive", tmp_path / "tables"
    did = run(Later(no_session), str(archive), str(out), incremental=False, files_per_batch=1)
    assert len(did["batches"]) >= batches
    before = told(out)
    compact(Out(str(out)), 0)
    assert told(out) == before
    took = {each.name: size(each) for each in out.iterdir() if each.is_dir()}
    basis = sum(path.stat().st_size for path in archive.glob("*.oma"))
    assert sum(took.values()) < AIM * basis, took


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
