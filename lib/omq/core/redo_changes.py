"""What a journal frame does to the pool record of its message: one function for each kind of frame.

The caller has found the record and has made sure that the frame is newer than it. A frame about a
queue that the message is not on changes nothing. Payloads that say where a message goes are checked
before they are believed; `Unusable` leaves the record as it was.

Invariant: applied in LSN order to the same record, the same frames give the same record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from omq.base import limits
from omq.base.checksum import crc32c
from omq.core.state import IDEL
from omq.format.journal import FRAME, FrameFlag, FrameType
from omq.format.message import PART
from omq.format.pool import Message, PartState, QueuePart, RecordFlag, lease_tag

NS = 1_000_000_000
Frame = Sequence[Any]
_at = {name: i for i, name in enumerate(FRAME.names)}


class At:
    """Positions of the fields in a frame as a row."""

    TYPE, PRIORITY, FLAGS, QUEUE = _at["type"], _at["priority"], _at["flags"], _at["queue"]
    ATTEMPT, LSN, TIME, QPOOL = _at["attempt"], _at["lsn"], _at["time"], _at["qpool"]
    SIZE, LENGTH, CRC, OFFSET = _at["size"], _at["length"], _at["crc"], _at["offset"]
    PID, UID, FILE, RECORD = _at["pid"], _at["uid"], _at["file"], _at["record"]
    PARTS, LEASE, ARGUMENT = _at["parts"], _at["lease"], _at["argument"]
    UNIT, REASON, TARGET, TOKEN = _at["unit"], _at["reason"], _at["target"], _at["token"]


@dataclass(slots=True)
class Unusable(Exception):
    """The payload of a frame cannot be believed."""

    reason: str


def new_part(queue: int, priority: int, until: int, frame: Frame) -> QueuePart:
    """A message appears on a queue by this frame; `until` (unix seconds) defers it."""
    state = PartState.DEFERRED if until else PartState.READY
    seconds = frame[At.TIME] // NS & 0xFFFFFFFF
    return QueuePart(queue, min(priority, limits.PRIORITIES - 1), state, 0, 0, until, seconds,
                     frame[At.LSN])


def part_on(message: Message, queue: int) -> QueuePart | None:
    return next((part for part in message.parts if part.queue == queue), None)


def checked(frame: Frame, raw: bytes) -> bytes:
    """The payload of a frame other than PUT; Unusable when its CRC, if it has one, is wrong."""
    if len(raw) != frame[At.LENGTH]:
        raise Unusable("payload is cut")
    if frame[At.CRC] and crc32c(raw) != frame[At.CRC]:
        raise Unusable("payload fails its CRC")
    return raw


def _off(message: Message, frame: Frame) -> None:
    message.parts = [part for part in message.parts if part.queue != frame[At.QUEUE]]


def _give(message: Message, frame: Frame, _: bytes) -> None:
    part = part_on(message, frame[At.QUEUE])
    if part is not None:
        part.state, part.attempts = PartState.ACTIVE, frame[At.ATTEMPT]
        part.until = lease_tag(frame[At.LSN], frame[At.TOKEN])


def _done(message: Message, frame: Frame, _: bytes) -> None:
    _off(message, frame)


def _delete(message: Message, frame: Frame, _: bytes) -> None:
    """By an operator. TO_IDEL: its last queue; it waits on IDEL, where it can be brought back."""
    _off(message, frame)
    if frame[At.FLAGS] & FrameFlag.TO_IDEL and not message.parts and frame[At.ARGUMENT]:
        until = -(-frame[At.ARGUMENT] // NS)
        message.parts.append(new_part(IDEL, frame[At.PRIORITY], until, frame))
        message.origin = frame[At.QUEUE]


def _defer(message: Message, frame: Frame, _: bytes) -> None:
    part = part_on(message, frame[At.QUEUE])
    if part is not None:
        part.state, part.until = PartState.DEFERRED, -(-frame[At.ARGUMENT] // NS)
        part.attempts = frame[At.ATTEMPT]
        if not frame[At.FLAGS] & FrameFlag.FAILED:
            part.retries += 1


def _ready(message: Message, frame: Frame, _: bytes) -> None:
    part = part_on(message, frame[At.QUEUE])
    if part is not None:
        part.state, part.until, part.attempts = PartState.READY, 0, frame[At.ATTEMPT]


def _hold(message: Message, frame: Frame, _: bytes) -> None:
    part = part_on(message, frame[At.QUEUE])
    if part is not None:
        part.state, part.until = PartState.HELD, 0


def _move(message: Message, frame: Frame, raw: bytes) -> None:
    listed = targets(frame, checked(frame, raw))
    _off(message, frame)
    present = {part.queue for part in message.parts}
    message.parts += [new_part(queue, priority, until, frame)
                      for queue, priority, _flags, until in listed if queue not in present]
    message.record = frame[At.RECORD]
    if frame[At.FLAGS] & FrameFlag.REPLAYED:
        message.flags |= RecordFlag.REPLAYED


def targets(frame: Frame, raw: bytes) -> list[tuple[int, int, int, int]]:
    """Queue, priority, flags, until of each queue that a MOVE names; Unusable."""
    if len(raw) != frame[At.PARTS] * PART.size:
        raise Unusable(f"{len(raw)} bytes do not name {frame[At.PARTS]} queues")
    listed = [PART.unpack_from(raw, at) for at in range(0, len(raw), PART.size)]
    if any(not queue or priority >= limits.PRIORITIES for queue, priority, _, _ in listed):
        raise Unusable("it names no queue or no priority")
    return listed


def _poison(message: Message, frame: Frame, _: bytes) -> None:
    _off(message, frame)
    if part_on(message, frame[At.TARGET]) is None:
        part = new_part(frame[At.TARGET], frame[At.PRIORITY], 0, frame)
        part.attempts = frame[At.ATTEMPT]
        message.parts.append(part)
    message.origin = frame[At.QUEUE]


CHANGES: dict[int, Callable[[Message, Frame, bytes], None]] = {
    FrameType.GIVE: _give, FrameType.DONE: _done, FrameType.DEFER: _defer,
    FrameType.RELEASE_GIVEN: _ready, FrameType.RELEASE: _ready, FrameType.HOLD: _hold,
    FrameType.MOVE: _move, FrameType.POISON: _poison, FrameType.DELETE: _delete,
}  # fmt: skip
