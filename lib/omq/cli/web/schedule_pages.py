"""Schedules of the instance: the page, and the same for programs. Read of the index and the stored
messages, as everything that is looked at: a schedule.server or a queue manager that is dead shows
by next times that are over."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

from aiohttp import web

from omq.base import clock
from omq.base.clock import iso_time
from omq.base.errors import BadSchedule, OmqError, UnknownQueue
from omq.cli.operate.change import connect
from omq.cli.web import actions
from omq.cli.web.console import caller_of, console_of
from omq.core.index.rows import EntryRow
from omq.core.look.look import Source, look
from omq.core.look.stored import StoredMessages
from omq.services.daemon.options import Location
from omq.tasks.schedule import QUEUE, Schedule, decode
from omq.tasks.schedule_step import LATE_NS

SCHEDULES_MAX: Final = 1000
"""Read at most: there may be a million."""


class Found(NamedTuple):
    """By name, the highest generation of each; what else there is to say of them; queues that are
    not there, or of which nobody could be asked (`known` is False)."""

    schedules: list[Schedule]
    note: str
    missing: frozenset[str] = frozenset()
    known: bool = True

    def lacks_queue(self, each: Schedule) -> bool | None:
        """What is due waits until its queue is defined; None: nobody knows."""
        if each.queue not in self.missing:
            return False
        return True if self.known else None


def found(location: Location) -> Found:
    """What is there now."""
    try:
        with look(location.paths, Source.SEGMENT) as seen:
            rows = list(seen.view.entries(QUEUE, SCHEDULES_MAX + 1))
            local = {row.name for row in seen.view.queues()}
    except UnknownQueue:
        return Found([], "")
    schedules, note = _read(location, rows)
    others = {each.queue for each in schedules} - local
    try:
        return Found(schedules, note, _missing(location, others))
    except OmqError:  # this is for an instance that is dead, too
        return Found(schedules, note, frozenset(others), known=False)


def _missing(location: Location, names: set[str]) -> frozenset[str]:
    """The index has queues that hold messages; of aliases and remote ones the manager knows."""
    if not names:
        return frozenset()
    missing = set[str]()
    with connect(location, actions.NAME) as connection:
        for name in names:
            try:
                connection.queues.show(name)
            except UnknownQueue:
                missing.add(name)
    return frozenset(missing)


def _read(location: Location, rows: list[EntryRow]) -> tuple[list[Schedule], str]:
    by: dict[str, Schedule] = {}
    note = "" if len(rows) <= SCHEDULES_MAX else f"the first {SCHEDULES_MAX:,} messages of {QUEUE}"
    messages = StoredMessages(location.paths)
    try:
        for row in rows[:SCHEDULES_MAX]:
            try:
                body = messages.body(row.message, messages.read(row.message))
            except OmqError as error:  # it went meanwhile, or is damaged
                note = str(error)
                continue
            with suppress(BadSchedule):  # schedule.server fails it, with the reason
                each = decode(body)
                if each.name not in by or each.generation > by[each.name].generation:
                    by[each.name] = each
    finally:
        messages.close()
    return [by[name] for name in sorted(by)], note


def overdue(each: Schedule) -> bool:
    """Nobody was there for its next time: schedule.server does not run, or cannot put."""
    return not each.paused and each.due_ns + LATE_NS < clock.wall_ns()


async def schedules(request: web.Request) -> web.Response:
    """GET /schedules."""
    console = console_of(request)
    caller_of(request).need_on("browse", QUEUE)
    there = await console.run(found, console.location)
    return console.pages.answer(request, "schedules.html", schedules=there.schedules,
                                note=there.note, overdue=overdue, lacks_queue=there.lacks_queue)


async def listed(request: web.Request) -> web.Response:
    """GET /api/v1/schedules."""
    console = console_of(request)
    caller_of(request).need_on("browse", QUEUE)
    there = await console.run(found, console.location)
    return web.json_response({"schedules": [record(each, there) for each in there.schedules],
                              "note": there.note})


def record(each: Schedule, there: Found) -> dict[str, Any]:
    """As `omq schedule list --json` has it, but times in UTC."""
    return {**each.definition, "paused": each.paused,
            "next": None if each.paused or not each.next_ns else iso_time(each.next_ns),
            "last": iso_time(each.last_ns) if each.last_ns else None, "puts": each.puts,
            "missed": each.missed, "skipped": each.skipped, "overdue": overdue(each),
            "queue_missing": there.lacks_queue(each)}
