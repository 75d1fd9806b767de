"""One journal file, block by block: what is valid, where it ends, and what is damaged.

The scan judges a place that holds no valid block ("hole") by what lies after it (DESIGN 3.4):

    zeros, nothing valid after them                   END      the normal end
    bad bytes, nothing valid after, none known        TORN     stop: an append that the crash cut
    a later block says "durable up to here" or more   CORRUPT  report, go on after the hole
    valid blocks after, none says so, one synced      TORN     report, go on after the hole
    valid blocks after, none was synced               TORN     stop: nobody was promised them

In the fourth case the hole can only be unsynced blocks (non-persistent frames), while the synced
block after it may have been acknowledged: dropping it could lose a message, keeping it cannot
halve one.

Invariants: 1. bytes never raise, they give findings; 2. LSNs of the blocks that come out ascend; 3.
no block above `limit` comes out: a later file says that recovery declared those numbers void.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from omq.base.arrays import Rows
from omq.format.findings import Finding, Kind
from omq.format.journal import (
    BLOCK,
    BLOCK_MAGIC,
    FRAME,
    FRAME_FLAGS,
    BlockFlag,
    BlockHeader,
    FileHeader,
    FrameFlag,
    decode_block,
    decode_file_header,
    frame_bytes,
)

_MAGIC: Final = int.from_bytes(BLOCK_MAGIC, "little")
_NO_CONTAINER: Final = bytes(each for each in range(256) if not each & FrameFlag.CONTAINER)
PAGE_GUESS: Final = 4096  # the default; only used where the header page is damaged


@dataclass(slots=True)
class Block:
    """A valid block: where it lies and its bytes. Payloads are unchecked; each has its own CRC."""

    number: int  # journal file
    offset: int  # of the block in the file
    header: BlockHeader
    data: memoryview
    payload_at: int  # offset in the file of its first payload byte
    _frames: Rows | None = None

    @classmethod
    def of(cls, number: int, offset: int, header: BlockHeader, data: memoryview) -> Block:
        return cls(number, offset, header, data, offset + header.payload_at)

    @property
    def frames(self) -> Rows:
        """Frame headers (format.journal.FRAME), shape (count,). Made when somebody asks: who sends
        a block elsewhere does not."""
        if self._frames is None:
            self._frames = FRAME.array(self.data, self.header.count, BLOCK.size)
        return self._frames

    def of_frames(self, frames: Rows) -> Block:
        """The same block with some of its frames alone."""
        return replace(self, _frames=frames)

    def payload(self, offset: int, length: int) -> bytes:
        """Payload bytes of a frame by its `offset` and `length`; fewer at the block's end."""
        at = self.header.payload_at
        end = min(offset + length, self.header.payload)
        return bytes(self.data[at + offset : at + end])


def has_containers(data: bytes | memoryview, count: int) -> bool:
    """Is there a message in this block of `count` frames that is born with a container?"""
    return bool(frame_bytes(data, count, FRAME_FLAGS).translate(None, _NO_CONTAINER))


