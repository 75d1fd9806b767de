"""Units of work in one request, as core.engine.units: what is finished and what is put is plain, as
omq.fast.done and omq.fast.put have it, and no part of it was staged before. TAKE is the wait of
omq.fast.give. A unit that puts several messages on a queue needs room for all of them.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.engine.state import FIRST_QUEUE, Core, Party
from omq.fast.columns import Columns
from omq.fast.done import Dones
from omq.fast.frames import Frames
from omq.fast.put import Puts
from omq.fast.request import Request
from omq.format.index import Counter, QueueFlag
from omq.format.journal import FRAME
from omq.format.wire import SETTLE

_SETTLE, _FRAME, _COMMITTED = SETTLE.size, FRAME.size, int(Counter.UNITS_COMMITTED)
_FIRST, _IN_USE = FIRST_QUEUE, int(QueueFlag.IN_USE)


class Units:
    """See the module. `plane`: ipc.server.units, which has the limits and what is staged."""

    def __init__(self, core: Core, columns: Columns, frames: Frames, puts: Puts, dones: Dones,
                 plane: Any) -> None:
        self._core, self._c, self._frames, self._puts, self._dones = (
            core, columns, frames, puts, dones)
        self._plane = plane

    def left(self, r: Request, session: Any, party: Party) -> cython.Py_ssize_t:
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

    def commit(self, r: Request, session: Any, area: Any, party: Party) -> cython.bint:
        """A COMMIT; the first QPoolId is the answer, if it puts something. `area`: its bytes."""
        taken: cython.Py_ssize_t = r.parts
        count: cython.Py_ssize_t = r.count
        heads: cython.Py_ssize_t = _SETTLE * taken
        payloads: cython.Py_ssize_t = heads + _FRAME * count
        end: cython.Py_ssize_t = payloads
        wanted: cython.longlong = r.want
        ends: cython.bint = count == 0
        end += r.length
        if (end > len(area) or session.waiter is not None
                or r.argument != taken or wanted != count or party.active != taken
                or not self._plane.is_small(taken + count, (taken + count) * _FRAME + r.length)):
            return False
        bodies = area[payloads:end]
        if ((taken and not self._dones.all_of(area[:heads], taken, party))
                or (count and not self._puts.several(area[heads:payloads], count, bodies, session,
                                                     party))
                or not self._frames.fits(taken + count, r.length)):
            return False
        if count:
            self._puts.place(count, party, bodies)
        # from here on nothing can fail
        session.sequence = r.sequence
        self._frames.open(party)
        self._frames.unit = self._frames.first_lsn + self._frames.count
        if taken:
            self._dones.finish(taken, r.sequence, ends, party)
        if count:
            self._puts.put(count, party, bodies, r.sequence)
        self._frames.unit = 0
        self._frames.close()
        self._c.counters[_COMMITTED] += 1
        return True
