"""What waits for a time of its own: deferred messages, and leases, which a reader may renew.

A delay counts by the monotonic clock, whatever happens to the wall clock. A moment of the wall
clock is compared with that clock, and so is what a start has found, of which only the wall time is
known: when somebody sets the clock, its time comes earlier or later by itself. So nothing is
reckoned anew; a manager that has nothing else to do looks each FOLLOW_NS.

A renewal is not journaled: a lease is in memory, and one of a reader that outlives the manager
begins anew in any case (core.engine.leases_resumed). However often a reader asks, a message has one
item in the heap of leases. Items of messages that went another way are stale; they are dropped when
they come up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final

from omq.base.errors import LeaseLost
from omq.core.engine import limited
from omq.core.engine.settle import Verdict, held
from omq.core.engine.state import Core, Party
from omq.core.engine.waiting import FOREVER
from omq.format.index import EntryState

FOLLOW_NS: Final = 1_000_000_000
"""A step of the wall clock is noticed this much later at most: for a person it is at once, and a
turn a second costs nothing."""
_DEFERRED, _ACTIVE = int(EntryState.DEFERRED), int(EntryState.ACTIVE)


def wake(core: Core) -> None:
    """The deferred messages whose time has come are READY."""
    t = core.t
    for heap, now in ((core.due, core.mono_ns), (core.moments, core.now_ns)):
        while heap and heap[0][0] <= now:
            _, entry, sequence, lease = heappop(heap)
            if (t.e_state[entry] == _DEFERRED and t.e_sequence[entry] == sequence
                    and t.e_lease[entry] == lease):
                if entry in core.barriers.waiting:
                    core.barriers.late(entry)
                else:
                    core.back(entry)
    if core.limited:
        limited.wake(core)


def until(core: Core, wall_ns: int) -> int:
    """Monotonic ns of when to look whether the wall clock has come to `wall_ns`."""
    return core.mono_ns + min(max(0, wall_ns - core.now_ns), FOLLOW_NS)


def soonest(core: Core) -> int:
    """Monotonic ns of when `wake` or `ended` may have something to do."""
    best = min(core.due[0][0] if core.due else FOREVER,
               core.leases[0][0] if core.leases else FOREVER)
    if core.limited:
        best = min(best, core.limits.due(core.mono_ns))
    return min(best, until(core, core.moments[0][0])) if core.moments else best


def ended(core: Core) -> Iterator[tuple[int, int]]:
    """Entry and lease of the hand-outs whose time is over."""
    t = core.t
    while core.leases and core.leases[0][0] <= core.mono_ns:
        _, entry, lease = heappop(core.leases)
        if not _renewed(core, entry, lease) and (
                t.e_state[entry] == _ACTIVE and t.e_lease[entry] == lease):
            yield entry, lease


def renew(core: Core, party: Party, verdicts: Sequence[Verdict]) -> int:
    """The leases of these begin anew; how many of them this reader does not hold."""
    lost = 0
    for verdict in verdicts:
        try:
            entry = held(core, party, verdict.entry, verdict.qpool, verdict.lease)
        except LeaseLost:
            lost += 1
            continue
        lease_ns = core.rules[core.t.e_queue[entry]].lease_ns
        if lease_ns:
            core.renewed[entry] = (core.t.e_lease[entry], core.mono_ns + lease_ns)
    return lost


def _renewed(core: Core, entry: int, lease: int) -> bool:
    """This lease, which would be over, has begun anew: it ends later."""
    known, due = core.renewed.get(entry, (0, 0))
    if known != lease:
        return False
    del core.renewed[entry]
    if due <= core.mono_ns:
        return False
    heappush(core.leases, (due, entry, lease))
    return True
