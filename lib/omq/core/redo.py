"""Redo: journal frames applied to pool records. The one code that a restart and pool.writer share.

State: the records that changed since the last checkpoint (`dirty`: QPoolId -> record, None = gone),
loaded from the pool on first touch; the slots to clear; the queues; the last request of each
client. Memory is bounded by what happened between two checkpoints, not by the number of messages.

Invariants: 1. a frame at or below the record's own LSN changes nothing, so redo is idempotent and
may start too early (a checkpoint that was cut is simply repeated); 2. a frame about a message that
is neither in the pool nor born is about one that is gone, and is ignored; 3. messages born and
finished within one call are dropped by numpy before a single frame is looked at; 4. non-persistent
frames (history only) are ignored. A PUT whose payload fails its CRC condemns its message, never the
block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from omq.base.checksum import crc32c
from omq.core.answers import update_answers
from omq.format import message as message_format
from omq.format.findings import Finding, Kind
from omq.format.journal import FRAME, RELOCATION, FrameFlag, FrameType
from omq.format.location import LocationKind, location
from omq.format.message import PART
from omq.format.pool import (
    PARTS_PER_RECORD,
    Message,
    PartState,
    QueuePart,
    RecordFlag,
    encode_message,
)
from omq.format.poolctrl import Answered

NS = 1_000_000_000
_NAMES = {name: i for i, name in enumerate(FRAME.names)}
_T, _FLAGS, _QUEUE, _ATTEMPT = (_NAMES[n] for n in ("type", "flags", "queue", "attempt"))
_LSN, _TIME, _QPOOL, _SIZE = (_NAMES[n] for n in ("lsn", "time", "qpool", "size"))
_LENGTH, _CRC, _OFFSET, _PID = (_NAMES[n] for n in ("length", "crc", "offset", "pid"))
_FILE, _RECORD, _PARTS, _UID = (_NAMES[n] for n in ("file", "record", "parts", "uid"))
_ARGUMENT, _REASON, _TARGET = (_NAMES[n] for n in ("argument", "reason", "target"))
_PRIORITY = _NAMES["priority"]
Frame = Sequence[Any]


class JournalBlock(Protocol):
    """What storage.journal_reader yields: a block whose header and frame headers are right."""

    number: int  # journal file
    offset: int  # of the block in the file
    frames: np.ndarray[Any, np.dtype[Any]]
    payload_at: int  # file offset of its first payload byte

    def payload(self, offset: int, length: int) -> bytes: ...


class RecordSource(Protocol):
    """The pool as redo reads it (storage.pool.PoolFiles)."""

    def read_record(self, file: int, record: int) -> Message | Finding | None: ...


@dataclass(slots=True)
class Redo:
    """See the module."""

    pool: RecordSource
    queues: dict[int, str] = field(default_factory=dict)
    clients: dict[int, Answered] = field(default_factory=dict)
    lsn: int = 0
    next_qpool: int = 1
    dirty: dict[int, Message | None] = field(default_factory=dict)
    clears: set[tuple[int, int]] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    frames_seen: int = 0
    skipped_short_lived: int = 0
    clean_stop: bool = False

    def apply(self, blocks: Iterable[JournalBlock]) -> None:
        """Frames of whole blocks, in order; those at or below `lsn` are skipped."""
        listed = list(blocks)
        if not listed:
            return
        frames = np.concatenate([block.frames for block in listed])
        origin = np.repeat(np.arange(len(listed)), [len(block.frames) for block in listed])
        fresh = frames["lsn"] > self.lsn
        if not fresh.all():
            frames, origin = frames[fresh], origin[fresh]
        if not len(frames):
            return
        self.frames_seen += len(frames)
        self.lsn = int(frames["lsn"][-1])
        self.next_qpool = max(self.next_qpool, int(frames["qpool"].max()) + 1)
        self.clean_stop = int(frames["type"][-1]) == FrameType.STOP
        update_answers(self.clients, frames)
        kept = self._survivors(frames)
        places = origin[kept].tolist()
        for row, place in zip(frames[kept].tolist(), places, strict=True):
            self._apply_one(row, listed[place])

    def _survivors(self, frames: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
        """Mask of the frames worth looking at one by one."""
        kind, qpool, flags = frames["type"], frames["qpool"], frames["flags"]
        control = (kind == FrameType.QUEUE) | (kind == FrameType.RELOCATE)
        wanted = (flags & FrameFlag.PERSISTENT != 0) & (qpool != 0)
        born = qpool[wanted & (kind == FrameType.PUT)]
        gone = qpool[wanted & (flags & FrameFlag.LAST_PART != 0)]
        brief = np.intersect1d(born, gone)
        self.skipped_short_lived += len(brief)
        if len(brief):
            wanted &= ~np.isin(qpool, brief)
        return np.asarray(wanted | control)

    def _apply_one(self, frame: Frame, block: JournalBlock) -> None:
        kind = frame[_T]
        if kind == FrameType.QUEUE:
            name = block.payload(frame[_OFFSET], frame[_LENGTH])
            self.queues[frame[_QUEUE]] = name.decode("ascii", "replace")
        elif kind == FrameType.RELOCATE:
            self._relocate(frame, block)
        elif kind == FrameType.PUT:
            self._put(frame, block)
        elif frame[_FLAGS] & FrameFlag.LAST_PART:
            self._gone(frame)
        else:
            change = _CHANGES.get(kind)
            message = self.find(frame[_QPOOL], frame[_FILE], frame[_RECORD], frame)
            if change is not None and message is not None and message.lsn < frame[_LSN]:
                change(self, message, frame, block)
                message.lsn = frame[_LSN]

    def find(self, qpool: int, file: int, record: int, frame: Frame | None = None
             ) -> Message | None:
        """The record of a message: changed already, or from the pool; None = gone."""
        if qpool in self.dirty:
            return self.dirty[qpool]
        # A MOVE may give a message another record: it lies in the old one, or already in the new
        # one when a checkpoint was cut. "Not found" is not remembered for the same reason.
        places = [record]
        if frame is not None and frame[_T] == FrameType.MOVE and frame[_REASON] != record:
            places.insert(0, frame[_REASON])
        for place in places:
            found = self.pool.read_record(file, place)
            if isinstance(found, Finding):
                self.findings.append(found)
            elif found is not None and found.qpool == qpool:
                self.dirty[qpool] = found
                self.clears.update((file, number) for number in (found.record, *found.more))
                return found
        return None

    def _gone(self, frame: Frame) -> None:
        record, run = frame[_RECORD], max(1, frame[_PARTS])
        known = self.dirty.get(frame[_QPOOL])
        if known is not None:
            self.clears.update((known.file, number) for number in (known.record, *known.more))
        self.clears.update((frame[_FILE], record + i) for i in range(run))
        self.dirty[frame[_QPOOL]] = None

    def _put(self, frame: Frame, block: JournalBlock) -> None:
        qpool = frame[_QPOOL]
        if self.dirty.get(qpool) is not None:
            return
        raw = block.payload(frame[_OFFSET], frame[_LENGTH])
        payload = message_format.decode(raw)
        if crc32c(raw) != frame[_CRC] or isinstance(payload, Finding):
            self.findings.append(Finding(
                Kind.CORRUPT, f"payload of message {qpool} fails its CRC: the message is set aside",
                offset=block.payload_at + frame[_OFFSET], length=frame[_LENGTH], lsn=frame[_LSN]))
            self.dirty[qpool] = None
            return
        d = payload.descriptor
        seconds = frame[_TIME] // NS
        parts = [_part(p.queue, p.priority, p.until, frame[_LSN], seconds) for p in payload.parts]
        if not parts:
            parts = [_part(frame[_QUEUE], frame[_PRIORITY], 0, frame[_LSN], seconds)]
        flags = RecordFlag.PERSISTENT | (frame[_FLAGS] & FrameFlag.CONTAINER)
        if any(d.message_id):
            flags |= RecordFlag.HAS_ID
        self.dirty[qpool] = Message(
            qpool, frame[_FILE], frame[_RECORD], frame[_LSN], frame[_TIME], d.message_id,
            d.correlation_id, int(flags), location(LocationKind.JOURNAL, block.number),
            block.payload_at + frame[_OFFSET], frame[_LENGTH], frame[_CRC], frame[_SIZE],
            d.expiry, frame[_PID], frame[_UID], d.reply_to, d.origin,
            message_format.id_hash(d.group_id), d.group_sequence, d.segment_offset, d.report,
            d.application[:4], int.from_bytes(d.trace_id[:8], "little"), parts)

    def _relocate(self, frame: Frame, block: JournalBlock) -> None:
        raw = block.payload(frame[_OFFSET], frame[_LENGTH])
        for at in range(0, len(raw) - RELOCATION.size + 1, RELOCATION.size):
            qpool, word, offset, record, file = RELOCATION.unpack_from(raw, at)
            message = self.find(qpool, file, record)
            if message is not None:
                message.location, message.offset = word, offset
                message.lsn = max(message.lsn, frame[_LSN])

    def changes(self) -> dict[tuple[int, int], bytes | None]:
        """What a checkpoint must write: (pool file, record) -> 512 bytes, None = clear the slot."""
        out: dict[tuple[int, int], bytes | None] = dict.fromkeys(self.clears)
        for message in self.dirty.values():
            if message is None:
                continue
            run = -(-len(message.parts) // PARTS_PER_RECORD)
            message.more = [message.record + i for i in range(1, max(1, run))]
            for number, image in encode_message(message):
                out[message.file, number] = image
        return out

    def checkpointed(self) -> None:
        """The changes are durable: forget them."""
        self.dirty.clear()
        self.clears.clear()


def _part(queue: int, priority: int, until: int, lsn: int, seconds: int) -> QueuePart:
    state = PartState.DEFERRED if until else PartState.READY
    return QueuePart(queue, min(priority, 9), state, 0, 0, until, seconds & 0xFFFFFFFF, lsn)


def _on(message: Message, queue: int) -> QueuePart | None:
    return next((part for part in message.parts if part.queue == queue), None)


def _give(_: Redo, message: Message, frame: Frame, __: JournalBlock) -> None:
    part = _on(message, frame[_QUEUE])
    if part is not None:
        part.state, part.attempts = PartState.ACTIVE, frame[_ATTEMPT]
        part.until = frame[_LSN] & 0xFFFFFFFF


def _done(_: Redo, message: Message, frame: Frame, __: JournalBlock) -> None:
    message.parts = [part for part in message.parts if part.queue != frame[_QUEUE]]


def _defer(_: Redo, message: Message, frame: Frame, __: JournalBlock) -> None:
    part = _on(message, frame[_QUEUE])
    if part is not None:
        part.state, part.until = PartState.DEFERRED, -(-frame[_ARGUMENT] // NS)
        part.attempts = frame[_ATTEMPT]
        if not frame[_FLAGS] & FrameFlag.FAILED:
            part.retries += 1


def _return(_: Redo, message: Message, frame: Frame, __: JournalBlock) -> None:
    part = _on(message, frame[_QUEUE])
    if part is not None:
        part.state, part.until, part.attempts = PartState.READY, 0, frame[_ATTEMPT]


def _hold(_: Redo, message: Message, frame: Frame, __: JournalBlock) -> None:
    part = _on(message, frame[_QUEUE])
    if part is not None:
        part.state, part.until = PartState.HELD, 0


def _move(_: Redo, message: Message, frame: Frame, block: JournalBlock) -> None:
    raw = block.payload(frame[_OFFSET], frame[_LENGTH])
    message.parts = [part for part in message.parts if part.queue != frame[_QUEUE]]
    present = {part.queue for part in message.parts}
    seconds = frame[_TIME] // NS
    for at in range(0, len(raw) - PART.size + 1, PART.size):
        queue, priority, _flags, until = PART.unpack_from(raw, at)
        if queue not in present:
            message.parts.append(_part(queue, priority, until, frame[_LSN], seconds))
    message.record = frame[_RECORD]


def _poison(_: Redo, message: Message, frame: Frame, __: JournalBlock) -> None:
    message.parts = [part for part in message.parts if part.queue != frame[_QUEUE]]
    if _on(message, frame[_TARGET]) is None:
        part = _part(frame[_TARGET], frame[_PRIORITY], 0, frame[_LSN], frame[_TIME] // NS)
        part.attempts = frame[_ATTEMPT]
        message.parts.append(part)
    message.origin = frame[_QUEUE]


Change = Callable[[Redo, Message, Frame, JournalBlock], None]
_CHANGES: dict[int, Change] = {
    FrameType.GIVE: _give, FrameType.DONE: _done, FrameType.DEFER: _defer,
    FrameType.RELEASE_GIVEN: _return, FrameType.RELEASE: _return, FrameType.HOLD: _hold,
    FrameType.MOVE: _move, FrameType.POISON: _poison, FrameType.DELETE: _done,
}
