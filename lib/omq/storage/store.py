"""Store files: payloads that live longer than the journal file they came in.

One writer, pool.writer. Each start and each `store_file_bytes` begin a new file; which entries are
live and when a file is compacted is the caller's business (it journals where the payloads went).

Invariants:
1. A location is given to others only after `sync` returned.
2. After a sync the next entry begins on a new page: no later write touches a durable sector.
3. File numbers are never used twice: the file with the highest number is emptied instead of
   removed, so a reader that keeps files open never takes one for another.

In the middle of a crash: unsynced entries are garbage that no location names.
Errors: DiskError (latched, also of a sync on a full disk); SpoolFull from `append`, `append_many`,
`sync` and `close`: what was appended after the last sync is gone, all before it stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from omq.base import clock
from omq.base.checksum import crc32c
from omq.base.errors import SpoolFull
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.format.findings import Finding, Kind
from omq.format.store import (
    ALIGNMENT,
    ENTRY,
    HEADER_BYTES,
    STORE_MAGIC,
    Entry,
    StoreHeader,
    decode_entry,
    decode_header,
    encode_entries,
    padded_many,
)
from omq.storage import durable
from omq.storage.disk import Buffer
from omq.storage.files import File, open_file, read_salvaged, write_new_file

if TYPE_CHECKING:
    from omq.base.arrays import Vector

FLUSH_BYTES: Final = 1 << 20  # payloads are collected up to here, then written with one call
ENTRIES_MAX: Final = 4096  # of these, which bounds what is added up for one call
_PADDING: Final = [bytes(-length % ALIGNMENT) for length in range(ALIGNMENT)]
_NAME = re.compile(r"([0-9]{10})\.sto")
_PAGE: Final = 4096  # unit of reading around bad places, and of the search behind zeros


def file_name(number: int) -> str:
    """`0000000042.sto`."""
    return f"{number:010d}.sto"


def store_numbers(paths: SpoolPaths) -> list[int]:
    """Numbers of the store files, ascending."""
    found = (_NAME.fullmatch(name) for name in durable.list_directory(paths.store))
    return sorted(int(match[1]) for match in found if match)


class StoreWriter:
    """Appends payloads; `number` and `offset` say where the next one goes."""

    def __init__(self, paths: SpoolPaths, settings: Settings, uuid: bytes) -> None:
        self.number = max(store_numbers(paths), default=0)
        self.offset = 0
        self._paths = paths
        self._uuid = uuid
        self._file_bytes = settings.store_file_bytes
        self._page = settings.journal_page_bytes
        self._file: File | None = None
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self._unsynced = False
        self._synced = 0  # bytes of the file that locations may name
        self._before = 0  # the same before the last sync

    def append(self, qpool: int, payload: Buffer) -> tuple[int, int]:
        """Add a payload: the number of the file and the offset of the payload in it. Neither counts
        before `sync`."""
        import numpy as np

        numbers, offsets = self.append_many(np.array([qpool]), [payload],
                                            np.array([crc32c(payload)]))
        return int(numbers[0]), int(offsets[0])

    def append_many(self, qpools: Vector, payloads: Sequence[Buffer], crcs: Vector
                    ) -> tuple[Vector, Vector]:
        """As `append`, for payloads whose CRC-32C are known: the numbers and the offsets."""
        import numpy as np  # clients know this module, and need none

        lengths = np.fromiter(map(len, payloads), dtype=np.int64, count=len(payloads))
        needs = ENTRY.size + padded_many(lengths)
        entries = memoryview(encode_entries(qpools, lengths, crcs))
        numbers, offsets = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
        at = 0
        while at < len(lengths):
            first = int(needs[at])
            if self._file is None or self.offset + first > max(self._file_bytes,
                                                               first + self._page):
                self._next_file()
            # As many as the file takes, but not more than are written with one call.
            room = min(self._file_bytes - self.offset, FLUSH_BYTES - self._waiting_bytes)
            ends = np.cumsum(needs[at : at + ENTRIES_MAX])
            count = max(1, int(np.searchsorted(ends, room, side="right")))
            chosen = slice(at, at + count)
            numbers[chosen] = self.number
            offsets[chosen] = self.offset + ends[:count] - needs[chosen] + ENTRY.size
            pieces: list[Buffer] = [b""] * (3 * count)
            pieces[::3] = [entries[i : i + ENTRY.size] for i in range(
                at * ENTRY.size, (at + count) * ENTRY.size, ENTRY.size)]
            pieces[1::3] = payloads[chosen]
            pieces[2::3] = [_PADDING[length % ALIGNMENT] for length in lengths[chosen].tolist()]
            self._wait(pieces, int(ends[count - 1]))
            at += count
        return numbers, offsets

    def _wait(self, pieces: list[Buffer], size: int) -> None:
        self._waiting += pieces
        self._waiting_bytes += size
        self.offset += size
        self._unsynced = True
        if self._waiting_bytes >= FLUSH_BYTES:
            self._flush()

    def sync(self) -> None:
        """Make everything appended so far durable."""
        if self._file is None or not self._unsynced:
            return
        self._flush()
        self._file.sync_all()
        self._unsynced, self._before = False, self._synced
        self.offset = self._synced = -(-self.offset // self._page) * self._page

    def _flush(self) -> None:
        if self._waiting:
            assert self._file is not None
            one = self._waiting if len(self._waiting) == 3 else [b"".join(self._waiting)]
            try:
                self._file.write(one, self.offset - self._waiting_bytes, new=True)
            except SpoolFull:
                self._give_back()
                raise
            self._waiting, self._waiting_bytes = [], 0

    def take_back(self) -> None:
        """What the last sync made durable is named nowhere, and never will be: it goes. The caller
        knows that for certain. Of a sync that went into more than one file, what is in the last."""
        if self._file is not None and not self._unsynced:
            self._synced = self._before
            self._give_back()

    def _give_back(self) -> None:
        """The disk took no more: what came after the last sync is named nowhere and goes. A crash
        before the cut leaves dead bytes, as any does."""
        assert self._file is not None
        self._waiting, self._waiting_bytes, self._unsynced = [], 0, False
        self.offset = self._synced
        self._file.truncate(self._synced)

    def _next_file(self) -> None:
        self.close()
        number = self.number + 1
        header = StoreHeader(STORE_MAGIC, number, self._uuid, clock.wall_ns()).encode()
        path = self._paths.store / file_name(number)
        page = header.ljust(self._page, b"\0")  # the first entry shares no sector with the header
        self._file = write_new_file(path, [page], "store")
        self.number = number
        self.offset = self._synced = self._before = self._page

    def close(self) -> None:
        """Sync and close; appending goes on in a new file."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None


