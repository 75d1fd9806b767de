"""Which messages have a time, and of which it is over; what core.engine.expiry works on.

Times count by the monotonic clock from the moment of the put on; of what a start finds only the
wall time is known, so these follow the wall clock. `over` knows a message by its slot and its
QPoolId, so that the next message in a slot is not taken for it.
"""

from __future__ import annotations

from array import array

import numpy as np

from omq.base.arrays import Vector
from omq.core.engine.wheel import NEVER, Wheel
from omq.core.index.tables import Tables


class Times:
    """See the module. `behind`: more messages are over than a group may do. `came_back`: slots of
    some that are. `expired`: entries that have left, by queue, for the event log. `used`: some
    message has had a time. `next_ns`: before that (monotonic) a tick finds nothing to do; who says
    that there is more, lowers it, and core.engine.expiry knows it anew behind each tick."""

    def __init__(self, tables: Tables) -> None:
        self._t = tables
        self.wheel = Wheel(tables)
        self.loaded = Wheel(tables)  # by the wall clock
        self.over = array("Q")  # by slot: the QPoolId of the message that is; empty: none yet
        self.used = self.behind = False
        self.next_ns = NEVER
        self.came_back: list[int] = []
        self.expired: dict[int, int] = {}

    def begin(self, slot: int, wall_ns: int, mono_ns: int) -> None:
        """The message in this slot has a time (m_expiry)."""
        self.used = True
        look_ns = self.wheel.add(mono_ns + self._t.m_expiry[slot] - wall_ns, slot, mono_ns)
        self.next_ns = min(self.next_ns, look_ns)

    def load(self, slots: Vector, wall_ns: int) -> None:
        """A start: the messages that the pool has."""
        expiries = self._t.v["m_expiry"][slots]
        chosen = expiries != 0
        if chosen.any():
            self.used = True
            self.loaded.add_many(np.clip(expiries[chosen], 0, NEVER - 1), slots[chosen], wall_ns)

    def end(self, rows: Vector) -> None:
        """The time of these messages (rows of the wheel) has come."""
        if not self.over:
            self.over = array("Q", bytes(8 * self._t.layout.messages))
        np.frombuffer(self.over, np.uint64)[rows[:, 1]] = rows[:, 2].astype(np.uint64)

    def is_over(self, slot: int) -> bool:
        return bool(self.over) and self.over[slot] == self._t.m_qpool[slot]

    def are_over(self, slots: Vector) -> Vector:
        """The same for many: a mask."""
        qpools = self._t.v["m_qpool"][slots]
        over = np.frombuffer(self.over, np.uint64)[slots] if self.over else np.zeros_like(qpools)
        return np.asarray((over == qpools) & (qpools != 0))

    def look_again(self) -> None:
        """What happens to those that are over may be another matter now."""
        if self.over:
            over = np.frombuffer(self.over, np.uint64)
            self.came_back += np.flatnonzero(
                (over == self._t.v["m_qpool"]) & (over != 0)).tolist()

    def seen(self, slot: int) -> None:
        """Nobody holds the message on one of its queues any more, or it has come on one."""
        if self.over[slot] == self._t.m_qpool[slot]:
            self.came_back.append(slot)
            self.next_ns = 0  # a tick of this group, be it ever so plain
