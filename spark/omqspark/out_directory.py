"""One OUT directory without Spark: where its tables lie, what counts, its small files.

The manifest alone says what counts. Directories of batches that it does not name are left by
a run that was killed, or are void; nobody reads them, and the next publication removes them.
Errors: BadRequest, NoTables, OutBusy, OutHeld.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.fs as pafs
from pyspark.sql.types import StructType

from omq.base.errors import BadRequest, NoTables, OutBusy
from omqtools.omqspark import plan, store_lock
from omqtools.omqspark.answer_tables import ALWAYS, Index
from omqtools.omqspark.gold import ANSWERS as _ANSWERS
from omqtools.omqspark.manifest import Manifest

LIVES: Final = ("messages", "stays")
ANSWERS: Final = tuple(answer.name for answer in _ANSWERS)
BESIDE: Final = "beside"
FOLDERS: Final = ("bronze", "names", *LIVES, *ANSWERS, "open", "worked", "clients", "known",
                 "gold", "report", BESIDE)
"""`gold`: of versions before 3."""
STATES: Final = ("open", "worked", "clients")
"""What a batch leaves for the next, in folders without folders; the index of the answers is another
part of it."""
KNOWN: Final = "known"
INDEX: Final = f"{KNOWN}/index"
CURRENT: Final = "current.json"
VERSIONS: Final = "tables.json"
AUDITED: Final = "audited.json"
AUDIT: Final = "audit.json"
FILES: Final = (CURRENT, VERSIONS, AUDITED, AUDIT)
LOCK: Final = store_lock.NAME
SNAPSHOTS_KEPT: Final = 24
"""Batches whose state at their end is kept, for a file that comes late: a day of hourly runs."""


@dataclass
class Out:
    """See the module."""

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
        """What counts; NoTables before the first run."""
        found = self.manifest()
        if found.current < 0:
            raise NoTables(path=self.out)
        return found

    def frames(self) -> int:
        """How many are in the files that count: what reads all of them costs so much."""
        return sum(record.frames for record in self.known().files.values())

    def shown(self, name: str) -> tuple[list[str], StructType]:
        """A table of answers (gold.ANSWERS): where the days that are shown lie, and its columns."""
        index = self.index(self.current())
        schema = StructType.fromJson(json.loads(index.schemas[name]))
        return [self.path(name, batch) + (f"/day={day}" if day != ALWAYS else "")
                for day, batch in sorted(index.shown[name].items())], schema

    def part(self, name: str, batch: int | None = None) -> str:
        """Where the parts of a table of answers lie."""
        return self.path(f"{KNOWN}/{name}", batch)

    def days(self, where: str) -> list[str]:
        """The days that a folder is partitioned by."""
        fs, path = plan.filesystem(where)
        found = fs.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name[4:] for info in found if info.base_name.startswith("day="))

    def index(self, batch: int) -> Index:
        """What counted of the answers at the end of a batch; nothing before the first."""
        return Index.decode(self.get(f"{INDEX}/batch={batch}/index.json") if batch >= 0 else None)

    def put_index(self, batch: int, index: Index) -> None:
        fs, where = plan.filesystem(self.path(INDEX, batch))
        fs.create_dir(where)
        self.put(f"{INDEX}/batch={batch}/index.json", index.encode())

    def snapshots(self) -> list[int]:
        """Batches whose state at their end is there."""
        there = [set(self._batches(table)) for table in (*STATES, INDEX)]
        return sorted(set.intersection(*there))

    def _batches(self, table: str) -> list[int]:
        fs, where = plan.filesystem(self.path(table))
        found = fs.get_file_info(pafs.FileSelector(where, allow_not_found=True))
        names = [info.base_name.removeprefix("batch=") for info in found
                 if info.base_name.startswith("batch=")]
        return sorted(int(name) for name in names if name.isdigit())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else changes OUT meanwhile: OutBusy; in an object store OutHeld."""
        fs, where = plan.filesystem(self.out)
        if not isinstance(fs, pafs.LocalFileSystem):
            with store_lock.held(self.out):
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
        snapshots = counted[-SNAPSHOTS_KEPT:]
        needed = self._needed(snapshots)
        keep: dict[str, Iterable[int]] = {
            "bronze": known.bronze(), "names": known.bronze(), INDEX: snapshots,
            **dict.fromkeys(STATES, snapshots),
            **{f"{KNOWN}/{name}": needed.get(name, ()) for name in ANSWERS}}
        for table, numbers in keep.items():
            for batch in set(self._batches(table)) - set(numbers):
                fs, where = plan.filesystem(self.path(table, batch))
                fs.delete_dir(where)

    def _needed(self, snapshots: Iterable[int]) -> dict[str, set[int]]:
        """Table of answers -> batches whose parts these snapshots name."""
        found: dict[str, set[int]] = {}
        for batch in snapshots:
            for name, days in self.index(batch).state.items():
                found.setdefault(name, set()).update(*days.values())
        return found

    def forget(self) -> None:
        """What all tables but the events say, for a run that tells everything anew."""
        for name in {*LIVES, *ANSWERS, "open", "worked", "clients", KNOWN, "gold"}:
            fs, where = plan.filesystem(self.path(name))
            if self.exists(self.path(name)):
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
        for name in names & {*FILES}:
            fs.delete_file(f"{where}/{name}")
        for info in found:
            if info.type == pafs.FileType.Directory:
                fs.delete_dir(info.path)
