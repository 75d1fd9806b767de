"""What a refresh need not start (ADR 0098)."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors.utils import is_debugging_enabled

from omq.base.errors import SparkMissing
from omqtools.omqspark import columns, main, parquet, session


@pytest.mark.parametrize("command", ["refresh", "run", "audit"])
def test_the_command_looks_for_no_sources(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    asked: dict[str, Any] = {}

    def nowhere(**how: Any) -> None:
        asked.update(how)
        raise SparkMissing(what="java", reason="not in this test")

    monkeypatch.setattr(session, "session", nowhere)
    with pytest.raises(SparkMissing):
        main.main([command, "--archive", "/nowhere", "--out", "/nowhere"])
    assert asked["source"] is False


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
