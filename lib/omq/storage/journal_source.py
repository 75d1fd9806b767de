"""The journal of a primary as its standbys are sent it: where their histories agree, and the pieces
from there on.

A standby says its position: file (number, term, epoch), place, last LSN, and the CRC of its last
block. Is that in the history here, blocks follow; else `agree` says how far its history is that of
this spool, it takes away what is above, and asks again. So what a primary wrote, sent, and lost by
a power cut is void at its standbys, too.

What is sent lies whole in its file, and is durable here or is being synced (the caller says how far
each of them is): each block as it is, and before the first of a file its header page, also of a
file without a block: the next one follows it.

A hole in the journal here is passed on as one, where it is not damage: a power cut has lost a block
that was written without a sync, of frames that are history, before one that was synced (ADR 0011).

Invariants: 1. nothing is written; 2. pieces follow each other without another hole, or an error
says that there is one here.

Errors: StandbyDiverged: what the standby needs is not here any more, or is damaged; DiskError.
"""

from __future__ import annotations

from collections import deque

from omq.base.errors import StandbyDiverged
from omq.base.paths import SpoolPaths
from omq.format.findings import Kind
from omq.format.journal import FileHeader
from omq.format.standby import Piece, PieceKind, Synced
from omq.storage.files import read_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_follower import JournalFollower
from omq.storage.journal_reader import load_file, read_entry
from omq.storage.journal_scan import Block, FileScan


class JournalSource:
    """See the module. `agree` first, until it says FOLLOW, then `read`."""

    def __init__(self, paths: SpoolPaths, uuid: bytes, term: int) -> None:
        self._paths, self._uuid, self._term = paths, uuid, term
        self._follower = JournalFollower(paths, uuid)
        self._announced = 0  # the file whose header the standby has

    def agree(self, mark: Synced) -> Piece:
        """FOLLOW, or BACK with the file and LSN up to which the standby's history is ours."""
        numbers = numbers_in(self._paths.journal)
        if not numbers or mark.number < numbers[0]:
            raise self._gone(mark.number, "that file is not kept here any more")
        header = read_entry(self._paths, mark.number, self._uuid).header if (
            mark.number in numbers) else None
        if header is None or (header.term, header.epoch) != (mark.term, mark.epoch):
            before = [number for number in numbers if number < mark.number]
            if not before:
                raise self._gone(mark.number, "that file is another one here")
            return Piece(PieceKind.BACK, self._term, before[-1])
        last = self._last_block(header, mark, numbers)
        lsn = last.header.last_lsn if last is not None else header.first_lsn - 1
        if lsn < mark.lsn:
            return Piece(PieceKind.BACK, self._term, mark.number, lsn=lsn)
        offset = last.offset + last.header.length if last is not None else header.page
        crc = int.from_bytes(last.data[4:8], "little") if last is not None else 0
        if (lsn, offset, crc) != (mark.lsn, mark.offset, mark.last_crc):
            raise self._gone(mark.number, f"its block up to LSN {mark.lsn} is another one here")
        self._follower.close()
        self._follower = JournalFollower(self._paths, self._uuid, mark.number, mark.offset,
                                         mark.lsn)
        self._announced = mark.number
        return Piece(PieceKind.FOLLOW, self._term, mark.number, mark.offset, mark.lsn)

    def _last_block(self, header: FileHeader, mark: Synced, numbers: list[int]) -> Block | None:
        """The last block of the mark's file that is not above the mark, and not void here."""
        path = self._paths.journal / file_name(header.number)
        later = [number for number in numbers if number > header.number]
        follower = read_entry(self._paths, later[0], self._uuid).header if later else None
        void = follower is not None and follower.follows_number == header.number
        limit = min(mark.lsn, follower.follows_lsn) if void and follower is not None else mark.lsn
        scan = FileScan(load_file(path), header.number, self._uuid, name=path.name, limit=limit)
        last = deque(scan, maxlen=1)
        for found in scan.findings:
            if found.kind is not Kind.TORN:
                raise self._gone(header.number, found.reason)
        return last[0] if last else None

    def read(self, up_to_lsn: int, bytes_max: int, durable: int | None = None, within: int = 0
             ) -> list[Piece]:
        """What follows, up to an LSN that is written here; about so many bytes. `durable`: so far
        it is durable; None: all of it. `within`: as JournalFollower.read has it."""
        durable = up_to_lsn if durable is None else durable
        pieces: list[Piece] = []
        last, blocks = self._follower.last_lsn, self._follower.read(up_to_lsn, bytes_max, within)
        for found in self._follower.findings:
            if found.kind is not Kind.TORN:
                raise self._gone(self._follower.number, f"{found.file}: {found.reason}")
        self._follower.findings.clear()
        for block in blocks:
            files = self._files_up_to(block.number, durable) if (
                block.number > self._announced) else []
            last = files[-1].lsn if files else last
            pieces += files
            if block.header.first_lsn != last + 1:
                pieces.append(Piece(PieceKind.HOLE, self._term, block.number, block.offset,
                                    block.header.first_lsn - 1, durable))
            last = block.header.last_lsn
            pieces.append(Piece(PieceKind.BLOCK, self._term, block.number, block.offset, last,
                                durable, block.data))
        return pieces

    def _files_up_to(self, number: int, durable: int) -> list[Piece]:
        """Header pages of the files that the standby does not have, up to this one."""
        out = []
        for each in numbers_in(self._paths.journal):
            if not self._announced < each <= number:
                continue
            header = read_entry(self._paths, each, self._uuid).header
            if header is None:
                raise self._gone(each, "its header is damaged")
            page = read_file(self._paths.journal / file_name(each), header.page)
            out.append(Piece(PieceKind.FILE, self._term, each, 0, header.first_lsn - 1, durable,
                             page))
            self._announced = each
        return out

    def _gone(self, number: int, reason: str) -> StandbyDiverged:
        return StandbyDiverged(path=self._paths.journal / file_name(number),
                               reason=f"a standby goes on in this file of its primary: {reason}")

    def close(self) -> None:
        """Close the files."""
        self._follower.close()
