"""What the report shows is read without Spark, and is what Spark reads."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from omq.base.errors import Exit
from omqtools.omqspark import main, report_tables, session
from omqtools.omqspark.charts import POINTS_MAX
from omqtools.omqspark.gold import MINUTE_NS
from omqtools.omqspark.lake import Lake, all_stays

START_NS = 1_767_225_600 * 10**9


def minutes(count: int, queue: int) -> pd.DataFrame:
    """Backwards, as no file promises an order."""
    return pd.DataFrame([{
        "queue": queue, "minute_ns": START_NS + n * MINUTE_NS, "arrivals": n, "departures": 1,
        "depth": n % 100, "oldest_s": float(n % 7)} for n in reversed(range(count))])


def test_minutes_are_put_together_over_files() -> None:
    count = 2 * POINTS_MAX + 1
    whole = [minutes(count, 3), minutes(count, 4)]
    step = report_tables.step_ns(pa.chunked_array([part["minute_ns"]]) for part in whole)
    assert step == 3 * MINUTE_NS, "two would be a point too many"
    parts = [part[at : at + 1000] for part in whole for at in range(0, count, 1000)]
    found = report_tables.coarse(iter(parts), step)
    assert len(found) == 2 * -(-count // 3) <= 2 * POINTS_MAX
    for queue, part in found.groupby("queue"):
        rows = part.sort_values("minute").to_dict("records")
        assert rows[1] | {"queue": queue} == {
            "queue": queue, "arrivals": 3 + 4 + 5, "departures": 3, "depth": 5, "oldest_s": 5.0,
            "minute": pd.Timestamp(START_NS + 3 * MINUTE_NS)}
        assert sum(row["arrivals"] for row in rows) == count * (count - 1) // 2
    assert report_tables.step_ns([]) == MINUTE_NS
    assert report_tables.coarse([], MINUTE_NS).empty


def test_a_reader_of_two_days_is_one() -> None:
    day = pd.Timestamp("2026-01-01T23:00")
    rows = pd.DataFrame([{
        "queue": 3, "epoch": 1, "reader": 7, "reader_pid": pid, "queue_name": name, "messages": 2,
        "gives": 2, "failed": 0, "deaths": 0, "busy_s": 900.0, "works": 2,
        "first": day + pd.Timedelta(hours=n), "last": day + pd.Timedelta(hours=n, minutes=span)}
        for n, pid, name, span in ((0, 10, None, 30), (1, 10, None, 60), (0, 11, "Q", 0))])
    one, other = report_tables.whole_readers(rows).to_dict("records")
    assert (one["messages"], one["busy_s"], one["span_s"], one["busy_share"]) == (
        4, 1800.0, 7200.0, 0.25)
    assert other["reader_pid"] == 11 and pd.isna(other["busy_share"]), "no time, no share"


@pytest.mark.parametrize("table", ["queue_hour", "poison", "routes", "sizes", "operators"])
def test_answers_are_those_that_spark_reads(lake: Lake, table: str) -> None:
    frame = lake.gold(table)
    kept = [name for name in frame.columns if name != "day" and not name.endswith("_buckets")]
    expected: Any = frame.select(*kept).toPandas()
    found = report_tables.fetched(lake, table)
    assert len(found) > 0
    keys = [name for name in kept if expected[name].map(type).ne(float).all()]
    pd.testing.assert_frame_equal(
        found[kept].sort_values(keys, ignore_index=True),
        expected.sort_values(keys, ignore_index=True), check_dtype=False)


def test_names_and_who_came_first(lake: Lake) -> None:
    rows = lake.read("names").where("kind = 'queue'").groupBy("key").agg(
        F.max_by("text", "lsn").alias("text")).collect()
    names = {int(row["key"]): str(row["text"]) for row in rows}
    assert report_tables.queue_names(lake) == names
    assert report_tables.queue_names(lake, {3, 999}).items() <= names.items()
    assert report_tables.queue_names(lake, {3})[3] == names[3]
    first = all_stays(lake).where("left_lsn IS NULL").groupBy("queue").agg(
        F.min_by("qpool", "arrived_ns").alias("qpool"), F.count("*").alias("waiting"),
        F.min("arrived_ns").alias("arrived_ns")).collect()
    found = report_tables.oldest(lake)
    end_ns = max(record.time_max for record in lake.known().files.values())
    for row, mine in zip(sorted(first, key=lambda row: row["queue"]), found.itertuples(),
                         strict=True):
        assert mine.waiting == row["waiting"]
        assert mine.age_s == pytest.approx((end_ns - row["arrived_ns"]) / 1e9, abs=1e-5)
    assert dict(zip(found["queue"], found["qpool"], strict=True)) == {
        row["queue"]: row["qpool"] for row in first}


def test_the_report_starts_no_jvm(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: Any) -> None:
        raise AssertionError("a session")

    monkeypatch.setattr(session, "session", none)
    assert main.main(["report", "--out", lake.out]) == Exit.OK
