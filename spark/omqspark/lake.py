"""The tables of one OUT directory: where they lie, which of their rows count.

What counts is said by the manifest alone. Directories of batches that it does not name are left by
a run that was killed, or are void; nobody reads them, and the next publication removes them.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.fs as pafs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from omq.base.errors import BadRequest, NoArchive, OutBusy
from omqtools.omqspark import columns, gold, plan
from omqtools.omqspark.manifest import Manifest

LIVES: Final = ("messages", "stays")
ANSWERS: Final = tuple(answer.name for answer in gold.ANSWERS)
FOLDERS: Final = ("bronze", "names", *LIVES, *ANSWERS, "open", "known", "gold", "report")
"""`gold`: of versions before 3."""
CURRENT: Final = "current.json"
VERSIONS: Final = "tables.json"
FILES: Final = (CURRENT, VERSIONS, "audit.json")
LOCK: Final = ".lock"
SNAPSHOTS_KEPT: Final = 24
"""Batches whose state at their end is kept, for a file that comes late: a day of hourly runs."""


@dataclass
class Lake:
    """See the module."""

    spark: SparkSession
    out: str

    def path(self, table: str, batch: int | None = None) -> str:
        tail = "" if batch is None else f"/batch={batch}"
        return f"{self.out.rstrip('/')}/{table}{tail}"

    def exists(self, path: str) -> bool:
        fs, where = plan.filesystem(path)
        return bool(fs.get_file_info([where])[0].type != pafs.FileType.NotFound)

    def get(self, name: str) -> bytes | None:
        """A small file; None: it is not there."""
        fs, where = plan.filesystem(self.path(name))
        try:
            with fs.open_input_stream(where) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """A small file, by rename."""
        fs, where = plan.filesystem(self.path(name))
        with fs.open_output_stream(where + ".tmp") as stream:
            stream.write(data)
        fs.move(where + ".tmp", where)

    def manifest(self) -> Manifest:
        """What counts; an empty one before the first run. BadRequest: of another version."""
        data = self.get(CURRENT)
        return Manifest() if data is None else Manifest.decode(data, self.out)

    def current(self) -> int:
        """The batch whose answers are shown; -1 for none."""
        return self.manifest().current

    def known(self) -> Manifest:
        """What counts; NoArchive before the first run."""
        found = self.manifest()
        if found.current < 0:
            raise NoArchive(path=self.out)
        return found

    def rows(self, table: str, known: Manifest, files: Iterable[int]) -> DataFrame:
        """The rows of some files in `bronze` or `names`, where each was read last."""
        by_batch: dict[int, list[int]] = {}
        for number in files:
            by_batch.setdefault(known.files[number].batch, []).append(number)
        dirs = [self.path(table, batch) for batch in sorted(by_batch)]
        schema = event_schema(self.spark) if table == "bronze" else name_schema(self.spark)
        found = self.spark.read.schema(schema).option("basePath", self.path(table)).parquet(*dirs)
        whole: Column = F.lit(False)  # noqa: FBT003
        for batch, numbers in by_batch.items():
            mine = F.col("file").isin(numbers) & (F.col("batch") == batch)
            whole = whole | mine
        return found.where(whole)

    def read(self, table: str) -> DataFrame:
        """All rows of a table that count: of `bronze` and `names` those of each file where it was
        read last, of `messages` and `stays` those of the batches that count."""
        known = self.known()
        if table in LIVES:
            return self.spark.read.option("basePath", self.path(table)).parquet(
                *(self.path(table, batch.number) for batch in known.batches))
        batches = known.bronze()
        schema = event_schema(self.spark) if table == "bronze" else name_schema(self.spark)
        found = self.spark.read.schema(schema).option("basePath", self.path(table)).parquet(
            *(self.path(table, batch) for batch in batches))
        for batch, numbers in known.void.items():
            found = found.where((F.col("batch") != batch) | ~F.col("file").isin(numbers))
        return found

    def gold(self, name: str) -> DataFrame:
        """A table of answers (gold.ANSWERS)."""
        return self.spark.read.parquet(self.path(name, self.current()))

    def snapshots(self) -> list[int]:
        """Batches whose state at their end is there."""
        both = [set(self._batches(table)) for table in ("open", "known")]
        return sorted(both[0] & both[1])

    def _batches(self, table: str) -> list[int]:
        fs, where = plan.filesystem(self.path(table))
        found = fs.get_file_info(pafs.FileSelector(where, allow_not_found=True))
        names = [info.base_name.removeprefix("batch=") for info in found
                 if info.base_name.startswith("batch=")]
        return sorted(int(name) for name in names if name.isdigit())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else changes OUT meanwhile: OutBusy. Only a local path can be locked."""
        fs, where = plan.filesystem(self.out)
        if not isinstance(fs, pafs.LocalFileSystem):
            yield
            return
        Path(where).mkdir(parents=True, exist_ok=True)
        with (Path(where) / LOCK).open("w", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OutBusy(path=self.out) from error
            yield

    def publish(self, known: Manifest) -> None:
        """From now on this counts; what no run needs any more goes. Of the tables that people read
        `tables.vacuum` takes it away later: they may look at older versions."""
        known.forget_void()
        self.put(CURRENT, known.encode())
        counted = [batch.number for batch in known.batches]
        keep: dict[str, Sequence[int]] = {
            "bronze": known.bronze(), "names": known.bronze(), "gold": (),
            "known": counted[-SNAPSHOTS_KEPT:], "open": counted[-SNAPSHOTS_KEPT:]}
        for table, numbers in keep.items():
            for batch in set(self._batches(table)) - set(numbers):
                fs, where = plan.filesystem(self.path(table, batch))
                fs.delete_dir(where)

    def clear(self) -> None:
        """Begin anew; only what a run has made is removed. BadRequest for anything else."""
        fs, where = plan.filesystem(self.out)
        found = fs.get_file_info(pafs.FileSelector(where, allow_not_found=True))
        names = {info.base_name for info in found}
        strange = names - {*FOLDERS, *FILES, *(f"{name}.tmp" for name in FILES), LOCK}
        if strange:
            raise BadRequest(reason=f"{self.out} holds {', '.join(sorted(strange))}, which no run "
                                    "has made; name an empty directory")
        fs.create_dir(where)
        for name in names & {CURRENT, VERSIONS}:
            fs.delete_file(f"{where}/{name}")
        for info in found:
            if info.type == pafs.FileType.Directory:
                fs.delete_dir(info.path)


def event_schema(spark: SparkSession) -> StructType:
    """The schema of bronze: the event table's."""
    return spark.createDataFrame([], columns.ddl("events")).schema


def name_schema(spark: SparkSession) -> StructType:
    """The schema of names: the dictionary's."""
    return spark.createDataFrame([], columns.ddl("dict")).schema


def all_stays(lake: Lake) -> DataFrame:
    """Stays of ended messages of all batches, and those of the messages open now."""
    return _last(lake, "stays").drop("ended")


def all_messages(lake: Lake) -> DataFrame:
    """Every message once: ended ones of all batches, open ones of the last."""
    return _last(lake, "messages")


def _last(lake: Lake, table: str) -> DataFrame:
    found = lake.read(table)
    return found.where((F.col("ended") == 1) | (F.col("batch") == lake.current())).drop("batch")
