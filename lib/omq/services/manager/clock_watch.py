"""The wall clock of the host, watched by the manager: whoever sets it is named in the log.

Wall time minus time since boot is the same in each turn, but for what ntpd slews. A change of
STEP_NS from one look to the next is a step. Nothing hangs on its being noticed: what follows the
wall clock is compared with it in each turn (core.engine.deadlines). The manager looks when a turn
sees it, and with its chores, every few seconds at least; what was slewed till then is not a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from omq.base import clock, events
from omq.base.event_log import WARNING, EventLog
from omq.core.engine.manager_notes import Books
from omq.core.index.tables import Tables

STEP_NS: Final = clock.NS_PER_S
"""ntpd and chronyd slew what is less, and a busy machine reads two clocks that far apart seldom."""
_TRIES: Final = 5


class ClockWatch:
    """See the module. A turn whose wall minus boot time is outside of `low` .. `high` is to call
    `look`."""

    def __init__(self, log: EventLog, books: Books,
                 read: Callable[[], tuple[int, int]] = lambda: _read()) -> None:
        self._log, self._books, self._read = log, books, read
        self.low = self.high = 0
        wall, mono = self._read()
        self._middle(wall - mono)

    def begin(self, newest_ns: int) -> None:
        """A start: `newest_ns` is the wall time of the newest thing in the spool."""
        behind_s = (newest_ns - clock.wall_ns()) / clock.NS_PER_S
        if behind_s * clock.NS_PER_S >= STEP_NS:
            self._log.event(events.CLOCK_BEHIND, WARNING, behind_s=round(behind_s),
                            newest=clock.iso_time(newest_ns))

    def look(self) -> None:
        """It is time to, or it seems that the clock was set. This process may only have been
        stopped between the two readings of a turn: it is read again, and what is seen again is
        so."""
        wall, mono = self._read()
        before = (self.low + self.high) // 2
        step = wall - mono - before
        self._middle(wall - mono)
        if abs(step) < STEP_NS:
            return
        self._books.clock_set()
        self._log.event(events.CLOCK_SET, WARNING, by_s=round(step / clock.NS_PER_S, 3),
                        direction="forward" if step > 0 else "back",
                        was=clock.iso_time(wall - step), now=clock.iso_time(wall))

    def _middle(self, offset: int) -> None:
        self.low, self.high = offset - STEP_NS, offset + STEP_NS


def newest_ns(t: Tables) -> int:
    """Wall time of the newest message in the tables, 0 where there is none."""
    high = t.messages.high
    return int(np.max(t.v["m_time"][:high])) if high else 0


def _read() -> tuple[int, int]:
    """Wall and boot time of one instant, to a tenth of what counts."""
    wall = mono = 0
    for _ in range(_TRIES):
        mono, wall = clock.monotonic_ns(), clock.wall_ns()
        if clock.monotonic_ns() - mono < STEP_NS // 10:
            break
    return wall, mono
