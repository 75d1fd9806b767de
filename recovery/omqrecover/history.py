"""The journal and its archive as one sequence of blocks, oldest first, with what is missing.

Like storage.journal_reader, but over several directories, from the very beginning, and read-only.
Files of another instance, renamed ones and newer ones are left out; the surveys report them.

Invariants: 1. LSNs of the blocks that come out ascend; 2. blocks that a later file declares void
never come out; 3. `gaps` lists every LSN range between the first and the last frame that is missing
although it must have been there (void numbers are none).

Errors: DiskError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from omq.format.findings import Finding, Kind
from omq.format.journal import FileHeader
from omq.storage.journal_scan import Block
from omqtools.omqrecover.archive import ArchivedFile, list_archived

Progress = Callable[[str], None]


class History:
    """Iterate for the blocks; afterwards the other attributes tell the rest."""

    def __init__(self, directories: list[Path], uuid: bytes, progress: Progress, *,
                 bodies: bool = True) -> None:
        """`bodies`: whether payloads are of interest; what is missing of them is not seen else."""
        self._bodies = bodies
        self.files = [each for each in list_archived(directories, uuid) if _is_usable(each, uuid)]
        self.findings: list[Finding] = []
        self.ends: dict[int, Finding] = {}  # how each file ended
        self.gaps: list[tuple[int, int]] = []  # (first LSN, last LSN) missing
        self.needed_lsn = 0  # LSN up to which the caller knows that there were frames
        self.first_lsn = 0  # of the first block
        self.last_lsn = 0
        self.durable_lsn = 0  # highest LSN that some block or file says was durable
        self.last_number = 0  # position after the last block
        self.last_offset = 0
        self.next_qpool = 1
        self.epoch = 0
        self.blocks: dict[int, int] = {}  # by file
        self.uuid = uuid
        self.archive: Path | None = None  # directory of retired files, if the caller has one
        self.newest = 0  # number of the newest file, where the spool has noted it
        self._progress = progress

    @property
    def complete(self) -> bool:
        """Does it begin with the first frame of the instance, with nothing missing? After the
        iteration."""
        return self.first_lsn == 1 and not self.missing_since(0)

    def missing_since(self, lsn: int) -> bool:
        """Is any LSN after this one missing, in the middle or at the end?"""
        return (self.last_lsn < self.needed_lsn or self.unfollowed
                or any(last > lsn for _, last in self.gaps))

    @property
    def unfollowed(self) -> bool:
        """Is the last file one that was retired? Then there was another one after it, unless the
        note of the spool says that this is the newest."""
        return bool(self.files) and self.files[-1].path.parent == self.archive \
            and self.files[-1].number != self.newest

    def __iter__(self) -> Iterator[Block]:
        for i, file in enumerate(self.files):
            self._progress(f"reading {file.path.name} ({i + 1} of {len(self.files)})")
            follower = next((f.follows for f in self.files[i + 1 :] if f.follows), None)
            yield from self._scan(file, follower)

    def _scan(self, file: ArchivedFile, follower: FileHeader | None) -> Iterator[Block]:
        header = file.follows
        if header is not None:
            self._join(header)
        limit = follower.follows_lsn if follower else None
        joined = follower is not None and follower.follows_number == file.number
        known = max(self.durable_lsn, limit or 0 if joined else 0)
        scan = file.scan(self.uuid, self.last_lsn, known, limit, bodies=self._bodies)
        expected = self.last_lsn if header is None else max(self.last_lsn, header.first_lsn - 1)
        self.blocks[file.number] = 0
        for block in scan:
            first = block.header.first_lsn
            if not self.first_lsn:
                self.first_lsn = first
                if header is None:  # nobody says where it began
                    expected = first - 1
            if first > expected + 1 and not _was_torn(scan.findings, expected + 1):
                self.gaps.append((expected + 1, first - 1))
            expected = self.last_lsn = block.header.last_lsn
            self.last_number, self.last_offset = file.number, scan.offset
            self.next_qpool = max(self.next_qpool, block.header.next_qpool)
            self.epoch = max(self.epoch, block.header.epoch)
            self.blocks[file.number] += 1
            yield block
        if scan.header is not None:
            self.last_number, self.last_offset = file.number, scan.offset
        self.findings += scan.findings
        if scan.end is not None:
            self.ends[file.number] = scan.end
            if scan.end.kind is Kind.CORRUPT:
                self.gaps.append((expected + 1, scan.known))
        self.durable_lsn = max(self.durable_lsn, min(scan.known, scan.last_lsn))

    def _join(self, header: FileHeader) -> None:
        """A file that follows more than was found before it shows a gap. What is first here may
        follow anything."""
        self.next_qpool = max(self.next_qpool, header.next_qpool)
        self.epoch = max(self.epoch, header.epoch)
        if self.first_lsn and header.follows_lsn > self.last_lsn \
                and not (self.gaps and self.gaps[-1][1] >= header.follows_lsn):
            self.gaps.append((self.last_lsn + 1, header.follows_lsn))


def _is_usable(file: ArchivedFile, uuid: bytes) -> bool:
    header = file.header
    if isinstance(header, FileHeader):
        return header.uuid == uuid and header.number == file.number
    return header.kind in (Kind.CORRUPT, Kind.FOREIGN)  # by its name it is ours: read its blocks


def _was_torn(findings: list[Finding], lsn: int) -> bool:
    """Whether the hole at this LSN is one that nobody was promised."""
    last = findings[-1] if findings else None
    return last is not None and last.kind is Kind.TORN and last.lsn == lsn
