"""The Message Pool's files: read one record, or scan a file in bulk.

Invariants: 1. nothing here writes; 2. bytes never raise: what is wrong is a Finding; 3. a file that
cannot be opened is a finding of the scan.

Errors: DiskError for a read that fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from omq.base import limits
from omq.base.arrays import Rows
from omq.base.errors import DiskError
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding, Kind
from omq.format.pool import (
    NO_RECORD,
    PARTS_PER_RECORD,
    RECORD_BYTES,
    Message,
    Record,
    RecordKind,
    decode_record,
)
from omq.storage import durable
from omq.storage.files import File, open_file
from omq.storage.pool_scan import DTYPE, PoolChunk, Take, no_records, read_rows, scan_pool_file

_NAME = re.compile(r"(0|[1-9][0-9]?)QP")
_CHAIN_MAX: Final = limits.QUEUES_MAX // PARTS_PER_RECORD + 1


class PoolReader:
    """See the module. `write`: whether the files are opened for writing, too."""

    def __init__(self, paths: SpoolPaths, uuid: bytes, *, write: bool) -> None:
        self._paths = paths
        self._uuid = uuid
        self._may_write = write
        self._files: dict[int, File] = {}

    def files(self) -> list[int]:
        """Numbers of the pool files there are, ascending."""
        names = (_NAME.fullmatch(name) for name in durable.list_directory(self._paths.msgpool))
        return sorted(int(match[1]) for match in names if match)

    def read_record(self, file: int, record: int) -> Message | Finding | None:
        """The message whose first record is in this slot, with all its parts; None: none is."""
        found = self._decode(file, record)
        if not isinstance(found, Record):
            return found
        if found.kind is not RecordKind.LIVE:
            return None
        message, following = found.message, found.next
        while following != NO_RECORD:
            if following in (record, *message.more) or len(message.more) >= _CHAIN_MAX:
                return self._finding(file, record, "continuation records form a loop")
            more = self._decode(file, following)
            if not isinstance(more, Record) or more.kind is not RecordKind.MORE \
                    or (more.message.qpool, more.message.lsn) != (message.qpool, message.lsn):
                return self._finding(file, record, f"continuation record {following} is missing")
            message.parts += more.message.parts
            message.more.append(following)
            following = more.next
        return message

    def read_rows(self, file: int, records: Rows) -> tuple[Rows, Rows]:
        """The records in these slots (ascending) as rows of pool_scan.DTYPE, read together, and the
        mask of those that are valid first records of messages. A row of zeros is a free slot; of
        the others `read_record` says what they are."""
        opened = self._look(file)
        if not isinstance(opened, File):
            rows = np.zeros(len(records), dtype=DTYPE)
            rows["version"] = 0 if opened is None else 0xFF  # what cannot be read is not free
            return rows, np.zeros(len(records), dtype=bool)
        return read_rows(opened, file, records)

    def _decode(self, file: int, record: int) -> Record | Finding | None:
        opened = self._look(file)
        if not isinstance(opened, File):
            return opened
        data = opened.read(RECORD_BYTES, (record + 1) * RECORD_BYTES)
        if not data:
            return None  # after the end: cut because it was free
        found = decode_record(data, 0, file, record)
        if isinstance(found, Finding):
            return replace(found, file=f"{file}QP", offset=(record + 1) * RECORD_BYTES,
                           length=RECORD_BYTES, record=record)
        return found

    def _finding(self, file: int, record: int, reason: str) -> Finding:
        return Finding(Kind.CORRUPT, reason, f"{file}QP", (record + 1) * RECORD_BYTES,
                       RECORD_BYTES, record)

    def record_slots(self) -> int:
        """Slots of all files: no more messages than these."""
        opened = map(self._look, self.files())
        return sum(max(0, each.size() // RECORD_BYTES - 1) for each in opened
                   if isinstance(each, File))

    def scan(self, file: int, take: Take | None = None) -> Iterator[PoolChunk]:
        """All records of a pool file in bulk; nothing when the file does not exist. `take`: see
        pool_scan."""
        opened = self._look(file)
        if isinstance(opened, File):
            yield from scan_pool_file(opened, file, self._uuid, take)
        elif opened is not None:
            yield no_records(file, opened)

    def _look(self, file: int) -> File | Finding | None:
        """The file for reading; a link, a directory or a forbidden file is a finding."""
        try:
            return self._open(file)
        except DiskError as error:
            return Finding(Kind.FOREIGN, str(error), f"{file}QP")

    def _open(self, file: int) -> File | None:
        if file not in self._files:
            try:
                self._files[file] = open_file(self._paths.msgpool / f"{file}QP", "pool",
                                              write=self._may_write)
            except FileNotFoundError:
                return None
        return self._files[file]

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
