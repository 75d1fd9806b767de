"""What settling messages changes, after their frames: indexes, counts, rows and pool slots that
become free, their key, and their group. As core.engine.settle.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.engine.groups import GROUPED
from omq.core.engine.state import IDEL, Core
from omq.fast.columns import Columns
from omq.fast.groups import Rings
from omq.fast.limited_keys import Keys
from omq.fast.party import Party
from omq.fast.records import give_record, give_rows
from omq.format.index import Counter, EntryState, QueueFlag
from omq.format.location import number_of

_ACTIVE, _LIMITED = int(EntryState.ACTIVE), int(QueueFlag.LIMITED)
_IDEL, _IN_GROUP, _DONES = IDEL, GROUPED, int(Counter.DONES)


class SettledEntries:
    """See the module. `picked`: the entries of a request, which the caller fills in."""

    def __init__(self, core: Core, columns: Columns, rings: Rings, keys: Keys, picked: Any) -> None:
        self._core, self._c, self._rings, self._limits = core, columns, rings, keys
        self._messages, self._entries = core.t.messages, core.t.entries
        self._picked = picked
        self._slots = memoryview(bytearray(4 * len(picked))).cast("I")
        self._opened = 0  # the last queue that has places again
        self._file = -1  # of the pool, the last one that a record went back to
        self._records: Any = None

    def all(self, count: cython.Py_ssize_t, party: Party) -> None:
        """Of the first `count` picked."""
        self._opened = 0
        i: cython.Py_ssize_t
        self._unindex(count)
        active: cython.bint = self._c.e_state[self._picked[0]] == _ACTIVE
        if active:
            self._worked(count)
        self._file = -1
        self._rings.begin()
        for i in range(count):
            self._drop(i, self._picked[i], active)
        self._rings.end()
        give_rows(self._entries, self._c.free_entries, self._picked, count)
        give_rows(self._messages, self._c.free_messages, self._slots, count)
        if active:
            party.active -= count
            self._core.active -= count
            self._c.r_processed[party.slot] += count
        self._c.counters[_DONES] += count

    def _unindex(self, count: cython.Py_ssize_t) -> None:
        """Out of the hash chains; of their groups they go later (Rings.leaves)."""
        c = self._c
        i: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        for i in range(count):
            slot = c.e_message[self._picked[i]]
            c.unchain(c.b_id, c.m_idnext, c.m_idprev, c.m_key[slot], slot)
            if c.m_corr[slot]:
                c.unchain(c.b_corr, c.m_corrnext, c.m_corrprev, c.m_corr[slot], slot)
            if c.m_flags[slot] & _IN_GROUP:
                self._rings.leaves(slot, c.e_queue[self._picked[i]])

    def _worked(self, count: cython.Py_ssize_t) -> None:
        """As core.engine.durations."""
        c = self._c
        now: cython.longlong = self._core.now_ns
        i: cython.Py_ssize_t
        entry: cython.Py_ssize_t = self._picked[0]
        queue: cython.uint = c.e_queue[entry]
        since: cython.longlong = c.e_until[entry]
        alike: cython.ulonglong = 0  # entries so far of `queue`, handed out at `since`
        for i in range(count):
            entry = self._picked[i]
            if c.e_until[entry] != since or c.e_queue[entry] != queue:
                if since:
                    c.worked(queue, now - since, alike)
                since, queue, alike = c.e_until[entry], c.e_queue[entry], 0
            alike += 1
        if since:
            c.worked(queue, now - since, alike)

    def _drop(self, i: cython.Py_ssize_t, entry: cython.Py_ssize_t, active: cython.bint) -> None:
        """Entry and message have nothing any more; their rows are given back later."""
        c, core = self._c, self._core
        slot: cython.Py_ssize_t = c.e_message[entry]
        queue: cython.uint = c.e_queue[entry]
        following: cython.Py_ssize_t = -1  # of its group, which has the turn now
        c.q_processed[queue] += 1
        c.q_hour[queue] += 1
        c.q_active[queue] -= active
        c.q_depth[queue] -= 1
        c.q_ever[_IDEL] += 1
        c.q_processed[_IDEL] += 1
        c.q_hour[_IDEL] += 1
        c.e_reader[entry] = c.e_state[entry] = 0
        c.e_sequence[entry] = 0
        c.m_first[slot] = c.e_sibling[entry]
        c.m_parts[slot] = 0
        if c.m_flags[slot] & 1:
            if c.m_file[slot] != self._file:
                self._file = c.m_file[slot]
                self._records = core.slots.file(self._file)
            give_record(self._records, c.m_record[slot])
        else:
            core.volatile.release(number_of(c.m_location[slot]))
        c.m_qpool[slot] = 0
        self._slots[i] = slot
        if c.m_flags[slot] & _IN_GROUP:
            following = self._rings.leave(slot, entry, queue)
        if c.q_flags[queue] & _LIMITED:
            if active:
                if queue != self._opened:
                    core.runnable.add(queue)
                    self._opened = queue
                self._limits.left(entry, queue, following)
            else:
                self._limits.gone(entry, queue)
        if c.m_flags[slot] & _IN_GROUP:
            self._rings.follow(following, queue)