def remove_store_file(paths: SpoolPaths, number: int) -> bool:
    """Give the space of a store file back, when nothing in it is live; False when it was gone."""
    path = paths.store / file_name(number)
    durable.step("store.before_unlink", path)
    if number != max(store_numbers(paths), default=0):
        return durable.unlink(path)
    try:
        file = open_file(path, "store", write=True)
    except FileNotFoundError:
        return False
    try:
        file.truncate(HEADER_BYTES)
    finally:
        file.close()
    return True


def scan_store_file(paths: SpoolPaths, number: int, uuid: bytes
                    ) -> tuple[list[Entry], list[Finding]]:
    """Every entry in a store file, live or not, and what is damaged. FileNotFoundError."""
    name = file_name(number)
    file = open_file(paths.store / name)
    try:
        data = read_salvaged(file, file.size(), 0, _PAGE)
    finally:
        file.close()
    header = decode_header(data)
    if isinstance(header, StoreHeader) and header.uuid != uuid:
        header = Finding(Kind.FOREIGN, "store file of another instance")
    findings = [header] if isinstance(header, Finding) else []
    if findings and findings[0].kind in (Kind.FOREIGN, Kind.NEWER):
        return [], _named(findings, name)
    entries, at = [], HEADER_BYTES
    while at < len(data):
        found = decode_entry(data, at)
        if isinstance(found, Entry):
            entries.append(found)
            at = found.end
            continue
        if found.kind is not Kind.END:
            findings.append(found)
        at = (at // HEADER_BYTES + 1) * HEADER_BYTES  # zeros or damage: look on the next sector
    return entries, _named(findings, name)


def _named(findings: list[Finding], name: str) -> list[Finding]:
    return [Finding(f.kind, f.reason, name, f.offset, f.length) for f in findings]
