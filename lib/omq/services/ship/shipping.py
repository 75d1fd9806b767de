"""What an instance ships: its journal as it grows, and now and then a base to begin with.

    start   whose place is it; where does the chain of our term end (the place itself says so)
    turn    the blocks that are durable since then become the next object
    base    a copy of the pool, the store and containers, part by part, then base.json

A chain that the journal here does not go on from any more (its files are gone; a power cut took
what had been durable) ends where it is: a new one begins after it with a new base, at the next
number. The same for a new term, whose numbers begin at 0.

Crash argument: nothing is kept here. A death between an object and the next leaves the place as it
says it is. An object whose answer did not come may be there: it is made again with the same name;
if it is there, and has the same bytes, it is this one. Other bytes are of somebody else who ships
here as this instance of this term: Superseded, and nothing more is shipped.

Journal files stay until their blocks are shipped (storage.standby_holds, as for a standby), at most
`standby_files_kept` after the newest.

Errors: PlaceUnavailable: try the same again; Superseded; ForeignPlace; PlaceEmpty: it was another
one, or is not mounted; PlaceUnfit: it replaces what is there; PlaceDamaged; StreamBroken (a base is
given up); DiskError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from omq.base.errors import (
    ForeignPlace,
    PlaceDamaged,
    PlaceEmpty,
    PlaceUnfit,
    StandbyDiverged,
    StreamBroken,
    Superseded,
)
from omq.base.paths import SpoolPaths
from omq.format import shipped
from omq.format.findings import Finding
from omq.format.journal import decode_file_header
from omq.format.shipped import Base, Seal, base_name, journal_name
from omq.format.standby import Piece, PieceKind, Synced
from omq.services.ship.bases import bases_of, journal_objects, read_start
from omq.services.ship.places import Place
from omq.services.ship.sealing import Chain, seal, seal_part
from omq.services.standby.base_sending import base as base_pieces
from omq.services.standby.sending import Sending
from omq.storage import standby_holds
from omq.storage.instance_file import Instance

MEMBER: Final = "object.store"
"""Who holds journal files, besides standbys."""
PART_BYTES: Final = 8 << 20
OBJECT_BYTES: Final = 16 << 20


@dataclass(slots=True)
class Shipped:
    """How far it is. `lsn`: shipped; `base_lsn`, `base_time_ns`: of the newest base, both 0: there
    is none. `last_object`: the name of the journal's last one there; empty: there is none."""

    lsn: int = 0
    objects: int = 0
    bytes: int = 0
    base_lsn: int = 0
    base_time_ns: int = 0
    last_object: str = ""


