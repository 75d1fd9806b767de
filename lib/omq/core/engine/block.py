"""The block under construction: frames of one group, their payloads, and what waits for its offset.

Frames are packed straight into the journal writer's reusable buffer, payloads are kept by reference
(they lie in the clients' channels, whose owners wait for the reply) and written with one pwritev.

Invariants: 1. `lsn` is the LSN of the next frame; numbers are consecutive inside a block and from
block to block; 2. `reserve` is called before a request changes anything, with all that it will add,
so a request's frames are in one block and atomic after a crash; 3. nobody is answered before
`flush` returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from omq.base.arrays import Rows
from omq.base.checksum import crc32c
from omq.format.journal import BLOCK, FRAME, FrameFlag, FrameType
from omq.format.location import LocationKind, location

_PACK = FRAME.pack_into
_SIZE = FRAME.size
_EMPTY = np.zeros(1, dtype=FRAME.dtype)[0]
_PERSISTENT = int(FrameFlag.PERSISTENT)


class Writer(Protocol):
    """What the engine needs of storage.journal.JournalWriter."""

    buffer: bytearray
    file_number: int
    durable_lsn: int
    syncs: int
    sync_ns: int  # that the sync of the last block took; below zero: none, or not timed
    written: Callable[[int], None] | None  # hears of a block that is synced next

    def room(self) -> int:
        """Bytes left in the current file."""

    def rotate(self, first_lsn: int, next_qpool: int, time_ns: int) -> None:
        """Close the current file (synced) and go on in the next one."""

    def append(self, count: int, payloads: Sequence[bytes | memoryview], payload_bytes: int,
               first_lsn: int, *, sync: bool, next_qpool: int, time_ns: int) -> int:
        """Seal and write the block; the file offset of its first payload byte."""


class Block:
    """Collects frames; `flush` makes them one block of the journal."""

    def __init__(self, writer: Writer, next_lsn: int, frames_max: int, bytes_max: int,
                 unsynced_frames_max: int) -> None:
        self.writer = writer
        self.first_lsn = next_lsn
        self.count = 0
        self.payloads: list[bytes | memoryview] = []
        self.payload_bytes = 0
        self.persistent = False
        self.puts: list[int] = []  # slots whose payload offset is still relative to the block
        self.time_ns = 0
        self.next_qpool = 1
        self.frames_max = frames_max
        self.bytes_max = bytes_max
        self.unsynced_max = unsynced_frames_max
        self.unsynced = 0
        self.on_flush: Callable[[Block, int], None] = lambda block, base: None
        self.on_rotate: Callable[[], None] = lambda: None
        self.journal_word = location(LocationKind.JOURNAL, writer.file_number)
        self.left = 0  # bytes for frames and payloads of this block
        self.write: Callable[[int], None] = self.write_in_steps  # or omq.fast.journal's
        self._measure()

    @property
    def lsn(self) -> int:
        """LSN of the next frame."""
        return self.first_lsn + self.count

    def reserve(self, frames: int, payload_bytes: int) -> None:
        """Make room for a whole request; may flush what was collected and rotate the file."""
        count = self.count + frames
        if (count <= self.frames_max
                and count * _SIZE + self.payload_bytes + payload_bytes <= self.left):
            return
        self.flush()
        if BLOCK.size + frames * _SIZE + payload_bytes > self.writer.room():
            self.rotate()
            count = self.count + frames
            if (count > self.frames_max
                    or count * _SIZE + self.payload_bytes + payload_bytes > self.left):
                self.flush()  # the names, in a block of their own

    def _measure(self) -> None:
        """The file has another size left."""
        self.left = min(self.bytes_max, self.writer.room()) - BLOCK.size

    def rotate(self) -> None:
        """Next journal file; it starts with the names, so that it reads alone."""
        assert not self.count
        self.writer.rotate(self.first_lsn, self.next_qpool, self.time_ns)
        self.journal_word = location(LocationKind.JOURNAL, self.writer.file_number)
        self._measure()
        self.on_rotate()

    def frame(self, kind: FrameType, flags: int, queue: int, qpool: int, *, priority: int = 0,
              attempt: int = 0, size: int = 0, crc: int = 0, client: int = 0, pid: int = 0,
              uid: int = 0, file: int = 0, record: int = 0, parts: int = 0, lease: int = 0,
              token: int = 0, sequence: int = 0, correlation: int = 0, argument: int = 0,
              unit: int = 0, reason: int = 0, target: int = 0,
              payload: bytes | memoryview = b"") -> int:
        """Append one frame; its LSN. `crc`: the submitter's CRC of the payload; the manager's own
        payloads get theirs here, so that redo can tell a torn one."""
        lsn = self.first_lsn + self.count
        length = len(payload)
        if length and not crc:
            crc = crc32c(payload)
        _PACK(self.writer.buffer, BLOCK.size + self.count * _SIZE, kind, priority, flags, queue,
              attempt, lsn, self.time_ns, qpool, size, length, crc, self.payload_bytes, client,
              pid, file, 0, parts, record, uid, lease, token, sequence, correlation, argument,
              unit, reason, target, 0)
        self.count += 1
        if length:
            self.payloads.append(payload)
            self.payload_bytes += length
        if flags & _PERSISTENT:
            self.persistent = True
        return lsn

    def rows(self, count: int, kind: FrameType) -> Rows:
        """The next `count` frame headers as a writable array: type, LSN and time are filled in, all
        else is 0. `close_rows` makes them count."""
        rows = FRAME.array(self.writer.buffer, count, BLOCK.size + self.count * _SIZE)
        rows[:] = _EMPTY
        rows["type"] = kind
        rows["lsn"] = np.arange(self.lsn, self.lsn + count, dtype="<u8")
        rows["time"] = self.time_ns
        return rows

    def close_rows(self, count: int) -> None:
        """`count` rows of persistent messages were filled in."""
        self.count += count
        self.persistent = True

    def flush(self, *, sync: bool = False) -> None:
        """Write the block; synced when it holds a persistent frame or `sync` says so."""
        if self.count:
            self.write(int(sync))

    def write_in_steps(self, force: int) -> None:
        """The frames, of which there are some; `force`: sync in any case. omq.fast.journal does the
        same in one function."""
        count = self.count
        self.unsynced += count
        sync = bool(force) or self.persistent or self.unsynced >= self.unsynced_max
        base = self.writer.append(count, self.payloads, self.payload_bytes, self.first_lsn,
                                  sync=sync, next_qpool=self.next_qpool, time_ns=self.time_ns)
        self._measure()
        if sync:
            self.unsynced = 0
        self.on_flush(self, base)
        self.first_lsn += count
        self.count = 0
        self.payloads = []
        self.payload_bytes = 0
        self.persistent = False
        self.puts.clear()
