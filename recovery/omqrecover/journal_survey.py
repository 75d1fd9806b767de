"""Every journal file: whose it is, how it ends, what is damaged, missing, or lies in archive/.

Files are judged by their headers first; then the history is read once (survey.py feeds
ledger and redo from the same pass), and what it found is judged here by the checkpoint's position:
frames at or below the checkpoint are in the pool already.

Errors: DiskError.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omq.base.paths import SpoolPaths
from omq.core.judge.cases import Case, Source
from omq.core.judge.finding import Found
from omq.core.judge.judge import header_found
from omq.format.findings import Kind
from omq.format.journal import FileHeader
from omq.format.poolctrl import PoolControl
from omq.storage import journal_newest
from omq.storage.journal import file_name, numbers_in
from omqtools.omqrecover.archive import all_numbers, open_archived
from omqtools.omqrecover.history import History

_OF_HEADERS = (Case.JOURNAL_FOREIGN, Case.JOURNAL_RENAMED, Case.NEWER)
"""Judged by `read_headers`, of all files."""


def read_headers(paths: SpoolPaths, uuid: bytes) -> list[Found]:
    """The files of journal/ and archive/ that are not what their names say."""
    out = []
    for directory in (paths.journal, paths.archive):
        for number in numbers_in(directory):
            file = open_archived(directory, number)
            found = header_found(directory, number, file.header, uuid, file.path.name)
            if found is not None:
                out.append(found)
    return out


def judge(history: History, control: PoolControl | None, judged: list[Found]) -> list[Found]:
    """What the history's pass has found, by the checkpoint; `judged`: what is reported already."""
    checkpoint = control.lsn if control is not None else 0
    told = {each.lsn for each in judged if each.case is Case.JOURNAL_POSITION}
    places = {(each.file, each.offset) for each in judged if each.case is Case.JOURNAL_BLOCK}
    out = _ends(history)
    if not any(each.case in (Case.JOURNAL_NEWEST, Case.JOURNAL_POSITION) for each in judged):
        out += _without_follower(history)
    out += [_gap(first, last, history, checkpoint) for first, last in _gaps(history, control)
            if first not in told]
    out = [replace(each, file=_placed(each.file, history)) for each in out]
    return [each for each in out if (each.file, each.offset) not in places]


def with_history(each: Found, paths: SpoolPaths, history: History, control: PoolControl | None
                 ) -> Found | None:
    """What the judge has said of the journal, and what history adds; None: history says it."""
    if each.case is Case.JOURNAL_ARCHIVED and control is not None:
        behind = [gap for gap in history.gaps if gap[1] > control.lsn]
        late = history.first_lsn > control.lsn + 1
        return replace(each, source=Source.NONE if late else Source.PART if behind
                       else Source.WHOLE)
    if each.case is Case.JOURNAL_NEWEST:  # it may lie in archive/: apply brings it back
        archived = {f"journal/{file_name(number)}" for number in all_numbers(paths.archive)}
        return None if each.file in archived else each
    of_headers = each.case in _OF_HEADERS and each.file.startswith("journal/")
    if of_headers or (each.case is Case.JOURNAL_GAP and history.files):
        return None
    return each


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


def _without_follower(history: History) -> list[Found]:
    """A file is archived when the journal has gone on after it: one that is the last of all shows
    that at least one is missing."""
    if not history.unfollowed:
        return []
    name = f"archive/{history.files[-1].path.name}"
    return [Found(Case.JOURNAL_NO_FOLLOWER, name, "it was retired when later files were there, and "
                  f"none is: what came behind LSN {history.last_lsn} is missing",
                  lsn=history.last_lsn + 1)]


def _ends(history: History) -> list[Found]:
    """The torn tail of the last file; those of files before it were settled by later starts."""
    if not history.files:
        return []
    last = history.files[-1]
    end = history.ends.get(last.number)
    if end is None or end.kind is not Kind.TORN:
        return []
    return [Found.of(Case.TORN_TAIL, "journal", replace(end, file=last.path.name))]


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
