"""The journal of a standby: the blocks of its primary, each at its place, and how far they are on
this disk.

`write_block` and `begin_file` take what comes; `sync` makes all of it durable at once, and only
then may anybody be told. Where the blocks show by themselves that they are whole
(storage.mirror_chain) that is all; `note_soon` writes the mark later (storage.journal_synced). Else
the mark is noted and synced first: for groups with containers, holes, or payloads that fail their
CRC, and for the first group after a mark above which nothing counts. What does not follow is
refused before anything is written: a block belongs into the file that is open (number, epoch,
term), at the place where the last one ended, with the next LSN and the next number in its file.

Invariants:
1. The files up to the mark hold what the primary wrote, without a hole. Above it a start may find
   anything: it takes what follows and is whole, and takes the rest away before it asks from there
   (storage.mirror_start).
2. `redo_limit` is the smaller of what is synced here and what is known to be on the primary's disk.
   A standby may be ahead of its primary's disk; what the primary's next start does not find there
   is void, and must not have reached the pool here.
3. The mark goes down (`cut`, `back`) before what is above it is taken away, and never below
   `redo_limit` as it was: a primary that has lost what it said it had synced has another history.
4. A checkpoint of the pool comes after a synced mark (`note`): the pool has no way back, so what
   a start knows to be on both disks must not be less than what is in it.
5. A file is named in `newest` when it has its name, its header and the mark, before any block.

In the middle of a crash: what was synced and not noted yet counts as far as it shows that it is
whole, with all that was acknowledged, and the rest is sent again (storage.mirror_start, ADR 0219);
of each other step the start does the rest.

Errors: StreamBroken (a new connection mends it); StandbyDiverged (a new base is needed); DiskError
(latched); SpoolFull from `begin_file`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from omq.base.errors import StandbyDiverged, StreamBroken
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding, Kind
from omq.format.journal import (
    BlockHeader,
    FileHeader,
    Newest,
    decode_block,
    decode_file_header,
)
from omq.format.standby import Synced
from omq.storage import durable, journal_newest, journal_synced
from omq.storage.files import File, create_filled, open_file
from omq.storage.journal import PREPARED, file_name, numbers_in
from omq.storage.journal_reader import load_file, read_entry
from omq.storage.journal_scan import FileScan
from omq.storage.mirror_chain import is_certain
from omq.storage.mirror_start import mark_header, settle

Bytes = bytes | memoryview
FILE_BYTES_MAX: Final = 8 << 30  # as format.archive: twice what journal_file_bytes may say


class JournalMirror:
    """See the module. `mark`: what is synced; `number`, `offset`, `lsn`: after the last block that
    was written; `durable`: highest LSN known to be on the primary's disk."""

    def __init__(self, paths: SpoolPaths, uuid: bytes, *, peer: str = "the primary") -> None:
        self.peer = peer
        self._paths = paths
        self._uuid = uuid
        self._notes: File | None = None
        self._newest: File | None = None
        self._file: File | None = None
        self.mark = settle(paths, uuid)
        self._notes = journal_synced.open_synced(paths)
        self._newest = journal_newest.open_newest(paths)
        self.durable = self.mark.durable
        self._hole: tuple[int, int] | None = None  # before the next block: its place, LSN before it
        self._certain = True  # all blocks since the mark show that they are whole
        self._lazy = False  # the last mark that was noted is not synced
        self._owed = False  # `mark` is not noted
        self._enter()

    # position

    @property
    def redo_limit(self) -> int:
        """Up to here frames may reach the pool."""
        return min(self.mark.lsn, self.durable)

    @property
    def header(self) -> FileHeader:
        """Of the file that is open."""
        return self._header

    def _enter(self) -> None:
        """Open the file of the mark. StandbyDiverged: it does not hold what the mark says."""
        mark, path = self.mark, self._paths.journal / file_name(self.mark.number)
        self._header = mark_header(self._paths, self._uuid, mark)
        scan = FileScan(load_file(path), mark.number, self._uuid, name=path.name)
        last = deque(scan, maxlen=1)
        crc = int.from_bytes(last[0].data[4:8], "little") if last else 0
        damage = [each for each in scan.findings if each.kind is not Kind.TORN]
        if damage or (scan.last_lsn, scan.offset, crc) != (mark.lsn, mark.offset, mark.last_crc):
            told = "; ".join(each.reason for each in damage[:1])
            raise StandbyDiverged(path=path, reason=told or f"it ends at LSN {scan.last_lsn}, and "
                                  f"LSN {mark.lsn} was synced there")
        if self._file is not None:
            self._file.close()
        self._file = open_file(path, "journal", write=True)
        self.number, self.offset, self.lsn, self._hole = mark.number, mark.offset, mark.lsn, None
        self._sequence, self._crc = last[0].header.sequence + 1 if last else 0, crc

    def _broken(self, reason: str) -> StreamBroken:
        return StreamBroken(peer=self.peer, reason=reason)

    # what comes

    def note_durable(self, lsn: int) -> None:
        """The primary says that it has everything up to there on its disk."""
        self.durable = max(self.durable, lsn)

    def write_block(self, number: int, offset: int, data: Bytes) -> None:
        """A block at its place; it counts behind `sync`. StreamBroken."""
        assert self._file is not None
        header = self._header
        next_offset, before = self._hole or (self.offset, self.lsn)
        if (number, offset) != (self.number, next_offset):
            raise self._broken(f"a block of file {number} at {offset} where one of file "
                               f"{self.number} at {next_offset} follows")
        found = decode_block(data, 0, self._uuid, header.page)
        if isinstance(found, Finding):
            raise self._broken(f"file {number} at {offset}: {found.reason}")
        wrong = self._wrong(found, offset, before, len(data))
        if wrong:
            raise self._broken(f"file {number} at {offset}: {wrong}")
        self._certain = (self._certain and self._hole is None and is_certain(found, data))
        self._file.write([data], offset)
        self.offset, self.lsn, self._hole = offset + len(data), found.last_lsn, None
        self._sequence, self._crc = found.sequence + 1, int.from_bytes(data[4:8], "little")
        self.note_durable(found.durable)

    def skip(self, number: int, offset: int, lsn: int) -> None:
        """The primary's file has a hole that is not damage (storage.journal_source): the next
        block lies at `offset`, and begins after `lsn`. It counts with that block."""
        header = self._header
        if number != self.number or not self.offset <= offset < header.size or (
                offset % header.page or lsn <= self.lsn):
            raise self._broken(f"a hole of file {number} up to {offset}, LSN {lsn}, where file "
                               f"{self.number} goes on at {self.offset} behind LSN {self.lsn}")
        self._hole = offset, lsn

    def _wrong(self, block: BlockHeader, offset: int, before: int, length: int) -> str:
        header = self._header
        if (block.term, block.epoch, block.number) != (header.term, header.epoch, header.number):
            return (f"block of file {block.number}, term {block.term}, epoch {block.epoch} in file "
                    f"{header.number}, term {header.term}, epoch {header.epoch}")
        if not block.count or block.first_lsn != before + 1:
            return f"LSN {block.first_lsn} follows LSN {before}"
        if block.sequence < self._sequence or (
                block.sequence > self._sequence and self._hole is None):
            return f"block {block.sequence} of its file follows {self._sequence} blocks"
        if block.length != length or offset + length > header.size:
            return f"a block of {block.length} bytes in {length}, file of {header.size}"
        if block.durable >= block.first_lsn:
            return f"it says that LSN {block.durable} was durable before it"
        return ""

    def begin_file(self, page: Bytes) -> None:
        """The next file, by its header page. What this journal has above the LSN that it follows is
        void, and goes. StreamBroken, StandbyDiverged; SpoolFull: the file is not begun."""
        header = decode_file_header(page)
        if isinstance(header, Finding):
            raise self._broken(f"a file begins: {header.reason}")
        wrong = self._unfit(header, len(page))
        if wrong:
            raise self._broken(f"file {header.number} begins: {wrong}")
        if header.follows_lsn < self.lsn:
            self.cut(header.follows_lsn)
        self.note_durable(header.follows_lsn)
        self.sync()
        self._make(header, page)

    def _unfit(self, header: FileHeader, length: int) -> str:
        now = self._header
        if header.uuid != self._uuid:
            return f"it is of the instance {header.uuid.hex()}"
        if header.follows_number != self.number or header.number <= self.number:
            return f"it follows file {header.follows_number}, here is file {self.number}"
        if header.term < now.term or (header.term, header.epoch) < (now.term, now.epoch):
            return (f"it is of term {header.term}, epoch {header.epoch}, behind term {now.term}, "
                    f"epoch {now.epoch}")
        if header.follows_lsn > self.lsn:
            return f"it follows LSN {header.follows_lsn}, here is LSN {self.lsn}"
        if header.first_lsn <= max(self.lsn, header.follows_lsn):
            return f"it begins with LSN {header.first_lsn} behind LSN {self.lsn}"
        if length != header.page or not 2 * header.page <= header.size <= FILE_BYTES_MAX:
            return f"{header.size} bytes in pages of {header.page}, its header has {length}"
        return ""

    def _make(self, header: FileHeader, page: Bytes) -> None:
        assert self._notes is not None and self._newest is not None
        source = self._paths.journal / PREPARED
        found = durable.status(source)
        if found is None or found.st_size != header.size:
            create_filled(source, header.size).close()
        file = open_file(source, "journal", write=True)
        file.write([page], 0)
        file.sync()
        target = self._paths.journal / file_name(header.number)
        durable.rename(source, target)
        file.path = target
        mark = replace(self.mark, number=header.number, term=header.term, epoch=header.epoch,
                       offset=header.page, lsn=header.first_lsn - 1, durable=self.durable,
                       last_crc=0, exact=False)
        self._note(mark)
        journal_newest.note(self._newest, Newest(header.uuid, header.number, header.epoch,
                                                 header.first_lsn, header.term))
        if self._file is not None:
            self._file.close()
        self._file, self._header = file, header
        self.number, self.offset, self.lsn, self._hole = mark.number, mark.offset, mark.lsn, None
        self._sequence = self._crc = 0

    # what counts

    def sync(self) -> Synced:
        """All that was written is on the disk; what may be acknowledged from now on."""
        assert self._file is not None
        if self.lsn > self.mark.lsn:
            self._file.sync()
            mark = self.mark
            made = Synced(mark.uuid, mark.generation, mark.number, mark.term, mark.epoch,
                          self.offset, self.lsn, self.durable, self._crc)
            if self._certain and not mark.exact:
                self.mark, self._owed = made, True
            else:
                self._note(made)
                self._certain = True
        return self.mark

    def note_soon(self) -> None:
        """Write the mark, if it has moved; not synced: nothing rests on it. A start after a kill
        has the fewer blocks to look at."""
        if self._owed:
            self._note(self.mark, sync=False)

    def note(self) -> None:
        """The mark is on the disk, with what is known of the primary's: before a checkpoint."""
        self.sync()
        if self._owed or self._lazy or self.mark.durable < self.redo_limit:
            self._note(replace(self.mark, durable=self.durable))

    def _note(self, mark: Synced, *, sync: bool = True) -> None:
        """Two generations up is the same slot: it holds a mark that was not synced."""
        assert self._notes is not None
        mark = replace(mark, generation=self.mark.generation + (2 if self._lazy else 1))
        journal_synced.note(self._notes, mark, sync=sync)
        self.mark, self._lazy, self._owed = mark, not sync, False

    # what does not

    def cut(self, lsn: int) -> None:
        """Take away what is above `lsn`, the last one of a block of this file, or the one before
        its first: the primary's history has it not. StandbyDiverged."""
        self.sync()  # the mark must not say more than what is on the disk
        self._not_below(lsn)
        path = self._paths.journal / file_name(self.number)
        scan = FileScan(load_file(path), self.number, self._uuid, limit=lsn)
        crc = 0
        for block in scan:
            crc = int.from_bytes(block.data[4:8], "little")
        if scan.last_lsn != lsn:
            raise StandbyDiverged(path=path, reason=f"the primary's history goes up to LSN {lsn}, "
                                  f"and a block here up to LSN {scan.last_lsn}")
        self._go_down(replace(self.mark, offset=scan.offset, lsn=lsn, last_crc=crc, exact=True))

    def back(self, number: int) -> None:
        """Take away this file: the primary's history goes up to file `number`, or an earlier one
        of this journal. StandbyDiverged."""
        self.sync()
        before = self._header.follows_number
        self._not_below(self._header.follows_lsn)
        path = self._paths.journal / file_name(before)
        entry = read_entry(self._paths, before, self._uuid).header if (
            before in numbers_in(self._paths.journal)) else None
        if entry is None or before > self.number or number > before:
            raise StandbyDiverged(path=path, reason=f"file {self.number} is not in the primary's "
                                  f"history, which has file {number}")
        scan = FileScan(load_file(path), before, self._uuid, limit=self._header.follows_lsn)
        crc = 0
        for block in scan:
            crc = int.from_bytes(block.data[4:8], "little")
        self._go_down(replace(self.mark, number=before, term=entry.term, epoch=entry.epoch,
                              offset=scan.offset, lsn=scan.last_lsn, last_crc=crc,
                              exact=True))

    def _not_below(self, lsn: int) -> None:
        if lsn < self.redo_limit:
            raise StandbyDiverged(
                path=self._paths.journal / file_name(self.number), reason=f"the primary's history "
                f"goes up to LSN {lsn}, and LSN {self.redo_limit} was on its disk and is here")

    def _go_down(self, mark: Synced) -> None:
        self._note(mark)
        self.mark = settle(self._paths, self._uuid)
        self._enter()

    def close(self) -> None:
        """Close the files; what was not synced is sent again."""
        if self._notes is not None and durable.latched() is None:
            self.note_soon()
            if self._lazy:
                self._notes.sync()
                self._lazy = False
        for file in (self._file, self._notes, self._newest):
            if file is not None:
                file.close()
        self._file = self._notes = self._newest = None
