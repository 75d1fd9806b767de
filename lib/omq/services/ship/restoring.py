"""A spool from an object store, as it was at a point of time: the newest base before it, then the
journal up to it, taken as a standby takes what its primary sends.

The point is the end of a block: a group of operations counts whole or not at all, as after a crash.
What comes of it is one of two:

    to look at        a former primary (storage.instance_file.Role): tools read it, none serves it
    in the place of   the primary of the next term, with the identity of what was lost: whoever has
                      that must never serve again

Until the end the directory has no instance.json and is not a spool; what was begun and not finished
is begun anew in an empty directory.

Invariants: 1. an object counts whose CRC is right, whose number is next, and which follows the one
before (`previous`); 2. nothing counts behind one that is missing; 3. a base counts whole, and with
the journal up to its checkpoint.

Errors: NothingToRestore: no base is old enough, or the journal ends before a base is whole;
PlaceDamaged: says up to which LSN a restore is possible; PlaceUnavailable; those of a standby.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from omq.base.clock import iso_time
from omq.base.errors import NothingToRestore, PlaceDamaged, StreamBroken
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.standby.promotion import promote
from omq.core.standby.replica import Replica
from omq.format.journal import BLOCK
from omq.format.shipped import Base, Seal, base_name, journal_name
from omq.format.standby import Piece, PieceKind
from omq.services.ship.bases import bases_of, journal_objects, read_object
from omq.services.ship.places import Place
from omq.services.standby.base_receiving import BaseReceiving
from omq.services.standby.receiving import Receiving
from omq.storage import spool
from omq.storage.instance_file import Instance, Role

SETTLE_BYTES = 64 << 20
Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Point:
    """Up to where: the last block that is not after this LSN or time (wall clock, ns); None: all
    that there is."""

    lsn: int | None = None
    time_ns: int | None = None

    def has(self, block: Piece) -> bool:
        """Is this block not after it?"""
        if self.lsn is not None:
            return block.lsn <= self.lsn
        return self.time_ns is None or int(BLOCK.as_dict(block.payload)["time"]) <= self.time_ns


@dataclass(slots=True)
class Restored:
    """What came of it. `ended`: the journal there goes on after the point; False: that was all of
    it. `time_ns`: of the last block, 0: none was needed."""

    instance: Instance
    base: Base
    lsn: int = 0
    time_ns: int = 0
    objects: int = 0
    ended: bool = False


class Restoring:
    """One restore into an empty directory."""

    def __init__(self, place: Place, paths: SpoolPaths, settings: Settings, point: Point,
                 tell: Told) -> None:
        self._place, self._paths, self._settings = place, paths, settings
        self._point, self._tell = point, tell
        self._base_of: Base | None = None  # that everything is of

    def run(self, time_ns: int, *, takes_place: bool) -> Restored:
        """See the module. `time_ns`: now."""
        base = self._base_of = self._base()
        spool.make_directories(self._paths)
        copy = BaseReceiving(self._paths)
        session: Receiving | None = None
        try:
            self._copy(base, copy)
            first = Instance(copy.uuid, 0, Role.STANDBY, "restored")
            session = Receiving(self._paths, first, Replica(self._paths, copy.uuid, self._settings),
                                begun=False)
            made = Restored(first, base)
            self._journal(base, session, made)
            if session.mirror.mark.lsn < base.lsn:
                raise NothingToRestore(url=self._place.url, reason=f"the base of "
                                       f"{iso_time(base.time_ns)} needs the journal up to LSN "
                                       f"{base.lsn}, which ends at {session.mirror.mark.lsn}")
            made.lsn = session.mirror.mark.lsn
            standby = replace(first, term=base.term)
            copy.finish(standby)
        finally:
            copy.close()
            if session is not None:
                session.close()
        said = "" if takes_place else f"restored from {self._place.url}"[:300]
        made.instance = promote(self._paths, standby, self._settings, time_ns,
                                role=Role.PRIMARY if takes_place else Role.FORMER, primary=said)
        return made

    def _base(self) -> Base:
        found = bases_of(self._place)
        if not found:
            raise NothingToRestore(url=self._place.url, reason="there is no whole base")
        point = self._point
        fit = [each for each in found
               if (point.lsn is None or each.lsn <= point.lsn)
               and (point.time_ns is None or each.time_ns <= point.time_ns)]
        if not fit:
            oldest = found[0]
            raise NothingToRestore(url=self._place.url, reason="its oldest base is of LSN "
                                   f"{oldest.lsn}, {iso_time(oldest.time_ns)}, after that point")
        return fit[-1]

    def _copy(self, base: Base, copy: BaseReceiving) -> None:
        previous = 0
        for part in range(base.parts):
            name = base_name(base.term, base.time_ns, part)
            seal, pieces = self._object(name, part, previous)
            previous = seal.crc
            for piece in pieces:
                copy.take(piece)
            self._tell(f"base: {part + 1} of {base.parts} parts")
        if not copy.complete or previous != base.last_crc or copy.uuid.hex() != base.uuid:
            raise PlaceDamaged(url=self._place.url, name=base_name(base.term, base.time_ns),
                               reason="its parts are not those that it names")

    def _object(self, name: str, sequence: int, previous: int | None
                ) -> tuple[Seal, Iterator[Piece]]:
        uuid = "" if self._base_of is None else self._base_of.uuid
        return read_object(self._place, name, uuid, sequence, previous)

    def _journal(self, base: Base, session: Receiving, made: Restored) -> None:
        session.take(Piece(PieceKind.FOLLOW, base.term))
        sequence, previous, skips, held = base.journal, None, base.skip, 0
        last = self._last(base)
        while sequence <= last and not made.ended:
            if self._point.lsn is not None and session.mirror.lsn >= self._point.lsn:
                made.ended = True
                break
            name = journal_name(base.term, sequence)
            try:
                seal, pieces = self._object(name, sequence, previous)
                for piece in pieces:
                    if skips:
                        skips = not (piece.kind is PieceKind.FILE and piece.number == base.file)
                        continue
                    if piece.kind is PieceKind.BLOCK and not self._point.has(piece):
                        made.ended = True
                        break
                    session.take(piece)
                    held += len(piece.payload)
                    if piece.kind is PieceKind.BLOCK:
                        made.time_ns = int(BLOCK.as_dict(piece.payload)["time"])
            except (PlaceDamaged, StreamBroken) as error:
                raise self._no_further(name, error, session, base) from error
            sequence, previous, made.objects = sequence + 1, seal.crc, made.objects + 1
            if held >= SETTLE_BYTES:
                session.settle()
                held = 0
            self._tell(f"journal: object {sequence - base.journal} of {last - base.journal + 1}, "
                       f"LSN {session.mirror.lsn}")
        session.settle()

    def _last(self, base: Base) -> int:
        """The last object of the term; those in between may be missing."""
        objects = journal_objects(self._place, base.term, since=base)
        return objects[-1][1] if objects else base.journal - 1

    def _no_further(self, name: str, error: PlaceDamaged | StreamBroken, session: Receiving,
                    base: Base) -> PlaceDamaged:
        """After that nothing counts; who can do with less says so."""
        lsn = session.mirror.lsn
        if lsn >= base.lsn:
            left = f"what comes before it can be had: --at {lsn}"
        else:
            older = [each.lsn for each in bases_of(self._place) if each.lsn < base.lsn]
            left = (f"the base of {iso_time(base.time_ns)} is of no use without it; "
                    + (f"an earlier one may be: --at {older[-1]}" if older
                       else "there is no earlier one"))
        return PlaceDamaged(url=self._place.url, name=name, reason=f"{error.fields['reason']}; "
                            f"{left}")


