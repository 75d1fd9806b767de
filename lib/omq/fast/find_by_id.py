"""A reader that waits for a message by its id (core.engine.waiters_by_id) gets it here if exactly
one message has the key, is not expired and belongs to no group; and so does one that waits for a
whole group, which core.engine.groups finds. The engine serves all other cases: it finds the same,
more slowly.
"""

from __future__ import annotations

from typing import Any

from omq.base import limits
from omq.base import shim as cython
from omq.core.engine.engine import Engine
from omq.core.engine.expiry import gone_by
from omq.core.engine.groups import GROUPED
from omq.core.engine.waiters_by_id import WALK_MAX
from omq.fast.attempts import Attempts
from omq.fast.columns import Columns
from omq.fast.frames import Frames
from omq.fast.groups import Rings
from omq.fast.waiter import Waiter
from omq.format.frame_rules import GIVEN_OUT_OF_TURN
from omq.format.index import Counter, EntryState, QueueFlag
from omq.format.wire import Key

_READY, _PRIORITIES, _IN_GROUP = int(EntryState.READY), limits.PRIORITIES, GROUPED
_CORRELATION, _MESSAGE_ID, _GROUP = (
    int(Key.CORRELATION), int(Key.MESSAGE_ID), int(Key.GROUP))
_GIVES, _STEPS, _OUT_OF_TURN = int(Counter.GIVES), WALK_MAX, GIVEN_OUT_OF_TURN
_NONE, _UNPLAIN, _LIMITED = -1, -2, int(QueueFlag.LIMITED)


class Finds:
    """See the module."""

    def __init__(self, engine: Engine, columns: Columns, frames: Frames, attempts: Attempts,
                 rings: Rings) -> None:
        self._core, self._wanted = engine.core, engine.wanted
        self._c, self._frames, self._attempts, self._rings = columns, frames, attempts, rings

    def give(self, waiter: Waiter, out: list[Any]) -> bool:
        """As WaitersById.give: (waiter, entries) is added to `out`. False: not now, although
        something is there."""
        core, c = self._core, self._c
        queue: cython.Py_ssize_t = waiter.queue
        by: cython.Py_ssize_t = waiter.by
        entry: cython.Py_ssize_t = _UNPLAIN
        found: list[int] = []
        if not (core.suspects or core.suspect_given or c.q_flags[queue] & _LIMITED):
            if by == _GROUP:
                found = core.groups.whole(queue, waiter.want, lambda each: gone_by(core, each))
                entry = found[0] if found else _NONE
            elif by in (_CORRELATION, _MESSAGE_ID):
                entry = self._find(queue, by == _CORRELATION, waiter.key)
                found.append(entry)
        if entry == _NONE:
            return True
        if entry == _UNPLAIN or not self._frames.fits(len(found), 0):
            return self._wanted.give(waiter, out)
        # from here on nothing can fail
        party = waiter.party
        reader: cython.uint = party.slot + 1
        sequence: cython.ulonglong = waiter.sequence
        now: cython.longlong = core.now_ns
        self._attempts.begin(queue)
        self._frames.open(party)
        for entry in found:
            self._detach(entry, queue)
            self._attempts.hand(entry, queue, reader, sequence, self._frames.payload_bytes,
                                _OUT_OF_TURN, now)
            c.waited(queue, now - c.e_submitted[entry], 1)
        self._frames.close()
        self._attempts.count(party, queue, len(found))
        self._wanted.drop(waiter)
        out.append((waiter, found))
        c.counters[_GIVES] += len(found)
        return True

    def _find(self, queue: cython.Py_ssize_t, correlated: cython.bint, key: cython.ulonglong
              ) -> cython.Py_ssize_t:
        """The READY entry there of the one message with this correlation or message id; _NONE;
        _UNPLAIN: the engine must look."""
        c = self._c
        bucket: cython.Py_ssize_t = c.bucket(key)
        at: cython.Py_ssize_t = c.b_corr[bucket] if correlated else c.b_id[bucket]
        steps: cython.Py_ssize_t = 0
        found: cython.Py_ssize_t = _NONE
        slot: cython.Py_ssize_t
        entry: cython.Py_ssize_t
        while at:
            slot, steps = at - 1, steps + 1
            if (c.m_corr[slot] if correlated else c.m_key[slot]) == key:
                entry = c.m_first[slot]
                while entry and c.e_queue[entry - 1] != queue:
                    entry, steps = c.e_sibling[entry - 1], steps + 1
                if entry and c.e_state[entry - 1] == _READY:
                    if (found != _NONE or c.m_flags[slot] & _IN_GROUP
                            or (c.m_expiry[slot] and self._core.times.is_over(slot))):
                        return _UNPLAIN
                    found = entry - 1
            if steps >= _STEPS:
                return _UNPLAIN
            at = c.m_corrnext[slot] if correlated else c.m_idnext[slot]
        return found

    def _detach(self, entry: cython.Py_ssize_t, queue: cython.Py_ssize_t) -> None:
        """As Lanes.detach: in a lane its item is stale from now on."""
        c = self._c
        chain: cython.Py_ssize_t = queue * _PRIORITIES + c.e_priority[entry]
        if not (c.m_flags[c.e_message[entry]] & _IN_GROUP and self._rings.detach(entry, queue)) \
                and (c.e_prev[entry] or c.e_next[entry] or c.q_head[chain] == entry + 1):
            c.unlink(entry, chain)
