"""Distributions: how far off a percentile is, merged or not, and that the same values give the same
rows; since when a message could be taken."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from pyspark.sql import functions as F

from omq.format.frame_rules import Reason
from omq.format.journal import FrameFlag, FrameType
from omqtools.omqspark.buckets import (
    COUNT,
    ERROR,
    OF,
    PERCENTS,
    VALUE,
    bucket,
    gathered,
    percentiles,
    spread,
)
from omqtools.omqspark.lifecycle import stays
from omqtools.omqspark.meanings import MEANINGS
from omqtools.omqspark.parquet import rows, schema_of

NS = 10**9


def told(parts: list[Any], keys: list[str]) -> list[Any]:
    """Rows of the parts as one, by some keys."""
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    merged = whole.groupBy(*keys, OF, VALUE).agg(F.sum(COUNT).alias(COUNT))
    return sorted(percentiles(merged.groupBy(*keys).agg(*gathered("wait")), "wait").collect())


def part(spark: Any, values: list[tuple[int, int | None]]) -> Any:
    return spread(rows(spark, values, "queue int, wait_ns bigint"), {"wait": "wait_ns"}).groupBy(
        "queue", OF, VALUE).agg(F.count("*").alias(COUNT))


def test_a_bucket_is_as_wide_as_it_may_be(spark: Any) -> None:
    edges = [0, 1, 2, 63, 64, 127, 128, 129, (1 << 40) - 1, 1 << 40, (1 << 62) + 12345]
    pick = random.Random(1)
    values = [*edges, *(pick.randrange(1 << pick.randrange(1, 62)) for _ in range(3000))]
    found = rows(spark, [(value,) for value in values], "ns bigint").select(
        "ns", bucket("ns").alias("middle")).collect()
    worst = max(abs(row["middle"] - row["ns"]) / max(1, row["ns"]) for row in found)
    assert ERROR / 2 < worst <= ERROR
    assert [row["middle"] for row in found if row["ns"] < 128] == [
        row["ns"] for row in found if row["ns"] < 128]
    assert rows(spark, [(-5,), (None,)], "ns bigint").select(bucket("ns")).collect() == [
        (0,), (None,)]


@pytest.mark.parametrize("count", [1, 2, 19, 20, 21, 100, 9000])
def test_a_percentile_is_off_by_no_more_than_the_dictionary_says(spark: Any, count: int) -> None:
    """Of one part, and of many that were merged, in any order: the same rows."""
    pick = random.Random(count)
    values = [int(pick.lognormvariate(17, 3)) for _ in range(count)]
    exact = np.quantile(values, [n / 100 for n in PERCENTS], method="inverted_cdf")
    pairs: list[tuple[int, int | None]] = [(7, value) for value in values]
    (once,) = told([part(spark, [*pairs, (7, None)])], ["queue"])
    for percent, value in zip(PERCENTS, exact.tolist(), strict=True):
        assert once[f"wait_p{percent}_s"] * NS == pytest.approx(value, rel=ERROR, abs=0.5)
    assert once["waits"] == count == sum(one[COUNT] for one in once["wait_buckets"])
    pick.shuffle(pairs)
    step = max(1, count // 7)
    (merged,) = told([part(spark, pairs[at : at + step]) for at in range(0, count, step)],
                     ["queue"])
    assert merged == once
    assert f"at most {ERROR:.1%} of it off" in MEANINGS["queue_hour"].columns["wait_p99_s"]


def test_of_nothing_there_is_no_percentile(spark: Any) -> None:
    (none,) = told([part(spark, [(1, None)])], ["queue"])
    assert (none["waits"], none["wait_buckets"]) == (0, [])
    assert {none[f"wait_p{percent}_s"] for percent in PERCENTS} == {None}


PUT, GIVE, HOLD, RELEASE, COMMIT = (FrameType.PUT, FrameType.GIVE, FrameType.HOLD,
                                    FrameType.RELEASE, FrameType.COMMIT)


@pytest.mark.parametrize(("story", "ready_s"), [
    ([(PUT, 10, 0), (GIVE, 12, 0)], 10),
    ([(PUT, 10, 13), (GIVE, 15, 0)], 13),
    ([(PUT, 10, 13), (GIVE, 12, 0)], 12),  # a restart had rounded the delay
    ([(PUT, 10, 0), (HOLD, 11, 0), (RELEASE, 20, 0), (GIVE, 21, 0)], 20),
    ([(PUT, 10, 0), (HOLD, 11, 0), (RELEASE, 20, 0), (HOLD, 21, 0), (RELEASE, 30, 0),
      (GIVE, 31, 0)], 30),
    ([(PUT, 10, 0), (GIVE, 12, 0), (HOLD, 14, 0), (RELEASE, 20, 0), (GIVE, 21, 0)], 10),
    ([(PUT, 10, 0), (COMMIT, 17, 0), (GIVE, 18, 0)], 17),
    ([(PUT, 10, 0)], 10), ([(PUT, 10, 19)], 19)])
def test_a_message_waits_since_it_could_be_taken(
        spark: Any, story: list[tuple[FrameType, int, int]], ready_s: int) -> None:
    """Not since it came, if its sender wished a delay, an operator held it, or its unit of work
    was in doubt."""
    schema = schema_of("events")
    none = dict.fromkeys(schema.names)
    frames = [none | {
        "lsn": lsn, "time_ns": at * NS, "type": int(kind), "flags": int(FrameFlag.PERSISTENT),
        "queue": 3, "qpool": 1, "reason": int(Reason.NONE), "epoch": 1, "attempt": 0, "size": 1,
        "until_s": [until] if kind is PUT else None, "onto": [3] if kind is PUT else None,
        "client": 7, "pid": 8, "uid": 9, "target": 0, "argument": 0}
        for lsn, (kind, at, until) in enumerate(story, 1)]
    (stay,) = stays(rows(spark, [[each[name] for name in schema.names] for each in frames],
                         schema)).collect()
    assert stay["ready_ns"] == ready_s * NS
    given = next((at for kind, at, _ in story if kind is GIVE), None)
    assert stay["wait_ns"] == (None if given is None else (given - 10) * NS)
    assert stay["ready_wait_ns"] == (None if given is None else (given - ready_s) * NS)
