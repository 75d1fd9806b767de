"""The data source "omqj" with the option `spool`: what an instance on this host does, when it does.

Each trigger asks how far the journal is durable, and has a task for each file between. Offsets are
positions of live.py: they hold while files move from the journal to the archive, and over restarts
of the query and of the instance. A file that is missing is a row with `bad`, and what follows it
comes out; with `waitForMissing` the stream waits before it, and says so on stderr.
Errors: BadRequest, NoArchive, ArchivePruned, OffsetUnknown, SpoolMissing; Damaged with FAILFAST.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from omq.base.errors import BadRequest
from omqtools.omqspark.archive_holds import keep
from omqtools.omqspark.live import Live, Piece, Position
from omqtools.omqspark.source_read import Work
from omqtools.omqspark.stream_waits import Waiting


@dataclass
class LiveTask(InputPartition):
    """What one task reads of a spool."""

    piece: Piece


class LiveReader(DataSourceReader):
    """One read of all that a spool has now."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        if options.get("table", "events") != "events":
            raise BadRequest(reason="of a spool there are events only; `path` names an archive")
        self.work = Work.of(options | {"path": options["spool"]}, schema)
        self.live = Live(self.work.where)

    def partitions(self) -> Sequence[InputPartition]:
        start = self.live.begin()
        return self.between(start, self.live.end(start))

    def between(self, start: Position, end: Position) -> list[LiveTask]:
        return [LiveTask(piece) for piece in self.live.pieces(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, LiveTask):  # an empty plan becomes one partition without a value
            piece = partition.piece
            yield from self.work.read(lambda names: self.live.batches(piece, names))


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same as it grows. The offset is a Position."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.reader = LiveReader(options, schema)
        self._up_to = 1 << 62
        self._stream = token_hex(4)
        work = self.reader.work
        self._wait = Waiting(work.where) if work.wait_for_missing else None

    def initialOffset(self) -> dict[str, int]:
        return self.reader.live.begin().encode()

    def getDefaultReadLimit(self) -> ReadLimit:
        files_max = self.reader.work.files_max
        return ReadMaxFiles(files_max) if files_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        live = self.reader.live
        self._up_to = live.end(live.begin(), wait=self._wait).lsn

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        keep(self.reader.live.paths, self._stream, start["file"])
        files_max = limit.max_files if isinstance(limit, ReadMaxFiles) else 0
        return self.reader.live.end(Position(**start), files_max=files_max, up_to=self._up_to,
                                    wait=self._wait).encode()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self.reader.between(Position(**start), Position(**end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.reader.read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """What came before is not needed any more."""
        keep(self.reader.live.paths, self._stream, end["file"])
