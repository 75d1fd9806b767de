"""Is everything there that a start needs? What is absent is damage, like what fails its checksum.

    pool files      hold what poolctrl, or a checkpoint that was cut, says (storage.pool_check)
    journal         the newest file is the one that `journal/newest` names, with its header, and is
                    as long as it was made; that of the checkpoint has the blocks before it; files
                    between are missed by their follower

What it means is for core.judge.judge. Nothing is written but by `note_newest`.

Errors: DiskError.
"""

from __future__ import annotations

from dataclasses import dataclass

from omq.base.paths import SpoolPaths
from omq.format.findings import Finding, Kind
from omq.format.journal import FILE_HEADER, FileHeader, Newest, decode_file_header
from omq.format.pool_contents import Contents
from omq.format.poolctrl import ControlFlag, PoolControl
from omq.storage import durable, journal_newest
from omq.storage.files import open_file, read_file, read_salvaged
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import SALVAGE_PAGE, read_entry
from omq.storage.journal_scan import FileScan, scan_file
from omq.storage.pool import PoolFiles
from omq.storage.pool_check import check_contents, missing_files


def pool_findings(control: PoolControl | None, pool: PoolFiles, possible: list[Contents]
                  ) -> list[Finding]:
    """The pool files that are not what they should be. `pool` goes on from what they should be."""
    if possible:
        best, findings = check_contents(pool, possible)
        pool.should_hold(best)
        return findings
    return list(missing_files(pool, control.pool_files)) if control is not None else []


@dataclass(frozen=True, slots=True)
class JournalState:
    """What is wrong with the journal's files. `whole`: behind an orderly end, so everything is in
    the pool, and what the journal lacks was there."""

    whole: bool
    note: list[Finding]  # of `newest` itself
    newest: list[Finding]  # the newest file is not there, or is not it
    cut: list[Finding]  # the last file is too short
    behind: list[Finding]  # the checkpoint's file ends before the checkpoint
    damaged: list[Finding]  # blocks before the checkpoint in its file: their frames are in the pool


def journal_state(paths: SpoolPaths, uuid: bytes, control: PoolControl | None, *,
                  settle: bool = False) -> JournalState:
    """Compare the directory with `newest`; `settle`: at a start."""
    # Spools of earlier versions have none; before the first manager's journal nothing is noted.
    wanted = control is not None and control.contents is not None
    try:
        newest = journal_newest.load(paths, settle=settle)
        wanted = wanted and control is not None and bool(control.journal)
    except FileNotFoundError:
        newest = None
    numbers = numbers_in(paths.journal)  # after `newest`: a manager may rotate meanwhile
    note: list[Finding] = []
    if newest is None or newest.uuid != uuid:
        newest = None
        if wanted:
            note.append(Finding(Kind.GAP, "missing or not valid: whether the newest journal file "
                                "is there cannot be told", journal_newest.NAME))
    whole = (control is not None and bool(control.flags & ControlFlag.CLEAN)
             and newest is not None and newest.number <= control.journal)
    behind, damaged = _before_checkpoint(paths, uuid, control, numbers)
    return JournalState(whole, note, _newest(paths, uuid, newest, numbers),
                        _cut(paths, uuid, numbers), behind, damaged)


def note_newest(paths: SpoolPaths, uuid: bytes) -> None:
    """Note the newest journal file that is there, unless a newer one is noted: for spools of
    earlier versions, and for files that a repair has made. SpoolFull."""
    found = [header for number in numbers_in(paths.journal)
             if (header := read_entry(paths, number, uuid).header) is not None]
    file = journal_newest.open_newest(paths)
    try:
        known = journal_newest.load(paths)
        if found and (known is None or known.uuid != uuid or known.number < found[-1].number):
            last = found[-1]
            journal_newest.note(file, Newest(uuid, last.number, last.epoch, last.first_lsn,
                                             last.term))
    finally:
        file.close()


