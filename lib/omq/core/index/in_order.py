"""The first messages of a queue in the order of hand-out, without a look at all of them.

READY messages are in chains, one a priority, in the order of their sequence. Those that came back
(return lane), those that wait for their turn in a group, and those in another state do not: where
the counters say that there are any, they are selected by numpy from two or three columns. Most of
that is the first touch of the columns' pages, some milliseconds for a million messages, where
sorting all of a queue takes thirty.

Links are followed here, and the queue manager changes them meanwhile. So each step is bounded and
checked: an entry must be READY, of this queue and priority, after the one before it, and still the
same message after its link was read; a chain must end at the queue's tail; and who finds fewer than
were asked for must have found as many as the queue's counter says. What fails is tried
again, then given up (None): the caller selects and sorts all. That is also what a dead manager's
index needs: it may have been left in the middle of a change.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from omq.base import limits
from omq.base.arrays import Vector
from omq.format.index import COUNTERS_AT, Counter, EntryState, IndexLayout

_READY: Final = int(EntryState.READY)
TRIES: Final = 4


def first_in_order(buffer: memoryview, layout: IndexLayout, queue: int, first: int, high: int
                   ) -> Vector | None:
    """Numbers of at least the `first` first entries of a queue, or of all, in no order, each once;
    `high`: entries ever used. None: it could not be told."""
    if not 0 <= queue < layout.queues:
        return None
    for _ in range(TRIES):
        chained = _chained(buffer, layout, queue, first, high)
        if chained is not None:
            others = _others(buffer, layout, queue, high)
            found = np.unique(np.concatenate([np.array(chained, dtype=np.int64), others]))
            ready = np.count_nonzero(layout.vector(buffer, "e_state")[found] == _READY)
            if len(chained) >= first or ready >= layout.column(buffer, "q_ready")[queue]:
                return found
    return None


def _others(buffer: memoryview, layout: IndexLayout, queue: int, high: int) -> Vector:
    """Those that are not READY, and while there are return lanes those that have nobody behind
    them: all that are in no chain, and perhaps tails of chains."""
    counters = memoryview(buffer)[COUNTERS_AT:].cast("Q")
    returned = (counters[Counter.RETURNED] or counters[Counter.GROUP_WAITING]
                or counters[Counter.KEYED_READY])
    depth, ready = layout.column(buffer, "q_depth")[queue], layout.column(buffer, "q_ready")[queue]
    if not returned and depth == ready:
        return np.zeros(0, dtype=np.int64)
    state = layout.vector(buffer, "e_state")[:high]
    loose = state != _READY
    if returned:
        loose |= layout.vector(buffer, "e_next")[:high] == 0
    found = np.flatnonzero(loose & (layout.vector(buffer, "e_queue")[:high] == queue))
    return np.asarray(found[state[found] != 0])


def _chained(buffer: memoryview, layout: IndexLayout, queue: int, first: int, high: int
             ) -> list[int] | None:
    heads, tails = layout.column(buffer, "q_head"), layout.column(buffer, "q_tail")
    following, sequences = layout.column(buffer, "e_next"), layout.column(buffer, "e_sequence")
    queues, states = layout.column(buffer, "e_queue"), layout.column(buffer, "e_state")
    priorities = layout.column(buffer, "e_priority")
    found: list[int] = []
    for priority in reversed(range(limits.PRIORITIES)):
        chain = queue * limits.PRIORITIES + priority
        at, before = heads[chain], -1
        last = 0
        while at and len(found) < first:
            entry = at - 1
            if entry >= high:
                return None
            sequence = sequences[entry]
            if (sequence <= before or queues[entry] != queue or states[entry] != _READY
                    or priorities[entry] != priority):
                return None
            at, last, before = following[entry], at, sequence
            if sequences[entry] != sequence or states[entry] != _READY:
                return None  # handed out, or another message's by now: its link leads elsewhere
            found.append(entry)
        if len(found) >= first:
            return found
        if last != tails[chain]:
            return None
    return found
