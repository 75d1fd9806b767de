"""The schedules of an instance: defined, looked at, paused, run and deleted by a program.

    with omq.connect(name="shop") as connection:
        schedules = Schedules(connection)
        schedules.define("NIGHTLY", "REPORTS", "0 3 * * *", zone="Europe/Berlin", body="{}")
        for each in schedules.list():
            print(each.name, each.next_ns)

schedule.server (omq.services.schedule) does what they say. A change is a new generation of the
schedule's message, put before the old one is cancelled: a death in between leaves both, and the
lower one counts for nothing. Needed are `put`, `browse` and `admin` on SYSTEM.SCHEDULES; whoever
may put there can have messages put on any queue.

Errors: BadSchedule, UnknownSchedule, MessageBusy (try again), those of the connection.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from omq.base import clock
from omq.base.errors import (
    BadSchedule,
    MessageBusy,
    NoMessage,
    QueueExists,
    UnknownQueue,
    UnknownSchedule,
)
from omq.ipc.client.connection import Connection
from omq.ipc.wire import arguments
from omq.tasks.schedule import (
    FILE,
    GENERATION_MAX,
    ONCE,
    QUEUE,
    QUEUE_KEYS,
    RUN_TIME,
    Schedule,
    decode,
    id_of,
)

_BUSY_S: Final = 10.0
_LOOK_S: Final = 0.02


class QueueMissing(UserWarning):
    """A schedule was defined for a queue that is not there."""


def missing_queue(schedule: Schedule) -> str:
    """What that means, and what to do."""
    return (f"schedule {schedule.name}: there is no queue {schedule.queue}, or not for you; its "
            f"messages wait until there is: omq queue define {schedule.queue}")


class Schedules:
    """See the module. Of one connection, which has no reader meanwhile."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def define(self, name: str, queue: str, when: str, *, zone: str = "UTC", body: str = "",
               properties: Mapping[str, str] | None = None, priority: int | None = None,
               expiry_s: float | None = None, jitter_s: int = 0, catch_up: str = ONCE,
               overlap: str = "allow") -> Schedule:
        """A schedule, or another definition of one; its planned times begin now. `when`: five
        fields of cron, or `every 15 min`; `catch_up`: skip, once or `all N`; `overlap`: allow, or
        skip while what was put last is still there; `{planned}` in `body` is the planned time. A
        queue that is not there now is a warning (QueueMissing): it may be defined before then."""
        given = Schedule(
            name, queue, when, zone, arguments.text(body, "body"), dict(properties or {}),
            priority, expiry_s, jitter_s, catch_up, overlap)
        found = self._define(given.checked(), self._found().get(name))
        if self.lacks_queue(found):
            warnings.warn(QueueMissing(missing_queue(found)), stacklevel=2)
        return found

    def lacks_queue(self, schedule: Schedule) -> bool:
        """Whether its queue is not there now, for this connection: what is due waits for it."""
        try:
            self._connection.queues.show(schedule.queue)
        except UnknownQueue:
            return True
        return False

    def list(self) -> list[Schedule]:
        """All, by name."""
        return [found for _, found in sorted(self._found().items())]

    def show(self, name: str) -> Schedule:
        """One. UnknownSchedule."""
        found = self._found().get(name)
        if found is None:
            raise UnknownSchedule(name=name)
        return found

    def pause(self, name: str) -> Schedule:
        """Nothing is put until `resume`; planned times in between are not made up for."""
        return self._replace(self.show(name), paused=True)

    def resume(self, name: str) -> Schedule:
        """Go on with the next planned time."""
        return self._replace(self.show(name), paused=False)

    def run(self, name: str) -> str:
        """Put its message now, besides the planned ones; the id."""
        found = self.show(name)
        outgoing = replace(found.planned(clock.wall_ns()), message_id=b"")
        (made,) = self._connection.put_many(found.queue, [outgoing])
        return made

    def delete(self, name: str) -> None:
        """There is none of this name any more. UnknownSchedule."""
        found = self.show(name)
        self._not_of_file(found)
        self._cancel(found)

    def adopt(self, wanted: Iterable[Schedule]) -> None:
        """Let those of schedules.conf be these: what is the same goes on as it was, also paused."""
        known, names = self._found(), set()
        for each in wanted:
            names.add(each.name)
            old = known.get(each.name)
            if old is None or old.definition != each.definition:
                self._define(each, old)
        for name, old in known.items():
            if old.by == FILE and name not in names:
                self._cancel(old)

    def superseded(self, schedule: Schedule) -> bool:
        """Whether another message counts instead of this one, which its reader holds."""
        with suppress(NoMessage):
            return bool(self._connection.state(
                id_of(schedule.name, schedule.generation % GENERATION_MAX + 1)))
        with suppress(NoMessage):
            return len(self._connection.state(schedule.message_id)) > 1
        return False

    def exists(self, message_id: str) -> bool:
        """Whether this message is on a queue still."""
        with suppress(NoMessage):
            return bool(self._connection.state(message_id))
        return False

    def prepare(self) -> None:
        """The queue, where queues.conf does not have it."""
        try:
            self._connection.queues.show(QUEUE)
        except UnknownQueue:
            with suppress(QueueExists):
                self._connection.queues.define(
                    QUEUE, **QUEUE_KEYS, reason="a schedule was defined")

    def _found(self) -> dict[str, Schedule]:
        """By name, the highest generation of each; what is not a schedule is left to the server."""
        found: dict[str, Schedule] = {}
        try:
            for row in self._connection.browse(QUEUE):
                with suppress(BadSchedule):
                    each = decode(row.body)
                    if each.name not in found or each.generation > found[each.name].generation:
                        found[each.name] = each
        except UnknownQueue:
            return {}
        return found

    def _define(self, given: Schedule, old: Schedule | None) -> Schedule:
        if old is not None and given.by == RUN_TIME:
            self._not_of_file(old)
        now = clock.wall_ns()
        new = replace(given, since_ns=now)
        if old is not None:
            new = replace(
                new, generation=old.generation, paused=old.paused, last_ns=old.last_ns,
                last_put_ns=old.last_put_ns, last_id=old.last_id, puts=old.puts,
                missed=old.missed, skipped=old.skipped, missed_ns=old.missed_ns)
            return self._replace(new, old)
        self.prepare()
        new = replace(new, next_ns=new.rule().after(now))
        self._put(new)
        return new

    def _replace(self, new: Schedule, old: Schedule | None = None, *, paused: bool | None = None
                 ) -> Schedule:
        """The next generation of it, due from now on."""
        before = old or new
        new = replace(
            new, generation=before.generation % GENERATION_MAX + 1,
            paused=new.paused if paused is None else paused,
            next_ns=new.rule().after(max(clock.wall_ns(), new.last_ns)))
        self._put(new)
        self._cancel(before)
        return new

    def _put(self, schedule: Schedule) -> None:
        self._connection.put_many(QUEUE, [replace(schedule.message(), queues=())])

    def _cancel(self, schedule: Schedule) -> None:
        """Its message goes; the server has one in hand for a moment."""
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                return self._connection.cancel(schedule.message_id)
            except NoMessage:
                return None
            except MessageBusy:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_LOOK_S)

    def _not_of_file(self, schedule: Schedule) -> None:
        if schedule.by == FILE:
            raise schedule.wrong(f"it is one of {FILE}: change it there, and reload")
