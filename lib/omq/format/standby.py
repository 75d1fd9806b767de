"""What a standby writes for itself, and the pieces that it is sent.

`journal/synced` says how far the journal of a standby is on its own disk: two slots of SYNCED,
NEWEST_AT bytes apart, written in turn. The slot with the higher generation and a right CRC counts:
a mark may also go down, when the primary has not kept what it had sent. `flags` says whether blocks
above it may count (MarkFlag.EXACT: none does).

A stream is a sequence of pieces in each direction, and each piece a head and a payload:

    piece := HEAD (64 bytes), payload (`length` bytes)

`crc` covers the head after it and the payload. `sequence` counts the pieces of one direction of
one connection from 0, so a piece that is missing, doubled or exchanged is noticed whatever its
bytes are; `term` is the sender's term, so a piece of an old primary is, too. A payload that fails
the CRC of a frame in it is the submitter's affair, and is passed on as it is.

In the middle of a crash: the slot of the mark that is being written fails its CRC, and the one
before counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from omq.base.checksum import crc32c
from omq.format.findings import Finding, Kind
from omq.format.journal import NEWEST_AT
from omq.format.layout import Layout

VERSION = 1
SYNCED_MAGIC = b"OMQY"
PIECE_MAGIC = b"OMQR"
CRC_FROM = 8
PAYLOAD_MAX: Final = 128 << 20
"""Of one piece: a block is no longer, and nobody may have memory taken for more."""

SYNCED = Layout(
    "magic:4s crc:I version:H flags:H number:I uuid:16s term:I last_crc:I epoch:Q generation:Q "
    "offset:Q lsn:Q durable:Q reserved:16s", 96)
HEAD = Layout(
    "magic:4s crc:I version:H kind:B spare:B term:I sequence:Q number:I length:I offset:Q lsn:Q "
    "durable:Q reserved:8s", 64)


class MarkFlag(IntFlag):
    """Bits of a mark's `flags`."""

    EXACT = 1  # what lies above it is void, however whole it looks


class PieceKind(IntEnum):
    """What a piece is."""

    HELLO = 1  # standby: who it is, and its position; payload JSON
    FOLLOW = 2  # primary: the position is in its history, and blocks follow from there; payload
    # JSON: promotions.json
    BACK = 3  # primary: its history goes up to `lsn` in file `number`: cut there, and say HELLO
    FILE = 4  # primary: a journal file begins; payload = its header page
    BLOCK = 5  # primary: a block of file `number` at `offset`; `lsn` is its last one
    BASE = 11  # standby: it has nothing, and asks for a copy; payload JSON
    COPY = 12  # primary: bytes at `offset` of a file of `lsn` bytes; payload: its name (`number`
    # bytes), then they
    COPIED = 13  # primary: that was all; the pool is that of `lsn`
    CONTAINER = 10  # primary: bytes at `offset` of a container of `lsn` bytes; payload: its
    # reference (22 bytes), then they; whole before the block that names it
    HOLE = 9  # primary: file `number` has nothing that counts up to `offset` and `lsn`
    DURABLE = 6  # primary: nothing new; `durable` as in every piece
    ACK = 7  # standby: it has everything up to `lsn`; up to `durable` it is on its disk
    REFUSE = 8  # either: why it ends; payload = text
    ASK = 14  # a member that begins: what are you? payload JSON: uuid, member
    SAID = 15  # the answer; payload JSON: uuid, member, role, promotions


