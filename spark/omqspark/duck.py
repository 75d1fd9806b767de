"""Frames of DuckDB with the names of pyspark's, as far as a batch and an audit need them.

A frame is a SELECT that has not run yet; `toArrow` and its like run it. A session is a database in
memory, of one batch: its memory is bounded, what is more goes to the folder for temporary files,
and all of it is given back with `close`. It asks for no extension.
Errors: duckdb.Error (failures.py tells it).
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Sequence
from itertools import count
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import Row, StructType

from omqtools.omqspark.duck_columns import Column, col
from omqtools.omqspark.duck_text import MACROS, PLAIN, duck, quoted

THREAD_MB: Final = 32
"""Each thread holds buffers of its own: with more of them memory is too little for any query."""
UNITS: Final = {"m": "MiB", "g": "GiB"}
HOW: Final = {"left": "LEFT JOIN", "inner": "JOIN", "left_semi": "SEMI JOIN",
              "left_anti": "ANTI JOIN"}
QUICK_FRAMES: Final = 10_000
"""Of fewer, what a query gives is copied once more, rather than that the query is planned twice:
a quarter of what a batch of 160 events costs."""


class Session:
    """See the module."""

    def __init__(self, memory: str, frames: int = QUICK_FRAMES) -> None:
        """`frames`: so many are looked at."""
        self._quick = frames < QUICK_FRAMES
        folder, size = tempfile.gettempdir(), int(memory[:-1])
        threads = size * (1 if memory[-1] == "m" else 1024) // THREAD_MB
        self._base = duckdb.connect(":memory:", config={
            "memory_limit": f"{memory[:-1]}{UNITS[memory[-1]]}", "temp_directory": folder,
            "threads": max(1, min(threads, len(os.sched_getaffinity(0)))), **PLAIN})
        self._base.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        for macro in MACROS:
            self._base.execute(f"CREATE MACRO {macro}")
        self._numbers = count()

    def createDataFrame(self, table: pa.Table, schema: StructType | None = None) -> Frame:
        name = f"t{next(self._numbers)}"
        self._base.register(name, table)
        return Frame(self, f"FROM {name}", table.schema.names)

    def streamed(self, dataset: ds.Dataset) -> Frame:
        """Rows of files, which are read when they are asked for, each time."""
        name = f"t{next(self._numbers)}"
        self._base.register(name, dataset)
        return Frame(self, f"FROM {name}", dataset.schema.names)

    def types(self, text: str) -> pa.Schema:
        return self._base.sql(f"{text} LIMIT 0").to_arrow_table().schema

    def table(self, text: str) -> pa.Table:
        if not self._quick:
            return self._base.sql(text).to_arrow_table()
        with warnings.catch_warnings():  # of the second copy of the rows
            warnings.filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning)
            return self._base.execute(text).to_arrow_table()

    def close(self) -> None:
        self._base.close()


class Frame:
    """See the module."""

    def __init__(self, session: Session, text: str, columns: Sequence[str]) -> None:
        self.sparkSession, self.text, self.columns = session, text, list(columns)
        self._kept: pa.Table | None = None

    def _of(self, text: str, columns: Sequence[str] | None = None) -> Frame:
        return Frame(self.sparkSession, text, self.columns if columns is None else columns)

    @property
    def schema(self) -> StructType:
        """As Spark names the types."""
        return from_arrow_schema(self._kept.schema if self._kept is not None
                                 else _as_spark(self.sparkSession.types(self.text)))

    def toArrow(self) -> pa.Table:
        """The rows; run once."""
        if self._kept is None:
            table = self.sparkSession.table(self.text)
            self._kept = table.cast(_as_spark(table.schema))
        return self._kept

    def collect(self) -> list[Row]:
        return [Row(**row) for row in self.toArrow().to_pylist()]

    def first(self) -> Row | None:
        return next(iter(self.limit(1).collect()), None)

    def where(self, test: str | Column) -> Frame:
        told = duck(test) if isinstance(test, str) else test.text
        return self._of(f"SELECT * FROM ({self.text}) WHERE {told}")

    def select(self, *columns: str | Column) -> Frame:
        told: list[Column] = []
        for each in columns:
            if not isinstance(each, str):
                told.append(each if each.name else each.alias(f"_{len(told)}"))
            else:
                told += [col(name) for name in (self.columns if each == "*" else [each])]
        return self._of(f"SELECT {_named(told)} FROM ({self.text})", [one.name for one in told])

    def withColumn(self, name: str, value: Column) -> Frame:
        return self.withColumns({name: value})

    def withColumns(self, values: dict[str, Column]) -> Frame:
        names = list(dict.fromkeys([*self.columns, *values]))
        return self.select(*(values[name].alias(name) if name in values else name
                             for name in names))

    def withColumnRenamed(self, before: str, name: str) -> Frame:
        return self.select(*(col(each).alias(name if each == before else each)
                             for each in self.columns))

    def drop(self, *names: str) -> Frame:
        return self.select(*(each for each in self.columns if each not in names))

    def distinct(self) -> Frame:
        return self._of(f"SELECT DISTINCT * FROM ({self.text})")

    def limit(self, rows: int) -> Frame:
        return self._of(f"SELECT * FROM ({self.text}) LIMIT {rows}")

    def orderBy(self, *names: str) -> Frame:
        return self._of(f"SELECT * FROM ({self.text}) ORDER BY {', '.join(map(quoted, names))}")

    def union(self, other: Frame) -> Frame:
        return self._of(f"({self.text}) UNION ALL ({other.text})")

    def unionByName(self, other: Frame) -> Frame:
        return self.union(other.select(*self.columns))

    def join(self, other: Frame, on: str | Sequence[str], how: str = "inner") -> Frame:
        keys = [on] if isinstance(on, str) else list(on)
        more = [] if how in ("left_semi", "left_anti") else [
            name for name in other.columns if name not in keys]
        mine = [*keys, *(name for name in self.columns if name not in keys)]
        return self._of(
            f"SELECT {', '.join(f'l.{quoted(name)}' for name in mine)}"
            f"{''.join(f', r.{quoted(name)}' for name in more)} FROM ({self.text}) l {HOW[how]} "
            f"({other.text}) r USING ({', '.join(map(quoted, keys))})", [*mine, *more])

    def groupBy(self, *columns: str | Column) -> Grouped:
        return Grouped(self, [col(each) if isinstance(each, str) else each for each in columns])

    def agg(self, *columns: Column) -> Frame:
        return self.groupBy().agg(*columns)

    def count(self) -> int:
        return len(self.toArrow())

    @property
    def na(self) -> Frame:
        return self

    def fill(self, value: int, names: Sequence[str]) -> Frame:
        return self.withColumns({name: Column(f"coalesce({quoted(name)}, {value})")
                                 for name in names})


class Grouped:
    """`groupBy`."""

    def __init__(self, frame: Frame, keys: list[Column]) -> None:
        self._frame, self._keys = frame, keys

    def agg(self, *columns: Column) -> Frame:
        told = [*self._keys, *(each if each.name else each.alias(f"_{at}")
                               for at, each in enumerate(columns))]
        by = f" GROUP BY {', '.join(key.text for key in self._keys)}" if self._keys else ""
        return self._frame._of(f"SELECT {_named(told)} FROM ({self._frame.text}){by}",
                               [one.name for one in told])

    def count(self) -> Frame:
        return self.agg(Column("count(*)", "count"))


def _as_spark(schema: pa.Schema) -> pa.Schema:
    """With the types that Spark's rows have: instants are of UTC, no bucket is null."""
    return pa.schema([pa.field(each.name, _type(each.type)) for each in schema])


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return pa.list_(pa.field("element", kind.value_type, nullable=False))
    return kind


def _named(columns: Sequence[Column]) -> str:
    return ", ".join(f"{one.text} AS {quoted(one.name)}" for one in columns)

