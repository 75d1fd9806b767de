"""A standby becomes the primary: the same spool, the next term.

1. What is not synced goes (storage.mirror_start). 2. Everything else is redone, also what is not
known to have been on the primary's disk: the primary may have acknowledged it. From here on this
standby has a history of its own; the mark says so first, so that it does not follow a primary
again that lacks it. 3. A checkpoint: every body that a RELOCATE has moved is copied.
4. promotions.json says since which LSN the next term is; then instance.json says primary, with that
term, in one write: that is the promotion. 5. The mark goes.

The queue manager that starts then finds nothing to redo, and leaves numbers free for what the old
primary may still give (storage.instance_file.LEAP).

In the middle of a crash: before step 4 it is a standby, and the promotion is done again; after it,
the primary, and a mark that is left says nothing about a primary.

Needs the manager's and the pool's lock. Errors: those of Replica and settle; NotPrimary is not
asked: the caller knows the role.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from omq.base.errors import BadRequest, StandbyDiverged
from omq.base.fault import point
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.standby.replica import Replica
from omq.storage import instance_file, journal_synced, promotions
from omq.storage.instance_file import Instance, Role
from omq.storage.journal import file_name
from omq.storage.mirror_start import adopt, settle
from omq.storage.promotions import Promotion


def promote(paths: SpoolPaths, instance: Instance, settings: Settings, time_ns: int,
            progress: Callable[[], None] = lambda: None, *, role: Role = Role.PRIMARY,
            primary: str = "", won: int | None = None) -> Instance:
    """See the module; what instance.json says now. `won`: the term, where a lease gives it; one
    that was given before, and under which nobody served, is left out. `role`, `primary`: what it
    becomes, and what is noted of the primary; a copy to look at is a former one."""
    mark = settle(paths, instance.uuid)
    adopt(paths, instance.uuid, replace(mark, durable=max(mark.durable, mark.lsn)))
    point("promote.after_mark")
    replica = Replica(paths, instance.uuid, settings, progress)
    try:
        replica.start()
        while replica.advance(mark.lsn):
            replica.checkpoint(time_ns)
        if replica.findings:
            found = replica.findings[0]
            raise StandbyDiverged(path=paths.journal / (found.file or file_name(mark.number)),
                                  reason=found.reason)
    finally:
        replica.close()
    point("promote.after_redo")
    term = max(instance.term, mark.term) + (role is Role.PRIMARY)
    if won is not None:
        if won < term:
            raise BadRequest(reason=f"term {won} is not one after {term - 1}")
        term = won
    made = replace(instance, term=term, role=role, primary=primary)
    if role is Role.PRIMARY:
        promotions.note(paths, Promotion(made.term, mark.lsn, made.member, time_ns))
        point("promote.after_note")
    instance_file.write(paths, made)
    point("promote.after_instance")
    journal_synced.remove(paths)
    return made
