"""The data source "omqj": spark.read.format("omqj") and spark.readStream.format("omqj").

Options:
    path          directory of archive files: local, or a URI that pyarrow.fs knows
    table         events (default), blocks (one row a sealed block), dict (names and texts)
    splitBytes    raw bytes of one task (64 MiB)
    pushdown      true: filters skip blocks by their seals; needs
                  spark.sql.python.filterPushdown.enabled=true
    maxFilesPerTrigger   streaming: files of one batch
    first, last   only files with these numbers; a number that is missing at the start counts

Columns: a schema given by the user picks and orders them, and only those are decoded. Damaged data
come as rows whose `bad` is not null, a file number that is missing as one such row.

    waitForMissing       streaming: true (default): the stream stops before a number that is not
                         there until that file comes; false: it goes on behind it

    spool         a spool on this host instead of `path`: its archive and its journal up to what is
                  durable now (live.py); table events, for streams and once

Streaming of `path`: the offset is the number of the last file that was read, as {"file": n}. Files
are immutable and numbered one by one, so nothing else is needed: what comes late is waited for, and
a stray file far away is not reached. A file that was pruned before it was read is an error, never a
silent gap.
Errors: NoArchive, MixedArchives, ArchivePruned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from omq.base.errors import ArchivePruned, BadRequest, NoArchive
from omq.format.archive import ArchiveHeader
from omq.format.findings import Finding, Kind
from omqtools.omqspark import columns, decode, plan
from omqtools.omqspark.decode import FIELDS, Filter
from omqtools.omqspark.manifest import missing
from omqtools.omqspark.plan import Listed, Split

_TESTS = {EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<",
          LessThanOrEqual: "<=", In: "in"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Task(InputPartition):
    """What one task reads; `bad`: findings of the planning itself."""

    splits: list[Split] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


class OmqjSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "omqj"

    def schema(self) -> str:
        return columns.ddl(_table(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        if "spool" in self.options:
            from omqtools.omqspark.live_source import LiveReader

            return LiveReader(dict(self.options), schema.fieldNames())
        if str(self.options.get("pushdown", "false")).lower() == "true":
            return PushdownReader(dict(self.options), schema.fieldNames())
        return Reader(dict(self.options), schema.fieldNames())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if "spool" in self.options:
            from omqtools.omqspark.live_source import LiveStreamReader

            return LiveStreamReader(dict(self.options), schema.fieldNames())
        return StreamReader(dict(self.options), schema.fieldNames())


def _missing(first: int, last: int) -> str:
    if first == last:
        return f"file number {first} is missing"
    return f"file numbers {first} to {last} are missing"


def _table(options: Any) -> str:
    table = str(options.get("table", "events"))
    if table not in columns.TABLES:
        raise BadRequest(reason=f"table {table!r}: there are {', '.join(columns.TABLES)}")
    return table


class Work:
    """What all readers share: it travels to the workers, so it holds plain values only."""

    def __init__(self, options: dict[str, str], names: list[str]) -> None:
        self.where = options.get("path", "")
        self.table = _table(options)
        self.names = names
        self.filters: list[Filter] = []
        self.split_bytes = int(options.get("splitbytes", options.get("splitBytes",
                                                                     plan.SPLIT_BYTES)))
        self.first = int(options.get("first", 0))
        self.last = int(options.get("last", 1 << 40))
        self.files_max = int(options.get("maxfilespertrigger",
                                         options.get("maxFilesPerTrigger", 0)))
        self.wait_for_missing = str(options.get(
            "waitformissing", options.get("waitForMissing", "true"))).lower() != "false"
        unknown = [name for name in names if name not in columns.TABLES[self.table]]
        if unknown:
            raise BadRequest(reason=f"table {self.table} has no column {', '.join(unknown)}")

    def listing(self) -> list[Listed]:
        found = plan.listing(self.where)
        return [item for item in found if self.first <= item.number <= self.last]

    def tasks(self, items: Sequence[Listed]) -> list[Task]:
        found = plan.heads(self.where, items)
        tasks = [Task(splits) for splits in plan.splits(found, self.split_bytes)]
        valid = [item.number for item, header in found if isinstance(header, ArchiveHeader)]
        gaps = missing(valid)
        if valid and 0 < self.first < valid[0]:  # what `first` promised
            gaps = [(self.first, valid[0] - 1), *gaps]
        bad = [plan.bad_text(Finding(Kind.GAP, _missing(*gap), f"{gap[0]:010d}.oma"))
               for gap in gaps]
        if bad:
            tasks.append(Task([], bad))
        return tasks

    def batches(self, task: Task | None) -> Iterator[pa.RecordBatch]:
        if task is None:  # an empty plan becomes one partition without a value
            return
        if task.bad:
            yield columns.bad_batch(self.table, self.names, task.bad, -1)
        if self.table == "events":
            yield from decode.event_batches(task.splits, self.names, self.filters, self.where)
        elif self.table == "blocks":
            yield from decode.block_batches(task.splits, self.names, self.where)
        else:
            yield from decode.name_batches(task.splits, self.names, self.where)


class Reader(DataSourceReader):
    """One read of all files there are."""

    def __init__(self, options: dict[str, str], names: list[str]) -> None:
        self.work = Work(options, names)

    def partitions(self) -> Sequence[InputPartition]:
        items = self.work.listing()
        if not items:
            raise NoArchive(path=self.work.where)
        return self.work.tasks(items)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert partition is None or isinstance(partition, Task)
        return self.work.batches(partition)


class PushdownReader(Reader):
    """The same with filters; a class of its own because Spark refuses pushFilters where the
    configuration does not allow it."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        for each in filters:
            taken = _pushed(each) if self.work.table == "events" else []
            self.work.filters += taken
            if not taken:
                yield each