class FileScan:
    """Iterate for the valid blocks from `start` on; afterwards `end` and `findings` say the rest.

    after:  LSN of the last block before `start` (0: what the file's header says)
    known:  LSN up to which blocks are known durable from elsewhere
    limit:  LSNs above are void (None: no limit)
    """

    def __init__(self, data: bytes | memoryview, number: int, uuid: bytes, *, name: str = "",
                 start: int = 0, after: int = 0, known: int = 0, limit: int | None = None) -> None:
        self.data = memoryview(data)
        self.number = number
        self.name = name
        self.findings: list[Finding] = []
        self.end: Finding | None = None
        self.known = known
        self.limit = limit
        self._uuid = uuid
        self.header = self._read_header()
        self.page = self.header.page if self.header else PAGE_GUESS
        self.offset = start or self.page  # after the last valid block
        first = self.header.first_lsn - 1 if self.header else 0
        self.last_lsn = after if start and after else max(after, first)
        # Without a number to go on from, the first block is taken as it comes.
        self._continuous = bool(after) or (self.header is not None and not start)

    def _read_header(self) -> FileHeader | None:
        header = decode_file_header(self.data)
        if isinstance(header, FileHeader):
            if header.uuid != self._uuid:
                self.end = self._finding(Kind.FOREIGN, "journal file of another instance", 0)
            elif header.number != self.number:
                self.end = self._finding(Kind.FOREIGN, f"journal file {header.number}, renamed", 0)
            return header
        if header.kind in (Kind.END, Kind.SHORT, Kind.NEWER):
            self.end = self._finding(header.kind, header.reason, 0)
        else:  # its name says that it is ours, so a wrong magic is damage
            self.findings.append(self._finding(Kind.CORRUPT, header.reason, 0, PAGE_GUESS))
        return None

    def _finding(self, kind: Kind, reason: str, offset: int, length: int = 0, lsn: int = 0
                 ) -> Finding:
        return Finding(kind, reason, self.name, offset, length, lsn=lsn)

    def __iter__(self) -> Iterator[Block]:
        while self.end is None:
            if self.limit is not None and self.last_lsn >= self.limit:
                self.end = self._finding(Kind.END, "what follows is void", self.offset)
                return
            found = self._block_at(self.offset)
            if isinstance(found, Finding):
                self._judge_hole(found)
                continue
            if self.limit is not None and found.first_lsn > self.limit:
                self._judge_hole(self._finding(Kind.END, "void block", self.offset))
                continue
            yield self._accept(found)

    def _accept(self, header: BlockHeader) -> Block:
        at, lost = self.offset, header.first_lsn - self.last_lsn - 1
        if lost and self._continuous and not self._explained(at):
            reason = f"LSN {self.last_lsn + 1} to {header.first_lsn - 1} are missing"
            self.findings.append(self._finding(Kind.GAP, reason, at, lsn=self.last_lsn + 1))
        self.offset = at + header.length
        self.last_lsn = header.last_lsn
        self._continuous = True
        self.known = max(self.known, header.durable)
        return Block.of(self.number, at, header, self.data[at : self.offset])

    def _explained(self, at: int) -> bool:
        """Whether the last finding is the hole that ends here."""
        last = self.findings[-1] if self.findings else None
        return last is not None and last.length > 0 and last.offset + last.length == at

    def _block_at(self, at: int) -> BlockHeader | Finding:
        found = decode_block(self.data, at, self._uuid, self.page)
        if isinstance(found, Finding):
            # The file's header says which version wrote it: a newer block in it is damage.
            kind = Kind.END if found.kind is Kind.END else Kind.CORRUPT
            return self._finding(kind, found.reason, at, found.length, found.lsn)
        own = self.header
        if found.number != self.number or (own and (found.epoch, found.term)
                                           != (own.epoch, own.term)):
            reason = f"block of file {found.number}, term {found.term}, epoch {found.epoch}"
            return self._finding(Kind.CORRUPT, reason, at, found.length)
        if found.count == 0 or found.first_lsn <= self.last_lsn:
            return self._finding(Kind.CORRUPT, "block is out of order", at, found.length)
        return found

    def _judge_hole(self, hole: Finding) -> None:
        """Decide by the table above: set `end`, or report and move to the next valid block."""
        at, first_lost = self.offset, self.last_lsn + 1
        later = self._valid_behind(at)
        damage = max([self.known, *(header.durable for _, header in later)]) >= first_lost
        promised = any(not header.flags & BlockFlag.UNSYNCED for _, header in later)
        if later and (damage or promised):
            to, header = later[0]
            kind = Kind.CORRUPT if damage else Kind.TORN
            reason = f"{hole.reason}; LSN {first_lost} to {header.first_lsn - 1} are lost"
            self.findings.append(self._finding(kind, reason, at, to - at, first_lost))
            self.offset = to
        elif damage:
            reason = f"{hole.reason}; LSN {first_lost} to {self.known} are lost"
            rest = len(self.data) - at
            self.end = self._finding(Kind.CORRUPT, reason, at, rest, first_lost)
            self.findings.append(self.end)
        elif hole.kind is Kind.END and not later:
            self.end = hole
        else:
            self.end = self._finding(Kind.TORN, hole.reason, at, hole.length, first_lost)

    def _valid_behind(self, at: int) -> list[tuple[int, BlockHeader]]:
        """(offset, header) of the valid blocks after a bad place, in order."""
        found: list[tuple[int, BlockHeader]] = []
        free_from = at + self.page  # a page inside an accepted block is payload, not a block
        for offset in self._candidates(at):
            if offset < free_from:
                continue
            header = self._block_at(offset)
            if isinstance(header, Finding) or (self.limit is not None
                                               and header.last_lsn > self.limit):
                continue
            if not found or header.first_lsn > found[-1][1].last_lsn:
                found.append((offset, header))
                free_from = offset + header.length
        return found

    def _candidates(self, at: int) -> list[int]:
        """Offsets of pages behind `at` that begin like a block; first the one that the bad block's
        own length points to, so that its payload is not taken for blocks."""
        pages = len(self.data) // self.page
        words = np.frombuffer(self.data, dtype="<u4", count=pages * self.page // 4)
        hits = np.flatnonzero(words[:: self.page // 4] == _MAGIC) * self.page
        offsets = [int(offset) for offset in hits if offset > at]
        behind = at + self.claimed_length(at)
        if behind in offsets and not isinstance(self._block_at(behind), Finding):
            return [offset for offset in offsets if offset >= behind]
        return offsets

    def claimed_length(self, at: int) -> int:
        """What the header of a block that is not valid says of its length."""
        if len(self.data) - at < BLOCK.size:
            return 0
        return int(BLOCK.as_dict(self.data, at)["length"])


def scan_file(data: bytes | memoryview, number: int, uuid: bytes, *, name: str = "") -> FileScan:
    """The scan of a whole journal file's bytes."""
    return FileScan(data, number, uuid, name=name)
