"""pool.writer's view of a journal that is being written: what is new since the last call.

The caller says how far the journal is durable (the index tells it); blocks up to there are complete
in their files, so a block that does not decode below that LSN is damage, not a race.

Invariants:
1. No block above `up_to_lsn` comes out; LSNs ascend; nothing comes out twice.
2. With nothing new a call costs one comparison; else it reads windows, not whole files.
3. A damaged place is judged by the scan of storage/journal_scan.py on the whole file, as at a
   start.

Errors: DiskError for a file that cannot be opened; damage is added to `findings`.
"""

from __future__ import annotations

from typing import Final

from omq.base.paths import SpoolPaths
from omq.format.findings import Finding, Kind
from omq.format.journal import BLOCK, BlockHeader, decode_block
from omq.storage.files import File, open_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import FileEntry, load_file, read_entry
from omq.storage.journal_scan import PAGE_GUESS, Block, FileScan

WINDOW_BYTES: Final = 1 << 20  # one read; larger blocks are read in one piece of their own size
FIRST_BYTES: Final = 1 << 13
"""The first read of a call: who follows closely finds one group, and after it a file of zeros.
Each further read of the call takes GROWTH times as much."""
GROWTH: Final = 8


class JournalFollower:
    """`read` goes on where it stopped: `number`, `offset`, `last_lsn` are the position.

    Start with number 0 for the first file there is; offset 0 means the first block of the file."""

    def __init__(self, paths: SpoolPaths, uuid: bytes, number: int = 0, offset: int = 0,
                 last_lsn: int = 0) -> None:
        self.number = number
        self.offset = offset
        self.last_lsn = last_lsn
        self.findings: list[Finding] = []
        self._paths = paths
        self._uuid = uuid
        self._page = 0
        self._epoch = (0, 0)  # term and number
        self._file: File | None = None

    def read(self, up_to_lsn: int, bytes_max: int, within: int = 0) -> list[Block]:
        """The next blocks up to that LSN, together about `bytes_max`; one at least, if any.
        `within`: the file in which that LSN lies, as the manager that wrote it says; who is in it
        already need not look whether another one follows. 0: nobody says."""
        blocks: list[Block] = []
        left = bytes_max
        window = FIRST_BYTES
        while self.last_lsn < up_to_lsn and left > 0:
            if self._file is None and not self._open_first():
                break
            following = None if within and within == self.number else self._following()
            target = self._target(up_to_lsn, following)
            if self.last_lsn < target:
                more = self._advance(target, min(left, window),
                                     known=target if self._must(following) else 0)
                window = min(WINDOW_BYTES, window * GROWTH)
                blocks += more
                left -= sum(block.header.length for block in more)
                if more:
                    continue
            if following is None:
                break
            self._enter(following)
        return blocks

    def _following(self) -> FileEntry | None:
        later = [n for n in numbers_in(self._paths.journal) if n > self.number]
        return read_entry(self._paths, later[0], self._uuid) if later else None

    @staticmethod
    def _target(up_to_lsn: int, following: FileEntry | None) -> int:
        """The last LSN to take from the current file; above it a later file says it is void."""
        if following is None or following.header is None:
            return up_to_lsn
        return min(up_to_lsn, following.header.follows_lsn)

    def _must(self, following: FileEntry | None) -> bool:
        """Whether the current file must hold everything up to the target: it is the last one, or
        the file after it says that it follows this one."""
        if following is None:
            return True
        return following.header is not None and following.header.follows_number == self.number

    def _open_first(self) -> bool:
        """Open the file of the starting position, or the next one when that is not there."""
        there = [n for n in numbers_in(self._paths.journal) if n >= self.number]
        if not there:
            return False
        at, after = self.offset, self.last_lsn
        if self.number and there[0] != self.number:
            self._report(Kind.GAP, "journal file is missing")
            at = 0
        self._enter(read_entry(self._paths, there[0], self._uuid))
        if at > self._page:
            self.offset, self.last_lsn = at, after or self.last_lsn
        return True

    def _enter(self, entry: FileEntry) -> None:
        self.close()
        self.number, self.offset = entry.number, 0
        self._file = open_file(self._paths.journal / file_name(entry.number))
        if entry.header is None:
            self._report(Kind.CORRUPT, "file header is not valid")
            self._page, self._epoch = self._page or PAGE_GUESS, (0, 0)
        else:
            self._page = entry.header.page
            self._epoch = entry.header.term, entry.header.epoch
            if self.last_lsn and entry.header.follows_lsn > self.last_lsn:
                self._report(Kind.GAP, f"follows LSN {entry.header.follows_lsn}")
            self.last_lsn = max(self.last_lsn, entry.header.first_lsn - 1)
        self.offset = self._page

    def _report(self, kind: Kind, reason: str) -> None:
        self.findings.append(Finding(kind, reason, file_name(self.number), self.offset,
                                     lsn=self.last_lsn + 1))

    def _advance(self, target: int, bytes_max: int, *, known: int) -> list[Block]:
        """Blocks of the current file up to `target`; an empty list when it has no more of them."""
        data = self._window(bytes_max)
        blocks: list[Block] = []
        at = 0
        while self.last_lsn < target:
            found = decode_block(data, at, self._uuid, self._page)
            if not isinstance(found, BlockHeader) or not self._is_next(found):
                break
            part = memoryview(data)[at : at + found.length]
            blocks.append(Block.of(self.number, self.offset, found, part))
            at += found.length
            self.offset += found.length
            self.last_lsn = found.last_lsn
        return blocks or self._rescue(target, known)

    def _window(self, bytes_max: int) -> bytes:
        assert self._file is not None
        data = self._file.read(max(bytes_max, self._page), self.offset)
        claimed = BLOCK.as_dict(data)["length"] if len(data) >= BLOCK.size else 0
        if claimed <= len(data):
            return data
        return self._file.read(min(claimed, self._file.size() - self.offset), self.offset)

    def _is_next(self, header: BlockHeader) -> bool:
        return (header.first_lsn == self.last_lsn + 1 and header.count > 0
                and header.number == self.number and (header.term, header.epoch) == self._epoch)

    def _rescue(self, target: int, known: int) -> list[Block]:
        """Something is wrong at the position: judge the whole file, as a start would."""
        path = self._paths.journal / file_name(self.number)
        data = load_file(path)
        # By itself first: a block that was written without a sync and lost in a power cut is no
        # damage, though all that follows it is durable by now (journal_scan, the fourth case).
        for sure in dict.fromkeys((0, known)):
            scan = FileScan(data, self.number, self._uuid, name=path.name, start=self.offset,
                            after=self.last_lsn, known=sure, limit=target)
            blocks = list(scan)
            if scan.last_lsn >= target:
                break
        self.findings += scan.findings
        if scan.header is not None or blocks:
            self.offset = scan.offset
            # What is lost up to a known LSN has been reported; go on after it.
            self.last_lsn = max(scan.last_lsn, known)
        return blocks

    def close(self) -> None:
        """Forget the open file; the position stays."""
        if self._file is not None:
            self._file.close()
            self._file = None
