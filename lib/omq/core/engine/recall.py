"""Recall: messages that a reader has put off are ready again before their time, because it has the
room that they wait for (the scheduler of outgoing work, omq.services.delivery.deferred).

Either by their QPoolIds, or all that a reader has put off (not: that were put with a delay, or of
which an attempt has failed), that are due within a time and have not changed since a frame: who has
just started does not know which messages an earlier run had put off. What is not DEFERRED on this
queue any more is passed over: it was due, an operator has it, or it is gone.

In the middle of a crash: the frames of one call are in one block, and each is about one message.
A message whose frame is lost is DEFERRED still, and due when it was due before.

Errors: BadRequest for more than RECALL_MAX; SpoolFull, and nothing was done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from omq.base.errors import BadRequest
from omq.base.limits import RECALL_MAX
from omq.core.engine.settle import frame_for
from omq.core.engine.state import REMEMBERS, Core, Party
from omq.core.engine.transitions import Event, after
from omq.format.frame_rules import Reason
from omq.format.index import EntryState
from omq.format.journal import FrameType

_DEFERRED: Final = int(EntryState.DEFERRED)


class Recall:
    """See the module."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def these(self, party: Party, queue: int, qpools: Iterable[int]) -> list[int]:
        """Make these ready; those that were passed over."""
        core, wanted = self._core, tuple(dict.fromkeys(qpools))
        if len(wanted) > RECALL_MAX:
            raise BadRequest(reason=f"{len(wanted)} messages, a recall takes {RECALL_MAX}")
        t = core.t
        core.block.flush()  # as an order of an operator does
        entries, passed = list[int](), list[int]()
        for qpool in wanted:
            slot = t.slot_of(qpool) if qpool > 0 else -1
            entry = -1 if slot < 0 or t.m_flags[slot] & REMEMBERS else t.entry_on(slot, queue)
            if (entry >= 0 and t.e_state[entry] == _DEFERRED
                    and entry not in core.barriers.waiting):
                entries.append(entry)
            else:
                passed.append(qpool)
        _ready(core, party, entries)
        return passed

    def due(self, party: Party, queue: int, within_ns: int, before: int) -> int:
        """Make up to RECALL_MAX ready that are due within this time and have not changed since the
        frame with LSN `before`: who calls until there are none gets none twice. How many there
        were."""
        core = self._core
        t, v = core.t, core.t.v
        core.block.flush()
        high = t.entries.high
        found = np.flatnonzero(
            (v["e_queue"][:high] == queue) & (v["e_state"][:high] == _DEFERRED)
            & (v["e_attempts"][:high] == 0) & (v["e_retries"][:high] > 0)
            & (v["e_until"][:high] <= np.uint64(core.now_ns + within_ns)))
        found = found[v["m_lsn"][v["e_message"][found]] < np.uint64(before)]
        some = map(int, found[np.argsort(v["e_sequence"][found])])
        return _ready(core, party, [each for each in some if not
                                    t.m_flags[t.e_message[each]] & REMEMBERS][:RECALL_MAX])


def _ready(core: Core, party: Party, entries: list[int]) -> int:
    assert after(Event.RELEASE, _DEFERRED) is EntryState.READY
    core.block.reserve(len(entries), 0)
    for entry in entries:
        frame_for(core, FrameType.RELEASE, 0, entry, party, reason=Reason.DEFERRED)
        core.back(entry)
    return len(entries)
