"""Pieces become objects. Pure: pieces in, bytes out.

A `Chain` is where the objects of one journal stand: the position after the last one, its number
and CRC. `seal` makes the next object and the chain after it; the chain moves on only when that
object is in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from omq.base.checksum import crc32c
from omq.format.findings import Finding
from omq.format.journal import BLOCK, decode_file_header
from omq.format.shipped import Seal, SealKind, encode
from omq.format.standby import Piece, PieceKind, Synced
from omq.services.standby.stream import Outgoing


@dataclass(frozen=True, slots=True)
class Chain:
    """See the module. `sequence`: of the next object; `previous`: `crc` of the last one, 0 before
    the first."""

    term: int
    uuid: bytes
    mark: Synced
    sequence: int = 0
    previous: int = 0


def mark_after(mark: Synced, piece: Piece) -> Synced:
    """The position after a piece of the journal."""
    if piece.kind is PieceKind.FILE:
        header = decode_file_header(piece.payload)
        assert not isinstance(header, Finding), header.reason
        return replace(mark, number=header.number, term=header.term, epoch=header.epoch,
                       offset=header.page, lsn=header.first_lsn - 1, last_crc=0)
    if piece.kind is PieceKind.BLOCK:
        return replace(mark, offset=piece.offset + len(piece.payload), lsn=piece.lsn,
                       last_crc=int.from_bytes(bytes(piece.payload[4:8]), "little"))
    return mark


def stream(pieces: Iterable[Piece]) -> bytearray:
    """Their bytes, numbered from 0."""
    out, numbered = bytearray(), Outgoing()
    for piece in pieces:
        for part in numbered.encode(piece):
            out += part
    return out


def seal(chain: Chain, pieces: Sequence[Piece], durable: int) -> tuple[bytes, Chain]:
    """The next object of a journal, and the chain after it. `durable`: as the mark notes it."""
    mark = chain.mark
    for piece in pieces:
        mark = mark_after(mark, piece)
    mark = replace(mark, durable=durable, generation=chain.sequence + 1)
    blocks = [each for each in pieces if each.kind is PieceKind.BLOCK]
    files = [each.number for each in pieces if each.kind in (PieceKind.FILE, PieceKind.BLOCK)]
    data = stream(pieces)
    head = Seal(
        SealKind.JOURNAL, chain.term, chain.uuid, chain.sequence, chain.previous, len(pieces),
        len(data), crc32c(data), first_file=files[0] if files else mark.number,
        first_lsn=_of(blocks[0], "first_lsn") if blocks else 0,
        last_lsn=blocks[-1].lsn if blocks else 0, time_ns=_of(blocks[-1], "time") if blocks else 0,
        mark=mark)
    return encode(head, data), replace(chain, mark=mark, sequence=chain.sequence + 1,
                                       previous=head.crc)


def seal_part(term: int, uuid: bytes, part: int, previous: int, pieces: Sequence[Piece],
              time_ns: int) -> tuple[bytes, int]:
    """A part of a base, and its `crc`."""
    data = stream(pieces)
    head = Seal(SealKind.BASE, term, uuid, part, previous, len(pieces), len(data), crc32c(data),
                time_ns=time_ns)
    return encode(head, data), head.crc


def _of(block: Piece, name: str) -> int:
    return int(BLOCK.as_dict(block.payload)[name])
