"""What waits for a time of its own: deferred messages, and leases, which a reader may renew.

A renewal is not journaled: a lease is in memory, and one of a reader that outlives the manager
begins anew in any case (core.engine.limbo). However often a reader asks, a message has one item in
the heap of leases. Items of messages that went another way are stale; they are dropped when they
come up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from omq.base.errors import LeaseLost
from omq.core.engine.settle import Verdict, held
from omq.core.engine.state import Core, Party
from omq.format.index import EntryState

_DEFERRED, _ACTIVE = int(EntryState.DEFERRED), int(EntryState.ACTIVE)


def wake(core: Core) -> None:
    """The deferred messages whose time has come are READY."""
    t = core.t
    while core.due and core.due[0][0] <= core.mono_ns:
        _, entry, sequence, lease = heappop(core.due)
        if (t.e_state[entry] == _DEFERRED and t.e_sequence[entry] == sequence
                and t.e_lease[entry] == lease):
            core.back(entry)


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
