"""Journal file, block and frame: the bytes of the write-ahead journal.

A journal file `NNNNNNNNNN.jnl` is a header page, then blocks, then zeros to its full length:

    file   := header page (magic OMQJ, crc over the used part), block*, zeros
    block  := block header (128 bytes), frame header (128 bytes) * count, payloads, padding to page

Block header: `crc` is CRC-32C over everything after it up to the end of the frame headers
(bytes 8 .. 128 + 128*count). Payloads carry their own CRC in their frame header, computed by the
submitter. `durable` is the highest LSN known durable when the block was built: a bad block at or
below a later `durable` is damage, above it a torn tail. `length` counts whole pages.

Frame header fields:
    type      FrameType                         queue     queue id (0 = none)
    priority  0..9                              attempt   failed attempts counted so far
    flags     FrameFlag bits                    lsn       log sequence number, consecutive
    time      wall clock, ns                    qpool     QPoolId of the message
    size      body bytes                        length, crc, offset  payload: bytes, CRC-32C, and
    client    client or reader id                         where after the frame headers it starts
    pid, uid  of that process                   file, record       pool file and record of it
    parts     queue parts in the payload        lease     LSN of the GIVE that DONE... answer
    token     low half of the client's token    sequence  client's request number (retry detection)
    correlation  hash of the correlation id     argument  by type: defer until (s), count, ...
    unit      LSN of the first frame of its unit of work (0: alone)
    reason    code, the old pool record, or     target    other queue: POISON
              the number of a unit in doubt

`journal/newest` says which journal file is the newest, in two slots, 4096 bytes apart; that of file
n is slot n % 2. It is written when the file has its name and header, before any block of it.

In the middle of a crash: a block is accepted whole (its CRC right) or not at all, so the frames of
one block are atomic together; a unit of work never spans blocks, however large it is (ADR 0034).
One that is prepared has two blocks, and is in doubt between them (ADR 0038).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from omq.base.checksum import crc32c
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout

VERSION = 1
FILE_VERSION = 2  # of a file header with a term; without one it is VERSION (ADR 0120)
FILE_MAGIC = b"OMQJ"
BLOCK_MAGIC = b"OMQB"

FILE_HEADER = Layout(
    "magic:4s crc:I version:H used:H page:I uuid:16s epoch:Q number:I flags:I "
    "first_lsn:Q follows_lsn:Q follows_number:I term:I size:Q time:q next_qpool:Q reserved:32s",
    128,
)
BLOCK = Layout(
    "magic:4s crc:I version:H header:H count:I uuid:16s epoch:Q first_lsn:Q durable:Q time:q "
    "number:I sequence:I payload:I length:I flags:I term:I next_qpool:Q reserved:32s",
    128,
)
FRAME = Layout(
    "type:B priority:B flags:H queue:H attempt:H lsn:Q time:q qpool:Q size:Q "
    "length:I crc:I offset:I client:I pid:I file:B spare:B parts:H record:I uid:I "
    "lease:Q token:Q sequence:Q correlation:Q argument:q unit:Q reason:I target:H reserved:H",
    128,
)
_at = {name: place for place, name in enumerate(FRAME.names)}
FRAME_TYPE, FRAME_FLAGS, FRAME_QUEUE = map(FRAME.offset, ("type", "flags", "queue"))
_COUNT_AT = BLOCK.offset("count")
PAYLOAD = struct.Struct("<III")  # length, crc and offset of a frame
PAYLOAD_AT = FRAME.offset("length")
assert [FRAME.offset(name) - PAYLOAD_AT for name in ("length", "crc", "offset")] == [0, 4, 8]
RELOCATION = Layout("qpool:Q location:I offset:I record:I file:I", 24)  # payload of RELOCATE: rows
NEWEST = Layout(
    "magic:4s crc:I version:H spare:H number:I uuid:16s epoch:Q first_lsn:Q term:I "
    "reserved:12s", 64)
NEWEST_MAGIC = b"OMQN"
NEWEST_AT = 4096  # bytes between the two slots
CRC_FROM = 8  # all headers: the CRC covers what stands behind magic and crc


class At:
    """Places of the fields in a frame as a row."""

    TYPE, PRIORITY, FLAGS, QUEUE = _at["type"], _at["priority"], _at["flags"], _at["queue"]
    ATTEMPT, LSN, TIME, QPOOL = _at["attempt"], _at["lsn"], _at["time"], _at["qpool"]
    SIZE, LENGTH, CRC, OFFSET = _at["size"], _at["length"], _at["crc"], _at["offset"]
    CLIENT, PID, UID, FILE = _at["client"], _at["pid"], _at["uid"], _at["file"]
    RECORD, PARTS, LEASE, TOKEN = _at["record"], _at["parts"], _at["lease"], _at["token"]
    ARGUMENT, UNIT, REASON, TARGET = _at["argument"], _at["unit"], _at["reason"], _at["target"]


class FrameType(IntEnum):
    """What happened; what each means: frame_rules. Numbers are part of the format and never change
    meaning."""

    PUT = 1  # a message is born; payload = message
    GIVE = 2  # handed to a reader; attempt counted before the hand-out
    DONE = 3  # the reader has finished with it on this queue
    MOVE = 4  # left `queue`, is on the queues in the payload (queue parts)
    DEFER = 5  # not before `argument`
    POISON = 6  # moved to POISON (target); payload = evidence
    DELETE = 7  # gone: by idel.server or an operator
    HOLD = 8
    RELEASE = 9
    COMMIT = 10  # put by a unit of work that was in doubt: READY at its place
    PREPARE = 11  # taken by a unit of work in doubt; `reason` is the unit's number
    CHECKPOINT = 12  # the pool holds everything up to LSN `argument`
    READER_UP = 13  # payload = name
    READER_DOWN = 14
    QUEUE = 15  # queue defined or changed; payload = name
    OPERATOR = 16  # who did what; payload = text
    RELOCATE = 17  # bodies moved; payload = relocations
    EXPIRE = 18  # off `queue`: its time is over; on `target`, if there is one
    STOP = 19  # clean end of an epoch
    RELEASE_GIVEN = 20  # given back; `attempt` says what still counts
    BACKOUT = 21  # back at its old place, its unit of work was backed out; the attempt counts
    DEFINE = 22  # a queue is what the payload says, at run time
    UNDEFINE = 23  # no more: payload = name; with `queue`: its number is free


class FrameFlag(IntFlag):
    """Bits of a frame's `flags`."""

    PERSISTENT = 1
    CONTAINER = 2  # the body is a container file; the payload ends in its item reference
    LAST_PART = 4  # with DONE/DELETE: the message was on no other queue and is gone
    REPEATED = 8  # repeated at the start of a file so that it reads alone; changes nothing
    REQUEST_END = 16  # last frame of a request: (token, sequence) is carried out
    FAILED = 32  # the attempt counts as failed (reader died or gave up)
    RESULT = 64  # first frame whose qpool is the request's answer
    TO_IDEL = 128  # with DONE: on no queue now, waits on IDEL for idel.server
    HELD = 256
    REPLAY = 512  # with MOVE: an operator sent it back from POISON
    QUEUES = 1024  # with PUT: the payload is its queue parts alone, the body is elsewhere
    PREPARED = 2048  # with PUT: born in a unit of work in doubt; `reason` is the unit's number
    TIMELESS = 4096  # with EXPIRE: the message has no time from now on
    BARRIER = 8192  # with PUT: it waits until others are done (core.engine.barriers)
    MEMORY = 16384  # with PUT: of a message id that a queue has had (core.engine.duplicates)


