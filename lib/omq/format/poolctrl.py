"""`poolctrl`: the checkpoint and the list of queues, in two slots that are written in turn.

    file := slot 0 (512 KiB), slot 1 (512 KiB)
    slot := header (128 bytes), queue entry (64 bytes) * queues, client entry (64 bytes) * clients,
            row of a pool file (32 bytes, format.pool_contents) * files, definitions

The slot with the higher `generation` and a right CRC (bytes 8 .. used) counts. A checkpoint writes
the other slot and syncs it after every pool file that it changed is synced: at any instant one slot
is whole. Client entries remember the last request of each client token that was carried out, so
that a retry in doubt is answered "already done" after any crash. The rows say what each pool file
holds at this checkpoint. Version 1 had none: what its files should hold is not known. The
definitions are those of queues that were made at run time, a line of JSON each (format.definition);
a slot that has some is of version 3, so that an older omq, which would forget them, refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag

from omq.base import limits
from omq.base.checksum import crc32c
from omq.format import definition, pool_contents
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout
from omq.format.pool_contents import Contents, decode_rows, encode_rows

VERSION = 3
FILES_FROM_VERSION = 2
DEFINITIONS_FROM_VERSION = 3
SLOT_BYTES = 1 << 19
MAGIC = b"OMQC"
CRC_FROM = 8
HEADER = Layout(
    "magic:4s crc:I version:H header:H used:I uuid:16s generation:Q lsn:Q epoch:Q journal:I "
    "flags:I offset:Q next_qpool:Q time:q pool_files:I queues:H clients:H files:H spare:H "
    "definitions:I reserved:24s",
    128,
)
QUEUE = Layout("queue:H flags:H spare:I name:24s reserved:32s", 64)
CLIENT = Layout("token:Q sequence:Q qpool:Q lsn:Q count:I uid:I time:q given:Q given_last:Q", 64)
CLIENTS_MAX = (SLOT_BYTES - HEADER.size - limits.QUEUES_MAX * QUEUE.size
               - limits.POOL_FILES_MAX * pool_contents.ROW.size) // CLIENT.size
assert CLIENTS_MAX >= limits.DEDUPE_CLIENTS_MAX


def definitions_room(clients: int) -> int:
    """Bytes that all definitions may have in a slot that also holds so many clients and all else
    there can be."""
    return (CLIENTS_MAX - min(clients, limits.DEDUPE_CLIENTS_MAX)) * CLIENT.size


class ControlFlag(IntFlag):
    """Bits of a slot's `flags`."""

    CLEAN = 1  # the journal's last frame up to `lsn` is the STOP of an orderly end


@dataclass(frozen=True, slots=True)
class Answered:
    """The last request that was carried out for a client token, and its answer."""

    token: int
    sequence: int
    qpool: int  # first QPoolId that it made, 0 = none
    count: int
    lsn: int
    uid: int = 0
    time_ns: int = 0
    given: int = 0  # LSNs of the GIVE frames of its last hand-out, first
    given_last: int = 0  # and last


