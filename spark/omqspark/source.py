"""The data source "omqj": spark.read.format("omqj") and spark.readStream.format("omqj").

Options:
    path          directory of archive files: local, or a URI that pyarrow.fs knows
    table         events (default), blocks (one row a sealed block), dict (names and texts)
    columns       those that are wanted, "lsn, ts, queue" (all of them)
    mode          PERMISSIVE (default): damage is a row with `bad`; FAILFAST: damage, or a file
                  that is missing, ends the read with Damaged, so most columns are NOT NULL
    splitBytes    raw bytes of one task (64 MiB)
    pushdown      true: filters skip blocks by their seals; needs
                  spark.sql.python.filterPushdown.enabled=true
    maxFilesPerTrigger   streaming: files of one batch
    first, last   only files with these numbers; a number that is missing at the start counts

Columns: `columns`, or a schema given by the user, picks and orders them; only those are decoded.
Damaged data come as rows whose `bad` is not null, a file number that is missing as one such row.

    waitForMissing       streaming: true (default for `path`): the stream stops before a number
                         that is not there until that file comes, and says so on stderr; false
                         (default for `spool`, where it cannot come): it goes on after it

    spool         a spool on this host instead of `path`: its archive and its journal up to what is
                  durable now (live.py); table events, for streams and once

Streaming of `path`: the offset is the number of the last file that was read, as {"file": n}. Files
are immutable and numbered one by one, so nothing else is needed: what comes late is waited for, and
a stray file far away is not reached. A file that was pruned before it was read is an error, never a
silent gap.
Errors: NoArchive, MixedArchives, ArchivePruned, OffsetUnknown; Damaged with FAILFAST.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any, Final

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

from omq.base.errors import ArchivePruned, NoArchive, OffsetUnknown
from omqtools.omqspark import source_read
from omqtools.omqspark.archive_holds import keep, spool_of
from omqtools.omqspark.decode import FIELDS, Filter
from omqtools.omqspark.source_read import Task, Work
from omqtools.omqspark.stream_waits import Waiting

_TESTS = {EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<",
          LessThanOrEqual: "<=", In: "in"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class OmqjSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "omqj"

    def schema(self) -> StructType:
        return source_read.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        if "spool" in self.options:
            from omqtools.omqspark.live_source import LiveReader

            return LiveReader(dict(self.options), schema)
        if str(self.options.get("pushdown", "false")).lower() == "true":
            return PushdownReader(dict(self.options), schema)
        return Reader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if "spool" in self.options:
            from omqtools.omqspark.live_source import LiveStreamReader

            return LiveStreamReader(dict(self.options), schema)
        return StreamReader(dict(self.options), schema)


class Reader(DataSourceReader):
    """One read of all files there are."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.work = Work.of(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        items = self.work.listing()
        if not items:
            raise NoArchive(path=self.work.where)
        return self.work.tasks(items)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert partition is None or isinstance(partition, Task)
        return self.work.read(lambda names: self.work.batches(partition, names))


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

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.work = Work.of(options, schema)
        self._end: int | None = None
        self._stream = token_hex(4)
        self._wait = Waiting(self.work.where)

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
        keep(spool_of(self.work.where), self._stream, start["file"] + 1)
        numbers = self._numbers()
        if start["file"] > numbers[-1]:
            raise OffsetUnknown(number=start["file"], path=self.work.where, newest=numbers[-1])
        behind = [n for n in numbers if n > start["file"]
                  and (self._end is None or n <= self._end)]
        if behind and numbers[0] > start["file"] + 1:
            raise ArchivePruned(number=start["file"] + 1, oldest=numbers[0])
        if self.work.wait_for_missing:
            in_line = [n for at, n in enumerate(behind, start["file"] + 1) if n == at]
            if len(in_line) < len(behind):
                following = behind[len(in_line)]
                self._wait.tell(start["file"] + len(in_line) + 1, following - 1, following)
            behind = in_line
        if isinstance(limit, ReadMaxFiles):
            behind = behind[: limit.max_files]
        return {"file": behind[-1] if behind else start["file"]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        items = [item for item in self.work.listing()
                 if start["file"] < item.number <= end["file"]]
        numbers = self._numbers()
        if numbers[0] > start["file"] + 1:
            raise ArchivePruned(number=start["file"] + 1, oldest=numbers[0])
        return self.work.tasks(items, start["file"])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert partition is None or isinstance(partition, Task)
        return self.work.read(lambda names: self.work.batches(partition, names))

    def commit(self, end: dict[str, int]) -> None:
        """What came before is not needed any more."""
        keep(spool_of(self.work.where), self._stream, end["file"] + 1)
