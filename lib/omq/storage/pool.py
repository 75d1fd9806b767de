"""The Message Pool's files: read one record, scan a file, and write a checkpoint's changes.

One writer (pool.writer, or recovery) at a time: whoever holds the lock of the pool.

A checkpoint writes in chunks. For each chunk: 1. the images go to the double-write file, synced;
2. they go in place; 3. EVERY pool file that was touched is synced. Only then may the caller move
   the
checkpoint in poolctrl.

Invariants:
1. No record is overwritten before its image is durable in the double-write file, and that file is
   not overwritten before the records of its last chunk are durable in place.
2. A pool file has a valid header and a durable name before the first record is written.
3. A cleared slot is 512 zeros. Trailing space is cut only behind the last live record.

In the middle of a crash: before the end of 1 no record has changed; behind it recovery writes the
whole chunk again. A full disk in 2 leaves the chunk pending: the next `write` finishes it first.

Errors: DiskError (latched), SpoolFull (the changes are to be written again; nothing is lost),
Damaged for a pool file that is not ours: SlotAllocator.exclude keeps messages out of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from omq.base import clock, limits
from omq.base.errors import Damaged, DiskError
from omq.base.paths import SpoolPaths
from omq.format.double_write import COUNT_MAX, FREE, HEADER, Images, decode, encode
from omq.format.findings import Finding, Kind
from omq.format.pool import (
    NO_RECORD,
    PARTS_PER_RECORD,
    RECORD_BYTES,
    Message,
    Record,
    RecordKind,
    decode_file_header,
    decode_record,
    encode_file_header,
)
from omq.storage import durable
from omq.storage.files import File, open_file, write_new_file
from omq.storage.pool_scan import (
    DTYPE,
    PoolChunk,
    Rows,
    no_records,
    read_rows,
    scan_pool_file,
)

DOUBLE_WRITE: Final = "checkpoint.dw"
_NAME = re.compile(r"(0|[1-9][0-9]?)QP")
_CHAIN_MAX: Final = limits.QUEUES_MAX // PARTS_PER_RECORD + 1
TAIL_RECORDS = 128  # read at once when looking for the end of what is used


class PoolFiles:
    """See the module. `findings` collects what recovery met in the double-write file.

    `write`: False for tools that only look, and may have no right to do more."""

    def __init__(self, paths: SpoolPaths, uuid: bytes, *, write: bool = True) -> None:
        self.findings: list[Finding] = []
        self._paths = paths
        self._uuid = uuid
        self._may_write = write
        self._files: dict[int, File] = {}
        self._checked: set[int] = set()  # files whose header says that they are ours
        self._double_write: File | None = None
        self._generation = 0
        self._pending: Images | None = None  # durable in the double-write file, not yet in place

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
        mask of those that are valid first records of messages; of the others `read_record` says
        what they are."""
        opened = self._look(file)
        if not isinstance(opened, File):
            return np.zeros(len(records), dtype=DTYPE), np.zeros(len(records), dtype=bool)
        return read_rows(opened, file, records)

    def _decode(self, file: int, record: int) -> Record | Finding | None:
        opened = self._look(file)
        if not isinstance(opened, File):
            return opened
        data = opened.read(RECORD_BYTES, (record + 1) * RECORD_BYTES)
        if not data:
            return None  # behind the end: cut because it was free
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

    def scan(self, file: int) -> Iterator[PoolChunk]:
        """All records of a pool file in bulk; nothing when the file does not exist."""
        opened = self._look(file)
        if isinstance(opened, File):
            yield from scan_pool_file(opened, file, self._uuid)
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

    def _open_or_make(self, file: int) -> File:
        opened = self._open(file)
        if opened is None:
            header = encode_file_header(file, self._uuid, clock.wall_ns())
            opened = write_new_file(self._paths.msgpool / f"{file}QP", [header], "pool")
            self._files[file] = opened
        elif file not in self._checked:
            wrong = decode_file_header(opened.read(RECORD_BYTES, 0), file, self._uuid)
            if wrong is not None and wrong.kind is not Kind.CORRUPT:
                raise Damaged(file=opened.path, offset=0, reason=wrong.reason)
        self._checked.add(file)
        return opened

    def write(self, changes: Mapping[tuple[int, int], bytes | None]) -> None:
        """Make the changes durable: (file, record) -> 512 bytes, None to free the slot."""
        self.write_images(Images.of((file, record, FREE if image is None else image)
                                    for (file, record), image in changes.items()))

    def write_images(self, images: Images) -> None:
        """Make the records durable, zeros free a slot; all or nothing up to COUNT_MAX of them."""
        assert self._may_write
        self._place()  # what a full disk left undone
        images = images.ascending()
        for first in range(0, len(images), COUNT_MAX):
            self._stage(images.part(first, first + COUNT_MAX))
            self._place()
        if len(images) and self._double_write is not None:
            # Not synced: if the old header comes back, recovery writes what is there already.
            self._double_write.write([bytes(HEADER.size)], 0, new=True)

    def _stage(self, images: Images) -> None:
        if self._double_write is None:
            self._double_write = self._open_double_write()
        self._generation += 1
        self._double_write.write(encode(self._uuid, self._generation, images), 0, new=True)
        self._double_write.sync_all(new=True)
        self._pending = images

    def _open_double_write(self) -> File:
        path = self._paths.msgpool / DOUBLE_WRITE
        try:
            return open_file(path, "pool", write=True)
        except FileNotFoundError:
            return write_new_file(path, [bytes(HEADER.size)], "pool")

    def _place(self) -> None:
        """Write the pending chunk in place, neighbours together, and sync every file touched."""
        if not self._pending:
            return
        touched: dict[int, File] = {}
        for file, record, run in self._pending.runs():
            touched[file] = self._open_or_make(file)
            touched[file].write([run], (record + 1) * RECORD_BYTES, new=True)
        for opened in touched.values():
            opened.sync()
        self._pending = None

    def recover_double_write(self) -> int:
        """At a start: settle the files and finish what a crash cut; how many records were written
        again. Idempotent; may itself be cut.

        The names first: a writer that was killed between a rename and the sync of the directory
        left files that the next one finds, and a power cut behind it would not."""
        durable.sync_directory(self._paths.msgpool)
        self._double_write = self._open_double_write()
        self._double_write.settle()
        found = decode(self._double_write.read(self._double_write.size(), 0), self._uuid)
        if isinstance(found, Finding):
            if found.kind not in (Kind.END, Kind.TORN):
                self.findings.append(replace(found, file=DOUBLE_WRITE))
            found_count = 0
        else:
            self._generation = found.generation
            self._pending = found.images.ascending()
            found_count = len(self._pending)
            self._place()
        for file in self.files():
            opened = self._look(file)
            if isinstance(opened, File):  # any other is reported when it is scanned
                opened.settle()
        return found_count

    def cut_tail(self, file: int) -> bool:
        """Cut the free slots at the end of a file, as the file itself shows them (all zero): never
        what somebody believes to be free. After the checkpoint that cleared them."""
        opened = self._open(file)
        if opened is None:
            return False
        live = max(0, opened.size() // RECORD_BYTES - 1)
        while live:
            step = min(live, TAIL_RECORDS)
            data = opened.read(step * RECORD_BYTES, (live - step + 1) * RECORD_BYTES)
            used = len(data.rstrip(b"\0"))
            if used:
                live = live - step + -(-used // RECORD_BYTES)
                break
            live -= step
        return self.truncate_tail(file, live)

    def truncate_tail(self, file: int, live_records: int) -> bool:
        """Cut the space behind slot `live_records` - 1; after the checkpoint that freed it."""
        opened = self._open(file)
        size = (live_records + 1) * RECORD_BYTES
        if opened is None or opened.size() <= size:
            return False
        durable.step("pool.before_truncate", opened.path)
        opened.truncate(size)
        return True

    def close(self) -> None:
        for file in [*self._files.values(), *filter(None, [self._double_write])]:
            file.close()
        self._files.clear()
        self._double_write = None
