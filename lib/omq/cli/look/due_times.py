"""When a deferred message is due, in words: also when that is past and it waits still."""

from __future__ import annotations

from omq.base.amounts import duration
from omq.base.clock import NS_PER_S, iso_time
from omq.core.index.view import IndexView


def due_text(view: IndexView, until_ns: int, now_ns: int) -> str:
    """`2026-11-25T18:00:00+01:00, 12 s from now`."""
    left_s = (until_ns - now_ns) / NS_PER_S
    if left_s >= 0:
        return f"{iso_time(until_ns)}, {duration(left_s)} from now"
    late = f"{iso_time(until_ns)}, {duration(-left_s)} ago"
    if not view.alive:
        return late
    if view.counters()["clock_steps"]:
        return (f"{late}: the clock of this host was set meanwhile, and a delay lasts as long as "
                "was asked for (event 1259)")
    return f"{late}: it is handed out with the next turn of the queue manager"
