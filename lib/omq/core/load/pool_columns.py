"""The records of the Message Pool as columns: what core.load.rebuild makes the tables of an index
from.

The files are scanned once, chunk by chunk, and only the columns stay. Of two records with one
QPoolId the higher LSN counts, the other is reported. Records that cannot be read are findings.
Chunks that hold nothing but plain records may be taken by a quicker loop (PlainRows), with the same
outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from omq.base.arrays import Vector
from omq.core.judge.finding import Found
from omq.format.failure_note import FailureNote
from omq.format.findings import Finding, Kind
from omq.format.pool import (
    NO_RECORD,
    PART,
    PARTS_PER_RECORD,
    RECORD_BYTES,
    Message,
    Record,
    decode_record,
)
from omq.storage.pool import PoolFiles
from omq.storage.pool_scan import DTYPE, PoolChunk
from omq.storage.slots import SlotAllocator

COPIED = {"m_qpool": "qpool", "m_lsn": "lsn", "m_time": "time", "m_expiry": "expiry",
          "m_location": "location", "m_offset": "offset", "m_length": "length",
          "m_crc": "body_crc", "m_size": "size", "m_pid": "pid", "m_uid": "uid",
          "m_record": "record", "m_flags": "flags", "m_file": "file", "m_origin": "origin"}
"""Column of the index -> of a pool record."""
_COLUMNS = [(name, DTYPE[name]) for name in (
    *sorted(set(COPIED.values())), "next", "message_id", "correlation_id", "group",
    "group_sequence", "trace")]
_PART = ("queue", "grade", "attempts", "retries", "until", "submitted", "sequence")
_PARTS = [*((name, PART.dtype[name]) for name in _PART), ("row", np.dtype(np.int64))]
_ROOM_MAX = 1 << 22  # messages for which room is taken at once: a file may claim any size


@dataclass(slots=True)
class Loaded:
    """What a rebuild found."""

    messages: int = 0
    entries: int = 0
    limbo: dict[int, int] = field(default_factory=dict)  # active entry -> pool.lease_tag
    prepared: list[int] = field(default_factory=list)  # entries of units of work in doubt
    barriers: list[int] = field(default_factory=list)  # entries that may wait for others
    findings: list[Finding] = field(default_factory=list)
    bodies: list[Found] = field(default_factory=list)  # that are not there (bodies_there)
    duplicates: list[tuple[int, int]] = field(default_factory=list)  # (file, record) of the losers


class PlainRows(Protocol):
    """Takes the messages of chunks that are plain into the columns, more quickly than it is done
    here (omq.fast.pool_rows)."""

    @property
    def parts(self) -> int: ...  # of the chunk that was taken last

    def bind(self, messages: dict[str, Vector], parts: dict[str, Vector]) -> None: ...
    def take(self, data: bytes, file: int, first: int, row: int, part: int) -> int: ...


class _Columns:
    """Vectors of one length that grow at their ends. Room that is not used takes no memory."""

    __slots__ = ("count", "moved", "vectors")

    def __init__(self, columns: list[tuple[str, np.dtype[Any]]], room: int) -> None:
        self.vectors: dict[str, Vector] = {name: np.empty(room, dtype) for name, dtype in columns}
        self.count = 0
        self.moved = True  # the vectors are others than whoever fills them knows

    def room_for(self, more: int) -> None:
        have = len(next(iter(self.vectors.values())))
        if self.count + more > have:
            for name, vector in self.vectors.items():
                grown: Vector = np.empty(more + have // 2, vector.dtype)
                self.vectors[name] = np.concatenate((vector[: self.count], grown))
            self.moved = True

    def extend(self, values: Mapping[str, Vector], count: int) -> None:
        """So many more of each."""
        self.room_for(count)
        for name, vector in self.vectors.items():
            vector[self.count : self.count + count] = values[name]
        self.count += count

    def values(self) -> dict[str, Vector]:
        return {name: vector[: self.count] for name, vector in self.vectors.items()}


@dataclass(slots=True)
class Rows:
    """Columns gathered from the pool."""

    messages: dict[str, Vector]  # one row a message
    parts: dict[str, Vector]  # one row an entry; "row" is the index into `messages`
    notes: dict[int, FailureNote] = field(default_factory=dict)  # by index into `messages`


def gather(pool: PoolFiles, slots: SlotAllocator, loaded: Loaded,
           progress: Callable[[str], None], plain: PlainRows | None = None) -> Rows:
    """All records; the slots in use become those of `slots`."""
    room = min(pool.record_slots(), _ROOM_MAX)
    kept, lists = _Columns(_COLUMNS, room), _Columns(_PARTS, room)
    notes = dict[int, FailureNote]()
    used: list[Vector] = []

    def take(data: bytes, file: int, first: int) -> bool:
        """A chunk that is plain; False: it is not."""
        assert plain is not None
        for columns in (kept, lists):
            columns.room_for(len(data) // RECORD_BYTES)
        if kept.moved or lists.moved:
            plain.bind(kept.vectors, lists.vectors)
            kept.moved = lists.moved = False
        taken = plain.take(data, file, first, kept.count, lists.count)
        if taken < 0:
            return False
        kept.count, lists.count = kept.count + taken, lists.count + plain.parts
        used.append(kept.vectors["record"][kept.count - taken : kept.count].astype(np.int64))
        return True

    files = pool.files()
    for number, file in enumerate(files):
        progress(f"loading the index: {100 * number // len(files)} %")
        used[:] = [np.zeros(0, dtype=np.int64)]
        foreign = False
        for chunk in pool.scan(file, take if plain is not None else None):
            loaded.findings += chunk.findings
            foreign |= any(f.kind in (Kind.FOREIGN, Kind.NEWER) and f.record < 0
                           for f in chunk.findings)
            used += [_in_use(chunk), _damaged(chunk)]
            rows = chunk.records if chunk.live.all() else chunk.records[chunk.live]
            _gather_parts(pool, rows, kept.count, lists, loaded)
            _gather_notes(rows, kept.count, notes)
            kept.extend({name: rows[name] for name in kept.vectors}, len(rows))
        if foreign:
            slots.exclude(file)
        else:
            slots.load(file, np.concatenate(used))
    return Rows(kept.values(), lists.values(), notes)


def _gather_notes(rows: Vector, base: int, notes: dict[int, FailureNote]) -> None:
    for row in np.flatnonzero(rows["note"]).tolist():
        found = decode_record(rows[row].tobytes(), 0, int(rows["file"][row]),
                              int(rows["record"][row]))
        if isinstance(found, Record) and found.message.note is not None:
            notes[row + base] = found.message.note


def _in_use(chunk: PoolChunk) -> Vector:
    return chunk.records["record"][chunk.live | chunk.more].astype(np.int64)


def _damaged(chunk: PoolChunk) -> Vector:
    """Slots that cannot be read: never given to a new message, so that the evidence stays."""
    return np.array([f.record for f in chunk.findings if f.record >= 0], dtype=np.int64)


def reserve_slots(pool: PoolFiles, slots: SlotAllocator, aside: frozenset[int]) -> None:
    """Only learn which slots are in use: the messages stay in the pool, unread
    (qm_dont_read_messages_at_start). Nothing is put into the files that are `aside`."""
    for file in aside:
        slots.exclude(file)
    for file in sorted({*pool.files()} - aside):
        used = [np.zeros(0, dtype=np.int64)]
        for chunk in pool.scan(file):
            used += [_in_use(chunk), _damaged(chunk)]
        slots.load(file, np.concatenate(used))


def _gather_parts(pool: PoolFiles, rows: Vector, base: int, lists: _Columns, loaded: Loaded
                  ) -> None:
    counts = rows["parts"]
    long = rows["next"] != NO_RECORD
    for row in np.flatnonzero(long).tolist():
        found = pool.read_record(int(rows["file"][row]), int(rows["record"][row]))
        if not isinstance(found, Message):
            # A continuation is damaged: the message stays on the queues of its first record.
            long[row] = False
            if isinstance(found, Finding):
                loaded.findings.append(found)
    for i in range(min(int(counts.max(initial=0)), PARTS_PER_RECORD)):
        index = np.flatnonzero((counts > i) & ~long)
        part = rows["parts_list"][index, i]
        lists.extend({**{name: part[name] for name in _PART}, "row": index + base}, len(index))
    for row in np.flatnonzero(long).tolist():
        message = pool.read_record(int(rows["file"][row]), int(rows["record"][row]))
        if isinstance(message, Message):
            for p in message.parts:
                values = (p.queue, p.priority | p.state << 4, p.attempts, p.retries, p.until,
                          p.submitted, p.sequence, row + base)
                lists.extend({name: np.array([value]) for (name, _), value
                              in zip(_PARTS, values, strict=True)}, 1)


def without_duplicates(rows: Rows, slots: SlotAllocator, loaded: Loaded) -> Rows:
    """The rows that count; the slots of the others are free, and `loaded` names them."""
    columns = rows.messages
    qpool = columns["qpool"]
    order = np.lexsort((columns["lsn"], qpool))
    same = qpool[order][:-1] == qpool[order][1:]
    if not same.any():
        return rows
    losers = order[:-1][same]
    for index in losers.tolist():
        file, record = int(columns["file"][index]), int(columns["record"][index])
        loaded.findings.append(Finding(
            Kind.DUPLICATE, f"QPoolId {int(qpool[index])} is there twice: the higher LSN counts",
            f"{file}QP", (record + 1) * RECORD_BYTES, RECORD_BYTES, record,
            int(columns["lsn"][index])))
        loaded.duplicates.append((file, record))
        slots.free(file, record)
    keep = np.ones(len(qpool), dtype=bool)
    keep[losers] = False
    number = np.cumsum(keep) - 1
    chosen = keep[rows.parts["row"]]
    parts = {name: vector[chosen] for name, vector in rows.parts.items()}
    parts["row"] = number[parts["row"]]
    notes = {int(number[row]): note for row, note in rows.notes.items() if keep[row]}
    return Rows({name: vector[keep] for name, vector in columns.items()}, parts, notes)
