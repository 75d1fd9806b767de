"""At a start of the queue manager: what an older omq, or somebody's umask, left open to others is
closed (omq.storage.restrict_modes), and that is logged: once, for then it is closed."""

from __future__ import annotations

from omq.base import events
from omq.base.event_log import WARNING, EventLog
from omq.base.paths import SpoolPaths
from omq.storage import restrict_modes


def restrict_access(paths: SpoolPaths, log: EventLog) -> None:
    """See the module."""
    done = restrict_modes.restrict(paths)
    if done.files or done.directories:
        log.event(events.ACCESS_RESTRICTED, WARNING, path=paths.root, files=done.files,
                  directories=done.directories)
    if done.foreign:
        log.event(events.FOREIGN_FILES, WARNING, path=done.foreign[0], files=len(done.foreign),
                  command=done.command(paths))
