"""What a start of the queue manager found to be damaged or missing: kept, marked, and said."""

from __future__ import annotations

from pathlib import PurePath

from omq.base import events
from omq.base.event_log import ERROR, REPORT
from omq.core.engine.manager_notes import Books
from omq.core.engine.state import Core
from omq.core.judge.cases import Verdict
from omq.core.judge.redo_findings import of_records, once
from omq.core.load.new_index import mark_damaged
from omq.core.load.pool_columns import Loaded
from omq.core.load.recovery import Recovered
from omq.format.findings import Kind
from omq.services.daemon.daemon import DaemonContext
from omq.services.pool.damage import HARMLESS
from omq.storage.quarantine import save_found


def mark_damage(core: Core, recovered: Recovered, loaded: Loaded) -> None:
    """While something is damaged or missing, nothing that may hold what is needed is deleted."""
    kinds = {f.kind for f in (*recovered.findings, *loaded.findings)}
    if loaded.bodies or kinds - {*HARMLESS, Kind.DUPLICATE}:
        mark_damaged(core.t)


def set_aside(context: DaemonContext, recovered: Recovered, loaded: Loaded) -> None:
    """Copies of what is damaged, before anything can overwrite it."""
    for finding in (*recovered.findings, *loaded.findings):
        if finding.kind in (Kind.CORRUPT, Kind.DUPLICATE, Kind.FOREIGN) and finding.file:
            save_found(context.paths, finding)


def report(context: DaemonContext, recovered: Recovered, loaded: Loaded, books: Books) -> None:
    """What recovery met: damage is set aside and said, an unclean end is normal. `damaged` counts
    places, and each message whose body is gone."""
    found = once([*recovered.judged, *of_records(loaded.findings), *loaded.bodies])
    bad = [each for each in found if each.row.verdict is not Verdict.NORMAL]
    for each in bad:
        context.log.event(events.BLOCK_QUARANTINED, ERROR, file=PurePath(each.file).name,
                          offset=each.offset, reason=f"{each.case.value}: {each.reason}",
                          verdict=each.seen.value)
    damaged = sum(each.count for each in bad)
    books.quarantined(damaged)
    if recovered.upgraded:
        context.log.event(events.SPOOL_UPGRADED, REPORT, files="poolctrl, checkpoint.dw, newest")
    context.log.event(events.RECOVERY_FINISHED, REPORT, messages=loaded.messages, lsn=recovered.lsn,
                      frames=recovered.frames, handed_out=len(loaded.limbo), clean=recovered.clean,
                      damaged=damaged)
