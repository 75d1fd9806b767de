"""Leases resumed: messages that were in a reader's hands when the manager ended.

The pool says that they are ACTIVE, and keeps the lease folded with the reader's token. Their
readers may have outlived the manager: such a one says what it holds when it registers again, and
keeps it. What was handed to it but never reached it (the GIVE frames of its last request) is free
at once, a suspect of the manager's death (core.engine.suspect_messages), or goes to POISON.
Whatever nobody claims within reconnect_grace_s, counted from when the manager can be reached,
counts as a reader's death.

Invariant: a claim counts only with the token that the message was handed out to; before it is
claimed, nobody can settle a message in limbo, whatever lease he names.

A client that had a unit of work open (core.engine.units) claims nothing: the unit ended with its
manager, and what it took comes back as soon as the client says so, with what it took: what is
after it must not overtake it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush

from omq.base.errors import SpoolFull
from omq.core.engine.state import Core, Party, Poisoned
from omq.core.engine.suspect_messages import unseen
from omq.core.engine.taking_back import Returning
from omq.format.frame_rules import Reason
from omq.format.pool import lease_tag


def adopt(core: Core, limbo: dict[int, int], party: Party, queue: int,
          held: Sequence[tuple[int, int]], given: tuple[int, int],
          note: Callable[[Poisoned], None]) -> int:
    """Settle a returning reader's part of `limbo` (entry -> pool.lease_tag).

    `queue`: what it may read and reads; a claim on a message elsewhere is not a reader's. `held`:
    (QPoolId, lease) of what it says it holds; `given`: LSNs of its last GIVE frames, first and
    last, (0, 0) = none; `note` hears of what goes to POISON. How many messages it keeps."""
    t = core.t
    wanted = {(qpool, lease & 0xFFFFFFFF) for qpool, lease in held}
    kept = 0
    for entry, tag in list(limbo.items()):
        slot, low = t.e_message[entry], lease_tag(tag, party.token)
        if t.e_queue[entry] == queue and (t.m_qpool[slot], low) in wanted:
            t.e_reader[entry] = party.slot + 1
            t.e_lease[entry] = low
            party.active += 1
            kept += 1
            lease_ns = core.rules[t.e_queue[entry]].lease_ns
            if lease_ns:  # it begins anew: how long the manager was away is not the reader's fault
                heappush(core.leases, (core.mono_ns + lease_ns, entry, t.e_lease[entry]))
            del limbo[entry]
        elif given[0] <= t.m_lsn[slot] <= given[1] and low == t.m_lsn[slot] & 0xFFFFFFFF:
            what = core.dead(t.m_qpool[slot], t.e_queue[entry], Reason.UNSEEN, party.pid)
            try:
                if unseen(core, entry, party):
                    note(what)
            except SpoolFull:  # it comes back when the grace time is over
                continue
            del limbo[entry]
    return kept


def given_up(core: Core, limbo: dict[int, int], party: Party, took: Sequence[tuple[int, int]]
             ) -> list[Returning]:
    """The messages in limbo that were handed to this client for a unit of work, on their way back;
    they are in limbo no more. `took`: (QPoolId, lease) of those that it knows of, for the LSN of a
    message whose body was moved meanwhile is not that of its hand-out any more."""
    t, told = core.t, {(qpool, lease & 0xFFFFFFFF) for qpool, lease in took}
    mine = []
    for entry, tag in limbo.items():
        slot, low = t.e_message[entry], lease_tag(tag, party.token)
        if low == t.m_lsn[slot] & 0xFFFFFFFF or (t.m_qpool[slot], low) in told:
            mine.append(entry)
    return [Returning(entry, limbo.pop(entry), Reason.BACKED_OUT) for entry in mine]
