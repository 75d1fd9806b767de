"""What a refresh need not start, nor ask, nor wait for (ADR 0098, ADR 0099)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors.utils import is_debugging_enabled
from pyspark.sql import functions as F

from omq.base.errors import NoTables, SparkMissing
from omqtools.omqspark import columns, main, parquet, session
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.options import parser
from omqtools.omqspark.report import SECTIONS


@pytest.mark.parametrize("command", ["refresh", "run", "audit"])
def test_the_command_looks_for_no_sources(
        monkeypatch: pytest.MonkeyPatch, made: tuple[Path, dict[str, Any]], lake: Lake,
        tmp_path: Path, command: str) -> None:
    """With few events it asks for no session at all (test_engines.py)."""
    asked: dict[str, Any] = {}

    def nowhere(*_extra: Any, **how: Any) -> None:
        asked.update(how)
        raise SparkMissing(what="java", reason="not in this test")

    monkeypatch.setattr(session, "session", nowhere)
    with pytest.raises(SparkMissing):
        main.main([command, "--archive", str(made[0] / "archive"), "--spark-from", "0", "--out",
                   lake.out if command == "audit" else str(tmp_path / "tables")])
    assert asked["source"] is False


@pytest.mark.parametrize("words", [
    ["report"], ["compact"], ["tables"], ["audit", "--archive", "nowhere"], ["state", "--at", "5"],
    ["biography", "--qpool", "3"], ["whatif", "--readers", "A=1"], ["advise", "--wait-s", "2"]])
def test_who_has_no_tables_yet_is_told_what_makes_them(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]) -> None:
    """Before there is a session, and without anything made there."""
    monkeypatch.setattr(session, "session", lambda *_, **__: pytest.fail("a session"))
    out = tmp_path / "out"
    with pytest.raises(NoTables, match=f"run --archive DIR --out {out}'"):
        main.main([*words, "--out", str(out)])
    assert not out.exists()


def test_a_call_of_a_frame_does_not_note_where_it_stands(spark: Any) -> None:
    assert spark.conf.get("spark.python.sql.dataFrameDebugging.enabled") == "false"
    assert not is_debugging_enabled()


@pytest.mark.parametrize(("rows", "kind"), [
    ([], columns.ddl("events")), ([], parquet.schema_of("dict")),
    ([(1, None), (1 << 40, "x")], "a bigint, b string")])
def test_rows_of_the_driver_need_no_job(spark: Any, rows: list[Any], kind: Any) -> None:
    made = parquet.rows(spark, rows, kind)
    assert [tuple(row) for row in made.collect()] == rows
    plan = str(made._jdf.queryExecution().optimizedPlan())
    assert plan.startswith("LocalRelation"), plan
    nothing = made.where("false").join(spark.range(3).toDF("id"))
    assert "<empty>" in str(nothing._jdf.queryExecution().optimizedPlan())


def test_names_of_the_jvm_are_looked_up_once(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan() -> Any:
        return spark.range(1).select(F.sum(F.when(F.col("id") > 1, F.lit(1))).alias("a")).groupBy(
            "a").count()

    plan()
    client = spark.sparkContext._gateway._gateway_client
    told, send = [], client.send_command

    def watched(command: str, *args: Any, **named: Any) -> Any:
        told.append(command)
        return send(command, *args, **named)

    monkeypatch.setattr(client, "send_command", watched)
    assert plan().schema.names == ["a", "count"]
    assert [command for command in told if command.startswith("c\n")], "nothing was seen"
    assert [command for command in told if command.startswith("r\n")] == []
    with pytest.raises(Py4JError, match="no_such_function"):
        spark.sparkContext._jvm.functions.no_such_function  # noqa: B018


def test_a_remembered_class_still_makes_objects(spark: Any) -> None:
    """As pyspark does where a program has stopped its session and makes another."""
    context = spark.sparkContext
    kind = getattr(context._jvm, "org.apache.spark.sql.classic.SparkSession")
    assert kind(context._jsc.sc(), {}).version() == spark.version


def test_what_is_read_ahead_and_missing_is_told_later(
        monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(main, "import_module", missing)
    main._read_ahead()
    assert capfd.readouterr() == ("", "")


def test_a_refresh_draws_beside_the_audit(spark: Any, lake: Lake, made: tuple[Path, dict[str, Any]],
                                          tmp_path: Path) -> None:
    """The pictures are of the tables as they were published, the verdict is this audit's."""
    out = tmp_path / "tables"
    shutil.copytree(lake.out, out)
    told = parser().parse_args(
        ["refresh", "--archive", str(made[0] / "archive"), "--out", str(out)])
    assert main._refresh(Lake(spark, str(out)), told) == 1, "faults were planted"
    page = (out / "report" / "report.html").read_text(encoding="utf-8")
    assert "Audit: <b>" in page
    assert "1 message handed out of turn" in page
    assert {path.stem for path in (out / "report").glob("*.png")} == {
        key for key, *_ in SECTIONS} - {"heat"}, "no hour is there as a whole"
