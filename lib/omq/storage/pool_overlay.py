"""The Message Pool as it will be: its files, read only, with records laid over them in memory.

What is laid over: the images of a checkpoint that was cut (`checkpoint.dw`), then what redo makes
of the journal: whole records of what changed (`lay`), and rows of new messages, which only `scan`
shows, in chunks of their own (`lay_rows`). So a tool sees the pool that a start would see, and
writes nothing.

Invariants: 1. no file is opened for writing; 2. an image hides the slot of the file, and what the
file says of that slot, damage included; 3. memory depends on the images, not on the pool.
Errors: DiskError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from omq.base.arrays import Rows
from omq.base.paths import SpoolPaths
from omq.format.double_write import FREE, Images, Standing, decode, standing
from omq.format.findings import Finding, Kind
from omq.format.pool import RECORD_BYTES, Record, RecordKind, decode_record
from omq.format.pool_contents import Content
from omq.storage.files import File, open_file
from omq.storage.pool import DOUBLE_WRITE, PoolFiles
from omq.storage.pool_contents import KeptContents
from omq.storage.pool_scan import CHUNK_RECORDS, DTYPE, PoolChunk, Take


class OverlaidPool(PoolFiles):
    """See the module. The images are whole records of this instance, or None for a free slot."""

    def __init__(self, paths: SpoolPaths, uuid: bytes) -> None:
        super().__init__(paths, uuid, write=False)
        self._images: dict[int, dict[int, bytes]] = {}  # file -> record -> 512 bytes
        self._rows: dict[int, list[Rows]] = {}  # file -> arrays of rows
        self.stands = Standing()  # what the files may hold, with the images over them

    def lay(self, changes: Mapping[tuple[int, int], bytes | None]) -> None:
        """Lay these records over the pool; later ones hide earlier ones."""
        for (file, record), image in changes.items():
            self._images.setdefault(file, {})[record] = FREE if image is None else image

    def lay_double_write(self) -> int:
        """Lay the images of a checkpoint that was cut; how many."""
        try:
            file = open_file(self._paths.msgpool / DOUBLE_WRITE, "pool")
        except FileNotFoundError:
            return 0
        try:
            data = file.read(file.size(), 0)
        finally:
            file.close()
        found = decode(data, self._uuid)
        self.stands = standing(data, self._uuid)
        if isinstance(found, Finding):
            if found.kind not in (Kind.END, Kind.TORN):
                self.findings.append(replace(found, file=DOUBLE_WRITE))
            return 0
        self.lay(found.images.changes())
        return len(found.images)

    def count(self, file: int) -> Content:
        """What a file holds, with the images over it."""
        images = self._images.get(file)
        opened = self._look(file)
        kept = KeptContents()
        kept.take({file: kept.count(file, opened if isinstance(opened, File) else None)})
        if images:
            made = kept.with_chunk(Images.of((file, *each) for each in sorted(images.items())),
                                   lambda number: None, lambda number, content: None)
            kept.commit(made)
        return (kept.should or {})[file]

    def files(self) -> list[int]:
        """Numbers of the pool files there are, or will be."""
        return sorted({*super().files(), *self._images, *self._rows})

    def lay_rows(self, rows: Iterable[Rows]) -> None:
        """Lay rows of new messages over the pool: arrays with the fields of pool_scan.DTYPE, of any
        number of queue parts."""
        for array in rows:
            for file in np.flatnonzero(np.bincount(array["file"])).tolist():
                mine = array["file"] == file
                self._rows.setdefault(file, []).append(array if mine.all() else array[mine])

    def record_slots(self) -> int:
        """Slots of all files: no more messages than these."""
        slots = 0
        for number in self.files():
            opened = self._look(number)
            size = 0 if opened is None or isinstance(opened, Finding) else opened.size()
            highest = max([*self._images.get(number, {}),
                           *(int(rows["record"].max()) for rows in self._rows.get(number, ()))],
                          default=-1)
            slots += max(size // RECORD_BYTES, highest + 1)
        return slots

    def _decode(self, file: int, record: int) -> Record | Finding | None:
        image = self._images.get(file, {}).get(record)
        if image is None:
            return super()._decode(file, record)
        return decode_record(image, 0, file, record)

    def read_rows(self, file: int, records: Rows) -> tuple[Rows, Rows]:
        rows, good = super().read_rows(file, records)
        laid = self._images.get(file, {})
        return rows, good & ~np.isin(records, np.array([*laid], dtype=np.int64))

    def scan(self, file: int, take: Take | None = None) -> Iterator[PoolChunk]:
        """All records of a pool file in bulk, those laid over it included; none is taken."""
        laid = self._rows.get(file)
        if laid is None:
            yield from self._scan_images(file)
            return
        hidden = np.sort(np.concatenate([rows["record"] for rows in laid]))
        for chunk in self._scan_images(file):
            yield _without(chunk, hidden)
        for rows in laid:
            every = np.ones(len(rows), dtype=bool)
            yield PoolChunk(file, 0, rows, every, ~every)

    def _scan_images(self, file: int) -> Iterator[PoolChunk]:
        images = self._images.get(file)
        if not images:
            yield from super().scan(file)
            return
        numbers = np.array(sorted(images), dtype=np.int64)
        rows = np.frombuffer(b"".join(images[n] for n in numbers.tolist()), dtype=DTYPE)
        end = 0
        for chunk in super().scan(file):
            end = max(end, chunk.first + len(chunk.records))
            yield _patched(chunk, images, numbers, rows)
        last = int(numbers[-1]) + 1
        for first in range(end, last, CHUNK_RECORDS):
            count = min(CHUNK_RECORDS, last - first)
            none = np.zeros(count, dtype=bool)
            empty = PoolChunk(file, first, np.zeros(count, dtype=DTYPE), none, none.copy())
            yield _patched(empty, images, numbers, rows)


def _without(chunk: PoolChunk, hidden: Rows) -> PoolChunk:
    """The chunk without the records with these (sorted) numbers."""
    begin, end = np.searchsorted(hidden, [chunk.first, chunk.first + len(chunk.records)])
    if begin == end:
        return chunk
    live, more = chunk.live.copy(), chunk.more.copy()
    live[hidden[begin:end] - chunk.first] = more[hidden[begin:end] - chunk.first] = False
    gone = set(hidden[begin:end].tolist())
    findings = [f for f in chunk.findings if f.record not in gone]
    return PoolChunk(chunk.file, chunk.first, chunk.records, live, more, findings)


def _patched(chunk: PoolChunk, images: dict[int, bytes], numbers: Rows, rows: Rows) -> PoolChunk:
    begin, end = np.searchsorted(numbers, [chunk.first, chunk.first + len(chunk.records)])
    if begin == end:
        return chunk
    at = numbers[begin:end] - chunk.first
    records, live, more = chunk.records.copy(), chunk.live.copy(), chunk.more.copy()
    records[at] = rows[begin:end]
    live[at] = rows["kind"][begin:end] == RecordKind.LIVE
    more[at] = rows["kind"][begin:end] == RecordKind.MORE
    findings = [f for f in chunk.findings if f.record not in images]
    return PoolChunk(chunk.file, chunk.first, records, live, more, findings)
