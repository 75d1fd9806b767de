"""What a journal frame does to the pool record of its message, as format.frame_rules says.

The caller has found the record and has made sure that the frame is newer than it. A frame about a
queue that the message is not on changes nothing. Payloads that say where a message goes are checked
before they are believed; `Unusable` leaves the record as it was. One that only says why a message
failed is for its note (format.failure_note): of what cannot be believed there is none.

Invariant: applied in LSN order to the same record, the same frames give the same record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omq.base import limits
from omq.base.checksum import crc32c
from omq.base.clock import NS_PER_S as NS
from omq.core.engine.state import IDEL
from omq.format.failure_note import FailureNote, note_in
from omq.format.frame_rules import BY_NUMBER, About, Comes, Entry, Rule, Until
from omq.format.journal import At, FrameFlag
from omq.format.message import PART
from omq.format.pool import Message, PartState, QueuePart, RecordFlag, lease_tag

_FAILED, _TO_IDEL = int(FrameFlag.FAILED), int(FrameFlag.TO_IDEL)
_REPLAYED, _TIMELESS = int(FrameFlag.REPLAY), int(FrameFlag.TIMELESS)
_PREPARED, _BARRIER = int(FrameFlag.PREPARED), int(RecordFlag.BARRIER)
Frame = Sequence[Any]
Arrival = tuple[int, int, int]  # queue, priority, until (unix seconds)


@dataclass(slots=True)
class Unusable(Exception):
    """The payload of a frame cannot be believed."""

    reason: str


def entry_after(entry: Entry, frame: Frame) -> tuple[Any, Any, Any]:
    """The entry on its queue after a frame: its attempts (None: as they were), how many deferrals
    more, `until`. `frame` is a row of numbers, or one of columns for many frames of one type; so is
    what comes out."""
    attempts = frame[At.ATTEMPT] if entry.attempts else None
    deferrals = (frame[At.FLAGS] & _FAILED == 0) * 1 if entry.defers else 0
    if entry.until is Until.LEASE:
        return attempts, deferrals, lease_tag(frame[At.LSN], frame[At.TOKEN])
    if entry.until is Until.UNIT:
        return attempts, deferrals, frame[At.REASON]
    until = -(-frame[At.ARGUMENT] // NS) if entry.until is Until.ARGUMENT else 0
    return attempts, deferrals, until


def change(message: Message, frame: Frame, raw: bytes) -> None:
    """One frame with its payload, of a type that changes messages."""
    rule = BY_NUMBER[frame[At.TYPE]]
    if rule.entry is not None:
        part = next((part for part in message.parts if part.queue == frame[At.QUEUE]), None)
        if part is not None:
            attempts, deferrals, part.until = entry_after(rule.entry, frame)
            part.state, part.retries = rule.entry.state, part.retries + deferrals
            part.attempts = part.attempts if attempts is None else attempts
    if rule.leaves:
        _leave(message, rule, frame, raw)
        if frame[At.FLAGS] & _TIMELESS:
            message.expiry = 0
    if rule.about is About.BODIES:  # redo_window.Window.spread
        message.location, message.offset = frame[At.ARGUMENT], frame[At.OFFSET]
    if rule.replaces:
        message.record = frame[At.RECORD]
        if frame[At.FLAGS] & _REPLAYED:
            message.flags |= RecordFlag.REPLAYED


def _leave(message: Message, rule: Rule, frame: Frame, raw: bytes) -> None:
    """Off its queue and onto others, where a barrier is one no more; Unusable."""
    left = [part for part in message.parts if part.queue != frame[At.QUEUE]]
    coming = _arrivals(rule, frame, raw, last=not left)
    there = {part.queue for part in left}
    attempts = frame[At.ATTEMPT] if rule.comes is Comes.TARGET else 0
    message.parts = left + [new_part(*each, frame, attempts) for each in coming
                            if each[0] not in there]
    message.flags &= ~_BARRIER
    if coming and rule.comes is not Comes.NAMED:
        message.origin = frame[At.QUEUE]
    if message.note is not None and message.note.to == frame[At.QUEUE]:
        message.note = None
    if rule.fails:
        message.note = _note(frame, raw)


def _note(frame: Frame, raw: bytes) -> FailureNote | None:
    """As core.engine.failures has it."""
    try:
        checked(frame, raw)
    except Unusable:
        return None
    return note_in(raw, frame[At.TARGET], frame[At.REASON], frame[At.TIME])


def _arrivals(rule: Rule, frame: Frame, raw: bytes, *, last: bool) -> list[Arrival]:
    """Where a message comes to that leaves a queue, its last one or not."""
    if rule.comes is Comes.NAMED:
        return targets(frame, checked(frame, raw))
    if rule.comes is Comes.TARGET:
        return [(frame[At.TARGET], frame[At.PRIORITY], 0)] if frame[At.TARGET] else []
    # Without a time there is no part: a message on no queue waits on IDEL (format.pool).
    if last and rule.comes is Comes.IDEL and frame[At.FLAGS] & _TO_IDEL and frame[At.ARGUMENT]:
        return [(IDEL, frame[At.PRIORITY], -(-frame[At.ARGUMENT] // NS))]
    return []


def new_part(queue: int, priority: int, until: int, frame: Frame, attempts: int = 0) -> QueuePart:
    """A message appears on a queue by this frame; `until` (unix seconds) defers it."""
    state = PartState.DEFERRED if until else PartState.READY
    if frame[At.FLAGS] & _PREPARED:
        state, until = PartState.PREPARED, frame[At.REASON]
    seconds = frame[At.TIME] // NS & 0xFFFFFFFF
    return QueuePart(queue, min(priority, limits.PRIORITIES - 1), state, attempts, 0, until,
                     seconds, frame[At.LSN])


def checked(frame: Frame, raw: bytes) -> bytes:
    """The payload of a frame other than PUT; Unusable when its CRC, if it has one, is wrong."""
    if len(raw) != frame[At.LENGTH]:
        raise Unusable("payload is cut")
    if frame[At.CRC] and crc32c(raw) != frame[At.CRC]:
        raise Unusable("payload fails its CRC")
    return raw


def targets(frame: Frame, raw: bytes) -> list[Arrival]:
    """The queues that a frame's payload names; Unusable."""
    if len(raw) != frame[At.PARTS] * PART.size:
        raise Unusable(f"{len(raw)} bytes do not name {frame[At.PARTS]} queues")
    listed = list(PART.iter_unpack(raw))
    if any(not queue or priority >= limits.PRIORITIES for queue, priority, _, _ in listed):
        raise Unusable("it names no queue or no priority")
    return [(queue, priority, until) for queue, priority, _, until in listed]
