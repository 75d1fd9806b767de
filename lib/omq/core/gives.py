"""Give: hand the next messages of a queue to a reader, each attempt journaled before it is known.

Order: priority, then sequence (the order of submission); entries that came back take their old place
through the return lane. The lease of a hand-out is the LSN of its GIVE frame: unique for ever, it must
come back with the settlement. IDEL is a pseudo-queue: nothing is journaled for it but the DELETE.
"""

from __future__ import annotations

from heapq import heappop, heappush

from omq.core.state import IDEL, PERSISTENT, PRIORITIES, Core, Party
from omq.format.index import EntryState
from omq.format.journal import FrameType

_ACTIVE = int(EntryState.ACTIVE)


def next_ready(core: Core, queue: int) -> int:
    """The READY entry that goes first, -1 if there is none."""
    t = core.t
    head = -1
    base = queue * PRIORITIES
    for priority in range(PRIORITIES - 1, -1, -1):
        at = t.q_head[base + priority]
        if at:
            head = at - 1
            break
    if core.lanes.get(queue):
        top = core.lane_top(queue)
        if top is not None:
            entry = top[2]
            if head < 0:
                return entry
            mine = (-t.e_priority[head], t.e_sequence[head])
            return entry if (top[0], top[1]) < mine else head
    return int(head)


def take_ready(core: Core, entry: int) -> None:
    """Out of its chain or lane: it is being handed out."""
    t = core.t
    queue = t.e_queue[entry]
    if core.in_chain(entry):
        t.unlink(entry, queue * PRIORITIES + t.e_priority[entry])
        t.e_next[entry] = t.e_prev[entry] = 0
    else:
        item = heappop(core.lanes[queue])
        assert item[2] == entry, "only the top of a lane is given"


def give(core: Core, party: Party, queue: int, want: int, sequence: int) -> list[int]:
    """Hand up to `want` messages of a queue to a reader; their entries, in order."""
    t, block = core.t, core.block
    want = min(want, t.q_ready[queue])
    if want <= 0:
        return []
    block.reserve(want, 0)
    rules = core.rules[queue]
    given: list[int] = []
    for _ in range(want):
        entry = next_ready(core, queue)
        if entry < 0:
            break
        take_ready(core, entry)
        slot = t.e_message[entry]
        attempts = t.e_attempts[entry] + 1
        if queue == IDEL:
            lease = core.volatile_lease = core.volatile_lease + 1
        else:
            lease = block.frame(
                FrameType.GIVE, t.m_flags[slot] & PERSISTENT, queue, t.m_qpool[slot],
                priority=t.e_priority[entry], attempt=attempts, size=t.m_size[slot],
                client=party.client, pid=party.pid, uid=party.uid, file=t.m_file[slot],
                record=t.m_record[slot], token=party.token, sequence=sequence)
            t.m_lsn[slot] = lease
            t.e_attempts[entry] = attempts
        t.e_lease[entry] = lease
        t.e_reader[entry] = party.slot + 1
        t.e_state[entry] = _ACTIVE
        if rules.lease_ns:
            heappush(core.leases, (core.mono_ns + rules.lease_ns, entry, lease))
        given.append(entry)
    count = len(given)
    t.q_ready[queue] -= count
    t.q_active[queue] += count
    party.active += count
    return given
