"""What a schedule does at a moment: a function of the schedule and the time, nothing else.

`step` gives the messages to put and the schedule as it goes on; its caller commits both with the
end of the schedule's old message, as one move.

Crash argument: a death before that commit leaves the old message, which is handed out again and
leads to the same planned times; after it there is the new one, whose next time is later than all
that were put. So each planned time has one message, over restarts and kill -9 at any instruction.
A clock that is set back makes none a second time, for the next time is counted from the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from omq.base.clock import NS_PER_S
from omq.ipc.wire.outgoing import Outgoing
from omq.tasks.schedule import SKIP, Schedule, planned_id
from omq.tasks.schedule_times import LOOKED_MAX

LATE_NS: Final = 60 * NS_PER_S
"""Later than this is missed: nobody was there."""


@dataclass(frozen=True, slots=True)
class Step:
    """`put`: the messages; `after`: the schedule from now on; `missed`, `skipped`: how many planned
    times there were without somebody, or with the one before unfinished."""

    put: tuple[Outgoing, ...]
    after: Schedule
    missed: int = 0
    skipped: int = 0


def step(schedule: Schedule, now_ns: int, in_work: Callable[[str], bool]) -> Step:
    """What is due at this time. `in_work`: whether the message with this id is still there."""
    if schedule.paused or now_ns < schedule.due_ns:
        return Step((), schedule)
    rule, first = schedule.rule(), schedule.next_ns
    newest = rule.newest(now_ns, first, LOOKED_MAX) or [first]
    on_time = int(now_ns - newest[-1] - schedule.jitter_ns(newest[-1]) <= LATE_NS)
    missed = len(newest) - on_time
    times = newest[len(newest) - max(on_time, min(len(newest), schedule.catch_up_most())):]
    skipped = 0
    if times and schedule.overlap == SKIP:
        times, skipped = times[-1:], len(times) - 1
        if schedule.last_id and in_work(schedule.last_id):
            times, skipped = [], skipped + 1
    last = newest[-1]
    after = replace(
        schedule, next_ns=rule.after(last), missed=schedule.missed + missed,
        skipped=schedule.skipped + skipped, missed_ns=newest[0] if missed else schedule.missed_ns)
    if times:
        after = replace(
            after, last_ns=times[-1], last_put_ns=now_ns, puts=schedule.puts + len(times),
            last_id=planned_id(schedule.name, times[-1]))
    return Step(tuple(map(schedule.planned, times)), after, missed, skipped)
