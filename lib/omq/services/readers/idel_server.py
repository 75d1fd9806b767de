"""idel.server, the Item Delete Daemon: ends messages that no queue holds any more.

The reader of the pseudo-queue IDEL. A message comes there when its last queue is done with it. Its
container, if it has one, is removed here, so that no other service waits for deletions on the disk
(seed: "The IDEL queue"); its record goes with the disposition.

What is already gone is not an error: after a crash the same message returns. Order: container
first, then the record, so a crash in between leaves a record that names nothing, never a container
that no record names. A container is cut before it is removed: a client that still has it open (a
reader gets a descriptor, ADR 0021) keeps none of its space. One that nobody has open may rest for a
while under another name, so that the next body is written over it (storage.recycled_containers);
what rests goes when nothing waits, at the end, and at the next start; what dead processes left of
it, too: a directory of data/ is looked through for each message, and all of them in a pause.

What cannot be deleted (another user's or an immutable file, a disk that says no) stays on IDEL,
where omstat and omqdump show it, and comes ever more seldom (core.engine.retry). One event
says so for each message, of the first TOLD_MAX; of more, how many. After `idel_attempts_max` it is
set aside: a note in quarantine/, an event with path and command, and the message ends. The file
stays: `omscan` lists it as a container that no message names, `--remove` takes it away. In the
middle of a crash: the note is durable before the message ends, and the same note is made once.
Without room for a note (quarantine is bounded) the message stays on IDEL.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

from omq.base import event_log, events
from omq.base.errors import OmqError
from omq.base.fault import point
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding, Kind
from omq.services.readers.parent import run_service
from omq.services.readers.service import Disposition, Done, Fail, Message, Service
from omq.storage import quarantine
from omq.storage.recycled_containers import Recycler

ATTEMPTS_TOLD: Final = 3
"""So often in vain is not an accident."""
TOLD_MAX: Final = 20
COMMAND: Final = "omscan --remove"
"""What takes a container that was set aside away, once its cause is gone."""
_REASON_CHARACTERS: Final = 500


class IdelService(Service):
    """Removes containers; counts what it did and says so in every pause."""

    title: ClassVar[str] = "Item Delete Daemon"

    _recycler: Recycler

    def open(self) -> None:
        self._deleted = self._stuck = 0
        self._recycler = Recycler(self.context.paths, self.context.settings)
        self._recycler.open()
        self.context.log.event(events.IDEL_STARTED)

    def handle(self, message: Message) -> Disposition:
        path: Path | None = None
        try:
            path = message.container
            if path is not None:
                self._remove(message, path)
        except OmqError as error:
            return self._failed(message, path, str(error)[:_REASON_CHARACTERS])
        self._deleted += 1
        return Done()

    def reload(self) -> None:
        self._recycler.give_back()  # there may be less room for them now
        self._recycler = Recycler(self.context.paths, self.context.settings)
        self._recycler.open()

    def idle(self) -> None:
        self._recycler.give_back()
        self._recycler.look_behind()
        self._tell()

    def close(self) -> None:
        self._recycler.give_back()
        self._tell()
        self.context.log.event(events.IDEL_STOPPED)

    def _remove(self, message: Message, path: Path) -> None:
        point("idel.before_delete")
        reference = item_reference(self.context.paths, path)
        if not self._recycler.end(reference):
            self.context.log.event(
                events.IDEL_ALREADY_GONE, event_log.TRACE,
                message_id=message.message_id, reference=reference,
            )  # fmt: skip
        point("idel.after_delete")

    def _failed(self, message: Message, path: Path | None, reason: str
                ) -> Disposition:
        last = message.attempts + 1 >= self.context.settings.idel_attempts_max
        if last and path is not None and self._set_aside(message, path, reason):
            return Done()
        if message.attempts + 1 == ATTEMPTS_TOLD:
            self._stuck += 1
            if self._stuck <= TOLD_MAX:
                self.context.log.event(
                    events.IDEL_STUCK, event_log.ERROR, message_id=message.message_id,
                    qpool_id=message.qpool_id, path=str(path or ""), reason=reason,
                )  # fmt: skip
        return Fail(reason)

    def _set_aside(self, message: Message, path: Path, reason: str) -> bool:
        """Whether the container is noted in quarantine, so that its message may end without it."""
        paths = self.context.paths
        finding = Finding(Kind.UNREADABLE, reason, path.relative_to(paths.root).as_posix(),
                          length=message.size)
        try:
            note = quarantine.save(paths, finding, b"")
        except OmqError:  # there is a next attempt, and event 1267 has told of the message
            return False
        if note is None:
            return False
        self.context.log.event(
            events.IDEL_SET_ASIDE, event_log.ERROR, message_id=message.message_id,
            qpool_id=message.qpool_id, path=str(path), reason=reason, command=COMMAND,
            note=str(note.with_suffix(".json")),
        )  # fmt: skip
        return True

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
