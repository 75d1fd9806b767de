"""The tables of one OUT directory as Spark reads them: which of their rows count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructType

from omqtools.omqspark import derived, parquet
from omqtools.omqspark.engine import F, columnar
from omqtools.omqspark.manifest import Manifest
from omqtools.omqspark.out_directory import LIVES, Out
from omqtools.omqspark.readable_columns import at
from omqtools.omqspark.session import Later, sized

EVENTS_OF: Final = {"bronze": "events", "names": "dict"}  # which columns they have


class Lake(Out):
    """See the module. `few`: the driver can hold what the batch at hand writes (parquet.py).
    `engine`: a session, or one that is made when somebody needs it; then few rows are computed
    without (engine.py)."""

    def __init__(self, engine: SparkSession | Later, out: str) -> None:
        super().__init__(out)
        self.engine, self.few = engine, False
        self._own: Any = None

    @property
    def spark(self) -> SparkSession:
        """What reads and writes: in `told_by` what that has chosen, else Spark."""
        if self._own is not None:
            own: SparkSession = self._own
            return own
        return self.engine.spark if isinstance(self.engine, Later) else self.engine

    def look_back(self) -> None:
        """Size the session for all that counts. NoTables, before there is a session."""
        frames = self.frames()
        sized(self.spark, frames)

    @contextmanager
    def told_by(self, frames: int) -> Iterator[None]:
        """So many frames are looked at meanwhile: the engine and its plans are of that size."""
        if not isinstance(self.engine, Later) or not self.engine.is_few(frames):
            self.few = sized(self.spark, frames)
            yield
            return
        from omqtools.omqspark.duck import Session

        self._own, self.few = Session(self.engine.memory, frames), True
        try:
            with columnar():
                yield
        finally:
            self._own.close()
            self._own = None

    def rows(self, table: str, known: Manifest, files: Iterable[int]) -> DataFrame:
        """The rows of some files in `bronze` or `names`, where each was read last."""
        by_batch: dict[int, list[int]] = {}
        for number in files:
            by_batch.setdefault(known.files[number].batch, []).append(number)
        found = self._events(table, [self.path(table, batch) for batch in sorted(by_batch)])
        whole: Column = F.lit(False)  # noqa: FBT003
        for batch, numbers in by_batch.items():
            mine = F.col("file").isin(numbers) & (F.col("batch") == batch)
            whole = whole | mine
        return found.where(whole)

    def folders(self, table: str, known: Manifest, files: Iterable[int]) -> list[str]:
        """Where the rows of some files in `bronze` or `names` lie."""
        return [self.path(table, batch) for batch in sorted(
            {known.files[number].batch for number in files})]

    def _events(self, table: str, paths: Sequence[str]) -> DataFrame:
        """Rows of `bronze` or `names`; of events with the instant that is not stored."""
        found = parquet.load(self.spark, paths, parquet.schema_of(EVENTS_OF[table]),
                             self.path(table))
        return found.withColumn("ts", at("time_ns")) if table == "bronze" else found

    def read(self, table: str) -> DataFrame:
        """All rows of a table that count: of `bronze` and `names` those of each file where it was
        read last, of `messages` and `stays` those of the batches that count."""
        known = self.known()
        if table in LIVES:
            schema = StructType.fromJson(json.loads(self.index(known.current).schemas[table]))
            return derived.whole(parquet.load(self.spark, [
                self.path(table, batch.number) for batch in known.batches],
                schema.add("batch", IntegerType()), self.path(table)), table)
        found = self._events(table, [self.path(table, batch) for batch in known.bronze()])
        for batch, numbers in known.void.items():
            found = found.where((F.col("batch") != batch) | ~F.col("file").isin(numbers))
        return found

    def gold(self, name: str) -> DataFrame:
        """A table of answers (gold.ANSWERS), all days that are shown."""
        paths, schema = self.shown(name)
        if not paths:
            return parquet.rows(self.spark, [], schema)
        return parquet.load(self.spark, paths, schema, self.path(name)).drop("batch")


def lives(lake: Lake, table: str, columns: str, batches: Sequence[int], current: int
          ) -> DataFrame:
    """`columns` (DDL) of `messages` or `stays`, with `ended`: of those that ended in some batches,
    and of the open ones."""
    paths = [lake.path(table, number) for number in sorted({*batches, current})]
    schema = parquet.struct(f"{columns}, batch int, ended int")
    found = parquet.load(lake.spark, paths, schema, lake.path(table))
    ended = (F.col("ended") == 1) & F.col("batch").isin(list(batches))
    return found.where(ended | ((F.col("ended") == 0) & (F.col("batch") == current))).drop("batch")


def all_stays(lake: Lake) -> DataFrame:
    """Stays of ended messages of all batches, and those of the messages open now."""
    return _last(lake, "stays").drop("ended")


def all_messages(lake: Lake) -> DataFrame:
    """Every message once: ended ones of all batches, open ones of the last."""
    return _last(lake, "messages")


def _last(lake: Lake, table: str) -> DataFrame:
    found = lake.read(table)
    return found.where((F.col("ended") == 1) | (F.col("batch") == lake.current())).drop("batch")