@dataclass(frozen=True, slots=True)
class PoolControl:
    """One checkpoint."""

    uuid: bytes
    generation: int
    lsn: int  # the pool holds everything up to here
    epoch: int
    journal: int  # journal file to go on with
    offset: int  # and the offset of the first block behind `lsn` in it
    next_qpool: int
    time_ns: int
    pool_files: int
    queues: dict[int, str] = field(default_factory=dict)
    clients: dict[int, Answered] = field(default_factory=dict)
    flags: int = 0  # ControlFlag
    contents: Contents | None = None  # of the pool files; None: not known (version 1)
    definitions: dict[str, str] = field(default_factory=dict)  # by name: a line of JSON

    def encode(self) -> bytes:
        """One slot, without its unused rest."""
        lines = "\n".join(self.definitions.values()).encode()
        most = CLIENTS_MAX - -(-len(lines) // CLIENT.size)
        kept = sorted(self.clients.values(), key=lambda c: c.lsn)[-most:]
        body = b"".join((
            *(QUEUE.pack(number, 0, 0, name.encode(), b"") for number, name in self.queues.items()),
            *(CLIENT.pack(c.token, c.sequence, c.qpool, c.lsn, c.count, c.uid, c.time_ns, c.given,
                          c.given_last)
              for c in kept),
            encode_rows(self.contents or {}), lines))
        used = HEADER.size + len(body)
        assert used <= SLOT_BYTES
        version = FILES_FROM_VERSION if self.contents is not None else FILES_FROM_VERSION - 1
        version = DEFINITIONS_FROM_VERSION if lines else version
        head = HEADER.pack(MAGIC, 0, version, HEADER.size, used, self.uuid, self.generation,
                           self.lsn, self.epoch, self.journal, self.flags, self.offset,
                           self.next_qpool, self.time_ns, self.pool_files, len(self.queues),
                           len(kept), len(self.contents or {}), 0, len(lines), b"")
        crc = crc32c(memoryview(head + body)[CRC_FROM:])
        return head[:4] + crc.to_bytes(4, "little") + head[CRC_FROM:] + body


def decode(data: bytes | memoryview) -> PoolControl | Finding:
    """One slot."""
    view = memoryview(data)
    if len(view) < HEADER.size:
        return Finding(Kind.SHORT, "slot cut")
    (magic, crc, version, header, used, uuid, generation, lsn, epoch, journal, flags, offset,
     next_qpool, time_ns, pool_files, queues, clients, files, _, told, _) = HEADER.unpack_from(view)
    if magic != MAGIC:
        empty = not any(view[: HEADER.size])
        return Finding(Kind.END if empty else Kind.CORRUPT, "slot never written" if empty
                       else "not a poolctrl slot: wrong magic")
    if version > VERSION:
        return Finding(Kind.NEWER, f"poolctrl version {version}, known {VERSION}")
    wanted = (HEADER.size + queues * QUEUE.size + clients * CLIENT.size
              + files * pool_contents.ROW.size + told)
    if header != HEADER.size or used != wanted or used > len(view):
        return Finding(Kind.CORRUPT, "slot lengths do not fit")
    if crc32c(view[CRC_FROM:used]) != crc:
        return Finding(Kind.CORRUPT, "slot fails its CRC")
    at, named, answered = HEADER.size, {}, {}
    for _ in range(queues):
        number, _f, _s, name, _r = QUEUE.unpack_from(view, at)
        named[number] = name.rstrip(b"\0").decode("ascii", "replace")
        at += QUEUE.size
    for _ in range(clients):
        token, sequence, qpool, last, count, uid, when, given, given_last = CLIENT.unpack_from(
            view, at)
        answered[token] = Answered(token, sequence, qpool, count, last, uid, when, given,
                                   given_last)
        at += CLIENT.size
    contents = decode_rows(view, files, at)
    if contents is None:
        return Finding(Kind.CORRUPT, "slot names a pool file that there cannot be")
    definitions = _definitions(bytes(view[used - told : used]))
    if definitions is None:
        return Finding(Kind.CORRUPT, "slot has a definition that is none")
    return PoolControl(uuid, generation, lsn, epoch, journal, offset, next_qpool, time_ns,
                       pool_files, named, answered, flags,
                       contents if version >= FILES_FROM_VERSION else None, definitions)


def _definitions(raw: bytes) -> dict[str, str] | None:
    """By name; None: one of them has none."""
    lines = raw.decode("utf-8", "replace").split("\n") if raw else []
    named = {definition.name_in(line): line for line in lines}
    return None if "" in named else named


def newest(data: bytes | memoryview) -> tuple[PoolControl | None, list[Finding]]:
    """The valid slot with the higher generation, and what is wrong with the others."""
    found: list[Finding] = []
    best: PoolControl | None = None
    for slot in (0, 1):
        part = memoryview(data)[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]
        control = decode(part)
        if isinstance(control, Finding):
            found.append(control)
        elif best is None or control.generation > best.generation:
            best = control
    return best, found
