"""Units of work in two phases, as core.engine.in_doubt: PREPARE, in one request or behind others
(omq.fast.unit_parts), and the RESOLVE that commits. What is taken and put is plain, as
omq.fast.done and omq.fast.put have it, and all of it persistent; new messages of a group, and a
backout, are the engine's. So is the message that represents the unit, in both phases: all units
share one.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.base.errors import OmqError
from omq.core.engine.groups import GROUPED
from omq.core.engine.in_doubt import InDoubt
from omq.core.engine.state import Core
from omq.core.engine.unit_facts import payload_of
from omq.fast.client_state import ClientState
from omq.fast.columns import Columns
from omq.fast.done import Dones
from omq.fast.frames import Frames
from omq.fast.limited_keys import Keys
from omq.fast.party import Party
from omq.fast.put import Puts
from omq.fast.request import Request
from omq.fast.unit_parts import Parts
from omq.format.index import Counter, EntryState, QueueFlag
from omq.format.journal import FrameType

_PUTS, _COMMIT, _IN_GROUP = int(Counter.PUTS), int(FrameType.COMMIT), GROUPED
_READY, _PREPARED, _KEYED = (int(EntryState.READY), int(EntryState.PREPARED),
                             int(QueueFlag.KEYED))


class Doubts:
    """See the module. `plane`: ipc.server.units."""

    def __init__(self, core: Core, columns: Columns, frames: Frames, puts: Puts, dones: Dones,
                 keys: Keys, in_doubt: InDoubt, parts: Parts, plane: Any) -> None:
        self._core, self._c, self._frames, self._puts, self._dones = (
            core, columns, frames, puts, dones)
        self._limits, self._in_doubt, self._parts, self._plane = keys, in_doubt, parts, plane

    def prepare(self, r: Request, session: ClientState, area: Any, party: Party
                ) -> cython.Py_ssize_t:
        """A PREPARE; how many messages the unit puts, the QPoolId of the unit's message is the
        answer then. -1: it is not plain. `area`: its bytes."""
        parts = self._parts
        found = None if session.queue or session.waiter is not None else parts.whole(
            r, session, area, party)
        if found is None:
            return -1
        rows, heads, bodies = found
        taken: cython.Py_ssize_t = parts.taken
        count: cython.Py_ssize_t = parts.count
        name: cython.Py_ssize_t = parts.end
        size: cython.Py_ssize_t = len(bodies)
        ends: cython.bint = count == 0
        number: cython.uint
        if (name + r.queue > len(area) or not taken + count
                or (taken and not (self._dones.all_of(rows, taken, party)
                                   and self._dones.last(taken)))
                or (count and not (self._puts.several(heads, count, bodies, session, party,
                                                      parts.kept, parts.base)
                                   and self._puts.last()))
                or not self._puts.room(1 + count, party)):
            return -1
        try:
            facts = self._plane.facts(session, area[name : name + r.queue], taken, count)
            self._in_doubt.check(facts, party)
        except OmqError:
            return -1  # the engine says so, in its order
        own = payload_of(facts)
        size += len(own)
        if not parts.fits(1 + taken + count, size):
            return -1
        parts.begin(session, r.sequence, 1 + taken + count, size)
        if count:
            self._puts.place(count, party, bodies)
        # from here on nothing can fail
        unit = self._in_doubt.begin(party, facts, own, r.sequence)
        number = unit.number
        self._frames.open(party)
        self._frames.unit = self._frames.first_lsn + self._frames.count - 1
        self._frames.reason = number
        if taken:
            self._dones.prepare(taken, r.sequence, ends, number, party, unit.entries)
        if count:
            self._puts.put(count, party, bodies, r.sequence)
            for slot in self._core.block.puts[-count:]:
                unit.entries.append(self._c.m_first[slot] - 1)
        self._frames.unit = self._frames.reason = 0
        self._frames.close()
        return count

    def commit(self, r: Request, session: ClientState, party: Party) -> cython.ulonglong:
        """A RESOLVE that commits; the QPoolId of the unit's message is the answer, 0: it is not
        plain."""
        if not r.want:
            return 0
        try:
            said = self._plane.text(session.request[: r.length])
        except OmqError:
            return 0
        unit = self._in_doubt.find(said, party)
        if unit is None or unit.own < 0:
            return 0
        entries: list[Any] = unit.entries
        count: cython.Py_ssize_t = len(entries)
        taken: cython.Py_ssize_t = self._took(entries, unit.number)
        lsn: cython.ulonglong
        ends: cython.bint = False
        i: cython.Py_ssize_t
        if (taken < 0 or not self._dones.of_unit(entries, taken, unit.number)
                or not self._frames.fits(2 + count, 0)):
            return 0
        # from here on nothing can fail
        session.sequence = r.sequence
        self._frames.open(party)
        lsn = self._frames.first_lsn + self._frames.count
        self._frames.unit = lsn
        if taken:
            self._dones.finish(taken, r.sequence, ends, party)
        for i in range(taken, count):
            self._appear(entries[i], r.sequence)
        self._c.counters[_PUTS] += count - taken
        self._frames.unit = 0
        self._frames.close()
        self._in_doubt.close(unit, party, r.sequence, lsn)
        qpool: cython.ulonglong = unit.qpool
        return qpool

    def _took(self, entries: list[Any], number: cython.uint) -> cython.Py_ssize_t:
        """How many it took, which stand first; after them is what it puts. -1: one of those is of
        a group, or the engine's for its limits."""
        c = self._c
        taken: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t = len(entries)
        i: cython.Py_ssize_t
        entry: cython.Py_ssize_t
        while taken < count and c.e_attempts[entries[taken]]:
            taken += 1
        for i in range(taken, count):
            entry = entries[i]
            if (c.e_attempts[entry] or c.e_state[entry] != _PREPARED or c.e_until[entry] != number
                    or c.m_flags[c.e_message[entry]] & _IN_GROUP
                    or (c.q_flags[c.e_queue[entry]] & _KEYED
                        and not self._limits.flat(c.e_queue[entry]))):
                return -1
        return taken

    def _appear(self, entry: cython.Py_ssize_t, sequence: cython.ulonglong) -> None:
        """As unit_ends.commit_entry and Core.back, of what was put."""
        c, core = self._c, self._core
        slot: cython.Py_ssize_t = c.e_message[entry]
        queue: cython.uint = c.e_queue[entry]
        c.m_lsn[slot] = self._frames.frame(
            _COMMIT, c.e_priority[entry], c.m_flags[slot] & 1, queue, 0, c.m_qpool[slot],
            c.m_size[slot], 0, 0, self._frames.payload_bytes, c.m_file[slot], c.m_record[slot], 0,
            0, sequence, 0, 0)
        c.e_state[entry] = _READY
        c.q_ready[queue] += 1
        c.e_until[entry] = 0
        c.e_next[entry] = c.e_prev[entry] = 0
        if core.times.over:
            core.times.seen(slot)
        core.into_lane(entry, queue)
        core.is_ready(queue, entry)
