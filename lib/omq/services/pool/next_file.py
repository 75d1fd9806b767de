"""The next journal file, made while the manager still writes into the last one: zeros on the disk,
so that no append waits for space or for metadata.

Errors: DiskError. A full disk is an event, once: the manager makes the file itself if it must.
"""

from __future__ import annotations

from omq.base import event_log, events
from omq.base.errors import SpoolFull
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.storage.journal import prepare_next


class NextFile:
    """Of one spool; `prepare` is called again and again and costs nothing while it is ready."""

    def __init__(self, paths: SpoolPaths, settings: Settings, log: EventLog) -> None:
        self._paths = paths
        self._settings = settings
        self._log = log
        self._late = False
        self._prepared_for = -1  # number of the file whose successor is ready

    def prepare(self, number: int) -> None:
        """The successor of the file in use, `number`."""
        if number == self._prepared_for:
            return
        try:
            prepare_next(self._paths, self._settings)
        except SpoolFull as error:
            if not self._late:
                self._log.event(events.JOURNAL_LATE, event_log.WARNING, reason=str(error))
            self._late = True
        else:
            self._late = False
            self._prepared_for = number
