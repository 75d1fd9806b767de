"""Groups of plain requests, one after the other, without Python in between: the manager's loop
(services.manager.queue_manager) from one thing that is not plain to the next.

What the loop in Python looks at in each group is looked at here as well: the deadline, requests and
wake-ups, the clocks, signals, doors and large bodies, another journal file, the back pressure. When
one of them wants something its own code does it: in the group if it is a matter of the group
(`drain`), after it, in Python, if not. So nothing is decided here.

Who calls the interpreter seldom is quick with cold caches: after a switch to a client and back the
branch predictor and the caches know nothing of it, and the same 30 lines of Python cost ten times
what they cost in a benchmark (ADR 0211).
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.fast.company import Company
from omq.fast.group_commit import Turn
from omq.format.index import Counter
from omq.format.wire import REQUEST_TYPE

if cython.compiled:
    from cython.cimports.omq.fast.sysv import boot_ns as _boot_ns
    from cython.cimports.omq.fast.sysv import gather as _gather
    from cython.cimports.omq.fast.sysv import run_handlers as _run_handlers
    from cython.cimports.omq.fast.sysv import take_off as _take_off
    from cython.cimports.omq.fast.sysv import wait_for as _wait_for
    from cython.cimports.omq.fast.sysv import wall_ns as _wall_ns
else:
    from omq.base.clock import monotonic_ns as _boot_ns
    from omq.base.clock import wall_ns as _wall_ns
    from omq.base.shim import gather as _gather
    from omq.base.shim import run_handlers as _run_handlers
    from omq.base.shim import take_off as _take_off
    from omq.base.shim import wait_for as _wait_for

_KIND, _LAST = REQUEST_TYPE, int(Counter.LAST_LSN)


class PlainGroups:
    """See the module. `parts`: ipc.server.loop_parts; `company`: that of its requests."""

    def __init__(self, turn: Turn, parts: Any, company: Company) -> None:
        self._turn, self._c, self._writer = turn, turn.columns(), turn.writer()
        self._requests, self._company = parts.requests, company
        self._queue, self._limit = parts.requests.queue.id, parts.limit
        self._gather_ns = parts.requests.gather_ns
        self._keeper, self._users, self._finished = (
            parts.keeper, parts.keeper.ring.users, parts.finished)
        self._clock, self._signals = parts.clock, parts.signals

    def go_on(self, look_due: cython.longlong, ease_above: cython.ulonglong, drain: Any
              ) -> tuple[int, int]:
        """Groups until one was not plain, or leaves something to do: when the last one began
        (monotonic ns), and its requests. `look_due`: then the planes are looked at; `ease_above`:
        above this LSN the back pressure is. DiskError, IpcRemoved."""
        turn, keeper, signals, watch = self._turn, self._keeper, self._signals, self._clock
        began: object = self._writer.file_number
        deadline: cython.longlong
        now: cython.longlong
        wall: cython.longlong
        asks: cython.bint
        while True:
            deadline = max(1, min(turn.due(), look_due))
            if keeper.deadline != deadline:
                keeper.arm(deadline)
            batch = self._take()
            _run_handlers()
            now = _boot_ns()
            wall = _wall_ns()
            if not watch.low < wall - now < watch.high:
                watch.look()
            asks = bool(not batch or now >= look_due or self._users or self._finished
                        or keeper.failure is not None)
            turn.group(batch, wall, now, drain, asks)
            if (not batch or now >= look_due or not turn.is_plain()
                    or self._c.counters[_LAST] > ease_above or signals.stopping
                    or signals.reload_wanted or self._writer.file_number != began):
                return now, len(batch)

    def _take(self) -> list[Any]:
        """As Requests.take, which goes on where the kernel says something else."""
        out: list[Any] = []
        if not _wait_for(self._queue, _KIND, out) or not _take_off(
                self._queue, _KIND, out, self._limit):
            return self._requests.rest(out, self._limit)  # type: ignore[no-any-return]
        count: cython.Py_ssize_t = len(out)
        wanted: cython.Py_ssize_t = self._company.wanted(count)
        waited: cython.bint = count < wanted
        if waited and not _gather(self._queue, _KIND, out, self._limit, wanted, self._gather_ns):
            return self._requests.rest(out, self._limit)  # type: ignore[no-any-return]
        self._company.had(len(out), waited)
        return out
