"""Message Pool files `nQP`: a header record, then 512-byte records, each standing alone.

    file   := header (512 bytes), record * n          record n lies at 512 * (n + 1)

Each record has its own CRC-32C over its used part (bytes 8 .. used) and names its file and its own
number, so a record that was copied, renumbered or torn is noticed on its own. Kinds:
    FREE   all zero, or a cleared slot        LIVE   a message        MORE   continuation of one
A message on no queue (parts = 0) waits on IDEL. IDEL itself is written only for a message that an
operator deleted and may still bring back: one DEFERRED part. A message on more
than 16 queues goes on in the record of the same file that `next` names (seed: NextRecord).

Queue part (21 bytes): queue, priority (low 4 bits) with state (high 4 bits), attempts (failed
ones, up to 255), retries (defers by a reader, up to 255), until, submit time (unix s), sequence.
A message that failed its way to a dead-letter queue has a note of it behind its parts, where they
leave room (format.failure_note): outside of the record's CRC, with one of its own.

`until` is the defer time in unix seconds when DEFERRED, `lease_tag` when ACTIVE, the number of its
unit of work when PREPARED. A unit in doubt is itself a message, PREPARED on IDEL.

In the middle of a crash: records are written through the double-write file of a checkpoint
(storage/pool.py), so a record that fails its CRC after recovery is damage, never a torn write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

from omq.base.checksum import crc32c
from omq.format.failure_note import FailureNote, decode_note
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout

VERSION = 1
RECORD_BYTES = 512
PARTS_PER_RECORD = 16
NO_RECORD = 0xFFFFFFFF
FILE_MAGIC = b"OMQF"
RECORD_MAGIC = b"OMQR"
CRC_FROM = 8

FILE_HEADER = Layout("magic:4s crc:I version:H used:H number:I uuid:16s time:q reserved:24s", 64)
RECORD = Layout(
    "magic:4s crc:I version:B kind:B used:H file:B note:B parts:H flags:I record:I next:I "
    "lsn:Q qpool:Q time:q message_id:24s correlation_id:24s location:I length:I offset:I "
    "body_crc:I size:Q expiry:q pid:I uid:I reply_to:H origin:H group:Q group_sequence:I "
    "segment_offset:I report:I application:4s trace:Q",
    176,
)
PART = Layout("queue:H grade:B attempts:B retries:B until:I submitted:I sequence:Q", 21)
assert RECORD.size + PARTS_PER_RECORD * PART.size == RECORD_BYTES


def lease_tag(lease: int, token: int) -> int:
    """`until` of an ACTIVE part: the low half of the lease, folded with the token of its reader, so
    that nobody else can say that it holds the message. Folded once more it is the lease again."""
    return (lease ^ token ^ token >> 32) & 0xFFFFFFFF


class RecordKind(IntEnum):
    """What a pool slot holds."""

    FREE = 0
    LIVE = 1
    MORE = 2  # parts 17.. of the message whose record points here


class RecordFlag(IntFlag):
    """Bits of a record's `flags`."""

    PERSISTENT = 1
    CONTAINER = 2
    MORE_RECORDS = 4  # `next` is valid (seed: Flags=MORE RECORDS)
    HAS_ID = 8  # the message id was given by the submitter, not derived
    REPLAYED = 16  # an operator sent it back from POISON; a second failure shows it
    GROUPED = 32  # of a group; in the index only, for the record has the group
    MEMORY = 64  # no message: what a queue remembers of a message id (core.engine.duplicates)
    NOTED = 128  # why it failed is known (core.engine.failures); in the index only
    MEMBER = 256  # a barrier waits until it is done (core.engine.barriers); in the index only
    BARRIER = 512  # it was put to wait until others are done (core.engine.barriers)


class PartState(IntEnum):
    """State of a message on one queue."""

    READY = 1
    ACTIVE = 2  # handed out; a restart finds its reader gone or back
    DEFERRED = 3
    HELD = 4
    PREPARED = 6  # taken or put by a unit of work in doubt (5 is the index's)


