"""What an acknowledgement of this manager means: on this disk, or on those of standbys, too
(`standby_sync`, ipc.server.held_replies), and nothing where the lease is over (leased_replies).
Each change is an event, a frame of the journal, and is in run/protection.json for status,
alarms and metrics.

The frame is in the group that the change comes with: who goes on alone has said so on its disk
before the first reply of that kind.

Errors: none: without room for the frame nothing changes, and it is tried again.
"""

from __future__ import annotations

import json
import os

from omq.base import clock, events, modes, side_files
from omq.base.errors import SpoolFull
from omq.base.event_log import REPORT, WARNING
from omq.core.engine.engine import Engine
from omq.core.engine.state import Party
from omq.ipc.server.held_replies import HeldReplies, Protection
from omq.ipc.server.leased_replies import LeasedReplies
from omq.ipc.server.operator_plane import order_text
from omq.services.daemon.daemon import DaemonContext

COMMAND = "standby_sync"


def held_replies(context: DaemonContext, engine: Engine, term: int) -> HeldReplies | None:
    """None: nothing waits for standbys, or for a lease of this term."""
    settings, paths = context.settings, context.paths
    if not settings.standby_sync and not settings.standby_lease:
        side_files.remove(paths.protection)
        return None
    patience = (settings.standby_lost_s * clock.NS_PER_S if settings.standby_lost == "go_on"
                else None)
    own = Party(0, 0, os.getpid(), os.geteuid(), 0)

    def tell(state: Protection, standbys: list[str]) -> None:
        side_files.replace(paths.protection, (json.dumps({
            "state": state.value, "wanted": settings.standby_sync, "standbys": standbys,
            "time_ns": clock.wall_ns()}, sort_keys=True) + "\n").encode(), modes.PUBLIC)

    def changed(state: Protection, standbys: list[str]) -> bool:
        reason = f"{state.value}: {', '.join(standbys) or 'no standby'} of {settings.standby_sync}"
        try:
            engine.books.operator(own, 0, len(standbys), order_text(
                {"command": COMMAND, "reason": reason, "things": "standbys"}))
        except SpoolFull:
            return False
        level = REPORT if state in (Protection.SYNCED, Protection.LEASED) else WARNING
        context.log.event(events.PROTECTION_CHANGED, level, state=state.value,
                          standbys=", ".join(standbys), wanted=settings.standby_sync)
        tell(state, standbys)
        return True

    if settings.standby_lease:
        tell(Protection.FENCED, [])
        return LeasedReplies(engine, settings.standby_sync, patience, changed, term=term)
    tell(Protection.WAITING, [])
    return HeldReplies(engine, settings.standby_sync, patience, changed)
