"""What redo and the load of an index have met, judged by the same table as what is missing.

Decoders give findings (format.findings); what they mean depends on where they were met: in
`checkpoint.dw`, in the journal after the checkpoint, in a pool record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from omq.core.judge.cases import Case, Source
from omq.core.judge.finding import Found
from omq.format.findings import Finding, Kind
from omq.storage.pool import DOUBLE_WRITE

_POSITIONS: Final = (Case.JOURNAL_POSITION, Case.JOURNAL_GAP)


def of_double_write(findings: Iterable[Finding]) -> list[Found]:
    """Findings of `checkpoint.dw`, and of pool files that turned out to be others."""
    out = []
    for each in findings:
        if each.kind is Kind.NEWER:
            out.append(Found.of(Case.NEWER, "msgpool", each))
        elif each.file == DOUBLE_WRITE:
            out.append(Found.of(Case.DOUBLE_WRITE_FOREIGN, "msgpool", each))
        else:
            out.append(Found.of(Case.POOL_FILE_DIFFERS, "msgpool", each))
    return out


def of_journal(findings: Iterable[Finding], told: Iterable[Found] = ()) -> list[Found]:
    """Findings of the scan of the journal after the checkpoint, and of redo, without those that
    are `told` already."""
    out = []
    known = {(each.file, each.lsn) for each in told if each.case in _POSITIONS}
    for each in findings:
        if each.record >= 0:  # redo met it in the pool
            out += of_records([each])
        elif each.kind is Kind.GAP and (f"journal/{each.file}", each.lsn) in known:
            continue
        elif each.kind is Kind.NEWER:
            out.append(Found.of(Case.NEWER, "journal", each))
        elif each.kind is Kind.FOREIGN:
            out.append(Found.of(Case.JOURNAL_FOREIGN, "journal", each))
        elif each.kind is Kind.GAP:
            out.append(Found.of(Case.JOURNAL_GAP, "journal", each, Source.PART))
        elif each.kind not in (Kind.END, Kind.TORN):
            header = not each.offset and not each.lsn
            out.append(Found.of(Case.JOURNAL_HEADER if header else Case.JOURNAL_BLOCK, "journal",
                                each, Source.PART))
    return out


def of_records(findings: Iterable[Finding]) -> list[Found]:
    """Findings of a load of the pool."""
    out = []
    for each in findings:
        case = Case.RECORD_DAMAGED if each.record >= 0 else Case.POOL_FILE_HEADER
        if each.kind is Kind.NEWER:
            case = Case.NEWER
        elif each.kind is Kind.SHORT and each.record >= 0:
            case = Case.POOL_FILE_CUT
        elif each.kind is Kind.DUPLICATE:
            case = Case.RECORD_DUPLICATE
        elif each.record < 0 and each.kind is not Kind.CORRUPT:
            case = Case.POOL_FILE_FOREIGN
        if each.kind not in (Kind.END, Kind.TORN):
            out.append(Found.of(case, "msgpool", each))
    return out


def once(found: Iterable[Found]) -> list[Found]:
    """Each place once: redo and the load of the index may meet the same record."""
    return list({(each.case, each.file, each.offset, each.lsn): each for each in found}.values())
