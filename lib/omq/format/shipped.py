"""Objects of an instance in an object store: pieces of a stream, sealed.

    instance.json                       {"format": 1, "uuid": HEX}: whose place this is
    journal/TERM/SEQUENCE               pieces of the journal, in order, without a gap from 0 on
    base/TERM/TIME/PART                 pieces of a copy of the pool, the store and containers
    base/TERM/TIME/base.json            that this copy is whole, written last

TERM, SEQUENCE, TIME (wall ns, when the copy was begun) and PART are decimal, padded with zeros. A
journal object and a part of a base:

    object := HEAD (128 bytes), slot of a mark (format.standby.SYNCED, 96 bytes), pieces

`head_crc` covers the rest of head and mark, so a position is known from the first bytes alone;
`crc` covers the pieces, which are those of a standby's stream (format.standby), numbered from 0 in
each object. `previous` is the `crc` of the object before in the same chain: one that was exchanged
for another does not fit. The mark is where the journal ends with this object, as a standby would
note it; of a base it is all zeros.

An object is never changed. Invariant: whoever makes an object makes it only where none is; so two
that ship to one place are noticed by the second.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Final

from omq.base.checksum import crc32c
from omq.format import standby
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout
from omq.format.standby import Synced, decode_synced

FORMAT: Final = 1
MAGIC: Final = b"OMQS"
IDENTITY: Final = "instance.json"
BASE: Final = "base.json"
_JOURNAL_NAME: Final = re.compile(r"journal/([0-9]{6,10})/([0-9]{12,20})")
_BASE_NAME: Final = re.compile(r"base/([0-9]{6,10})/([0-9]{20})/(?:base\.json|[0-9]{8})")
HEAD = Layout(
    "magic:4s head_crc:I version:H kind:B spare:B term:I uuid:16s sequence:Q previous:I count:I "
    "length:Q crc:I first_file:I first_lsn:Q last_lsn:Q time:q reserved:40s", 128)
START_BYTES: Final = HEAD.size + standby.SYNCED.size
_CRC_FROM: Final = 8
_NO_MARK: Final = bytes(standby.SYNCED.size)
_NUMBER_MAX: Final = 1 << 63


class SealKind(IntEnum):
    """What an object is."""

    JOURNAL = 1
    BASE = 2


@dataclass(frozen=True, slots=True)
class Seal:
    """What stands at the start of an object. `first_file`, `first_lsn`, `last_lsn`: of the blocks
    in it, 0 where it has none; `time_ns`: of its last block, wall clock; of a base when it was
    begun."""

    kind: SealKind
    term: int
    uuid: bytes
    sequence: int
    previous: int
    count: int
    length: int
    crc: int
    first_file: int = 0
    first_lsn: int = 0
    last_lsn: int = 0
    time_ns: int = 0
    mark: Synced | None = None


def encode(seal: Seal, pieces: bytes | bytearray) -> bytes:
    """The object."""
    assert (seal.length, seal.crc) == (len(pieces), crc32c(pieces))
    head = HEAD.pack(MAGIC, 0, FORMAT, seal.kind, 0, seal.term, seal.uuid, seal.sequence,
                     seal.previous, seal.count, seal.length, seal.crc, seal.first_file,
                     seal.first_lsn, seal.last_lsn, seal.time_ns, b"")
    rest = head[_CRC_FROM:] + (_NO_MARK if seal.mark is None else seal.mark.encode())
    return head[:4] + crc32c(rest).to_bytes(4, "little") + rest + pieces


def decode_start(data: bytes | memoryview) -> Seal | Finding:
    """What the first START_BYTES say."""
    if len(data) < START_BYTES:
        return Finding(Kind.CORRUPT, f"it has {len(data)} bytes")
    (magic, head_crc, version, kind, _, term, uuid, sequence, previous, count, length, crc,
     first_file, first_lsn, last_lsn, time_ns, _) = HEAD.unpack_from(data)
    if magic != MAGIC:
        return Finding(Kind.CORRUPT, "it has a wrong magic")
    if version > FORMAT:
        return Finding(Kind.NEWER, f"object version {version}, known {FORMAT}")
    if crc32c(data[_CRC_FROM:START_BYTES]) != head_crc:
        return Finding(Kind.CORRUPT, "its head fails its CRC")
    if kind not in SealKind._value2member_map_:
        return Finding(Kind.NEWER, f"an object of a kind {kind} that is not known here")
    slot = bytes(data[HEAD.size : START_BYTES])
    mark = None if slot == _NO_MARK else decode_synced(slot)
    if isinstance(mark, Finding):
        return mark
    return Seal(SealKind(kind), term, uuid, sequence, previous, count, length, crc, first_file,
                first_lsn, last_lsn, time_ns, mark)


def decode(data: bytes) -> tuple[Seal, memoryview] | Finding:
    """Seal and pieces of a whole object."""
    seal = decode_start(data)
    if isinstance(seal, Finding):
        return seal
    pieces = memoryview(data)[START_BYTES:]
    if len(pieces) != seal.length or crc32c(pieces) != seal.crc:
        return Finding(Kind.CORRUPT, f"{len(pieces)} bytes of pieces, and it had {seal.length}; or "
                       "they fail their CRC")
    return seal, pieces


@dataclass(frozen=True, slots=True)
class Base:
    """A whole base: what base.json says. `lsn`: the pool's checkpoint; `size`: bytes of its parts;
    `file`: the journal file that it begins with; `journal`: the first object of the chain that
    belongs to it, in which all before that file's header is skipped if `skip`; `last_crc`: of the
    last part; `time_ns`: when the copy was begun."""

    uuid: str
    term: int
    lsn: int
    parts: int
    size: int
    last_crc: int
    file: int
    journal: int
    skip: bool
    time_ns: int

    def encode(self) -> bytes:
        """The object."""
        return (json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True) + "\n").encode()


def decode_base(data: bytes) -> Base | Finding:
    """What base.json says."""
    try:
        found: Any = json.loads(data)
        version = found.pop("format")
        if type(version) is int and version > FORMAT:
            return Finding(Kind.NEWER, f"base version {version}, known {FORMAT}")
        made = Base(**found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Finding(Kind.CORRUPT, f"it says what no base is: {error}")
    numbers = (made.term, made.lsn, made.parts, made.size, made.last_crc, made.file, made.journal,
               made.time_ns)
    if (type(made.uuid) is not str or type(made.skip) is not bool
            or any(type(each) is not int or not 0 <= each < _NUMBER_MAX for each in numbers)):
        return Finding(Kind.CORRUPT, "it says what no base is")
    return made


def journal_name(term: int, sequence: int) -> str:
    """Of an object of the chain."""
    return f"journal/{term:06d}/{sequence:012d}"


def journal_place(name: str) -> tuple[int, int] | None:
    """Term and number of an object of the chain; None: it has no such name, so it is none."""
    found = _JOURNAL_NAME.fullmatch(name)
    place = (int(found[1]), int(found[2])) if found is not None else (0, 0)
    return place if journal_name(*place) == name else None


def base_place(name: str) -> tuple[int, int] | None:
    """Term and time of a base, of a part of it or of its base.json; None: it is none."""
    found = _BASE_NAME.fullmatch(name)
    place = (int(found[1]), int(found[2])) if found is not None else (0, 0)
    return place if found is not None and name.startswith(f"base/{place[0]:06d}/") else None


def base_name(term: int, time_ns: int, part: int | None = None) -> str:
    """Of a part of a base; None: of its base.json."""
    return f"base/{term:06d}/{time_ns:020d}/" + (BASE if part is None else f"{part:08d}")
