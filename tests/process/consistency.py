"""The check that ends every test: does the index of a quiet manager agree with itself?

It reads the live segment, read-only, while nobody asks for anything. Errors: AssertionError.
"""

from __future__ import annotations

import time

import numpy as np

from omq.base.paths import SpoolPaths
from omq.core.state import IDEL, PRIORITIES
from omq.core.tables import Tables
from omq.format.index import COUNTERS_AT, Counter, EntryState
from omq.storage.segment import AttachedIndex

WAIT_S = 30.0
_STATES = {"q_ready": EntryState.READY, "q_active": EntryState.ACTIVE,
           "q_deferred": EntryState.DEFERRED, "q_held": EntryState.HELD}


def check_index(paths: SpoolPaths) -> None:
    """Counters, chains and links of the manager that runs on this spool."""
    attached = AttachedIndex(paths)
    version = attached.buffer[COUNTERS_AT : COUNTERS_AT + 8].cast("Q")
    try:
        # A private copy: Tables wants to write, and a copy can be looked at in peace.
        deadline = time.monotonic() + WAIT_S
        while True:
            before = version[0]
            raw = bytearray(attached.buffer)
            if before % 2 == 0 and version[0] == before:
                break
            assert time.monotonic() < deadline, "the manager is never between two groups"
        _check(Tables(memoryview(raw), attached.header.layout()))
    finally:
        version.release()
        attached.close()


def _check(t: Tables) -> None:
    entries_high = t.counters[Counter.ENTRIES_HIGH]
    messages_high = t.counters[Counter.MESSAGES_HIGH]
    states = t.v["e_state"][:entries_high]
    queues = t.v["e_queue"][:entries_high]
    used = states != 0
    assert int(used.sum()) == t.counters[Counter.ENTRIES]
    live = t.v["m_qpool"][:messages_high] != 0
    assert int(live.sum()) == t.counters[Counter.MESSAGES]
    assert len(np.unique(t.v["m_qpool"][:messages_high][live])) == int(live.sum())
    slots = t.v["e_message"][:entries_high]
    assert live[slots[used]].all(), "an entry of no message"
    parts = np.bincount(slots[used], minlength=messages_high)
    assert (parts[live] == t.v["m_parts"][:messages_high][live]).all()
    for queue in range(t.counters[Counter.QUEUES_HIGH]):
        mine = used & (queues == queue)
        assert int(mine.sum()) == t.q_depth[queue], f"depth of queue {queue}"
        for column, state in _STATES.items():
            count = int((mine & (states == int(state))).sum())
            assert count == t.v[column][queue], f"{column} of queue {queue}"
        _check_chains(t, queue)


def _check_chains(t: Tables, queue: int) -> None:
    """Chains hold READY entries of one queue and priority, in order; none is there twice."""
    seen = set()
    for priority in range(PRIORITIES):
        at, before, last = t.q_head[queue * PRIORITIES + priority], 0, 0
        while at:
            entry = at - 1
            assert entry not in seen
            seen.add(entry)
            assert t.e_prev[entry] == before
            assert t.e_state[entry] == int(EntryState.READY) and t.e_queue[entry] == queue
            assert t.e_priority[entry] == priority
            assert t.e_sequence[entry] > last or queue == IDEL
            before, last, at = at, t.e_sequence[entry], t.e_next[entry]
        assert t.q_tail[queue * PRIORITIES + priority] == before
