"""idel.server, the Item Delete Daemon: ends messages that no queue holds any more.

The reader of the pseudo-queue IDEL. A message comes there when its last queue is done with it. Its
container, if it has one, is removed here, so that no other service waits for deletions on the disk
(seed: "The IDEL queue"); its record goes with the disposition.

What is already gone is no error: after a crash the same message comes again. Order: container
first, then the record, so a crash in between leaves a record that names nothing, never a container
that no record names. A container is cut before it is removed: a client that still has it open (a
reader gets a descriptor, ADR 0021) keeps none of its space.

What cannot be deleted (another user's file, a body that fails its CRC, a disk that says no) stays
on IDEL, where omstat and omqdump show it, and comes ever more seldom (core.engine.settle). One
event says so for each message, of the first TOLD_MAX; of more, how many.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

from omq.base import event_log, events
from omq.base.errors import OmqError
from omq.base.fault import point
from omq.base.paths import SpoolPaths
from omq.services.readers.parent import run_service
from omq.services.readers.service import Disposition, Done, Fail, Message, Service
from omq.storage.containers import remove

ATTEMPTS_TOLD: Final = 3
"""So often in vain is no accident."""
TOLD_MAX: Final = 20
_REASON_CHARACTERS: Final = 500


class IdelService(Service):
    """Removes containers; counts what it did and says so in every pause."""

    title: ClassVar[str] = "Item Delete Daemon"

    def open(self) -> None:
        self._deleted = self._stuck = 0
        self.context.log.event(events.IDEL_STARTED)

    def handle(self, message: Message) -> Disposition:
        try:
            path = message.path
            if path is not None:
                self._remove(message, path)
        except OmqError as error:
            return self._failed(message, error)
        self._deleted += 1
        return Done()

    def idle(self) -> None:
        self._tell()

    def close(self) -> None:
        self._tell()
        self.context.log.event(events.IDEL_STOPPED)

    def _remove(self, message: Message, path: Path) -> None:
        point("idel.before_delete")
        reference = item_reference(self.context.paths, path)
        if not remove(self.context.paths, reference):
            self.context.log.event(
                events.IDEL_ALREADY_GONE, event_log.TRACE,
                message_id=message.message_id, reference=reference,
            )  # fmt: skip
        point("idel.after_delete")

    def _failed(self, message: Message, error: OmqError) -> Fail:
        if message.attempts + 1 == ATTEMPTS_TOLD:
            self._stuck += 1
            if self._stuck <= TOLD_MAX:
                self.context.log.event(
                    events.IDEL_STUCK, event_log.ERROR, message_id=message.message_id,
                    qpool_id=message.qpool_id, reason=str(error)[:_REASON_CHARACTERS],
                )  # fmt: skip
        return Fail(str(error)[:_REASON_CHARACTERS])

    def _tell(self) -> None:
        if self._stuck > TOLD_MAX:
            self.context.log.event(events.IDEL_MORE_STUCK, event_log.ERROR,
                                   messages=self._stuck - TOLD_MAX)
        self._stuck = min(self._stuck, TOLD_MAX)
        if self._deleted:
            self.context.log.event(events.IDEL_DELETED, event_log.TRACE, messages=self._deleted)
            self._deleted = 0


def item_reference(paths: SpoolPaths, path: Path) -> str:
    """`~/data/0000005/000084u`, as the original names a container. ValueError outside the spool."""
    return f"~/{path.relative_to(paths.root).as_posix()}"


def main(argv: list[str] | None = None) -> int:
    """The program idel.server; returns its exit code."""
    return run_service("idel", IdelService, argv)