_STATES = frozenset(map(int, PartState))


@dataclass(slots=True)
class QueuePart:
    """A message on one queue, as the pool keeps it."""

    queue: int
    priority: int
    state: PartState
    attempts: int
    retries: int
    until: int
    submitted: int  # unix seconds
    sequence: int  # LSN that put it on this queue: the order within a priority


@dataclass(slots=True)
class Message:
    """A message as the pool keeps it: everything that a restart needs but the body."""

    qpool: int
    file: int
    record: int
    lsn: int  # last journal frame that changed it
    time_ns: int
    message_id: bytes
    correlation_id: bytes
    flags: int
    location: int  # body: kind and file number (format/location.py)
    offset: int
    length: int  # payload bytes
    crc: int  # payload CRC-32C
    size: int  # body bytes
    expiry: int
    pid: int
    uid: int
    reply_to: int
    origin: int
    group: int
    group_sequence: int
    segment_offset: int
    report: int
    application: bytes
    trace: int
    parts: list[QueuePart] = field(default_factory=list)
    more: list[int] = field(default_factory=list)  # continuation records, same file
    note: FailureNote | None = None  # how it came to the dead-letter queue that it is on


def encode_file_header(number: int, uuid: bytes, time_ns: int) -> bytes:
    """The first 512 bytes of pool file `number`."""
    body = FILE_HEADER.pack(FILE_MAGIC, 0, VERSION, FILE_HEADER.size, number, uuid, time_ns, b"")
    crc = crc32c(memoryview(body)[CRC_FROM:])
    return (body[:4] + crc.to_bytes(4, "little") + body[CRC_FROM:]).ljust(RECORD_BYTES, b"\0")


def decode_file_header(data: bytes | memoryview, number: int, uuid: bytes) -> Finding | None:
    """None when the header is that of pool file `number` of this instance."""
    if len(data) < FILE_HEADER.size:
        return Finding(Kind.SHORT, "pool file shorter than its header")
    magic, crc, version, used, named, owner, _, _ = FILE_HEADER.unpack_from(data)
    if magic != FILE_MAGIC:
        return Finding(Kind.FOREIGN, "not a pool file: wrong magic")
    if version > VERSION:
        return Finding(Kind.NEWER, f"pool version {version}, known {VERSION}")
    if used != FILE_HEADER.size or crc32c(memoryview(data)[CRC_FROM:used]) != crc:
        return Finding(Kind.CORRUPT, "pool file header fails its CRC")
    if owner != uuid:
        return Finding(Kind.FOREIGN, "pool file of another instance")
    if named != number:
        return Finding(Kind.FOREIGN, f"this is pool file {named}QP under another name")
    return None


def _encode_parts(parts: list[QueuePart]) -> bytes:
    return b"".join(
        PART.pack(p.queue, p.priority | p.state << 4, min(p.attempts, 255), min(p.retries, 255),
                  p.until & 0xFFFFFFFF, p.submitted, p.sequence) for p in parts)


def _seal(record: bytes, note: bytes) -> bytes:
    crc = crc32c(memoryview(record)[CRC_FROM:])
    sealed = record[:4] + crc.to_bytes(4, "little") + record[CRC_FROM:] + note
    return sealed.ljust(RECORD_BYTES, b"\0")


