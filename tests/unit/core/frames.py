"""Journal blocks and pools made by hand, in memory, for the tests of redo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from omq.base.arrays import Rows
from omq.base.checksum import crc32c
from omq.core.redo.redo import Redo
from omq.format.findings import Finding, Kind
from omq.format.journal import FRAME, FrameFlag, FrameType
from omq.format.message import PART, Descriptor, Part, encode
from omq.format.pool import (
    NO_RECORD,
    RECORD_BYTES,
    Message,
    Record,
    RecordKind,
    decode_record,
)
from omq.storage.pool_scan import DTYPE

P = int(FrameFlag.PERSISTENT)
LAST = P | int(FrameFlag.LAST_PART)
TIME_NS = 927_030_603_000_000_000
SECONDS = TIME_NS // 10**9


@dataclass
class MemoryBlock:
    """A core.redo.window.JournalBlock."""

    number: int
    offset: int
    frames: np.ndarray[Any, np.dtype[Any]]
    payload_at: int
    payloads: bytearray

    def payload(self, offset: int, length: int) -> bytes:
        return bytes(self.payloads[offset : offset + length])


@dataclass
class Frames:
    """Collects frames; `block` makes a block of them. LSNs go on."""

    lsn: int = 0
    _rows: list[bytes] = field(default_factory=list)
    _payloads: bytearray = field(default_factory=bytearray)

    def add(self, kind: FrameType, qpool: int, queue: int = 3, *, flags: int = P,
            payload: bytes = b"", **values: int) -> int:
        """One frame; its LSN."""
        self.lsn += 1
        fields = {"type": kind, "qpool": qpool, "queue": queue, "flags": flags, "lsn": self.lsn,
                  "time": TIME_NS, "length": len(payload), "crc": crc32c(payload) if payload else 0,
                  "offset": len(self._payloads), "priority": 4, **values}
        self._rows.append(FRAME.pack(*(fields.get(name, 0) for name in FRAME.names)))
        self._payloads += payload
        return self.lsn

    def put(self, qpool: int, queues: Sequence[int] = (3,), *, record: int = 0, body: bytes = b"b",
            descriptor: Descriptor | None = None, until: int = 0, **values: int) -> int:
        """A birth; on several queues when there are several."""
        parts = [Part(q, 4, 0, until) for q in queues] if len(queues) > 1 or until else []
        payload = encode(descriptor or Descriptor(), parts, b"", body)
        return self.add(FrameType.PUT, qpool, queues[0], payload=payload, record=record,
                        parts=len(parts), size=len(body), **values)

    def move(self, qpool: int, queue: int, to: Sequence[int], *, record: int = 0,
             reason: int | None = None, **values: int) -> int:
        raw = b"".join(PART.pack(q, 4, 0, 0) for q in to)
        return self.add(FrameType.MOVE, qpool, queue, payload=raw, parts=len(to), record=record,
                        reason=record if reason is None else reason, **values)

    def block(self, number: int = 1, payload_at: int = 8192) -> MemoryBlock:
        rows = np.frombuffer(b"".join(self._rows), dtype=FRAME.dtype)
        made = MemoryBlock(number, 4096, rows, payload_at, self._payloads)
        self._rows, self._payloads = [], bytearray()
        return made


@dataclass
class MemoryPool:
    """A pool: (file, record) -> 512 bytes."""

    slots: dict[tuple[int, int], bytes] = field(default_factory=dict)
    reads: int = 0

    def read_record(self, file: int, record: int) -> Message | Finding | None:
        self.reads += 1
        found = self._decode(file, record)
        if not isinstance(found, Record) or found.kind is not RecordKind.LIVE:
            return found if isinstance(found, Finding) else None
        message, following = found.message, found.next
        while following != NO_RECORD:
            more = self._decode(file, following)
            if not isinstance(more, Record) or more.message.lsn != message.lsn:
                return Finding(Kind.CORRUPT, "continuation is missing", f"{file}QP", record=record)
            message.parts += more.message.parts
            message.more.append(following)
            following = more.next
        return message

    def read_rows(self, file: int, records: Rows) -> tuple[Rows, Rows]:
        self.reads += 1
        data = [self.slots.get((file, record), bytes(RECORD_BYTES)) for record in records.tolist()]
        rows = np.frombuffer(b"".join(data), dtype=DTYPE)
        good = [isinstance(found := self._decode(file, record), Record)
                and found.kind is RecordKind.LIVE for record in records.tolist()]
        return rows, np.array(good, dtype=bool)

    def _decode(self, file: int, record: int) -> Record | Finding | None:
        data = self.slots.get((file, record))
        return None if data is None else decode_record(data, 0, file, record)

    def write(self, changes: Mapping[tuple[int, int], bytes | None]) -> None:
        for slot, image in changes.items():
            if image is None:
                self.slots.pop(slot, None)
            else:
                self.slots[slot] = image

    def message(self, qpool: int) -> Message | None:
        """The message with this QPoolId; there is at most one."""
        found = [m for file, record in sorted(self.slots)
                 if isinstance(m := self.read_record(file, record), Message) and m.qpool == qpool]
        assert len(found) <= 1
        return found[0] if found else None


def save(redo: Redo, pool: MemoryPool) -> None:
    """A checkpoint without a disk."""
    pool.write(redo.changes())
    redo.checkpointed()


def after(frames: Frames, pool: MemoryPool | None = None, *, settled: bool = True
          ) -> tuple[Redo, MemoryPool]:
    """Redo and its pool behind a checkpoint of these frames."""
    pool = pool or MemoryPool()
    block = frames.block()
    redo = Redo(pool, lsn=int(block.frames["lsn"][0]) - 1, settled=settled)
    redo.apply([block])
    save(redo, pool)
    return redo, pool
