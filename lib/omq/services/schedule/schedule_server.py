"""schedule.server: puts messages when schedules are due.

A reader of SYSTEM.SCHEDULES, where each schedule waits as a message until its next planned time
(omq.tasks.schedule). What it puts and the schedule's next state are one move. schedules.conf is
read at the start and at a reload, and adopted: a wrong file is refused and what was there goes on.

Crash argument: that of omq.tasks.schedule_step. A death while schedules.conf is adopted leaves some
of it done; the next start does the rest, and what is as the file says is left alone.
"""

from __future__ import annotations

from omq.base import clock, events
from omq.base.errors import BadSchedule, DuplicateKey, OmqError, UnknownQueue
from omq.base.event_log import ERROR, REPORT, TRACE, WARNING
from omq.base.rated_log import NEVER, RatedLog
from omq.ipc.client.connection import Connection, connect
from omq.services.readers.parent import run_service
from omq.services.readers.service import Disposition, Done, Fail, Message, Move, Service
from omq.tasks.schedule import QUEUE, Schedule, decode
from omq.tasks.schedule_file import load_schedules
from omq.tasks.schedule_step import step
from omq.tasks.schedule_times import shown
from omq.tasks.schedules import Schedules

_NAME = "schedule.server"
_MISSING_S = 3600
"""So often an event says that a schedule has no queue."""


class ScheduleService(Service):
    """See the module."""

    _connection: Connection

    def open(self) -> None:
        """Its own connection asks what the reader's cannot. ConfigError."""
        self._connection = connect(
            self.context.paths.root, name=_NAME,
            timeout_s=float(self.context.settings.connect_timeout_s))
        self._schedules = Schedules(self._connection)
        self._rated = RatedLog(self.context.log, 1, _MISSING_S)
        self._schedules.prepare()
        self._adopt(load_schedules(self.context.conf_dir))

    def reload(self) -> None:
        """schedules.conf again; a wrong one is refused."""
        try:
            wanted = load_schedules(self.context.conf_dir)
        except OmqError as error:
            self.context.log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
            return
        self._adopt(wanted)

    def close(self) -> None:
        self._rated.flush(NEVER)
        self._connection.close()

    def handle(self, message: Message) -> Disposition:
        """Put what is due, and go on."""
        try:
            schedule = decode(message.body)
        except BadSchedule as error:
            return Fail(str(error))
        if self._schedules.superseded(schedule):
            return Done()
        found = step(schedule, clock.wall_ns(), self._schedules.exists)
        self._tell(schedule, found.missed, found.skipped)
        for each in found.put:
            self.context.log.event(events.SCHEDULE_PUT, TRACE, schedule=schedule.name,
                                   queue=schedule.queue, planned=each.properties["omq.planned"])
        return Move((), (*found.put, found.after.message()))

    def refused(self, message: Message, error: OmqError) -> Disposition | None:
        """What was put before under its id is not put again; all else is tried again later."""
        if isinstance(error, UnknownQueue):
            self._tell_missing(decode(message.body))
        if not isinstance(error, DuplicateKey):
            return None
        after = step(decode(message.body), clock.wall_ns(), self._schedules.exists).after
        return Move((), (after.message(),))

    def _adopt(self, wanted: list[Schedule]) -> None:
        self._schedules.adopt(wanted)
        self.context.log.event(events.SCHEDULES_READ, REPORT, count=len(wanted), queue=QUEUE)
        for each in wanted:
            if self._schedules.lacks_queue(each):
                self._tell_missing(each)

    def _tell_missing(self, schedule: Schedule) -> None:
        self._rated.event(events.SCHEDULE_WITHOUT_QUEUE, WARNING, schedule.name,
                          schedule=schedule.name, queue=schedule.queue,
                          planned=shown(schedule.next_ns, schedule.zone))

    def _tell(self, schedule: Schedule, missed: int, skipped: int) -> None:
        """What did not happen when it should have."""
        first = shown(schedule.next_ns, schedule.zone)
        if missed:
            self.context.log.event(events.SCHEDULE_MISSED, WARNING, schedule=schedule.name,
                                   missed=missed, first=first, catch_up=schedule.catch_up)
        if skipped:
            self.context.log.event(events.SCHEDULE_SKIPPED, WARNING, schedule=schedule.name,
                                   skipped=skipped, planned=first)


def main(argv: list[str] | None = None) -> int:
    """The program schedule.server; returns its exit code."""
    return run_service("schedule", ScheduleService, argv)
