"""Failure note: how a message came to the dead-letter queue that it is on, in its pool record.

    note   := head, text          up to 255 bytes, after the queue parts of the first record
    head   := crc, to, reason, attempts, first, last, queue

`crc` is the CRC-32C of the QPoolId (8 bytes) and of the note after it. `text` is what its reader
said of the last failure, UTF-8, cut at a character where the record has no room for all of it.

The note lies after the bytes that the record's own CRC covers, and RECORD.note says how long it
is; 0 is none. So a record of a version that knew no notes is one without; and such a version reads
a record that has one as it reads any other, and writes it without. A note that fails its CRC is
not there: what it says is for people, and no reason to give up the message.

In the middle of a crash: a note is a part of its 512 bytes, which a checkpoint writes all or
nothing; until then it is in the payload of the POISON frame, from which redo makes it again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from omq.base import limits
from omq.base.checksum import crc32c
from omq.format.layout import Layout

NOTE: Final = Layout("crc:I to:H reason:B attempts:B first:q last:q queue:16s", 40)
NOTE_BYTES_MAX: Final = 255
TEXT_BYTES_MAX: Final = NOTE_BYTES_MAX - NOTE.size
_CRC_FROM: Final = 4
_TIME_MAX: Final = (1 << 63) - 1
_COUNT_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class FailureNote:
    """The last failure of a message before it was put on `to`. `first_ns`, `last_ns`: wall clock of
    its first and last failed attempt; 0 = not known."""

    to: int  # queue number: POISON or a dead-letter queue
    queue: str  # where it failed
    reason: int  # frame_rules.Reason
    attempts: int  # up to 255
    first_ns: int
    last_ns: int
    text: str  # of its reader, at most TEXT_BYTES_MAX bytes

    def encode(self, qpool: int, room: int) -> bytes:
        """Its bytes, the text cut to what `room` takes; b"": not even the head fits."""
        if room < NOTE.size:
            return b""
        text = cut(self.text, min(room, NOTE_BYTES_MAX) - NOTE.size).encode()
        body = NOTE.pack(0, self.to, self.reason, self.attempts, self.first_ns, self.last_ns,
                         self.queue.encode())[_CRC_FROM:] + text
        return _crc(qpool, body).to_bytes(_CRC_FROM, "little") + body


def decode_note(data: bytes, qpool: int) -> FailureNote | None:
    """None: it is none of this message."""
    if len(data) < NOTE.size:
        return None
    crc, to, reason, attempts, first_ns, last_ns, queue = NOTE.unpack_from(data)
    if _crc(qpool, data[_CRC_FROM:]) != crc:
        return None
    try:
        return FailureNote(to, queue.rstrip(b"\0").decode(), reason, attempts, first_ns, last_ns,
                           data[NOTE.size :].decode())
    except UnicodeDecodeError:
        return None


def note_of(packet: dict[str, object], to: int, reason: int, last_ns: int) -> FailureNote | None:
    """What the evidence packet of a POISON frame comes to as a note; None: it is none. The manager
    and redo make it of the same packet."""
    queue, attempts = packet.get("queue"), packet.get("attempts")
    first_ns, text = packet.get("first_ns", 0), packet.get("reason", "")
    if not isinstance(queue, str) or len(queue.encode(errors="replace")) > limits.QUEUE_NAME_BYTES:
        return None
    if not isinstance(attempts, int) or not isinstance(first_ns, int) or not isinstance(text, str):
        return None
    return FailureNote(to, queue, reason & 0xFF, min(max(0, attempts), _COUNT_MAX),
                       min(max(0, first_ns), _TIME_MAX), last_ns, cut(text, TEXT_BYTES_MAX))


def note_in(payload: bytes, to: int, reason: int, last_ns: int) -> FailureNote | None:
    """The same of the payload of a POISON frame."""
    try:
        packet = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return note_of(packet, to, reason, last_ns) if isinstance(packet, dict) else None


def cut(text: str, room: int) -> str:
    """As many whole characters as take at most `room` bytes; what is not a character is `?`."""
    raw = text[:room].encode(errors="replace")
    return raw[:room].decode(errors="ignore")


def _crc(qpool: int, body: bytes) -> int:
    return crc32c(body, crc32c(qpool.to_bytes(8, "little")))
