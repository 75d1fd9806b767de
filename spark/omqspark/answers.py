"""How a table of answers is kept up to date: parts that merge.

    known    merged parts of everything that has ended, as of a batch
    part     the same columns, made of what ended in one batch, or of what is open
    shown    finish(known + part of what is open): what people read

Sums, extremes and sketches merge in any grouping, so what is known costs as much as it has rows
(queues and minutes), however many messages went into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SKETCH_K: Final = 4000


@dataclass(frozen=True)
class Basis:
    """What a part is made of. `stays`, `messages`: of this batch or of what is open; `events`,
    `names`: of this batch; `end_ns`: the last time that the archive knows."""

    stays: DataFrame
    messages: DataFrame
    events: DataFrame
    names: DataFrame
    end_ns: int


@dataclass(frozen=True)
class Answer:
    """One table. `rules`: column -> sum, max, min or sketch. `by_event`: made of the events of a
    batch, so what is open adds nothing to it."""

    name: str
    keys: list[str]
    rules: Mapping[str, str]
    part: Callable[[Basis], DataFrame]
    finish: Callable[[DataFrame], DataFrame] = lambda frame: frame
    by_event: bool = False

    def merged(self, parts: list[DataFrame]) -> DataFrame:
        """Parts as one."""
        together = reduce(DataFrame.unionByName, parts)
        return together.groupBy(*self.keys).agg(
            *(_rule(rule, column) for column, rule in self.rules.items()))


def _rule(rule: str, column: str) -> Column:
    if rule == "sketch":
        return F.kll_merge_agg_bigint(column, F.lit(SKETCH_K)).alias(column)
    how = {"sum": F.sum, "max": F.max, "min": F.min}[rule]
    return how(column).alias(column)