class Shipping:
    """See the module."""

    def __init__(self, paths: SpoolPaths, instance: Instance, place: Place, *,
                 anew: bool = False) -> None:
        """`anew`: the place may be empty, though there was one before."""
        self.state = Shipped()
        self.needs_base = ""  # why; empty: the chain goes on
        self._paths, self._instance, self._place, self._anew = paths, instance, place, anew
        self._sending: Sending | None = None
        self._chain: Chain | None = None
        self._waits: tuple[bytes, Chain] | None = None  # an object that is not in its place yet

    # the place

    def start(self) -> None:
        """Whose place it is, and where the chain goes on."""
        uuid, term = self._instance.uuid.hex(), self._instance.term
        mine = (json.dumps({"format": shipped.FORMAT, "uuid": uuid}) + "\n").encode()
        found = self._place.read(shipped.IDENTITY)
        if found is None:
            if MEMBER in (standby_holds.load(self._paths) or {}) and not self._anew:
                raise PlaceEmpty(url=self._place.url)
            self._place.create(shipped.IDENTITY, mine)
            found = self._place.read(shipped.IDENTITY)
        if found != mine:
            raise ForeignPlace(url=self._place.url, found=(found or b"").decode(
                "utf-8", "replace").strip()[:200], uuid=uuid)
        if self._place.create(shipped.IDENTITY, mine):  # it was there: nothing is lost by this
            raise PlaceUnfit(url=self._place.url)
        bases = bases_of(self._place, term)
        known = bases or [each for each in bases_of(self._place) if each.term < term]
        objects = journal_objects(self._place, since=known[-1] if known else None)
        if objects and objects[-1][0] > term:
            raise Superseded(url=self._place.url, name=journal_name(*objects[-1]), term=term)
        last_name = journal_name(*objects[-1]) if objects and objects[-1][0] == term else ""
        if bases:
            self.state.base_lsn, self.state.base_time_ns = bases[-1].lsn, bases[-1].time_ns
        if not last_name or not bases:
            self._begin_anew(self._last(last_name).sequence + 1 if last_name else 0,
                             "there is no base of this term yet")
            return
        last = self._last(last_name)
        self.state.last_object = last_name
        assert last.mark is not None
        self._chain = Chain(term, self._instance.uuid, last.mark, last.sequence + 1, last.crc)
        self.state.lsn = last.mark.lsn
        self._follow()

    def _last(self, name: str) -> Seal:
        found = read_start(self._place, name)
        if found is None or found.mark is None or found.uuid != self._instance.uuid:
            raise PlaceDamaged(url=self._place.url, name=name, reason="the last object is not part "
                               "of this instance's journal")
        return found

    def _follow(self) -> None:
        """Does the journal here go on from the chain's end?"""
        chain = self._chain
        assert chain is not None
        self._close()
        self._sending = Sending(self._paths, self._instance)
        hello = Piece(PieceKind.HELLO, self._instance.term, chain.mark.number,
                      payload=chain.mark.encode() + json.dumps(
                          {"uuid": self._instance.uuid.hex(), "member": MEMBER}).encode())
        try:
            self._sending.take(hello, chain.mark.durable)
            reason = "" if self._sending.following else "what was shipped is not in the journal"
        except StandbyDiverged as error:
            reason = str(error.fields["reason"])
        if reason:
            self._begin_anew(chain.sequence, reason)

    def _begin_anew(self, sequence: int, reason: str) -> None:
        self._close()
        self.needs_base = reason
        self._chain = Chain(self._instance.term, self._instance.uuid, _NOWHERE, sequence)

    # the journal

    def turn(self, durable: int) -> bool:
        """Ship what is durable up to there, one object at most; was there one?"""
        if self._waits is None:
            if self.needs_base or self._sending is None or self._chain is None:
                return False
            try:
                pieces = self._sending.turn(durable, OBJECT_BYTES)
            except StandbyDiverged as error:
                self._begin_anew(self._chain.sequence, str(error.fields["reason"]))
                return False
            if not pieces:
                return False
            self._waits = seal(self._chain, pieces, durable)
        self._put_waiting()
        return True

    def _put_waiting(self) -> None:
        """Put the object that waits; it waits on where that fails."""
        assert self._waits is not None and self._chain is not None
        data, behind = self._waits
        name = journal_name(self._chain.term, self._chain.sequence)
        self._put(name, data)
        self._chain, self._waits, self.state.last_object = behind, None, name
        self.state.lsn = behind.mark.lsn
        standby_holds.note_if_free(self._paths, MEMBER, behind.mark.number)

    def _put(self, name: str, data: bytes) -> None:
        if not self._place.create(name, data):
            found = self._place.read(name)
            if found != data:
                raise Superseded(url=self._place.url, name=name, term=self._instance.term)
        self.state.objects += 1
        self.state.bytes += len(data)

    # bases

    def base(self, alive: Callable[[], bool], time_ns: int) -> Iterator[None]:
        """Make a base: each step ships a part, and `turn` may be called between two. StreamBroken:
        it is given up, and nothing counts of it."""
        part, crc, total, size, held = 0, 0, 0, 0, list[Piece]()
        ends: dict[PieceKind, Piece] = {}
        with closing(base_pieces(self._paths, self._instance, MEMBER, alive)) as pieces:
            for piece in pieces:
                ends[piece.kind] = piece
                held.append(piece)
                size += len(piece.payload)
                if size >= PART_BYTES or piece.kind is PieceKind.COPIED:
                    data, crc = seal_part(self._instance.term, self._instance.uuid, part, crc, held,
                                          time_ns)
                    self._put(base_name(self._instance.term, time_ns, part), data)
                    part, total, size, held = part + 1, total + len(data), 0, []
                    yield
        began, copied = ends[PieceKind.FILE], ends[PieceKind.COPIED]
        anew = bool(self.needs_base)
        if anew:
            self._starts_at(began)
        assert self._chain is not None
        sequence, skip = (self._chain.sequence, False) if anew else self._object_of(began.number)
        made = Base(self._instance.uuid.hex(), self._instance.term, copied.lsn, part, total, crc,
                    began.number, sequence, skip, time_ns)
        self._put(base_name(self._instance.term, time_ns), made.encode())
        self.state.base_lsn, self.state.base_time_ns = made.lsn, time_ns
        if anew:
            self.needs_base = ""
            self._follow()
        else:  # what the copy held is there from now on
            standby_holds.note_if_free(self._paths, MEMBER, self._chain.mark.number)

    def _starts_at(self, began: Piece) -> None:
        """The chain begins with this file's first block."""
        header = decode_file_header(began.payload)
        assert self._chain is not None
        if isinstance(header, Finding):
            raise StreamBroken(peer="a base", reason=header.reason)
        self._chain = replace(self._chain, previous=0, mark=Synced(
            header.uuid, 1, header.number, header.term, header.epoch, header.page,
            header.first_lsn - 1))

    def _object_of(self, number: int) -> tuple[int, bool]:
        """The object of the chain from which a base goes on that begins with this journal file; is
        what it has before that file's header to be skipped?"""
        chain = self._chain
        assert chain is not None
        before = [each for each in bases_of(self._place, chain.term) if each.file <= number]
        if not before:
            raise StreamBroken(peer="a base", reason=f"no base says where journal "
                               f"file {number} was shipped")
        start = before[-1]
        if number == start.file:
            return start.journal, start.skip
        low, high = start.journal, chain.sequence  # `low` begins before the file
        while high - low > 1:
            middle = (low + high) // 2
            found = self._last(journal_name(chain.term, middle))
            low, high = (middle, high) if found.first_file < number else (low, middle)
        return low, True

    def close(self) -> None:
        """Let go of the journal; it is kept for what comes next."""
        self._close()

    def _close(self) -> None:
        if self._sending is not None:
            self._sending.close()
            self._sending = None


_NOWHERE: Final = Synced(bytes(16), 0, 0, 0, 0, 0, 0)
