"""Archive files of the journal as `omq ship` left it in an object store, for analytics on a host
that has no spool: the same that omq-archive makes of retired journal files.

    chain      the objects of one term after a base that began them anew
    file       a journal file, put together of the pieces of one chain; the next file, or the next
               chain, says that it is over, and up to which LSN it counts

What a chain says counts up to the file with which the next one begins: that one is of the primary
that went on. The file that is still written is made by a later run. A file that is there already
is not made again; if it is of another instance, or has frames that the next file does not follow,
the run ends. A file of which a part was never shipped, because the place was away for too long, is
not made, and told.

Invariants: 1. an object counts whose CRC is right, whose number is next, and which follows the one
before; 2. an archive file appears whole, by rename (storage.archive); 3. none is changed.

In the middle of a crash: the next run goes on after the last archive file.

Errors: PlaceDamaged: says which object; what comes before it was made; PlaceUnavailable;
StreamBroken; OtherHistory; DiskError, SpoolFull.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from omq.base.errors import OtherHistory, PlaceDamaged
from omq.format import shipped
from omq.format.archive import HEADER, ArchiveHeader, decode_header
from omq.format.findings import Finding
from omq.format.journal import FileHeader, decode_file_header
from omq.format.shipped import journal_name
from omq.format.standby import Piece, PieceKind
from omq.services.ship.bases import bases_of, journal_objects, read_object, read_start
from omq.services.ship.places import Place
from omq.storage.archive import FRAMES_SUFFIX, archive_name, cut, write
from omq.storage.files import read_file
from omq.storage.journal import numbers_in

Told = Callable[[str], None]
FILE_BYTES_MAX: Final = 8 << 30
"""Of a journal file: more than `journal_file_bytes` allows is damage."""
NUMBER_MAX: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class _Chain:
    """Objects `first` to before `end` of a term. `file`: the first journal file that counts of it
    and is whole; `below`: the first that does not."""

    term: int
    first: int
    end: int
    file: int
    below: int


class _File:
    """One journal file on its way."""

    def __init__(self, header: FileHeader, page: bytes) -> None:
        self.header = header
        self.data = bytearray(page)
        self.lsn = header.first_lsn - 1 if header.first_lsn > header.follows_lsn else 0

    def add(self, piece: Piece) -> None:
        """A block at its place, or that there is none; what is between was never written."""
        self.lsn = max(self.lsn, piece.lsn)
        if piece.kind is PieceKind.BLOCK:
            self._put(piece)

    def _put(self, block: Piece) -> None:
        self.data.extend(bytes(max(0, block.offset - len(self.data))))
        self.data[block.offset : block.offset + len(block.payload)] = block.payload

    def whole(self) -> bytes:
        """As long as it was made."""
        return bytes(self.data).ljust(self.header.size, b"\0")


@dataclass(slots=True)
class Made:
    """What a run has made. `number`: of the last file, 0: none; `findings`: what is damaged in
    them; `gaps`: files of which a part was not shipped, and which were not made."""

    files: int = 0
    frames: int = 0
    number: int = 0
    findings: int = 0
    gaps: list[int] = field(default_factory=list)


class Archiving:
    """One run into a directory."""

    def __init__(self, place: Place, folder: Path, tell: Told, *, level: int, bodies: bool) -> None:
        self._place, self._folder, self._tell = place, folder, tell
        self._level, self._bodies = level, bodies
        self._made = Made()
        self._there = set(numbers_in(folder, FRAMES_SUFFIX))

    def run(self) -> Made:
        """All files that are whole there and not here."""
        uuid = self._identity()
        if self._there:
            self._refuse_others(max(self._there), lambda header: header.uuid.hex() == uuid)
        held: _File | None = None
        for chain in self._chains():
            for piece in self._pieces(chain, uuid):
                if piece.kind is PieceKind.FILE:
                    header = self._header(chain, piece)
                    self._finish(held, header)
                    held = _File(header, bytes(piece.payload)) if (
                        chain.file <= header.number < chain.below) else None
                elif held is not None and piece.number == held.header.number:
                    self._check_inside(chain, held, piece)
                    held.add(piece)
        return self._made

    def _identity(self) -> str:
        try:
            return str(json.loads(self._place.read(shipped.IDENTITY) or b"")["uuid"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise PlaceDamaged(url=self._place.url, name=shipped.IDENTITY, reason="nothing was "
                               "shipped there") from error

    def _header(self, chain: _Chain, piece: Piece) -> FileHeader:
        header = decode_file_header(piece.payload)
        if isinstance(header, Finding) or header.size > FILE_BYTES_MAX:
            raise PlaceDamaged(url=self._place.url, name=f"journal/{chain.term:06d}", reason="the "
                               f"header of journal file {piece.number} is damaged")
        return header

    def _check_inside(self, chain: _Chain, held: _File, piece: Piece) -> None:
        if piece.kind is PieceKind.BLOCK and (
                piece.offset + len(piece.payload) > held.header.size):
            raise PlaceDamaged(url=self._place.url, name=f"journal/{chain.term:06d}", reason="a "
                               f"block lies after the end of journal file {piece.number}")

    # what is there

    def _chains(self) -> list[_Chain]:
        ends: dict[int, tuple[int, int]] = {}
        for term, sequence in journal_objects(self._place):
            first, _ = ends.get(term, (sequence, 0))
            ends[term] = first, sequence + 1
        begins = sorted({(term, first) for term, (first, _) in ends.items()} | {
            (base.term, base.journal) for base in bases_of(self._place)
            if base.term in ends and ends[base.term][0] <= base.journal < ends[base.term][1]
            and self._start(base.term, base.journal)[1] == 0})
        chains, below = [], NUMBER_MAX
        for (term, first), after in reversed(list(pairwise([*begins, (-1, 0)]))):
            end = after[1] if after[0] == term else ends[term][1]
            file = self._start(term, first)[0]
            chains.append(_Chain(term, first, end, file, below))
            below = min(below, file)
        return chains[::-1]

    def _start(self, term: int, sequence: int) -> tuple[int, int]:
        """Of an object: the journal file in which it begins, and `previous`."""
        name = journal_name(term, sequence)
        seal = read_start(self._place, name)
        if seal is None:
            raise PlaceDamaged(url=self._place.url, name=name, reason="it is not there")
        return seal.first_file, seal.previous

    def _pieces(self, chain: _Chain, uuid: str) -> Iterator[Piece]:
        """Those of the files that are wanted of a chain; more may come before."""
        wanted = max((each + 1 for each in self._there if chain.file <= each < chain.below),
                     default=chain.file)
        if wanted >= chain.below:
            return
        low, high = chain.first, chain.end
        while high - low > 1 and wanted > chain.file:
            middle = (low + high) // 2
            low, high = (middle, high) if self._start(chain.term, middle)[0] < wanted else (
                low, middle)
        previous = None
        for sequence in range(low, chain.end):
            seal, pieces = read_object(self._place, journal_name(chain.term, sequence), uuid,
                                       sequence, previous)
            previous = seal.crc
            self._tell(f"object {sequence} of term {chain.term}, journal file {seal.first_file}")
            yield from pieces

    # what is made

    def _finish(self, held: _File | None, after: FileHeader) -> None:
        """The file is over: another begins."""
        before = after.follows_number
        if before in self._there:
            self._refuse_others(before, lambda header: header.last_lsn <= after.follows_lsn)
        if held is None or held.header.number in self._there:
            return
        number = held.header.number
        if before != number or held.lsn < after.follows_lsn:  # the rest of it was not shipped
            self._made.gaps.append(number)
            return
        pieces = cut(held.whole(), number, held.header.uuid, limit=after.follows_lsn)
        header = write(self._folder, pieces, level=self._level, bodies=self._bodies)
        self._there.add(number)
        self._made.files += 1
        self._made.frames += header.frames
        self._made.number = number
        self._made.findings += len(pieces.findings)

    def _refuse_others(self, number: int, fits: Callable[[ArchiveHeader], bool]) -> None:
        path = self._folder / archive_name(number)
        found = decode_header(read_file(path, HEADER.size))
        if isinstance(found, Finding) or not fits(found):
            raise OtherHistory(file=path, url=self._place.url)
