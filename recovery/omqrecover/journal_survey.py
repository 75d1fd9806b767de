"""Every journal file: whose it is, how it ends, what is damaged, missing, or lies in archive/.

Files are judged by their headers first; then the history is read once (survey.py feeds
ledger and redo from the same pass), and what it found is judged here by the checkpoint's position:
frames at or below the checkpoint are in the pool already.

Errors: DiskError.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from omq.base.paths import SpoolPaths
from omq.core.load.presence import journal_state
from omq.format.findings import Finding, Kind
from omq.format.journal import FileHeader
from omq.format.poolctrl import PoolControl
from omq.storage import durable, journal_newest
from omq.storage.journal import file_name, numbers_in
from omqtools.omqrecover.archive import ArchivedFile, all_numbers, open_archived
from omqtools.omqrecover.cases import Case, Place, Source
from omqtools.omqrecover.history import History
from omqtools.omqrecover.model import Found


def read_headers(paths: SpoolPaths, uuid: bytes) -> list[Found]:
    """The files of journal/ and archive/ that are not what their names say."""
    out = []
    for directory in (paths.journal, paths.archive):
        for number in numbers_in(directory):
            found = _header(directory, open_archived(directory, number), uuid)
            if found is not None:
                out.append(found)
    return out


def _header(directory: Path, file: ArchivedFile, uuid: bytes) -> Found | None:
    name, header = f"{directory.name}/{file.path.name}", file.header
    if isinstance(header, Finding):
        if header.kind is Kind.NEWER:
            return Found(Case.NEWER, name, header.reason)
        damaged = header.kind in (Kind.CORRUPT, Kind.FOREIGN)
        return Found(Case.JOURNAL_HEADER, name, header.reason, 0, 4096) if damaged else None
    if header.uuid != uuid:
        return Found(Case.JOURNAL_FOREIGN, name, f"its uuid is {header.uuid.hex()}")
    if header.number == file.number:
        return None
    target = directory / file_name(header.number)
    taken = header.number in numbers_in(directory)
    return Found(Case.JOURNAL_RENAMED, name, f"it is journal file {header.number}",
                 place=Place.TAKEN if taken else Place.FREE,
                 target=f"{directory.name}/{target.name}")


def judge(paths: SpoolPaths, history: History, control: PoolControl | None) -> list[Found]:
    """What the history's pass has found, by the checkpoint."""
    checkpoint = control.lsn if control is not None else 0
    state = journal_state(paths, history.uuid, control)
    whole = Source.WHOLE if state.whole else Source.NONE
    out = _ends(history, whole)
    archived = {file_name(number) for number in all_numbers(paths.archive)}
    out += [Found.of(Case.JOURNAL_NEWEST, "journal", each, whole) for each in state.newest
            if each.file not in archived]
    out += [Found.of(Case.JOURNAL_NO_NOTE, "journal", each) for each in state.note]
    if not state.newest:
        out += _without_follower(paths, history)
    explained: list[Found] = []
    for first, last in _gaps(history, control):
        explained.append(_gap(first, last, history, checkpoint))
    out += explained
    if control is not None and control.lsn:
        out += _position(paths, history, control)
    return [replace(each, file=_placed(each.file, history)) for each in out]


def _gaps(history: History, control: PoolControl | None) -> list[tuple[int, int]]:
    """Ranges of missing LSNs, each once; what is missing between checkpoint and first file too."""
    gaps = set(history.gaps)
    first = history.files[0].follows if history.files else None
    if control is not None and first is not None and first.follows_lsn > control.lsn:
        gaps.add((control.lsn + 1, first.follows_lsn))
    return sorted(gaps)


def _gap(first: int, last: int, history: History, checkpoint: int) -> Found:
    source = Source.WHOLE if last <= checkpoint else Source.PART
    reason = f"LSN {first} to {last} are missing"
    for finding in history.findings:
        if finding.kind is Kind.CORRUPT and finding.length and finding.lsn == first:
            return Found.of(Case.JOURNAL_BLOCK, "journal", replace(finding, reason=finding.reason),
                            source)
    before = [file for file in history.files if (h := file.follows) and h.first_lsn <= first]
    name = before[-1].path.name if before else "(before the first file)"
    return Found(Case.JOURNAL_GAP, f"journal/{name}", reason, lsn=first, source=source)


