"""The journal as the queue manager writes it: one block for each group commit, synced once.

Invariants:
1. One writer: the queue manager, which holds the manager lock. Every start opens a new file with a
   new epoch; nothing is ever appended behind what an earlier start left.
2. A file gets its final name only after it is filled with real zeros and its header page is synced,
   and no block is written before its directory is synced.
3. A block takes whole pages, written once. `durable_lsn` moves only when a sync returned; the
   header of each block carries it as it was before.
4. A new file is noted in `newest` before any block of it (storage.journal_newest).
5. Blocks written without a sync are made durable by the next sync of the same file, and by
   rotation.

In the middle of a crash: a prepared file is `next.jnl` (zeros, perhaps with a stale header) and is
used again; a block is whole or fails its CRC and lies above every known durable LSN.

Errors: DiskError (latched); SpoolFull only from opening a file or preparing the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base import clock
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.format.durations import SYNCS_TIMED
from omq.format.journal import (
    BLOCK,
    FRAME,
    BlockFlag,
    BlockHeader,
    FileHeader,
    Newest,
    block_length,
    seal_block,
)
from omq.storage import disk_reserve, durable, journal_newest
from omq.storage.disk import Buffer
from omq.storage.files import File, create_filled, open_file

PREPARED: Final = "next.jnl"
_FRESH: Final = "fresh.jnl"  # made by the manager itself when none is prepared
_NAME = re.compile(r"([0-9]{10})(\.[a-z]+)")
PADDING: Final = memoryview(bytes(64 * 1024))  # the largest page


def file_name(number: int) -> str:
    """`0000000042.jnl`."""
    return f"{number:010d}.jnl"


def numbers_in(directory: Path, suffix: str = ".jnl") -> list[int]:
    """Numbers of the journal files in a directory (or of archive files, ".oma"), ascending."""
    found = (_NAME.fullmatch(name) for name in durable.list_directory(directory))
    return sorted(int(match[1]) for match in found if match and match[2] == suffix)


def next_is_ready(paths: SpoolPaths, settings: Settings) -> bool:
    """Is `next.jnl` there? A rotation takes no space then."""
    return _is_ready(paths.journal / PREPARED, settings.journal_file_bytes)


def prepare_next(paths: SpoolPaths, settings: Settings, messages: int = 0) -> bool:
    """Make `next.jnl` ready for the next rotation; False when it is there already. SpoolFull, also
    where it would leave an instance with so many messages too little (storage.disk_reserve)."""
    target = paths.journal / PREPARED
    if next_is_ready(paths, settings):
        return False
    debt = disk_reserve.debt_bytes(paths, settings, messages)
    disk_reserve.keep(paths.journal, disk_reserve.late_bytes(settings) + debt,
                      settings.journal_file_bytes)
    durable.step("journal.prepare_next", target)
    create_filled(target, settings.journal_file_bytes).close()
    return True


def _is_ready(path: Path, size: int) -> bool:
    found = durable.status(path)
    return found is not None and found.st_size == size


@dataclass(slots=True)
class Epoch:
    """What stays the same for all files of one start."""

    paths: SpoolPaths
    uuid: bytes
    number: int
    file_bytes: int
    page: int
    term: int = 0


class JournalWriter:
    """Appends blocks: the caller packs frame headers into `buffer` from offset 128 on first.

    `file_number`, `offset`: file and position of the next block; `durable_lsn`: highest LSN known
    durable; `last_lsn`: highest one written; `written`: gets the last LSN of a block that lies
    in its file and is synced next; `leave`: says how many bytes of the disk a rotation leaves for
    checkpoints (storage.disk_reserve). It is asked when there is no next file: a figure of a moment
    ago would count a checkpoint twice that has been written since, and refuse a done.
    """

    __slots__ = (
        *("_noted", "_view", "buffer", "durable_lsn", "epoch", "file", "file_number", "last_lsn"),
        *("leave", "offset", "sequence", "sync_ns", "syncs", "written"),
    )

    def __init__(self, epoch: Epoch, buffer: bytearray, last_lsn: int) -> None:
        self.epoch = epoch
        self._view = memoryview(buffer)
        self.buffer = buffer
        self.last_lsn = last_lsn
        self.durable_lsn = last_lsn
        self.syncs = 0
        self.sync_ns = -1  # that the sync of the last block took; below zero: none, or not timed
        self.file_number = 0
        self.leave: Callable[[], int] = lambda: 0
        self.offset = 0
        self.sequence = 0  # of the next block in its file
        self.file: File | None = None
        self._noted: File | None = None
        self.written: Callable[[int], None] | None = None

    @classmethod
    def open_epoch(cls, paths: SpoolPaths, settings: Settings, uuid: bytes, epoch: int,
                   first_lsn: int, follows_lsn: int, follows_number: int, next_qpool: int,
                   time_ns: int, term: int = 0) -> JournalWriter:
        """A writer on a new file. `first_lsn` is the next LSN to be given; the numbers between
        `follows_lsn`, the last one accepted by recovery, and it are void."""
        assert first_lsn > follows_lsn
        constant = Epoch(paths, uuid, epoch, settings.journal_file_bytes,
                         settings.journal_page_bytes, term)
        size = BLOCK.size + FRAME.size * settings.block_frames_max
        writer = cls(constant, bytearray(size), first_lsn - 1)
        archived = (*numbers_in(paths.archive), *numbers_in(paths.archive, ".oma"))
        number = max(follows_number, 0, *numbers_in(paths.journal), *archived) + 1
        writer._open(number, follows_lsn, follows_number, next_qpool, time_ns)
        return writer

    def room(self) -> int:
        """Bytes left in the file for one more block: header, frames and payloads together."""
        page = self.epoch.page
        return (self.epoch.file_bytes - self.offset) // page * page

    def append(self, count: int, payloads: Sequence[Buffer], payload_bytes: int, first_lsn: int,
               *, sync: bool, next_qpool: int, time_ns: int) -> int:
        """Seal the `count` frames in `buffer`, write the block, sync if asked.

        Returns the offset in the file of the first payload byte; frame headers name their payloads
        relative to it. The caller has made sure that the block fits in `room`. After DiskError
        nothing of the group may be answered."""
        assert first_lsn == self.last_lsn + 1 and self.file is not None
        length = block_length(count, payload_bytes, self.epoch.page)
        assert length <= self.room()
        heads = BLOCK.size + FRAME.size * count
        header = BlockHeader(self.epoch.number, first_lsn, count, self.durable_lsn, time_ns,
                             self.file_number, self.sequence, payload_bytes, length,
                             0 if sync else BlockFlag.UNSYNCED, next_qpool, self.epoch.term)
        seal_block(self.buffer, self.epoch.uuid, header)
        padding = length - heads - payload_bytes
        self.file.write([self._view[:heads], *payloads, PADDING[:padding]], self.offset)
        at = self.offset
        self.offset += length
        self.sequence += 1
        self.last_lsn = first_lsn + count - 1
        self.sync_ns = -1
        if sync and self.written is not None:
            self.written(self.last_lsn)
        if sync and self.syncs % SYNCS_TIMED == 0:
            begun = clock.monotonic_ns()
            self.sync()
            self.sync_ns = clock.monotonic_ns() - begun
        elif sync:
            self.sync()
        return at + heads

    def sync(self) -> None:
        """Make every block written so far durable."""
        assert self.file is not None
        if self.durable_lsn < self.last_lsn:
            self.file.sync()
            self.durable_lsn = self.last_lsn
            self.syncs += 1

    def rotate(self, first_lsn: int, next_qpool: int, time_ns: int) -> None:
        """Sync the file and go on in the next one, whose first block repeats the names. SpoolFull
        leaves the current file in use."""
        assert first_lsn == self.last_lsn + 1 and self.file is not None
        durable.step("journal.before_rotate", self.file.path)
        self.sync()
        before, number = self.file, self.file_number
        self._open(number + 1, self.last_lsn, number, next_qpool, time_ns)
        before.close()
        durable.step("journal.after_rotate", self.file.path)

    def _open(self, number: int, follows_lsn: int, follows_number: int, next_qpool: int,
              time_ns: int) -> None:
        epoch = self.epoch
        noted = self._noted = self._noted or journal_newest.open_newest(epoch.paths)
        source = epoch.paths.journal / PREPARED
        if not _is_ready(source, epoch.file_bytes):
            source = epoch.paths.journal / _FRESH
            if self.file is not None:  # a start gives back more than it takes, and must go on
                disk_reserve.keep(epoch.paths.journal, self.leave(), epoch.file_bytes)
            create_filled(source, epoch.file_bytes).close()
        header = FileHeader(epoch.uuid, epoch.number, number, epoch.page, epoch.file_bytes,
                            self.last_lsn + 1, follows_lsn, follows_number, time_ns, next_qpool,
                            epoch.term)
        file = open_file(source, "journal", write=True)
        file.write([header.encode()], 0)
        file.sync()
        target = epoch.paths.journal / file_name(number)
        durable.rename(source, target)
        file.path = target
        journal_newest.note(noted, Newest(epoch.uuid, number, epoch.number, header.first_lsn,
                                           epoch.term))
        self.file, self.file_number, self.offset, self.sequence = file, number, epoch.page, 0

    def close(self) -> None:
        """Sync and close; the rest of the file stays zeros."""
        if self.file is not None:
            if durable.latched() is None:
                self.sync()
            self.file.close()
            self.file = None
        if self._noted is not None:
            self._noted.close()
            self._noted = None