@dataclass(frozen=True, slots=True)
class Synced:
    """How far a standby's journal is on its disk: the position after the last block."""

    uuid: bytes
    generation: int
    number: int  # journal file
    term: int  # in the header of that file
    epoch: int  # in it, too
    offset: int
    lsn: int  # the last one; in a file without a block that before its first
    durable: int = 0  # highest LSN that is known to be on the primary's disk
    last_crc: int = 0  # of the header of the last block, 0 = the file has none
    exact: bool = False  # nothing above it counts

    def encode(self) -> bytes:
        """One slot."""
        flags = MarkFlag.EXACT if self.exact else 0
        body = SYNCED.pack(SYNCED_MAGIC, 0, VERSION, flags, self.number, self.uuid, self.term,
                           self.last_crc, self.epoch, self.generation, self.offset, self.lsn,
                           self.durable, b"")
        return body[:4] + crc32c(body[CRC_FROM:]).to_bytes(4, "little") + body[CRC_FROM:]


def decode_synced(data: bytes | memoryview) -> Synced | Finding:
    """The valid slot with the higher generation."""
    found = []
    for at in (0, NEWEST_AT):
        slot = bytes(data[at : at + SYNCED.size]).ljust(SYNCED.size, b"\0")
        (magic, crc, version, flags, number, uuid, term, last_crc, epoch, generation, offset, lsn,
         durable, _) = SYNCED.unpack(slot)
        if magic != SYNCED_MAGIC:
            continue
        if version > VERSION:
            return Finding(Kind.NEWER, f"mark version {version}, known {VERSION}", offset=at)
        if crc32c(slot[CRC_FROM:]) == crc:
            found.append(Synced(uuid, generation, number, term, epoch, offset, lsn, durable,
                                last_crc, bool(flags & MarkFlag.EXACT)))
    if not found:
        return Finding(Kind.CORRUPT, "how far its journal is on its disk is not noted")
    return max(found, key=lambda each: each.generation)


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a stream. What `number`, `offset` and `lsn` mean says its kind."""

    kind: PieceKind
    term: int
    number: int = 0
    offset: int = 0
    lsn: int = 0
    durable: int = 0
    payload: bytes | memoryview = b""

    def encode(self, sequence: int) -> tuple[bytes, bytes | memoryview]:
        """Head and payload."""
        assert len(self.payload) <= PAYLOAD_MAX
        head = HEAD.pack(PIECE_MAGIC, 0, VERSION, self.kind, 0, self.term, sequence, self.number,
                         len(self.payload), self.offset, self.lsn, self.durable, b"")
        crc = crc32c(self.payload, crc32c(head[CRC_FROM:]))
        return head[:4] + crc.to_bytes(4, "little") + head[CRC_FROM:], self.payload


def payload_bytes(head: bytes | memoryview) -> int | Finding:
    """How many bytes of payload follow this head (HEAD.size bytes), before they are there."""
    magic, _, version, _, _, _, _, _, length, _, _, _, _ = HEAD.unpack_from(head)
    if magic != PIECE_MAGIC:
        return Finding(Kind.CORRUPT, "not a piece of a stream: wrong magic")
    if version > VERSION:
        return Finding(Kind.NEWER, f"stream version {version}, known {VERSION}")
    if length > PAYLOAD_MAX:
        return Finding(Kind.CORRUPT, f"a piece of {length} bytes")
    return int(length)


def decode_piece(head: bytes | memoryview, payload: bytes | memoryview, sequence: int
                 ) -> Piece | Finding:
    """The piece, which must be the one with this number."""
    length = payload_bytes(head)
    if isinstance(length, Finding):
        return length
    (_, crc, _, kind, _, term, number_of_piece, number, _, offset, lsn, durable, _
     ) = HEAD.unpack_from(head)
    if length != len(payload) or crc32c(payload, crc32c(head[CRC_FROM : HEAD.size])) != crc:
        return Finding(Kind.CORRUPT, f"piece {sequence} of the stream fails its CRC")
    if number_of_piece != sequence:
        return Finding(Kind.GAP, f"piece {number_of_piece} of the stream comes in the place of "
                       f"piece {sequence}")
    if kind not in PieceKind._value2member_map_:
        return Finding(Kind.NEWER, f"piece of a kind {kind} that is not known here")
    return Piece(PieceKind(kind), term, number, offset, lsn, durable, payload)