def _placed(name: str, history: History) -> str:
    """The file's directory, which a decoder's finding does not know."""
    for file in history.files:
        if name == f"journal/{file.path.name}":
            return f"{file.path.parent.name}/{file.path.name}"
    return name


def noted(paths: SpoolPaths, uuid: bytes) -> int:
    """Number of the newest journal file as the spool has noted it; 0: it has not."""
    try:
        newest = journal_newest.load(paths)
    except FileNotFoundError:
        return 0
    return newest.number if newest is not None and newest.uuid == uuid else 0


def _without_follower(paths: SpoolPaths, history: History) -> list[Found]:
    """A file is archived when the journal has gone on behind it: one that is the last of all shows
    that at least one is missing."""
    if not history.unfollowed:
        return []
    name = f"{paths.archive.name}/{history.files[-1].path.name}"
    return [Found(Case.JOURNAL_NO_FOLLOWER, name, "it was retired when later files were there, and "
                  f"none is: what came behind LSN {history.last_lsn} is missing",
                  lsn=history.last_lsn + 1)]


def _ends(history: History, whole: Source) -> list[Found]:
    """The torn tail of the last file; those of files before it were settled by later starts."""
    if not history.files:
        return []
    last = history.files[-1]
    header, found = last.follows, durable.status(last.path)
    short = found is not None and header is not None and found.st_size < header.size
    if short and last.path.suffix == ".jnl":  # an archive has another size
        assert header is not None and found is not None
        return [Found(Case.JOURNAL_CUT, f"journal/{last.path.name}",
                      f"{found.st_size} bytes instead of {header.size}", found.st_size,
                      source=whole)]
    end = history.ends.get(last.number)
    if end is None or end.kind is not Kind.TORN:
        return []
    return [Found.of(Case.TORN_TAIL, "journal", replace(end, file=last.path.name))]


def _position(paths: SpoolPaths, history: History, control: PoolControl) -> list[Found]:
    """Is the journal there where the checkpoint wants to go on?"""
    current = set(numbers_in(paths.journal))
    archived = [n for n in all_numbers(paths.archive) if n >= control.journal > 0]
    if archived:
        return [_archived(paths, number, current, history, control) for number in archived]
    if history.last_lsn >= control.lsn:
        return []
    if not any(number >= control.journal for number in current):
        return [Found(Case.JOURNAL_GAP, f"journal/{file_name(control.journal)}",
                      f"the checkpoint at LSN {control.lsn} goes on there, and no later file is "
                      "there", lsn=control.lsn + 1)]
    return [Found(Case.JOURNAL_BEHIND, f"journal/{file_name(max(current))}",
                  f"it ends at LSN {history.last_lsn}, the checkpoint is at LSN {control.lsn}",
                  lsn=history.last_lsn)]


def _archived(paths: SpoolPaths, number: int, current: set[int], history: History,
              control: PoolControl) -> Found:
    behind = [gap for gap in history.gaps if gap[1] > control.lsn]
    starts_late = history.first_lsn > control.lsn + 1
    source = Source.NONE if starts_late else Source.PART if behind else Source.WHOLE
    name = open_archived(paths.archive, number).path.name
    return Found(Case.JOURNAL_ARCHIVED, f"archive/{name}",
                 f"the checkpoint at LSN {control.lsn} does not cover it", source=source,
                 place=Place.TAKEN if number in current else Place.FREE,
                 target=f"journal/{file_name(number)}")


def counts(history: History) -> list[dict[str, Any]]:
    """A line for each file."""
    out = []
    for file in history.files:
        header = file.header if isinstance(file.header, FileHeader) else None
        end = history.ends.get(file.number)
        out.append({"part": "journal file", "name": f"{file.path.parent.name}/{file.path.name}",
                    "blocks": history.blocks.get(file.number, 0),
                    "first_lsn": header.first_lsn if header else None,
                    "epoch": header.epoch if header else None,
                    "end": end.kind.value if end else None})
    return out
