"""From retired journal files to archive files.

`convert` makes the archive files of one `archive/NNNNNNNNNN.jnl`, reads them back from the disk,
compares every byte, and only then removes the journal file. What goes again, and when, is
storage.history.

Invariants:
1. A journal file is removed only when its archive files gave the same bytes back.
2. A journal file in which the pool still has a body (pool.writer retires such only when all of them
   are damaged) stays next to its archive file as long as the pool names it.
3. While a record of the pool cannot be read, or a pool file is not what the last checkpoint left,
   all that may hold a body, or may make the record again, stays.

In the middle of a crash: see storage.archive; `.jnl` and `.oma` side by side are compared and
finished by the next run. A removed file is gone or there.
Errors: DiskError, SpoolFull; Damaged when what was read back differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from omq.base.errors import Damaged
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.format.archive import (
    BODIES_MAGIC,
    ArchiveFlag,
    ArchiveHeader,
    Section,
)
from omq.format.findings import Finding
from omq.format.journal import FILE_HEADER, FileHeader, decode_file_header
from omq.format.location import LocationKind, location
from omq.format.poolctrl import PoolControl
from omq.storage import durable
from omq.storage import poolctrl as control
from omq.storage.archive import BODIES_SUFFIX, FRAMES_SUFFIX, Pieces, archive_name, cut, write
from omq.storage.archive_file import open_archive, rebuild
from omq.storage.files import File, open_file, read_file
from omq.storage.history import read_head
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import load_file
from omq.storage.pool import PoolFiles, possible_contents
from omq.storage.pool_beside import look_beside
from omq.storage.pool_check import check_contents
from omq.storage.pool_overlay import OverlaidPool


@dataclass(slots=True)
class Archived:
    """What became of one journal file."""

    number: int
    frames: int = 0
    journal_bytes: int = 0
    archive_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    kept: bool = False  # the journal file stays: the pool names it


def pending(paths: SpoolPaths) -> list[int]:
    """Numbers of the retired journal files, oldest first."""
    return numbers_in(paths.archive)


def named_by_pool(paths: SpoolPaths, uuid: bytes) -> set[int] | None:
    """Numbers of the journal files in which a message of the pool has its body; None when a record
    cannot be read or a pool file is absent, cut or another one, which may name any.

    Read twice, because pool.writer may be writing a record just then. When its checkpoints move
    each time the files are compared, the manager's start has compared them."""
    found: set[int] = set()
    differs, moved = look_beside(paths, uuid, _differs)
    if differs and not moved:
        return None
    checkpoint, _ = control.load(paths)
    held = (checkpoint.contents if checkpoint is not None else None) or {}
    readable = True
    for _ in range(2):
        pool = PoolFiles(paths, uuid, write=False)
        try:
            # A file that is missing may be made again from what is archived here.
            readable = {file for file, content in held.items() if content.used} <= {*pool.files()}
            for file in pool.files():
                for chunk in pool.scan(file):
                    readable &= not chunk.findings
                    words = chunk.records["location"][chunk.live]
                    kind = words >> np.uint32(30)
                    journal = words[kind == location(LocationKind.JOURNAL, 0) >> 30]
                    found |= set((journal & np.uint32((1 << 30) - 1)).tolist())
        finally:
            pool.close()
    return found if readable else None


def _differs(checkpoint: PoolControl | None, pool: OverlaidPool) -> bool:
    """Is a pool file not what was left in it?"""
    possible, _ = possible_contents(checkpoint, pool.stands)
    return bool(possible) and bool(check_contents(pool, possible)[1])


def void_above(paths: SpoolPaths, number: int) -> int | None:
    """LSN above which blocks of a file are void, as the file after it says; None: unknown."""
    for directory in (paths.journal, paths.archive):
        try:
            head = decode_file_header(read_file(directory / file_name(number + 1),
                                                FILE_HEADER.size))
        except FileNotFoundError:
            continue
        if isinstance(head, FileHeader) and head.follows_number == number:
            return head.follows_lsn
    header = read_head(paths, number + 1)
    if isinstance(header, ArchiveHeader) and header.follows_number == number:
        return header.follows_lsn
    return None


def convert(paths: SpoolPaths, settings: Settings, uuid: bytes, number: int, *, keep: bool,
            bodies: bool) -> Archived:
    """Archive one retired journal file; `keep`: it stays next to its archive."""
    source = paths.archive / file_name(number)
    data = load_file(source)
    pieces = cut(data, number, uuid, limit=void_above(paths, number))
    if not _is_there(paths, pieces, bodies=bodies):
        write(paths.archive, pieces, level=settings.archive_level, bodies=bodies)
    _check(paths, pieces, data, bodies=bodies)
    size = sum(_size(paths, number, suffix) for suffix in (FRAMES_SUFFIX, BODIES_SUFFIX))
    if not keep:
        durable.unlink(source)
    frames = len(pieces.sections[Section.FRAMES])
    return Archived(number, frames, len(data), size, pieces.findings, keep)


def _is_there(paths: SpoolPaths, pieces: Pieces, *, bodies: bool) -> bool:
    """An earlier run was cut behind its last rename, or the journal file was kept."""
    header = read_head(paths, pieces.number)
    if not isinstance(header, ArchiveHeader) or header.journal_crc != pieces.journal_crc:
        return False
    return (not bodies or not header.flags & ArchiveFlag.BODIES
            or durable.status(paths.archive / archive_name(pieces.number, BODIES_SUFFIX))
            is not None)


def _check(paths: SpoolPaths, pieces: Pieces, data: bytes, *, bodies: bool) -> None:
    """Read from the disk, not from the cache, and compare. Damaged."""
    path = paths.archive / archive_name(pieces.number)
    oma = _settled(paths, pieces.number, FRAMES_SUFFIX)
    omb = _settled(paths, pieces.number, BODIES_SUFFIX) if bodies else None
    try:
        assert oma is not None
        file = open_archive(oma, path.name)
        if isinstance(file, Finding):
            raise Damaged(file=path, offset=file.offset, reason=file.reason)
        if not bodies:
            same = all(file.rows(section).tobytes() == rows.tobytes()
                       for section, rows in pieces.sections.items())
        else:
            payload = open_archive(omb, path.name, BODIES_MAGIC) if omb is not None else None
            if isinstance(payload, Finding):
                raise Damaged(file=omb.path if omb else path, offset=0, reason=payload.reason)
            found = rebuild(file, payload)
            same = not isinstance(found, Finding) and bytes(found) == data
        if not same:
            raise Damaged(file=path, offset=0, reason="the journal file does not come back out "
                          "of its archive; the journal file stays")
    finally:
        for opened in (oma, omb):
            if opened is not None:
                opened.close()


def _settled(paths: SpoolPaths, number: int, suffix: str) -> File | None:
    try:
        file = open_file(paths.archive / archive_name(number, suffix), write=True)
    except FileNotFoundError:
        return None
    file.settle()
    return file


def _size(paths: SpoolPaths, number: int, suffix: str) -> int:
    found = durable.status(paths.archive / archive_name(number, suffix))
    return 0 if found is None else found.st_size
