"""The frame and the effects of one hand-out, as in core.engine.gives; `count` updates the counters.
"""

from __future__ import annotations

from heapq import heappush

from omq.base import limits
from omq.base import shim as cython
from omq.core.engine.state import Core
from omq.core.engine.waiting import FOREVER
from omq.fast.columns import Columns
from omq.fast.frames import Frames
from omq.fast.party import Party
from omq.format.index import EntryState
from omq.format.journal import FrameType

_GIVE, _ACTIVE, _MOST = int(FrameType.GIVE), int(EntryState.ACTIVE), limits.ATTEMPTS_MAX
_FOREVER, _PUSH = FOREVER, heappush


class Attempts:
    """See the module."""

    def __init__(self, core: Core, columns: Columns, frames: Frames) -> None:
        self._core, self._c, self._frames = core, columns, frames
        self._due = _FOREVER  # of a lease that begins now

    def begin(self, queue: cython.Py_ssize_t) -> None:
        """Hand-outs of this queue follow."""
        lease_ns: cython.longlong = self._core.rules[queue].lease_ns
        self._due = _FOREVER
        if lease_ns:
            self._due = self._core.mono_ns + lease_ns

    def hand(self, entry: cython.Py_ssize_t, queue: cython.Py_ssize_t, reader: cython.uint,
             sequence: cython.ulonglong, offset: cython.Py_ssize_t, argument: cython.longlong,
             now: cython.longlong) -> None:
        """One that was taken off its chain or lane, to the reader of that row (from 1)."""
        c = self._c
        slot: cython.Py_ssize_t = c.e_message[entry]
        attempts: cython.uint = min(c.e_attempts[entry] + 1, _MOST)
        lease: cython.ulonglong = self._frames.frame(
            _GIVE, c.e_priority[entry], c.m_flags[slot] & 1, queue, attempts, c.m_qpool[slot],
            c.m_size[slot], 0, 0, offset, c.m_file[slot], c.m_record[slot], 0, 0, sequence, 0,
            argument)
        c.m_lsn[slot] = c.e_lease[entry] = lease
        c.e_attempts[entry], c.e_reader[entry] = attempts, reader
        c.e_until[entry], c.e_state[entry] = now, _ACTIVE
        if self._due != _FOREVER:
            _PUSH(self._core.leases, (self._due, entry, lease))

    def count(self, party: Party, queue: cython.Py_ssize_t, count: cython.Py_ssize_t) -> None:
        """So many of a queue were handed to it."""
        self._c.q_ready[queue] -= count
        self._c.q_active[queue] += count
        self._core.active += count
        party.active += count
