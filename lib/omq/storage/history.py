"""Which history may go: retired journal files and archive files, oldest first, and why one stays.

History is bounded by [archive] of omq.conf: an age, a part of the file system, bytes. Where the
disk is short more goes, until it is not (storage.disk_usage). pool.writer removes it behind each
checkpoint, omq-archive before and after it makes archive files; both by `plan` and `remove`, under
the lock `changing`.

What stays, with everything newer, so that the archive never has a gap:
1. what the checkpoint, or a recovery from it, could read: files from its own number on, and all
   while no checkpoint can be read;
2. a file in which the pool has a body (`may_go` of the caller says so);
3. what somebody holds: a base, from which media recovery goes forward; an analysis that has not
   ended; a dump, a scan (storage.holds). A hold is made under the same lock, so it is seen by the
   next removal, and what it was promised is there;
4. the newest file, unless the disk is short.

In the middle of a crash: files go one by one, each removal durable before the next, `.jnl`, then
`.omb`, then `.oma`: what is left of a number reads alone, and is the first to go the next time.
Errors: DiskError; SpoolLocked while another process changes the archive.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from omq.base import clock, event_log, events
from omq.base.errors import DiskError, SpoolFull, SpoolLocked
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.format.archive import ArchiveHeader, decode_header
from omq.format.findings import Finding
from omq.format.journal import FILE_HEADER, FileHeader, decode_file_header
from omq.storage import durable, holds
from omq.storage import poolctrl as control
from omq.storage.archive import BODIES_SUFFIX, FRAMES_SUFFIX, archive_name
from omq.storage.files import read_file
from omq.storage.holds import needed_from
from omq.storage.journal import file_name, numbers_in
from omq.storage.spool import lock

DAY_NS: Final = 86_400 * clock.NS_PER_S
_SUFFIXES: Final = (".jnl", BODIES_SUFFIX, FRAMES_SUFFIX)
_WAIT_S: Final = 0.05
HOLD_WAIT_S: Final = 30.0
"""For who converts one file, at the most."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What history may take. `short`: bytes that must go besides, for the disk runs full."""

    bytes_max: int  # 0: no limit
    days: int
    bodies_days: int
    short: int = 0

    @classmethod
    def of(cls, paths: SpoolPaths, settings: Settings, short: int = 0) -> Bounds:
        """Of this configuration and file system. DiskError."""
        share = settings.archive_disk_percent
        limits = [settings.archive_bytes_max,
                  durable.file_system(paths.archive).size * share // 100 if share else 0]
        return cls(min((each for each in limits if each), default=0), settings.archive_days,
                   settings.archive_bodies_days, short)


@dataclass(frozen=True, slots=True)
class Going:
    """One number that goes; of `bodies_only` its frames stay."""

    number: int
    bodies_only: bool = False


@contextmanager
def changing(paths: SpoolPaths, what: str, wait_s: float = 0.0) -> Iterator[None]:
    """Alone with the archive: for one file made, some removed, or a hold. SpoolLocked."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            held = lock(paths.archive_lock, what)
            break
        except SpoolLocked:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_WAIT_S)
    try:
        yield
    finally:
        held.close()


def read_head(paths: SpoolPaths, number: int) -> ArchiveHeader | Finding | None:
    """The head of an archive file; None when there is none."""
    try:
        return decode_header(read_file(paths.archive / archive_name(number), 4096))
    except FileNotFoundError:
        return None


def plan(paths: SpoolPaths, bounds: Bounds, now_ns: int, may_go: Callable[[int], bool]
         ) -> list[Going]:
    """What is to go now, oldest first; see the module. `may_go` is asked once for each number, in
    order, and not after the first that must stay."""
    sizes = _sizes(paths)
    point, _ = control.load(paths)
    limit = min(point.journal if point is not None else 0, needed_from(paths))
    numbers = sorted(sizes)
    newest = numbers[-1] if numbers else 0
    total, short, going = sum(sizes.values()), bounds.short, list[Going]()
    too_old = True  # ages fall with the number: looked at until one is young enough
    for number in numbers:
        too_old = too_old and bool(bounds.days) and _age(paths, number, now_ns) > bounds.days
        too_much = bounds.bytes_max and total > bounds.bytes_max
        if number >= limit or not (too_old or too_much or short > 0):
            break
        if (number == newest and short <= 0) or not may_go(number):
            break
        going.append(Going(number))
        total -= sizes[number]
        short -= sizes[number]
    gone = {each.number for each in going}
    rest = [n for n in numbers if n not in gone and n < limit and n != newest]
    return going + _bodies(paths, bounds, now_ns, rest, may_go)


def _bodies(paths: SpoolPaths, bounds: Bounds, now_ns: int, numbers: list[int],
            may_go: Callable[[int], bool]) -> list[Going]:
    """Of those that stay: the bodies of the old ones."""
    out = []
    for number in numbers:
        if not _size(paths, number, BODIES_SUFFIX):
            continue
        if _age(paths, number, now_ns) <= bounds.bodies_days or not may_go(number):
            break
        out.append(Going(number, bodies_only=True))
    return out


def remove(paths: SpoolPaths, going: Going) -> int:
    """Remove it durably; see the module for the order. How many bytes it had."""
    size = 0
    for suffix in (BODIES_SUFFIX,) if going.bodies_only else _SUFFIXES:
        size += _size(paths, going.number, suffix)
        durable.unlink(paths.archive / archive_name(going.number, suffix))
    return size


def needed_of_base(paths: SpoolPaths) -> int:
    """The first file that redo of a copy of the pool, made now, would read; 0: it is not known, so
    all may be needed. The caller has `changing`."""
    point, _ = control.load(paths)
    return point.journal if point is not None else 0


@contextmanager
def held(paths: SpoolPaths, what: str, first: int = 0) -> Iterator[bool]:
    """Keep what there is from this file number on, as long as the block (or its process) lives:
    for an analysis, a dump, a scan. False: this user may not, or the disk is full; go on without.
    """
    name = holds.reader_name(what)
    if not holds.may_hold(paths):
        yield False
        return
    try:
        with changing(paths, name, HOLD_WAIT_S):
            file = holds.make(paths, holds.Hold(name, first, f"{what}, process {os.getpid()}",
                                                lives=True))
    except (DiskError, SpoolFull, SpoolLocked):
        yield False
        return
    try:
        yield True
    finally:
        file.close()  # void from here on; the next removal takes it away


def tell(log: EventLog, going: Going, *, short: bool) -> None:
    """The event of a removal; one for the disk's sake is history that went before its time."""
    suffix = BODIES_SUFFIX if going.bodies_only else FRAMES_SUFFIX
    log.event(events.ARCHIVE_PRUNED, event_log.WARNING if short else event_log.REPORT,
              file=archive_name(going.number, suffix),
              reason="the disk is short" if short else "[archive] of omq.conf bounds it")


def _sizes(paths: SpoolPaths) -> dict[int, int]:
    """Bytes by number, of retired journal files and archive files together."""
    numbers = {*numbers_in(paths.archive), *numbers_in(paths.archive, FRAMES_SUFFIX)}
    return {n: sum(_size(paths, n, suffix) for suffix in _SUFFIXES) for n in numbers}


def _size(paths: SpoolPaths, number: int, suffix: str) -> int:
    found = durable.status(paths.archive / archive_name(number, suffix))
    return 0 if found is None else found.st_size


def _age(paths: SpoolPaths, number: int, now_ns: int) -> float:
    """Days since its last frame (of a journal file: since it was begun); one whose head cannot be
    read has no age, nor has one of the future."""
    header = read_head(paths, number)
    if isinstance(header, ArchiveHeader):
        return (now_ns - max(header.time_max, header.time_ns)) / DAY_NS
    try:
        head = decode_file_header(read_file(paths.archive / file_name(number), FILE_HEADER.size))
    except FileNotFoundError:
        return 0.0
    return (now_ns - head.time_ns) / DAY_NS if isinstance(head, FileHeader) else 0.0
