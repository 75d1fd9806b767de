"""The journal as a sequence of files: scanned at a start and by tools, followed by pool.writer.

Each file names the file and the LSN that it follows. Blocks of earlier files above that LSN are
void (recovery had rejected them), and blocks up to it were accepted, so their absence is damage.

Invariants:
1. LSNs of the blocks that come out ascend over all files.
2. Nothing here writes, but `settle`: before recovery reads a file, it syncs it and drops its page
   cache, so that what is read IS on the disk: also after a failed sync, whose pages the kernel
   calls clean, and after a kill, which leaves pages that were never synced.
3. A prepared file without its final name is not part of the journal.

Errors: DiskError for a file that cannot be opened or settled; everything else is a Finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.paths import SpoolPaths
from omq.format.findings import Finding, Kind
from omq.format.journal import FILE_HEADER, FileHeader, decode_file_header
from omq.storage.files import open_file, read_file, read_salvaged
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_scan import Block, FileScan

SALVAGE_PAGE: Final = 4096  # unit in which an unreadable file is read around its bad places


def load_file(path: Path, *, settle: bool = False) -> bytes:
    """A journal file's bytes; unreadable pages come as damage. FileNotFoundError, DiskError."""
    file = open_file(path, write=settle)
    try:
        if settle:
            file.settle()
        return read_salvaged(file, file.size(), 0, SALVAGE_PAGE)
    finally:
        file.close()


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A journal file of the directory; `header` is None where its header page is not valid."""

    number: int
    header: FileHeader | None


def read_entry(paths: SpoolPaths, number: int, uuid: bytes) -> FileEntry:
    """The header of a journal file. FileNotFoundError, DiskError."""
    header = decode_file_header(read_file(paths.journal / file_name(number), FILE_HEADER.size))
    ours = isinstance(header, FileHeader) and header.uuid == uuid and header.number == number
    return FileEntry(number, header if isinstance(header, FileHeader) and ours else None)


def void_up_to(paths: SpoolPaths, uuid: bytes, lsn: int) -> int:
    """`lsn`, or after it the last number before the next one that counts: where a start has
    skipped numbers, what is after a checkpoint begins after them."""
    for number in reversed(numbers_in(paths.journal)):
        header = read_entry(paths, number, uuid).header
        if header is not None and header.follows_lsn <= lsn:
            return max(lsn, header.first_lsn - 1)
    return lsn


class JournalScan:
    """Iterate for all valid blocks from a position on; then `end`, `findings`, `last_lsn`.

    `after_lsn`: LSN that the position follows (poolctrl); 0 with from_offset 0: from a file's
    start. `end`: how the last file ended: END, TORN (expected after a crash), CORRUPT, NEWER,
    FOREIGN. `last_number`, `last_offset`: the position after the last valid block. `durable_lsn`:
    highest LSN that some block or file says was durable; a block above it may be an append that
    nobody was promised.
    """

    def __init__(self, paths: SpoolPaths, uuid: bytes, from_number: int = 0, from_offset: int = 0,
                 after_lsn: int = 0, *, settle: bool = False) -> None:
        self.findings: list[Finding] = []
        self.end: Finding | None = None
        self.last_lsn = after_lsn
        self.durable_lsn = after_lsn
        self.last_number = from_number
        self.last_offset = from_offset
        self._paths = paths
        self._uuid = uuid
        self._settle = settle
        self._first = from_number

    def __iter__(self) -> Iterator[Block]:
        numbers = [n for n in numbers_in(self._paths.journal) if n >= self._first]
        if self._first and self._first not in numbers:
            self.findings.append(Finding(Kind.GAP, "the journal file of the checkpoint is missing",
                                         file_name(self._first), lsn=self.last_lsn + 1))
        entries = [read_entry(self._paths, number, self._uuid) for number in numbers]
        for i, entry in enumerate(entries):
            follower = next((e.header for e in entries[i + 1 :] if e.header), None)
            yield from self._scan_one(entry, follower)
            if self.end is not None and self.end.kind in (Kind.NEWER, Kind.FOREIGN):
                return

    def _scan_one(self, entry: FileEntry, follower: FileHeader | None) -> Iterator[Block]:
        name = file_name(entry.number)
        start = self.last_offset if entry.number == self._first else 0
        after = self.last_lsn
        if entry.header and not start:
            self._check_join(entry.header, name)
        limit = follower.follows_lsn if follower else None
        # Up to there this file must have everything, unless a file between them is missing.
        joined = follower is not None and follower.follows_number == entry.number
        scan = FileScan(load_file(self._paths.journal / name, settle=self._settle), entry.number,
                        self._uuid, name=name, start=start, after=after,
                        known=max(self.durable_lsn, limit or 0 if joined else 0), limit=limit)
        for block in scan:
            self.last_lsn, self.last_offset = scan.last_lsn, scan.offset
            self.last_number = entry.number
            yield block
        self.findings += scan.findings
        self.end = scan.end
        self.durable_lsn = max(self.durable_lsn, min(scan.known, scan.last_lsn))
        if scan.header is not None:
            self.last_number, self.last_offset = entry.number, scan.offset
            self.last_lsn = max(self.last_lsn, scan.last_lsn)

    def _check_join(self, header: FileHeader, name: str) -> None:
        if self.last_lsn and header.follows_lsn > self.last_lsn:
            reason = f"follows LSN {header.follows_lsn}, found up to {self.last_lsn}"
            self.findings.append(Finding(Kind.GAP, reason, name, lsn=self.last_lsn + 1))


def scan_journal(paths: SpoolPaths, uuid: bytes, from_number: int = 0, from_offset: int = 0,
                 after_lsn: int = 0, *, settle: bool = False) -> JournalScan:
    """A scan over the journal directory; `settle` only for a start that holds the manager lock."""
    return JournalScan(paths, uuid, from_number, from_offset, after_lsn, settle=settle)
