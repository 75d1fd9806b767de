"""Distributions of times in buckets: what percentiles are made of.

A time goes into the bucket of its BITS + 1 highest bits, so a bucket is 1/64 of its lower end wide
and stands for its middle: no percentile is more than ERROR of itself off, however many values there
are and however often distributions were added up. That is counting alone, so the same files give
the same rows in any order and in any batches; a random sketch (KLL, before version 7) did not.
Source: the idea is that of HdrHistogram (Gil Tene); the percentile is the inverted distribution,
the smallest value that so many of 100 do not exceed.

    part     rows (keys, `of`, `value_ns`, n): `of` names the distribution; '' is the row of sums
    shown    NAME_buckets array<struct<value_ns, n>>, ascending; NAMEs: how many; NAME_p95_s ...

A time below zero (the clock was set back) counts as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame

from omqtools.omqspark.engine import F, is_columnar
from omqtools.omqspark.lifecycle import NS_PER_S

BITS: Final = 6
ERROR: Final = 1 / 128
"""Of a percentile: half of a bucket's width, as a share of its lower end at most."""
OF, VALUE, COUNT = "of", "value_ns", "n"
SUMS: Final = ""  # `of` of the rows that hold sums
PERCENTS: Final = (50, 90, 95, 99)


def bucket(column: str) -> Column:
    """The middle of a time's bucket, ns; null for null. Whole numbers alone: `bin` counts bits."""
    ns = f"greatest({column}, 0L)"
    shift = f"greatest(length(bin({ns})) - {BITS + 1}, 0)"
    return F.expr(f"IF({column} IS NULL, CAST(NULL AS BIGINT), shiftleft(shiftright({ns}, {shift})"
                  f", {shift}) + shiftright(shiftleft(1L, {shift}), 1))")


def spread(frame: DataFrame, times: Mapping[str, str]) -> DataFrame:
    """Each row once for its sums, and once for each of its times: name of the distribution ->
    column in ns."""
    each = [F.struct(F.lit(SUMS).alias(OF), F.lit(0).cast("bigint").alias(VALUE))] + [
        F.struct(F.lit(name).alias(OF), bucket(column).alias(VALUE))
        for name, column in times.items()]
    there = F.filter(F.array(*each), lambda one: one[VALUE].isNotNull())
    return frame.withColumn("_one", F.explode(there)).select(
        "*", F.col(f"_one.{OF}").alias(OF), F.col(f"_one.{VALUE}").alias(VALUE)).drop("_one")


def once(column: str | Column) -> Column:
    """A column in the rows of sums; null in the others."""
    return F.when(F.col(OF) == SUMS, F.col(column) if isinstance(column, str) else column)


def gathered(name: str) -> list[Column]:
    """Aggregates: the buckets of a distribution, and how many values they hold."""
    own = F.col(OF) == name
    return [F.array_sort(F.collect_list(F.when(own, F.struct(VALUE, COUNT)))
                         ).alias(f"{name}_buckets"),
            F.coalesce(F.sum(F.when(own, F.col(COUNT))), F.lit(0)).alias(f"{name}s")]


def percentiles(frame: DataFrame, name: str) -> DataFrame:
    """With NAME_p50_s and so on, seconds; null of nothing."""
    for percent in PERCENTS:
        frame = frame.withColumn(f"{name}_p{percent}_s", _reached(name, percent) / NS_PER_S)
    return frame


def _reached(name: str, percent: int) -> Column:
    """The first value of NAME_buckets up to which so many of 100 are, in the words of each engine:
    DuckDB's lists know no state of another kind than their elements."""
    wanted = f"({name}s * {percent} + 99) div 100"
    if is_columnar():
        return F.expr(
            f"(list_reduce({name}_buckets, lambda had, one: IF(had.{COUNT} >= {wanted}, had, "
            f"struct_pack({VALUE} := one.{VALUE}, {COUNT} := had.{COUNT} + one.{COUNT})), "
            f"struct_pack({VALUE} := CAST(NULL AS BIGINT), {COUNT} := 0L))).{VALUE}")
    return F.expr(
        f"aggregate({name}_buckets, struct({wanted} AS wanted, CAST(NULL AS BIGINT) AS found), "
        f"(had, one) -> IF(had.wanted <= 0, had, struct(had.wanted - one.{COUNT} AS wanted, "
        f"one.{VALUE} AS found)), had -> had.found)")
