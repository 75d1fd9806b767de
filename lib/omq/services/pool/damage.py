"""Damage that a daemon met in spool files: one event each, and a copy in quarantine.

Errors: DiskError when the copy meets a failing disk (latched); a full disk or a refused open is an
event, for the service goes on.
"""

from __future__ import annotations

from collections.abc import Iterable

from omq.base import event_log, events
from omq.base.errors import OmqError
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding, Kind
from omq.storage import durable
from omq.storage.quarantine import save_found

HARMLESS = frozenset({Kind.END, Kind.TORN})
"""What a crash leaves in the normal course of things."""


def report_damage(log: EventLog, paths: SpoolPaths, findings: Iterable[Finding]) -> int:
    """Report and set aside; how many of the findings are damage."""
    count = 0
    for finding in findings:
        if finding.kind in HARMLESS:
            continue
        count += 1
        event = events.BLOCK_QUARANTINED
        if finding.kind is Kind.GAP:
            event = events.SEQUENCE_GAP
        elif finding.record >= 0:
            event = events.RECORD_QUARANTINED
        kept = _copy(log, paths, finding)
        log.event(event, event_log.ERROR, file=finding.file, offset=finding.offset,
                  record=finding.record if finding.record >= 0 else None,
                  lsn=finding.lsn or None, reason=f"{finding.kind.value}: {finding.reason}",
                  copy=kept)
    return count


def _copy(log: EventLog, paths: SpoolPaths, finding: Finding) -> str | None:
    try:
        kept = save_found(paths, finding)
    except OmqError as error:
        durable.check_latch()
        log.event(events.FAILED, event_log.WARNING, at="quarantine", reason=str(error))
        return None
    return kept.name if kept is not None else None