class BlockFlag(IntFlag):
    """Bits of a block's `flags`."""

    UNSYNCED = 1  # written without a sync of its own: only non-persistent frames


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The header page of a journal file."""

    uuid: bytes
    epoch: int
    number: int
    page: int  # bytes
    size: int  # bytes of the whole file
    first_lsn: int  # LSN of its first frame
    follows_lsn: int  # LSN accepted as the last before it; the numbers between are void
    follows_number: int  # journal file before it, 0 = none
    time_ns: int
    next_qpool: int
    term: int = 0  # promotions that the history of this file has seen

    def encode(self) -> bytes:
        """One page."""
        body = FILE_HEADER.pack(
            FILE_MAGIC, 0, FILE_VERSION if self.term else VERSION, FILE_HEADER.size, self.page,
            self.uuid, self.epoch, self.number, 0, self.first_lsn, self.follows_lsn,
            self.follows_number, self.term, self.size, self.time_ns, self.next_qpool, bytes(32))
        crc = crc32c(memoryview(body)[CRC_FROM:])
        body = body[:4] + crc.to_bytes(4, "little") + body[CRC_FROM:]
        return body + bytes(self.page - len(body))


def decode_file_header(data: bytes | memoryview) -> FileHeader | Finding:
    """The header at the start of a journal file; END when it is all zero."""
    if len(data) < FILE_HEADER.size:
        return Finding(Kind.SHORT, f"{len(data)} bytes, a header has {FILE_HEADER.size}")
    (magic, crc, version, used, page, uuid, epoch, number, _flags, first, follows, follows_number,
     term, size, time_ns, next_qpool, _) = FILE_HEADER.unpack_from(data)
    if magic != FILE_MAGIC:
        if not any(data[: FILE_HEADER.size]):
            return Finding(Kind.END, "empty file")
        return Finding(Kind.FOREIGN, "not a journal file: wrong magic")
    if version > FILE_VERSION:
        return Finding(Kind.NEWER, f"journal version {version}, known {FILE_VERSION}")
    if used != FILE_HEADER.size or crc32c(memoryview(data)[CRC_FROM:used]) != crc:
        return Finding(Kind.CORRUPT, "file header fails its CRC")
    if page < 512 or page & (page - 1) or page > 1 << 20:
        return Finding(Kind.CORRUPT, f"page size {page}")
    return FileHeader(uuid, epoch, number, page, size, first, follows, follows_number, time_ns,
                      next_qpool, term)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest journal file, as `journal/newest` has it."""

    uuid: bytes
    number: int
    epoch: int
    first_lsn: int
    term: int = 0

    def encode(self) -> bytes:
        """One slot."""
        body = NEWEST.pack(NEWEST_MAGIC, 0, VERSION, 0, self.number, self.uuid, self.epoch,
                           self.first_lsn, self.term, b"")
        return body[:4] + crc32c(body[CRC_FROM:]).to_bytes(4, "little") + body[CRC_FROM:]


