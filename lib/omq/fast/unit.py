"""Units of work, as core.engine.units: what is finished and what is put is plain, as omq.fast.done
and omq.fast.put have it, in one request or in several (omq.fast.unit_parts). TAKE is the wait of
omq.fast.give. A unit that puts several messages on a queue needs room for all of them.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.engine.state import FIRST_QUEUE, Core
from omq.fast.client_state import ClientState
from omq.fast.columns import Columns
from omq.fast.done import Dones
from omq.fast.frames import Frames
from omq.fast.party import Party
from omq.fast.put import Puts
from omq.fast.request import Request
from omq.fast.unit_parts import Parts
from omq.format.index import Counter, QueueFlag

_COMMITTED, _FIRST, _IN_USE = int(Counter.UNITS_COMMITTED), FIRST_QUEUE, int(QueueFlag.IN_USE)


class Units:
    """See the module. `plane`: ipc.server.units, which has the limits."""

    def __init__(self, core: Core, columns: Columns, frames: Frames, puts: Puts, dones: Dones,
                 parts: Parts, plane: Any) -> None:
        self._core, self._c, self._frames, self._puts, self._dones = (
            core, columns, frames, puts, dones)
        self._parts, self._plane = parts, plane

    def left(self, r: Request, session: ClientState, party: Party) -> cython.Py_ssize_t:
        """How many messages a TAKE may hand out; 0: it is not plain."""
        queue: cython.uint = r.queue
        if (session.queue or session.auxiliary or r.flags or r.correlation
                or queue < _FIRST or queue >= self._c.queues
                or not self._c.q_flags[queue] & _IN_USE
                or not self._puts.may(session, "get", queue)):
            return 0
        left: cython.Py_ssize_t = self._plane.limits.messages
        left -= party.active
        return max(left, 0)

    def commit(self, r: Request, session: ClientState, area: Any, party: Party
               ) -> cython.Py_ssize_t:
        """A COMMIT; how many messages the unit puts, the first QPoolId is the answer then. -1: it
        is not plain. `area`: its bytes."""
        parts = self._parts
        found = None if session.waiter is not None else parts.whole(r, session, area, party)
        if found is None:
            return -1
        rows, heads, bodies = found
        taken: cython.Py_ssize_t = parts.taken
        count: cython.Py_ssize_t = parts.count
        size: cython.Py_ssize_t = len(bodies)
        ends: cython.bint = count == 0
        if ((taken and not self._dones.all_of(rows, taken, party))
                or (count and not self._puts.several(heads, count, bodies, session, party,
                                                     parts.kept, parts.base))
                or not parts.fits(taken + count, size)):
            return -1
        parts.begin(session, r.sequence, taken + count, size)
        if count:
            self._puts.place(count, party, bodies)
        # from here on nothing can fail
        self._frames.open(party)
        self._frames.unit = self._frames.first_lsn + self._frames.count
        if taken:
            self._dones.finish(taken, r.sequence, ends, party)
        if count:
            self._puts.put(count, party, bodies, r.sequence)
        self._frames.unit = 0
        self._frames.close()
        self._c.counters[_COMMITTED] += 1
        return count
