"""Restart recovery: finish pool.writer's work, so that the pool equals the journal's end.

1. complete a checkpoint that was cut (the double-write file); 2. read the newest valid poolctrl
slot; 3. redo the journal after it; 4. write that as a checkpoint. The index is then loaded from
the pool alone. Every step may be cut and simply starts again: records carry the LSN of their last
change.

With both poolctrl slots damaged, the whole journal that is kept is redone over the pool: slower,
and safe for the same reason; it is reported. What was accepted is on the disk when this returns
(files are settled before they are read), so a later crash cannot take it back.

A term that has been won since the last start leaves LEAP numbers free: the primary of the term
before may have given any number behind what reached this spool (ADR 0120). The first header of the
term carries the numbers that it begins with, so the leap is made once.

After an unclean end numbers that were given but may not have reached the disk (at most one block
and the unsynced frames before it) are skipped: no LSN or QPoolId is ever given twice.

What cannot be decided here without losing more than is lost is refused, with the command to run: a
pool and a journal of different times, lost names of queues, an unfinished rebuild.

Errors: NewerFormat, DiskError, NeedsRepair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from omq.base import clock
from omq.base.errors import Damaged, NeedsRepair, NewerFormat
from omq.base.fault import point
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.judge.cases import Case
from omq.core.judge.finding import Found
from omq.core.judge.judge import judge_files, judge_names, judge_place, judge_spool, refuse
from omq.core.judge.presence import note_newest
from omq.core.judge.redo_findings import of_double_write, of_journal
from omq.core.redo.checkpoint import Checkpointer
from omq.core.redo.redo import Redo
from omq.core.redo.windows import Windows
from omq.format.findings import Finding, Kind
from omq.format.poolctrl import Answered, ControlFlag, PoolControl
from omq.storage import durable, poolctrl
from omq.storage.instance_file import LEAP, identity_command
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import JournalScan, read_entry, scan_journal
from omq.storage.journal_scan import Block
from omq.storage.pool import PoolFiles, possible_contents
from omq.storage.pool_overlay import OverlaidPool

UNSYNCED_FRAMES_MAX = 4096  # frames of non-persistent messages that may wait for a sync
Progress = Callable[[str], None]


@dataclass(slots=True)
class Recovered:
    """The state of the spool after recovery."""

    lsn: int  # last LSN accepted
    first_lsn: int  # first LSN of the new epoch
    epoch: int  # of the new manager
    next_qpool: int
    journal: int  # last journal file
    clean: bool
    queues: dict[int, str] = field(default_factory=dict)
    clients: dict[int, Answered] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    frames: int = 0  # redone
    upgraded: bool = False  # the spool was one of an earlier version
    definitions: dict[str, str] = field(default_factory=dict)  # of queues made at run time
    judged: list[Found] = field(default_factory=list)  # `findings`, and what they mean
    aside: frozenset[int] = frozenset()  # pool files that stay as they are, for a repair
    term: int = 0  # of the new manager
    new_term: bool = False  # it is the first start of it


def recover(paths: SpoolPaths, settings: Settings, uuid: bytes, pool: PoolFiles,
            progress: Progress, *, term: int = 0) -> Recovered:
    """See the module. The caller holds the manager's and the pool's lock, and is the primary of
    `term` (storage.instance_file)."""
    if durable.status(paths.rebuilding) is not None:
        raise NeedsRepair(path=paths.root, reason="a rebuild of the Message Pool is not finished",
                          command=f"omqrecover rebuild {paths.root} again, as it was begun")
    seen = _last_term(paths, uuid, term)
    point("recovery.before_pool")
    control, slots = poolctrl.load(paths, settle=True)
    judged, aside = _examined(paths, settings, uuid, control, slots, pool, progress)
    point("recovery.after_pool")
    redo = Redo(pool)
    number = offset = 0
    if control is not None:
        redo.queues, redo.clients = dict(control.queues), dict(control.clients)
        redo.definitions = dict(control.definitions)
        redo.lsn, redo.next_qpool = control.lsn, control.next_qpool
        redo.clean_stop = bool(control.flags & ControlFlag.CLEAN)
        number, offset = control.journal, control.offset
    point("recovery.before_redo")
    scan = scan_journal(paths, uuid, number, offset, redo.lsn, settle=True)
    epoch = _redo_all(redo, scan, _bytes_to_read(paths, number, offset), progress)
    point("recovery.after_redo")
    # Above what was durable nobody was promised anything: what fails there is a torn append.
    torn = [replace(f, kind=Kind.TORN) if f.kind is Kind.CORRUPT and f.lsn > scan.durable_lsn else f
            for f in redo.findings]
    met = [*scan.findings, *torn]
    refuse_newer(paths.journal, [*met, *([scan.end] if scan.end else [])])
    judged += of_journal(met, judged)
    files = numbers_in(paths.journal)
    headers = [read_entry(paths, n, uuid).header for n in files[-8:]]
    epoch = max([epoch, control.epoch if control else 0, *(h.epoch for h in headers if h)]) + 1
    next_qpool = max([redo.next_qpool, *(h.next_qpool for h in headers if h)])
    first = max([redo.lsn + 1, *(h.first_lsn for h in headers if h)])
    if control is None:
        known_lsn, known_qpool = _highest(pool)
        refuse(paths.root, judge_names(control, redo.queues, known_qpool))
        first, next_qpool = max(first, known_lsn + 1), max(next_qpool, known_qpool + 1)
    if not redo.clean_stop and first > 1:
        void = settings.block_frames_max + UNSYNCED_FRAMES_MAX
        first, next_qpool = first + void, next_qpool + void
    redo.next_qpool = next_qpool
    if term > seen:  # not in poolctrl: a start that is cut before its first header leaps once
        first, next_qpool = first + LEAP, next_qpool + LEAP
    last = max([scan.last_number, number, *files])
    if redo.dirty or redo.clears or control is None or redo.lsn > control.lsn \
            or control.contents is None or aside:
        note_newest(paths, uuid)  # before poolctrl is of a format that has it
        written = Checkpointer(pool, redo, paths, uuid, settings,
                               lambda: progress("writing the message pool"))
        written.take(epoch - 1, *_position(scan, control), clock.wall_ns())
    return Recovered(redo.lsn, first, epoch, next_qpool, last, redo.clean_stop or not redo.lsn,
                     redo.queues, redo.clients, [each.finding for each in judged],
                     redo.frames_seen, control is not None and control.contents is None,
                     redo.definitions, judged, aside, term,
                     term > seen)


def _last_term(paths: SpoolPaths, uuid: bytes, term: int) -> int:
    """The newest term in the journal. NeedsRepair when it is above `term`: instance.json comes from
    before a promotion, and this start would give numbers a second time."""
    found = [(header.term, file_name(number)) for number in numbers_in(paths.journal)
             if (header := read_entry(paths, number, uuid).header) is not None]
    seen, name = max(found, default=(0, ""))
    if seen > term:
        raise NeedsRepair(path=paths.uuid, reason=f"it says term {term}, journal/{name} is of term "
                          f"{seen}: it comes from before a promotion",
                          command=identity_command(paths.root))
    return seen


def _examined(paths: SpoolPaths, settings: Settings, uuid: bytes, control: PoolControl | None,
              slots: list[Finding], pool: PoolFiles, progress: Progress
              ) -> tuple[list[Found], frozenset[int]]:
    """Judge the files, refuse what a start refuses, and in between finish a checkpoint that was
    cut; what was found, and the pool files that are left as they are."""
    judged = judge_place(paths, uuid, control, slots)
    aside: frozenset[int] = frozenset()
    if settings.qm_dont_read_messages_at_start:
        aside = _aside(paths, uuid, control, slots)
        pool.leave(aside)
    elif any(each.refused for each in judged):
        _refuse_all(paths, uuid, control, slots)
    try:
        pool.recover_double_write(control)
    except NeedsRepair:
        _refuse_all(paths, uuid, control, slots)
        raise
    except Damaged as error:  # records of a cut checkpoint belong into a file that is not ours
        raise NeedsRepair(path=error.fields["file"], reason=error.fields["reason"],
                          command=f"omqrecover plan {paths.root}") from error
    refuse_newer(paths.msgpool, pool.findings)
    progress("checking the pool files")
    judged += of_double_write(pool.findings)
    judged += judge_files(paths, uuid, control, pool, pool.possible, settle=True)
    refuse(paths.root, (each for each in judged if _pool_file(each) not in aside))
    return judged, aside


def _aside(paths: SpoolPaths, uuid: bytes, control: PoolControl | None, slots: list[Finding]
           ) -> frozenset[int]:
    """The pool files that are missing, cut or others, where the messages of the pool are not wanted
    at this start: they are left as they are. Whatever else a start refuses it refuses."""
    pool = OverlaidPool(paths, uuid)
    try:
        pool.lay_double_write()
        possible, pool.checkpoint = possible_contents(control, pool.stands)
        judged = judge_spool(paths, uuid, control, slots, pool, possible)
        strange = [file for file in pool.files()
                   if any(each.record < 0 and each.kind in (Kind.FOREIGN, Kind.UNREADABLE)
                          for chunk in pool.scan(file) for each in chunk.findings)]
    finally:
        pool.close()
    refuse(paths.root, (each for each in judged if _pool_file(each) < 0))
    return frozenset({*strange, *(number for each in judged if (number := _pool_file(each)) >= 0)})


def _pool_file(each: Found) -> int:
    """The number of the pool file that it says is not what it should be; -1: it says another
    thing."""
    if each.case not in (Case.POOL_FILE_MISSING, Case.POOL_FILE_DIFFERS):
        return -1
    return int(each.file.removeprefix("msgpool/").removesuffix("QP"))


def _refuse_all(paths: SpoolPaths, uuid: bytes, control: PoolControl | None,
                slots: list[Finding]) -> None:
    """Nothing may be written: say all that is wrong, not only what was met first."""
    pool = OverlaidPool(paths, uuid)
    try:
        pool.lay_double_write()
        possible, pool.checkpoint = possible_contents(control, pool.stands)
        refuse(paths.root, judge_spool(paths, uuid, control, slots, pool, possible))
    finally:
        pool.close()


def _highest(pool: PoolFiles) -> tuple[int, int]:
    """Highest LSN and QPoolId in the pool: without poolctrl nothing else keeps ids from coming
    again."""
    lsn = qpool = 0
    for file in pool.files():
        for chunk in pool.scan(file):
            rows = chunk.records[chunk.live]
            lsn = max(lsn, int(rows["lsn"].max(initial=0)))
            qpool = max(qpool, int(rows["qpool"].max(initial=0)))
    return lsn, qpool


def _position(scan: JournalScan, control: PoolControl | None) -> tuple[int, int]:
    if scan.last_number:
        return scan.last_number, scan.last_offset
    return (control.journal, control.offset) if control else (0, 0)


def _bytes_to_read(paths: SpoolPaths, first: int, offset: int) -> int:
    """Of journal, at most: the last file is zeros from some point on."""
    numbers = [number for number in numbers_in(paths.journal) if number >= first]
    found = [durable.status(paths.journal / file_name(number)) for number in numbers]
    return max(1, sum(each.st_size for each in found if each) - offset)


def _redo_all(redo: Redo, scan: JournalScan, total: int, progress: Progress) -> int:
    """Redo in windows; the highest epoch seen."""
    epoch = read = 0

    def say() -> None:
        progress(f"redoing the journal: {min(100, 100 * read // total)} %, LSN {redo.lsn}")

    def told() -> Iterator[Block]:
        nonlocal epoch, read
        for block in scan:
            yield block
            read += block.header.length
            say()
            point("recovery.in_redo")
            epoch = max(epoch, block.header.epoch)
            redo.next_qpool = max(redo.next_qpool, block.header.next_qpool)

    redo.progress = say
    windows = Windows(told())
    for window in windows:
        redo.apply(window, windows.durable)
    return epoch


def refuse_newer(place: Path, findings: list[Finding]) -> None:
    """NewerFormat where one of them is of a file that a newer omq wrote."""
    for finding in findings:
        if finding.kind is Kind.NEWER:  # "poolctrl version 3, known 2"
            said, _, known = finding.reason.rpartition(", known ")
            raise NewerFormat(file=f"{place}/{finding.file}", version=said.rpartition(" ")[2],
                              known=known)