def decode_newest(data: bytes | memoryview) -> Newest | None:
    """The valid slot with the higher number; None: there is none."""
    found = []
    for at in (0, NEWEST_AT):
        slot = bytes(data[at : at + NEWEST.size]).ljust(NEWEST.size, b"\0")
        magic, crc, version, _, number, uuid, epoch, first_lsn, term, _ = NEWEST.unpack(slot)
        if magic == NEWEST_MAGIC and version <= VERSION and crc32c(slot[CRC_FROM:]) == crc:
            found.append(Newest(uuid, number, epoch, first_lsn, term))
    return max(found, key=lambda newest: newest.number, default=None)


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """A block whose header and frame headers passed their CRC."""

    epoch: int
    first_lsn: int
    count: int
    durable: int
    time_ns: int
    number: int
    sequence: int
    payload: int  # bytes of payloads
    length: int  # bytes of the block, whole pages
    flags: int
    next_qpool: int
    term: int = 0  # as in the header of its file

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.count - 1

    @property
    def payload_at(self) -> int:
        """Offset of the first payload byte inside the block."""
        return BLOCK.size + FRAME.size * self.count


def block_length(count: int, payload: int, page: int) -> int:
    """Bytes that a block occupies: whole pages."""
    return -(-(BLOCK.size + FRAME.size * count + payload) // page) * page


def frame_count(data: bytes | memoryview) -> int:
    """Of a block, as its header says."""
    return int.from_bytes(data[_COUNT_AT : _COUNT_AT + 4], "little")


def frame_bytes(data: bytes | memoryview, count: int, place: int) -> bytes:
    """The byte at `place` of each frame header of a block: a look at one flag of all of them takes
    a tenth of what numpy takes for a block with few."""
    end = BLOCK.size + FRAME.size * count
    return bytes(memoryview(data)[BLOCK.size + place : end : FRAME.size])


def seal_block(block: bytearray | memoryview, uuid: bytes, header: BlockHeader) -> None:
    """Write the block header over the first 128 bytes; frame headers must be in place."""
    BLOCK.pack_into(block, 0, BLOCK_MAGIC, 0, VERSION, BLOCK.size, header.count, uuid, header.epoch,
                    header.first_lsn, header.durable, header.time_ns, header.number,
                    header.sequence, header.payload, header.length, header.flags,
                    header.term, header.next_qpool, b"")
    crc = crc32c(memoryview(block)[CRC_FROM:header.payload_at])
    block[4:8] = crc.to_bytes(4, "little")


def decode_block(data: bytes | memoryview, offset: int, uuid: bytes, page: int
                 ) -> BlockHeader | Finding:
    """The block at `offset` of a file's bytes, with its CRC checked; payloads are not looked at."""
    view = memoryview(data)
    room = len(view) - offset
    if room < BLOCK.size:
        return Finding(Kind.END if room <= 0 else Kind.SHORT, "end of file", offset=offset)
    (magic, crc, version, header, count, block_uuid, epoch, first, durable, time_ns, number,
     sequence, payload, length, flags, term, next_qpool, _) = BLOCK.unpack_from(view, offset)
    if magic != BLOCK_MAGIC:
        if not any(view[offset : offset + page]):
            return Finding(Kind.END, "zeros", offset=offset)
        return Finding(Kind.CORRUPT, "not a block: wrong magic", offset=offset)
    if version > VERSION:
        return Finding(Kind.NEWER, f"block version {version}, known {VERSION}", offset=offset)
    heads = BLOCK.size + FRAME.size * count
    if header != BLOCK.size or heads > room or length > room or heads + payload > length:
        return Finding(Kind.CORRUPT, "block lengths do not fit the file", offset=offset, lsn=first)
    if length != block_length(count, payload, page):
        return Finding(Kind.CORRUPT, "block length is not whole pages", offset=offset, lsn=first)
    if crc32c(view[offset + CRC_FROM : offset + heads]) != crc:
        return Finding(Kind.CORRUPT, "block fails its CRC", offset=offset, length=length, lsn=first)
    if block_uuid != uuid:
        return Finding(Kind.FOREIGN, "block of another instance", offset=offset, length=length)
    return BlockHeader(epoch, first, count, durable, time_ns, number, sequence, payload, length,
                       flags, next_qpool, term)
