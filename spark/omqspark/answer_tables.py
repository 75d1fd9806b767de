"""How a table of answers is kept up to date: parts that merge, apart by day.

    part     the columns of a table, made of what ended in one batch, or of what is open
    state    of each day the batches whose parts make it (Index.state), of all that has ended
    shown    finish(state + part of what is open): what people read; Index.shown: of which batch

A batch writes the part of what ended in it, and shows those days anew in which something happened:
it costs what is new and the days that it is of, however many there are. Sums and extremes merge in
any grouping; a distribution is sums (buckets.py). When more comes to a day that has PARTS_MAX
parts, they become one.

    OUT/known/TABLE/batch=N/day=D       parts; ALWAYS: a table that is not apart by day
    OUT/known/index/batch=N/index.json  what counts at the end of that batch, written after them
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame

from omqtools.omqspark.engine import F
from omqtools.omqspark.readable_columns import Names, at

ALWAYS: Final = "1970-01-01"  # the day of all rows of a table that is not apart by day
PARTS_MAX: Final = 24
"""Parts of one day: each is read whenever the day is shown anew, so as many as an hourly run makes
in a day. Of a table that is not apart by day: what it has is written anew once in so many batches.
"""


@dataclass(frozen=True)
class Basis:
    """What a part is made of. `stays`, `messages`: of this batch or of what is open; `events`,
    `names`: of this batch; `end_ns`: the last time that the archive knows; `from_ns`: what is
    before it is not asked for."""

    stays: DataFrame
    messages: DataFrame
    events: DataFrame
    names: DataFrame
    end_ns: int
    from_ns: int = 0


@dataclass(frozen=True)
class Answer:
    """One table. `rules`: column -> sum, max or min. `by_event`: made of the events of a
    batch, so what is open adds nothing to it. `day`: the day (UTC) of a row, an SQL expression of
    its keys in ns; empty: all are of ALWAYS. `of_stay`: the instant of a stay that says in which
    day it tells something; empty: in none before the first event of the batch. `finish`: with the
    stays of what is open."""

    name: str
    keys: list[str]
    rules: Mapping[str, str]
    part: Callable[[Basis], DataFrame]
    finish: Callable[[DataFrame, DataFrame], DataFrame] = lambda frame, _: frame
    by_event: bool = False
    day: str = ""
    of_stay: str = ""

    def dated(self, frame: DataFrame) -> DataFrame:
        """With the day of each row."""
        day = F.to_date(at(self.day)) if self.day else F.lit(ALWAYS).cast("date")
        return frame.withColumn("day", day)

    def merged(self, parts: list[DataFrame]) -> DataFrame:
        """Parts as one."""
        together = reduce(lambda one, other: one.unionByName(other), parts)
        return together.groupBy("day", *self.keys).agg(
            *(_rule(rule, column) for column, rule in self.rules.items()))


def _rule(rule: str, column: str) -> Column:
    how = {"sum": F.sum, "max": F.max, "min": F.min}[rule]
    return how(column).alias(column)


Shown = dict[str, dict[str, int]]


@dataclass
class Index:
    """What counts at the end of a batch: table -> day -> batches of its parts, or the batch that
    shows it; `schemas`: of the tables as they are shown, which files without rows do not say;
    `names`: number of a queue -> what it was called, from which LSN on."""

    state: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    shown: Shown = field(default_factory=dict)
    schemas: dict[str, str] = field(default_factory=dict)
    names: dict[str, Names] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Index:
        if not data:
            return cls()
        found = cls(**json.loads(data))
        found.names = {number: [(lsn, name) for lsn, name in names]
                       for number, names in found.names.items()}
        return found

    def copy(self) -> Index:
        return Index.decode(self.encode())

    def renamed(self, names: Mapping[str, Names]) -> bool:
        """Whether a queue that is known is called otherwise by these."""
        return any(names[number][-1][1] != had[-1][1] for number, had in self.names.items())

    def everything(self) -> dict[str, set[str]]:
        """All days that are shown, of each table."""
        return {table: set(days) for table, days in self.shown.items()}

    def unlike(self, other: Index) -> dict[str, set[str]]:
        """Days of each table that the other shows by another batch."""
        found: dict[str, set[str]] = {}
        for table in {*self.shown, *other.shown}:
            mine, its = self.shown.get(table, {}), other.shown.get(table, {})
            found[table] = {day for day in {*mine, *its} if mine.get(day) != its.get(day)}
        return found
