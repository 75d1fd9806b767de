"""`promotions.json`: since which LSN each term is, of whom it was told and from whom.

    [{"term": 1, "lsn": 12345, "member": "b", "time_ns": ...}]      by term

`lsn` is the last number that the members have in common: what an old primary of an earlier term
has above it is its own, and nobody else's. A promotion notes its term before it becomes the
primary, and standbys get all of them when they begin to follow, so whoever is promoted next
knows those before, too.

Two members that were promoted for one term, without knowing of each other, can be distinguished
here: one term, and another member or another LSN.

In the middle of a crash: the file before, or the new one. An entry of a promotion that was cut, or
of a term that this member has not come to, does not count (`load` gets the term).

Errors: DiskError, SpoolFull of `note` and `take`; StandbyDiverged of `take`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from omq.base.errors import StandbyDiverged
from omq.base.paths import SpoolPaths
from omq.storage.files import read_file, write_new_file
from omq.storage.instance_file import TERM_MAX, is_member_name

NAME: Final = "promotions.json"
BYTES_MAX: Final = 1 << 20
LSN_MAX: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Promotion:
    """A term, and the last LSN of the history before it."""

    term: int
    lsn: int
    member: str
    time_ns: int


def load(paths: SpoolPaths, term: int) -> tuple[Promotion, ...]:
    """Those up to that term, in order; none where nothing is noted, or what is there is no such
    file: then nobody says since when a term is."""
    try:
        found = decode(read_file(paths.root / NAME, BYTES_MAX))
    except FileNotFoundError:
        return ()
    return tuple(each for each in found or () if each.term <= term)


def note(paths: SpoolPaths, made: Promotion) -> None:
    """This term begins."""
    _write(paths, (*load(paths, made.term - 1), made))


def take(paths: SpoolPaths, told: tuple[Promotion, ...], term: int) -> None:
    """What the primary says that there were. StandbyDiverged: it is another history."""
    mine = {each.term: each for each in load(paths, term)}
    for each in told:
        known = mine.get(each.term, each)
        if (known.lsn, known.member) != (each.lsn, each.member):
            raise StandbyDiverged(path=paths.root, reason=f"two members were promoted for term "
                                  f"{each.term}: {known.member} at LSN {known.lsn}, which is known "
                                  f"here, and {each.member} at LSN {each.lsn}; people decide which "
                                  "one goes on")
    if told and told != tuple(mine.values()):
        _write(paths, told)


def encode(found: tuple[Promotion, ...]) -> bytes:
    """As the file has it, and a stream."""
    return (json.dumps([asdict(each) for each in found], sort_keys=True) + "\n").encode()


def decode(data: bytes) -> tuple[Promotion, ...] | None:
    """None: these are none."""
    try:
        found = tuple(Promotion(each["term"], each["lsn"], each["member"], each["time_ns"])
                      for each in json.loads(data))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    numbers = [number for each in found for number in (each.term, each.lsn, each.time_ns)]
    terms = [each.term for each in found]
    if (any(type(number) is not int or not 0 <= number <= LSN_MAX for number in numbers)
            or not all(isinstance(each.member, str) and is_member_name(each.member)
                       for each in found)
            or terms != sorted(set(terms)) or any(term > TERM_MAX for term in terms)):
        return None
    return found


def _write(paths: SpoolPaths, found: tuple[Promotion, ...]) -> None:
    write_new_file(paths.root / NAME, [encode(found)]).close()