def _pushed(each: Any) -> list[Filter]:
    """What the decoder does for a filter of Spark; nothing: Spark must do it itself."""
    test = _TESTS.get(type(each))
    if test is None or len(each.attribute) != 1:
        return []
    column = each.attribute[0]
    if column == "ts":
        return _instant(test, each.value)
    value = list(each.value) if test == "in" else each.value
    values = value if isinstance(value, list) else [value]
    if column not in FIELDS or not values or any(
            not isinstance(item, int) or item < 0 for item in values):
        return []
    return [Filter(column, test, value)]


def _instant(test: str, value: Any) -> list[Filter]:
    """The same of `time_ns`: `ts` is that in whole microseconds, rounded down."""
    if not isinstance(value, datetime) or value.tzinfo is None or value < _EPOCH:
        return []
    first = (value - _EPOCH) // timedelta(microseconds=1) * 1000
    bounds = {"=": [(">=", first), ("<", first + 1000)], ">": [(">=", first + 1000)],
              ">=": [(">=", first)], "<": [("<", first)], "<=": [("<", first + 1000)]}
    return [Filter("time_ns", how, bound) for how, bound in bounds.get(test, [])]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Files in the order of their numbers, each once."""

    def __init__(self, options: dict[str, str], names: list[str]) -> None:
        self.work = Work(options, names)
        self._end: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"file": self._numbers()[0] - 1}

    def _numbers(self) -> list[int]:
        found = [item.number for item in self.work.listing()]
        if not found:
            raise NoArchive(path=self.work.where)
        return found

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self.work.files_max) if self.work.files_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = self._numbers()[-1]

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        numbers = self._numbers()
        behind = [n for n in numbers if n > start["file"]
                  and (self._end is None or n <= self._end)]
        if self.work.wait_for_missing:
            behind = [n for at, n in enumerate(behind) if n == behind[0] + at]
        if behind and numbers[0] > start["file"] + 1:
            raise ArchivePruned(number=start["file"] + 1, oldest=numbers[0])
        if isinstance(limit, ReadMaxFiles):
            behind = behind[: limit.max_files]
        return {"file": behind[-1] if behind else start["file"]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        items = [item for item in self.work.listing()
                 if start["file"] < item.number <= end["file"]]
        if items and items[0].number > start["file"] + 1:
            raise ArchivePruned(number=start["file"] + 1, oldest=items[0].number)
        return self.work.tasks(items)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert partition is None or isinstance(partition, Task)
        return self.work.batches(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: the archive is not ours to change."""
