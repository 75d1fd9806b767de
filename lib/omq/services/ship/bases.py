"""What a place has: its bases and which of them are too old, the start of an object, and an object
as it should be.

Errors: PlaceDamaged, PlaceUnavailable.
"""

from __future__ import annotations

from collections.abc import Iterator

from omq.base.errors import PlaceDamaged
from omq.format import shipped
from omq.format.findings import Finding
from omq.format.shipped import Base, Seal, journal_name
from omq.format.standby import Piece
from omq.services.ship.places import Place
from omq.services.standby.stream import PieceReader


def bases_of(place: Place, term: int | None = None) -> list[Base]:
    """The whole bases, oldest first; of one term, or of all."""
    prefix = "base/" if term is None else f"base/{term:06d}/"
    found = []
    for name in place.names(prefix):
        if not name.endswith(f"/{shipped.BASE}") or shipped.base_place(name) is None:
            continue
        data = place.read(name)
        if data is None:
            continue  # it was pruned meanwhile
        base = shipped.decode_base(data)
        if isinstance(base, Finding):
            raise PlaceDamaged(url=place.url, name=name, reason=base.reason)
        found.append(base)
    return sorted(found, key=lambda each: (each.term, each.time_ns))


def read_start(place: Place, name: str) -> Seal | None:
    """What an object says of itself; None: it is not there. PlaceDamaged."""
    data = place.read(name, shipped.START_BYTES)
    if data is None:
        return None
    found = shipped.decode_start(data)
    if isinstance(found, Finding):
        raise PlaceDamaged(url=place.url, name=name, reason=found.reason)
    return found


def read_object(place: Place, name: str, uuid: str, sequence: int, previous: int | None
                ) -> tuple[Seal, Iterator[Piece]]:
    """Object `sequence` of a chain, and its pieces. `uuid`: of whom; empty: of anybody. `previous`:
    the `crc` of the one before, None: any. PlaceDamaged; StreamBroken from the pieces."""
    data = place.read(name)
    if data is None:
        raise PlaceDamaged(url=place.url, name=name, reason="it is not there")
    found = shipped.decode(data)
    if isinstance(found, Finding):
        raise PlaceDamaged(url=place.url, name=name, reason=found.reason)
    seal, pieces = found
    if previous and not seal.previous:
        raise PlaceDamaged(url=place.url, name=name, reason="the journal starts over there, after "
                           "another base: what lies between was not shipped")
    if name.partition("/")[0] != seal.kind.name.lower() or (uuid and seal.uuid.hex() != uuid):
        raise PlaceDamaged(url=place.url, name=name, reason="it is of another instance, or another "
                           "kind of object")
    if seal.sequence != sequence or (previous is not None and seal.previous != previous):
        raise PlaceDamaged(url=place.url, name=name, reason=f"it is object {seal.sequence}, or "
                           "follows another one")
    return seal, PieceReader(name).feed(pieces)


def journal_objects(place: Place, term: int | None = None, *, since: Base | None = None,
                    before: Base | None = None) -> list[tuple[int, int]]:
    """(term, number) of the objects of the journal, in order; of one term, or of all. What has
    another name is none: somebody else put it there, and it is left alone. `since`: from the one
    before that base's first on; `before`: those before its first."""
    prefix = "journal/" if term is None else f"journal/{term:06d}/"
    after = ""
    if since is not None:  # not "journal/000000/": after that SeaweedFS skips the whole folder
        after = (journal_name(since.term, since.journal - 2) if since.journal > 1
                 else f"journal/{since.term:06d}/0")
    until = "" if before is None else journal_name(before.term, before.journal)
    return sorted(each for each in map(shipped.journal_place, place.names(prefix, after, until))
                  if each is not None)


def prune(place: Place, kept: int) -> int:
    """Keep so many of the newest bases, and the journal from the oldest of them on; how many
    objects were deleted."""
    bases = bases_of(place)
    if len(bases) <= kept:
        return 0
    oldest, gone = bases[-kept], 0
    whole = {(each.term, each.time_ns) for each in bases[-kept:]}
    names = place.names("base/")
    for name in [each for each in names if each.endswith(shipped.BASE)] + [
            each for each in names if not each.endswith(shipped.BASE)]:
        key = shipped.base_place(name)
        if key is not None and key not in whole and key < (oldest.term, oldest.time_ns):
            place.delete(name)
            gone += 1
    for each in journal_objects(place, before=oldest):
        place.delete(journal_name(*each))
        gone += 1
    return gone
