"""The judge of a spool: one function says what is damaged or missing, to the start, to omqcheck and
to omqrecover, so that none of them calls a spool lost that another one serves whole.

    judge_spool     everything that can be seen without reading history; nothing is written
    judge_place     its first half: poolctrl, and whether the journal goes on where it says
    judge_files     its second half: pool files, the files of the journal that are redone

The start calls the halves: between them it finishes a checkpoint that was cut, which it must not
before it knows that pool and journal belong together. omqrecover then reads history, which says
more about what is missing (`source`), and about places at which nobody else looks: bodies, retired
files, files before the checkpoint.

What redo and the load of the index meet after that is judged by core.judge.redo_findings.

Errors: DiskError; NeedsRepair and NewerFormat of `refuse`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from omq.base.errors import NeedsRepair, NewerFormat
from omq.base.paths import SpoolPaths
from omq.core.judge.cases import Case, Place, Source
from omq.core.judge.finding import Found
from omq.core.judge.presence import JournalState, journal_state, pool_findings
from omq.format.findings import Finding, Kind
from omq.format.journal import FILE_HEADER, FileHeader, decode_file_header
from omq.format.pool_contents import Contents
from omq.format.poolctrl import SLOT_BYTES, PoolControl
from omq.storage import durable, poolctrl
from omq.storage.files import read_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import read_entry
from omq.storage.pool import PoolFiles

_CONTROL: Final = f"msgpool/{poolctrl.NAME}"
_ARCHIVED: Final = (".jnl", ".oma", ".omb")
_NAMED_MAX: Final = 20  # faults that a refusal names; the command shows all


def judge_spool(paths: SpoolPaths, uuid: bytes, control: PoolControl | None, slots: list[Finding],
                pool: PoolFiles, possible: list[Contents]) -> list[Found]:
    """See the module. `slots`: of poolctrl.load; `pool`, `possible`: with a checkpoint that was cut
    laid over, and what the files may hold then."""
    place = judge_place(paths, uuid, control, slots)
    if any(each.case is Case.CONTROL_FOREIGN for each in place):
        return place  # nothing of it says anything about the other files
    return [*place, *judge_files(paths, uuid, control, pool, possible)]


def judge_place(paths: SpoolPaths, uuid: bytes, control: PoolControl | None, slots: list[Finding]
                ) -> list[Found]:
    """poolctrl itself, and the place in the journal that it names."""
    found = [_slot(each) for each in slots if each.kind is not Kind.END
             and (control is not None or each.kind in (Kind.NEWER, Kind.TORN))]
    if control is None:
        return found
    if control.uuid != uuid:
        return [*found, Found(Case.CONTROL_FOREIGN, _CONTROL,
                              "it belongs to another instance")]
    current = _usable(paths, uuid)
    archived = sorted({number for suffix in _ARCHIVED for number in numbers_in(paths.archive,
                                                                              suffix)
                       if number >= control.journal > 0})
    if archived:
        return [*found, *(_archived(paths, number, control, current) for number in archived)]
    if control.journal and control.journal not in current:
        found.append(_missing_position(paths, uuid, control, current))
    return found


def judge_files(paths: SpoolPaths, uuid: bytes, control: PoolControl | None, pool: PoolFiles,
                possible: list[Contents], *, settle: bool = False) -> list[Found]:
    """The files that a start reads, and whether they are there. `settle`: at a start."""
    found = []
    if control is not None and pool.checkpoint > control.generation + 1:
        found.append(Found(
            Case.CONTROL_OLD, _CONTROL, f"its newest checkpoint is number {control.generation}, "
            f"checkpoint.dw is of number {pool.checkpoint}: it comes from an older backup"))
    found += [_pool_file(each, pool) for each in pool_findings(control, pool, possible)]
    found += [each for _, each in _headers(paths, uuid, control.journal if control else 0)]
    found += _journal(paths, uuid, control, journal_state(paths, uuid, control, settle=settle))
    if control is not None and not control.journal:
        found += _beginning(paths, uuid, control)
    if control is None:
        found += _without_control(paths, uuid, pool, known=bool(possible))
    return found


def judge_names(control: PoolControl | None, queues: dict[int, str], known_qpool: int
                ) -> list[Found]:
    """Behind redo: messages without poolctrl, and not the name of a queue in the journal."""
    if control is not None or queues or not known_qpool:
        return []
    return [Found(Case.CONTROL_LOST, _CONTROL, "poolctrl and the names of the queues are lost")]


def refuse(root: Path, found: Iterable[Found]) -> None:
    """NeedsRepair with all that a start does not serve; NewerFormat."""
    refused = [each for each in found if each.refused]
    if not refused:
        return
    for each in refused:
        if each.case is Case.NEWER:  # "poolctrl version 3, known 2"
            said, _, known = each.reason.rpartition(", known ")
            raise NewerFormat(file=root / each.file, version=said.rpartition(" ")[2], known=known)
    first, *more = refused
    others = [f"; {each.file}: {each.reason}" for each in more[:_NAMED_MAX - 1]]
    if len(refused) > _NAMED_MAX:
        others.append(f"; and {len(refused) - _NAMED_MAX} more")
    raise NeedsRepair(path=root / first.file, reason=first.reason + "".join(others),
                      command=f"omqrecover plan {root}")


# poolctrl

def _slot(finding: Finding) -> Found:
    if finding.kind is Kind.NEWER:
        return Found(Case.NEWER, _CONTROL, finding.reason, finding.offset)
    case = Case.CONTROL_CUT if finding.kind is Kind.TORN else Case.CONTROL_SLOT
    return Found(case, _CONTROL, finding.reason, finding.offset, SLOT_BYTES)


def _archived(paths: SpoolPaths, number: int, control: PoolControl, current: list[int]) -> Found:
    kept = [name for suffix in _ARCHIVED
            if durable.status(paths.archive / (name := f"{number:010}{suffix}")) is not None]
    return Found(Case.JOURNAL_ARCHIVED, f"archive/{kept[0]}",
                 f"the checkpoint at LSN {control.lsn} does not cover it: the Message Pool comes "
                 "from an older backup",
                 place=Place.TAKEN if number in current else Place.FREE,
                 target=f"journal/{file_name(number)}")


def _missing_position(paths: SpoolPaths, uuid: bytes, control: PoolControl, current: list[int]
                      ) -> Found:
    """The file in which the checkpoint goes on. Behind an orderly end, and where the next file
    follows right after the checkpoint, it held nothing that the pool has not."""
    state = journal_state(paths, uuid, control)
    later = [header for number in current if number > control.journal
             and (header := read_entry(paths, number, uuid).header) is not None]
    source = Source.PART if later else Source.NONE
    if state.whole or (later and later[0].follows_lsn <= control.lsn):
        source = Source.WHOLE
    return Found(Case.JOURNAL_POSITION, f"journal/{file_name(control.journal)}",
                 f"the checkpoint at LSN {control.lsn} goes on in it, and it is missing",
                 lsn=control.lsn + 1, source=source)


def _without_control(paths: SpoolPaths, uuid: bytes, pool: PoolFiles, *, known: bool
                     ) -> list[Found]:
    """No checkpoint counts. A spool that was never used has none; else the whole journal that is
    kept is redone, which is enough if it begins at the beginning, or the pool is known."""
    numbers = numbers_in(paths.journal)
    headers = [header for number in numbers
               if (header := read_entry(paths, number, uuid).header) is not None]
    begins = not headers or headers[0].first_lsn == 1
    if not begins and not known:
        return [Found(Case.CONTROL_LOST, _CONTROL, "no checkpoint is left, and the journal begins "
                      f"at LSN {headers[0].first_lsn}: what was before it cannot be told")]
    there = durable.status(paths.msgpool / poolctrl.NAME)
    if begins and not pool.files() and len(numbers) < 2 and not _slots_damaged(paths):
        return []  # the first checkpoint was not taken yet
    reason = "missing" if there is None else "no slot is valid"
    return [Found(Case.CONTROL_LOST, _CONTROL, f"{reason}; the whole journal that is kept is "
                  "redone", length=0 if there is None else 2 * SLOT_BYTES, source=Source.WHOLE)]


def _slots_damaged(paths: SpoolPaths) -> bool:
    _, slots = poolctrl.load(paths)
    return any(each.kind not in (Kind.END, Kind.TORN) for each in slots)


# pool files

def _pool_file(finding: Finding, pool: PoolFiles) -> Found:
    number = finding.file.removesuffix("QP")
    absent = number.isdigit() and int(number) not in pool.files()
    return Found.of(Case.POOL_FILE_MISSING if absent else Case.POOL_FILE_DIFFERS, "msgpool",
                    finding)


# journal

def header_found(directory: Path, number: int, header: FileHeader | Finding, uuid: bytes,
                 name: str = "") -> Found | None:
    """What is wrong with the header page of a journal file; `name`: its file, if it is archived."""
    name = f"{directory.name}/{name or file_name(number)}"
    if isinstance(header, Finding):
        if header.kind is Kind.NEWER:
            return Found(Case.NEWER, name, header.reason)
        damaged = header.kind in (Kind.CORRUPT, Kind.FOREIGN)
        return Found(Case.JOURNAL_HEADER, name, header.reason, 0, 4096) if damaged else None
    if header.uuid != uuid:
        return Found(Case.JOURNAL_FOREIGN, name, "journal file of another instance, "
                     f"{header.uuid.hex()}")
    if header.number == number:
        return None
    taken = header.number in numbers_in(directory)
    return Found(Case.JOURNAL_RENAMED, name, f"it is journal file {header.number}, renamed",
                 place=Place.TAKEN if taken else Place.FREE,
                 target=f"{directory.name}/{file_name(header.number)}")


def _headers(paths: SpoolPaths, uuid: bytes, first: int = 0) -> list[tuple[int, Found]]:
    """Files that are others than their names say, from this number on. Damaged headers are findings
    of the scan that follows: by their names the files are ours."""
    found = []
    for number in numbers_in(paths.journal):
        if number >= first:
            header = decode_file_header(
                read_file(paths.journal / file_name(number), FILE_HEADER.size))
            each = header_found(paths.journal, number, header, uuid)
            if each is not None and each.case is not Case.JOURNAL_HEADER:
                found.append((number, each))
    return found


def _usable(paths: SpoolPaths, uuid: bytes) -> list[int]:
    """Numbers of the journal files that are what their names say."""
    strange = {number for number, each in _headers(paths, uuid) if each.case is not Case.NEWER}
    return [number for number in numbers_in(paths.journal) if number not in strange]


def _journal(paths: SpoolPaths, uuid: bytes, control: PoolControl | None, state: JournalState
             ) -> list[Found]:
    whole = Source.WHOLE if state.whole else Source.NONE
    numbers = _usable(paths, uuid)
    position = file_name(control.journal) if control is not None and control.journal \
        and control.journal not in numbers else ""  # told by judge_place
    found = [Found.of(Case.JOURNAL_NO_NOTE, "journal", each,
                      Source.WHOLE if numbers else Source.NONE) for each in state.note]
    found += [Found.of(Case.JOURNAL_NEWEST, "journal", each, whole) for each in state.newest
              if each.file != position]
    found += [Found.of(Case.JOURNAL_CUT, "journal", each, whole) for each in state.cut]
    if not (state.whole and (state.cut or state.newest)):  # which say why it ends early
        found += [Found.of(Case.JOURNAL_BEHIND, "journal", each, whole) for each in state.behind]
    found += [Found.of(Case.JOURNAL_BLOCK, "journal", each, Source.WHOLE)
              for each in state.damaged]
    return found


def _beginning(paths: SpoolPaths, uuid: bytes, control: PoolControl) -> list[Found]:
    """Before the first checkpoint the journal must begin where that of the first start did."""
    headers = [header for number in numbers_in(paths.journal)
               if (header := read_entry(paths, number, uuid).header) is not None]
    if not headers or headers[0].follows_lsn <= control.lsn:
        return []
    return [Found(Case.JOURNAL_GAP, f"journal/{file_name(headers[0].number)}",
                  f"follows LSN {headers[0].follows_lsn}, the journal files before it are missing",
                  lsn=control.lsn + 1, source=Source.PART)]
