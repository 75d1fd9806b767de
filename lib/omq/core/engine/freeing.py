"""Messages that are gone, many at once: their rows, hash chains and pool slots are free.

They are persistent, on one queue and in one pool record each, and in none of its chains any more;
the frames are the caller's.
"""

from __future__ import annotations

import numpy as np

from omq.base.arrays import Vector
from omq.core.engine.state import Core


def free_many(core: Core, entries: Vector, slots: Vector) -> None:
    """`entries` of the messages in `slots`; none of them twice."""
    t, v = core.t, core.t.v
    v["e_state"][entries] = 0
    v["e_sequence"][entries] = 0
    v["e_reader"][entries] = 0
    t.entries.give_many(entries)
    buckets = (v["m_key"][slots] & np.uint64(t.mask)).astype(np.int64)
    heads = v["b_id"][buckets] == slots + 1
    v["b_id"][buckets[heads]] = v["m_idnext"][slots[heads]]
    for slot in slots[~heads].tolist():
        t.unindex_id(slot)
    for slot in slots[v["m_corr"][slots] != 0].tolist():
        t.unindex_correlation(slot)
    core.slots.free_many(v["m_file"][slots], v["m_record"][slots])
    v["m_qpool"][slots] = 0
    v["m_first"][slots] = 0
    v["m_parts"][slots] = 0
    t.messages.give_many(slots)
