"""Limbo: messages that were in a reader's hands when the manager ended.

The pool says that they are ACTIVE, and the low half of the lease. Their readers may have outlived
the manager: such a one says what it holds when it registers again, and keeps it. What was handed to
it but never reached it (the GIVE frames of its last request) is free at once. Whatever nobody
claims within reconnect_grace_s counts as a reader's death.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush

from omq.core import settle
from omq.core.state import Core, Party


def adopt(core: Core, limbo: dict[int, int], party: Party, queue: int,
          held: Sequence[tuple[int, int]], given: tuple[int, int]) -> int:
    """Settle a returning reader's part of `limbo` (entry -> low half of its lease).

    `queue`: what it may read and reads; a claim on a message elsewhere is no reader's. `held`:
    (QPoolId, lease) of what it says it holds; `given`: LSNs of its last GIVE frames, first and
    last, (0, 0) = none. How many messages it keeps."""
    t = core.t
    wanted = {(qpool, lease & 0xFFFFFFFF) for qpool, lease in held}
    kept = 0
    for entry, lease in list(limbo.items()):
        qpool = t.m_qpool[t.e_message[entry]]
        if t.e_queue[entry] == queue and (qpool, lease & 0xFFFFFFFF) in wanted:
            t.e_reader[entry] = party.slot + 1
            party.active += 1
            kept += 1
            lease_ns = core.rules[t.e_queue[entry]].lease_ns
            if lease_ns:  # it begins anew: how long the manager was away is not the reader's fault
                heappush(core.leases, (core.mono_ns + lease_ns, entry, t.e_lease[entry]))
            del limbo[entry]
        elif given[0] and (lease - given[0]) & 0xFFFFFFFF <= given[1] - given[0]:
            core.block.reserve(1, 0)
            settle.give_back(core, entry, party, 0, 0)
            del limbo[entry]
    return kept
