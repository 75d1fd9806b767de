"""OUT/current.json: which archive files are in the tables, and which batches count.

    {"version": 7, "uuid": U, "batch": N, "files": [...], "batches": [...], "void": {...}}

    files     one record a file that was read: number, where its events stand (`batch`), what its
              head said (`FileRecord`)
    batches   those that count, in the order of their files: number, the files whose messages they
              tell, and what was found wrong while reading them
    void      bronze batch -> files in it that were read again later: their rows there do not count

A file is known by its number and its head, not by a position: what comes late is seen as new, and
what has another head than the one that was read is read again. Files without a valid head are never
in here; each run looks at them once more.

In the middle of a crash: the manifest is one file that appears by rename, last of all; tables of
batches that it does not name do not count, and are overwritten under the same number.
Errors: BadRequest (made by an older or a newer omq-spark).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final

from omq.base.checksum import crc32c
from omq.base.errors import BadRequest
from omq.format.archive import CRC_FROM, MAGIC, ArchiveHeader

VERSION: Final = 8
Interval = tuple[int, int]  # first and last number, both included


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file that was read. `crc`: of its head, 0 = not known; times in ns, 0 = no frames;
    `modified_ns`: as the listing said, 0 = not known."""

    number: int
    batch: int
    epoch: int
    first_lsn: int
    last_lsn: int
    follows_lsn: int
    frames: int
    made_ns: int
    time_min: int
    time_max: int
    crc: int
    size: int
    modified_ns: int = field(default=0, compare=False)

    @classmethod
    def of(cls, header: ArchiveHeader, size: int, batch: int, modified_ns: int = 0) -> FileRecord:
        return cls(header.number, batch, header.epoch, header.first_lsn, header.last_lsn,
                   header.follows_lsn, header.frames, header.time_ns, header.time_min,
                   header.time_max, crc32c(header.encode(MAGIC)[CRC_FROM:]), size, modified_ns)

    def listed_as(self, size: int, modified_ns: int) -> bool:
        """Whether a listing shows the file as it was: then its head need not be looked at."""
        return bool(self.size) and (size, modified_ns) == (self.size, self.modified_ns)

    def is_of(self, header: ArchiveHeader, size: int) -> bool:
        """Whether this is the head that was read; of tables of before it is not known."""
        return not self.crc or self == FileRecord.of(header, size, self.batch)

    @property
    def begins(self) -> tuple[int, int]:
        """(LSN, ns) at which it begins."""
        made = min(self.made_ns, self.time_min) if self.frames and self.made_ns else (
            self.time_min or self.made_ns)
        return self.first_lsn or self.follows_lsn + 1, made


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that counts. `found`: how many findings there were, of which `findings` are some."""

    number: int
    files: list[int]
    findings: list[dict[str, Any]] = field(default_factory=list)
    found: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Manifest:
    """See the module."""

    uuid: str = ""
    files: dict[int, FileRecord] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    void: dict[int, list[int]] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps({
            "version": VERSION, "uuid": self.uuid, "batch": self.current,
            "files": [asdict(self.files[number]) for number in sorted(self.files)],
            "batches": [asdict(batch) for batch in self.batches],
            "void": {str(batch): numbers for batch, numbers in self.void.items()}}).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Manifest:
        """BadRequest: OUT of another version."""
        found = json.loads(data)
        version = found.get("version", 1)
        if version != VERSION:
            raise of_another(where, version, VERSION)
        return cls(found["uuid"], {one["number"]: FileRecord(**one) for one in found["files"]},
                   [Batch(**one) for one in found["batches"]],
                   {int(batch): numbers for batch, numbers in found["void"].items()})

    @property
    def current(self) -> int:
        """The batch whose `gold` is shown; -1: none."""
        return self.batches[-1].number if self.batches else -1

    @property
    def next_number(self) -> int:
        """Of the next batch: never one that was published."""
        return 1 + max([batch.number for batch in self.batches]
                       + [record.batch for record in self.files.values()], default=-1)

    def counted(self) -> set[int]:
        """Numbers of the files whose messages are in the tables."""
        return {number for batch in self.batches for number in batch.files}

    def bronze(self) -> list[int]:
        """Bronze batches that hold rows which count."""
        return sorted({record.batch for record in self.files.values()})

    def take(self, record: FileRecord) -> None:
        """A file was read, for the first time or again."""
        before = self.files.get(record.number)
        if before is not None and before.batch != record.batch:
            self.void[before.batch] = sorted({*self.void.get(before.batch, []), record.number})
        self.files[record.number] = record

    def forget_void(self) -> None:
        """Bronze batches that hold nothing any more need no mention."""
        live = set(self.bronze())
        self.void = {batch: numbers for batch, numbers in self.void.items() if batch in live}

    def base(self, number: int, kept: Iterable[int]) -> int:
        """How many batches stay when file `number` is to come in its order: those before it, up to
        one whose state at its end is still there (`kept`)."""
        there, best = set(kept), 0
        for i, batch in enumerate(self.batches):
            if any(each >= number for each in batch.files):
                break
            if batch.number in there:
                best = i + 1
        return best

    def epoch_ends(self, numbers: Iterable[int] | None = None) -> list[tuple[int, int, int]]:
        """(epoch, LSN, ns): where the manager of an epoch was followed by another; from the files
        named, or all."""
        starts: dict[int, tuple[int, int]] = {}
        for number in self.files if numbers is None else numbers:
            record = self.files[number]
            begins = record.begins
            starts[record.epoch] = min(starts.get(record.epoch, begins), begins)
        epochs = sorted(starts)
        return [(epoch, *starts[after]) for epoch, after in pairwise(epochs)]

    def lsn_gaps(self) -> list[dict[str, Any]]:
        """LSNs that are missing between files that follow each other."""
        out: list[dict[str, Any]] = []
        before: FileRecord | None = None
        for number in sorted(self.files):
            record = self.files[number]
            if before is not None and record.follows_lsn > before.last_lsn:
                out.append({"kind": "gap", "lsn": before.last_lsn + 1, "file": number,
                            "count": record.follows_lsn - before.last_lsn})
            if record.frames:
                before = record
        return out


def of_another(where: str, version: int, mine: int) -> BadRequest:
    """The error for tables that another version of omq-spark has made."""
    what = ("an older omq-spark; 'omq-spark run --incremental' upgrades it" if version < mine
            else "a newer omq-spark")
    return BadRequest(reason=f"the tables of {where} were made by {what}")


def missing(numbers: Sequence[int]) -> list[Interval]:
    """What is not there between the first and the last number."""
    there = sorted(set(numbers))
    return [(a + 1, b - 1) for a, b in pairwise(there) if b > a + 1]