def _newest(paths: SpoolPaths, uuid: bytes, newest: Newest | None, numbers: list[int]
            ) -> list[Finding]:
    """Is the newest file the one that was noted?"""
    if newest is None or any(number > newest.number for number in numbers):
        return []
    name = file_name(newest.number)
    if newest.number not in numbers:
        return [Finding(Kind.GAP, "missing; it was the newest journal file, and the last that was "
                        "acknowledged is in it", name, lsn=newest.first_lsn)]
    entry = read_entry(paths, newest.number, uuid)
    header = entry.header
    if header is None and not _begins_empty(paths, name) and not _strange(paths, name):
        return []  # damaged: the scan judges it, and reads its blocks
    if header is None or (header.term, header.epoch, header.first_lsn) != (
            newest.term, newest.epoch, newest.first_lsn):
        return [Finding(Kind.GAP, "emptied, or another file: it was made for LSN "
                        f"{newest.first_lsn} and later ones", name, lsn=newest.first_lsn)]
    return []


def _strange(paths: SpoolPaths, name: str) -> bool:
    """Is its header whole, and that of another file or instance?"""
    return isinstance(decode_file_header(read_file(paths.journal / name, FILE_HEADER.size)),
                      FileHeader)


def _begins_empty(paths: SpoolPaths, name: str) -> bool:
    return not any(read_file(paths.journal / name, FILE_HEADER.size))


def _cut(paths: SpoolPaths, uuid: bytes, numbers: list[int]) -> list[Finding]:
    """Is the last file shorter than it was made? Files are filled before they get their names. What
    others lack, the file after them shows."""
    header = read_entry(paths, numbers[-1], uuid).header if numbers else None
    found = durable.status(paths.journal / file_name(numbers[-1])) if numbers else None
    if header is None or found is None or found.st_size >= header.size:
        return []
    return [Finding(Kind.GAP, f"cut: {found.st_size} bytes instead of {header.size}",
                    file_name(numbers[-1]), found.st_size)]


def _before_checkpoint(paths: SpoolPaths, uuid: bytes, control: PoolControl | None,
                       numbers: list[int]) -> tuple[list[Finding], list[Finding]]:
    """Does the file in which the checkpoint goes on have the blocks before that place? A copy from
    before the checkpoint has zeros there, and so no more of what was acknowledged since (first
    list). Damaged blocks (second list) cost nothing: their frames are in the pool."""
    if control is None or control.journal not in numbers or not control.offset:
        return [], []
    name = file_name(control.journal)
    file = open_file(paths.journal / name)
    try:
        data = read_salvaged(file, file.size(), 0, SALVAGE_PAGE)  # later blocks say what is durable
    finally:
        file.close()
    scan = scan_file(data, control.journal, uuid, name=name)
    for _ in scan:
        pass
    damaged = [each for each in scan.findings
               if each.kind is Kind.CORRUPT and 0 < each.offset < control.offset]
    if scan.header is None or scan.end is None or scan.end.kind is Kind.FOREIGN \
            or scan.offset >= control.offset:
        return [], damaged
    first = scan.last_lsn + 1
    if _written(scan, data, control.offset):
        return [], [*damaged, Finding(
            Kind.CORRUPT, f"{scan.end.reason}; LSN {first} to {control.lsn} are in the pool "
            "already", name, scan.offset, control.offset - scan.offset, lsn=first)]
    reason = (f"it ends at LSN {scan.last_lsn}, the checkpoint at LSN {control.lsn} goes on in it: "
              "it comes from an older backup")
    return [Finding(Kind.GAP, reason, name, scan.offset, lsn=first)], damaged


def _written(scan: FileScan, data: bytes, end: int) -> bool:
    """Were there blocks from where the scan ends up to `end`? Then the place is damaged, and not a
    copy from before they were written: that has zeros from its own end on."""
    rest = data[scan.offset : end]
    used = -(-len(rest.rstrip(b"\0")) // scan.page) * scan.page
    return scan.offset + used >= end or scan.offset + scan.claimed_length(scan.offset) == end