def encode_message(m: Message) -> list[tuple[int, bytes]]:
    """(record number, 512 bytes) for the message and its continuations; `more` must be long
    enough."""
    chunks = [m.parts[i : i + PARTS_PER_RECORD] for i in range(0, len(m.parts), PARTS_PER_RECORD)]
    chunks = chunks or [[]]
    numbers = [m.record, *m.more]
    assert len(numbers) >= len(chunks), "continuation records are assigned before encoding"
    out = []
    for i, chunk in enumerate(chunks):
        following = numbers[i + 1] if i + 1 < len(chunks) else NO_RECORD
        flags = m.flags & ~RecordFlag.MORE_RECORDS
        if following != NO_RECORD:
            flags |= RecordFlag.MORE_RECORDS
        used = RECORD.size + len(chunk) * PART.size
        note = b"" if i or m.note is None else m.note.encode(m.qpool, RECORD_BYTES - used)
        body = RECORD.pack(
            RECORD_MAGIC, 0, VERSION, RecordKind.MORE if i else RecordKind.LIVE, used, m.file,
            len(note), len(chunk), flags, numbers[i], following, m.lsn,
            m.qpool, m.time_ns, m.message_id, m.correlation_id, m.location, m.length, m.offset,
            m.crc, m.size, m.expiry, m.pid, m.uid, m.reply_to, m.origin, m.group, m.group_sequence,
            m.segment_offset, m.report, m.application, m.trace)
        out.append((numbers[i], _seal(body + _encode_parts(chunk), note)))
    return out


@dataclass(frozen=True, slots=True)
class Record:
    """One decoded slot: its kind, the next record, and the message with the parts found here."""

    kind: RecordKind
    next: int
    message: Message


def check_record(data: bytes | memoryview, offset: int, file: int, number: int) -> Finding | int:
    """The used bytes of a record that passes its CRC (0 = free slot), else what is wrong."""
    view = memoryview(data)
    if len(view) - offset < RECORD_BYTES:
        return Finding(Kind.SHORT, "record cut by the end of the file", offset=offset)
    magic, crc, version, kind, used, named = RECORD.unpack_from(view, offset)[:6]
    if magic != RECORD_MAGIC:
        if not any(view[offset : offset + RECORD_BYTES]):
            return 0
        return Finding(Kind.CORRUPT, "not a pool record: wrong magic", offset=offset)
    if version > VERSION:
        return Finding(Kind.NEWER, f"record version {version}, known {VERSION}", offset=offset)
    if not RECORD.size <= used <= RECORD_BYTES or kind not in (1, 2):
        return Finding(Kind.CORRUPT, "record lengths do not fit", offset=offset)
    if crc32c(view[offset + CRC_FROM : offset + used]) != crc:
        return Finding(Kind.CORRUPT, "record fails its CRC", offset=offset)
    number_found = RECORD.unpack_from(view, offset)[9]
    if named != file or number_found != number:
        return Finding(Kind.FOREIGN, f"record {number_found} of {named}QP in a wrong place",
                       offset=offset)
    return int(used)


def decode_record(data: bytes | memoryview, offset: int, file: int, number: int
                  ) -> Record | Finding | None:
    """The record in a slot; None when the slot is free."""
    used = check_record(data, offset, file, number)
    if isinstance(used, Finding):
        return used
    if not used:
        return None
    view = memoryview(data)
    (_, _, _, kind, _, _, noted, count, flags, record, following, lsn, qpool, time_ns, message_id,
     correlation_id, location, length, at, crc, size, expiry, pid, uid, reply_to, origin, group,
     group_sequence, segment_offset, report, application, trace) = RECORD.unpack_from(view, offset)
    if RECORD.size + count * PART.size != used:
        return Finding(Kind.CORRUPT, "record has another number of parts than bytes", offset=offset)
    parts = []
    for i in range(count):
        queue, grade, attempts, retries, until, submitted, sequence = PART.unpack_from(
            view, offset + RECORD.size + i * PART.size)
        if grade >> 4 not in _STATES or grade & 15 > 9:
            return Finding(Kind.CORRUPT, f"queue part {i} has an unknown state", offset=offset)
        parts.append(QueuePart(queue, grade & 15, PartState(grade >> 4), attempts, retries, until,
                               submitted, sequence))
    message = Message(qpool, file, record, lsn, time_ns, message_id, correlation_id, flags,
                      location, at, length, crc, size, expiry, pid, uid, reply_to, origin, group,
                      group_sequence, segment_offset, report, application, trace, parts)
    if noted:
        at = offset + used
        message.note = decode_note(bytes(view[at : min(at + noted, offset + RECORD_BYTES)]), qpool)
    return Record(RecordKind(kind), following, message)
