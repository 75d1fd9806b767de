"""Settlements, when all of a request are plain: DONE of messages that this reader holds under these
leases, that are on no other queue and not containers, take one pool record, and have neither a note
of a failure nor a barrier that waits for them. As core.engine.settle.

They are copied before they are judged. Those that a look at the reader's note has carried out
(ipc.server.reader_notes) are passed over.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.engine.barriers import MEMBER
from omq.core.engine.failures import NOTED
from omq.core.engine.state import CONTAINER, Core
from omq.fast.client_state import ClientState
from omq.fast.columns import Columns
from omq.fast.frames import Frames
from omq.fast.groups import Rings
from omq.fast.limited_keys import Keys
from omq.fast.party import Party
from omq.fast.request import Request
from omq.fast.settled import SettledEntries
from omq.format.index import EntryState, QueueFlag
from omq.format.journal import FrameFlag, FrameType
from omq.format.location import number_of
from omq.format.wire import SETTLE, Settlement

_NAMES = ("kind", "spare", "reason", "entry", "qpool", "lease", "argument", "reason_at", "spare2")
assert SETTLE.size == 40 and SETTLE.names == _NAMES
assert tuple(map(SETTLE.offset, _NAMES)) == (0, 1, 2, 4, 8, 16, 24, 32, 36)
_DONE, _WORD, _ACTIVE = int(FrameType.DONE), int(Settlement.DONE), int(EntryState.ACTIVE)
_PREPARE, _PREPARED = int(FrameType.PREPARE), int(EntryState.PREPARED)
_LAST, _END = int(FrameFlag.LAST_PART), int(FrameFlag.REQUEST_END)
_PSEUDO, _LIMITED = int(QueueFlag.PSEUDO), int(QueueFlag.LIMITED)
_SPECIAL = CONTAINER | NOTED | MEMBER


class Dones:
    """See the module. `most`: settlements of a request, or of all requests of a unit of work."""

    def __init__(self, core: Core, columns: Columns, frames: Frames, rings: Rings, keys: Keys,
                 most: cython.Py_ssize_t) -> None:
        self._core, self._c, self._frames, self._limits = core, columns, frames, keys
        self._entries, self._most = core.t.entries, most
        said = memoryview(bytearray(most * 40))
        self._said, self._s8, self._s16 = said, said, said.cast("H")
        self._s32, self._s64 = said.cast("I"), said.cast("Q")
        self._picked = memoryview(bytearray(4 * most)).cast("I")
        self._ends = SettledEntries(core, columns, rings, keys, self._picked)
        self._seen = memoryview(bytearray(core.t.layout.entries))

    def settle(self, r: Request, session: ClientState, party: Party) -> cython.bint:
        """All settlements of a SETTLE or NEXT."""
        count: cython.Py_ssize_t = r.count
        if (not count or count > self._most or r.length
                or count * 40 > len(session.request)):
            return False
        self._said[: count * 40] = session.request[: count * 40]
        if session.noted:
            count = self._without(count, session.noted)
        if count < 0 or not self._judge(count, party) or not self._frames.fits(count, 0):
            return False
        # from here on nothing can fail
        session.sequence = r.sequence
        session.lost = 0
        if session.noted:
            session.noted = set()
        if count:
            self._frames.open(party)
            self._write(_DONE, count, r.sequence, _END)
            self._frames.close()
            self._ends.all(count, party)
        return True

    def _without(self, count: cython.Py_ssize_t, known: set[Any]) -> cython.Py_ssize_t:
        """As Looks.without: those of the copied ones that no look has carried out are the first
        now; how many. -1: one has a reason, for which this request has no bytes."""
        i: cython.Py_ssize_t
        left: cython.Py_ssize_t = 0
        for i in range(count):
            if self._s16[20 * i + 1] or self._s32[10 * i + 8]:
                return -1
            if (self._s64[5 * i + 1], self._s64[5 * i + 2]) not in known:
                if left < i:
                    self._said[40 * left : 40 * left + 40] = self._said[40 * i : 40 * i + 40]
                left += 1
        return left

    def one(self, said: Any, party: Party) -> cython.bint:
        """The message that a MOVE names: may `finish` end it?"""
        self._said[:40] = said
        self._s8[0], self._s16[1], self._s32[8] = _WORD, 0, 0
        return self._judge(1, party)

    def all_of(self, said: Any, count: cython.Py_ssize_t, party: Party) -> cython.bint:
        """The same of `count` settlements."""
        if count > self._most:
            return False
        self._said[: count * 40] = said
        return self._judge(count, party)

    def finish(self, count: cython.Py_ssize_t, sequence: cython.ulonglong, ends: cython.bint,
               party: Party) -> None:
        """What was asked of, between Frames.open and close; it `ends` the request, or not."""
        self._write(_DONE, count, sequence, _END if ends else 0)
        self._ends.all(count, party)

    def _write(self, kind: cython.uint, count: cython.Py_ssize_t, sequence: cython.ulonglong,
               ends: cython.uint) -> None:
        """The frames of all that was picked; `ends`: flags of the last."""
        i: cython.Py_ssize_t
        for i in range(count):
            self._frame(kind, self._picked[i], sequence, ends if i == count - 1 else 0)

    def last(self, count: cython.Py_ssize_t) -> cython.bint:
        """Are those that `all_of` was asked of persistent?"""
        flags: cython.uint = 1
        i: cython.Py_ssize_t
        for i in range(count):
            flags &= self._c.m_flags[self._c.e_message[self._picked[i]]]
        return flags != 0

    def prepare(self, count: cython.Py_ssize_t, sequence: cython.ulonglong, ends: cython.bint,
                number: cython.uint, party: Party, out: list[Any]) -> None:
        """As `finish`, but they are prepared for this unit; `out` gets their entries."""
        c, core = self._c, self._core
        i: cython.Py_ssize_t
        entry: cython.Py_ssize_t
        self._write(_PREPARE, count, sequence, _END if ends else 0)
        for i in range(count):
            entry = self._picked[i]
            c.q_active[c.e_queue[entry]] -= 1
            c.e_reader[entry] = 0
            c.e_state[entry], c.e_until[entry] = _PREPARED, number
            if c.q_flags[c.e_queue[entry]] & _LIMITED:
                core.runnable.add(c.e_queue[entry])
                self._limits.left(entry, c.e_queue[entry], -1)
            if core.times.over:
                core.times.seen(c.e_message[entry])
            out.append(entry)
        party.active -= count
        core.active -= count

    def of_unit(self, entries: list[Any], count: cython.Py_ssize_t, number: cython.uint
                ) -> cython.bint:
        """May `finish` end these, which were taken for the unit in doubt of this number?"""
        c, core = self._c, self._core
        i: cython.Py_ssize_t
        entry: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        if count > self._most or core.runs or core.suspects:
            return False
        for i in range(count):
            entry = entries[i]
            slot = c.e_message[entry]
            if (not c.e_attempts[entry] or c.e_state[entry] != _PREPARED
                    or c.e_until[entry] != number or c.m_parts[slot] != 1
                    or c.m_flags[slot] & _SPECIAL or not self._takes(c.e_queue[entry])):
                return False
            self._picked[i] = entry
        return True

    def _judge(self, count: cython.Py_ssize_t, party: Party) -> cython.bint:
        """Are all of the copied ones plain?"""
        found: cython.Py_ssize_t = self._pick(count, party)
        i: cython.Py_ssize_t
        for i in range(found):
            self._seen[self._picked[i]] = 0
        return bool(found == count and not self._core.runs and not self._core.suspects)

    def _pick(self, count: cython.Py_ssize_t, party: Party) -> cython.Py_ssize_t:
        """The entries that they mean, up to the first that is not plain; how many."""
        c = self._c
        high: cython.Py_ssize_t = self._entries.high
        row: cython.uint = party.slot + 1
        i: cython.Py_ssize_t
        entry: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        for i in range(count):
            entry = self._s32[10 * i + 1]
            if (self._s8[40 * i] != _WORD or self._s16[20 * i + 1] or self._s32[10 * i + 8]
                    or entry >= high or self._seen[entry] or c.e_state[entry] != _ACTIVE
                    or c.e_reader[entry] != row or c.e_lease[entry] != self._s64[5 * i + 2]
                    or not self._takes(c.e_queue[entry])):
                return i
            slot = c.e_message[entry]
            if (c.m_qpool[slot] != self._s64[5 * i + 1] or c.m_parts[slot] != 1
                    or c.m_flags[slot] & _SPECIAL
                    or not (c.m_flags[slot] & 1 or self._stays(slot))):
                return i
            self._picked[i], self._seen[entry] = entry, 1
        return count

    def _takes(self, queue: cython.uint) -> cython.bint:
        """Can this module end messages of the queue?"""
        flags: cython.uint = self._c.q_flags[queue]
        return not flags & _PSEUDO and (not flags & _LIMITED or self._limits.flat(queue))

    def _stays(self, slot: cython.Py_ssize_t) -> cython.bint:
        """The volatile file of a message that is not persistent is in use: none will go with it."""
        return bool(number_of(self._c.m_location[slot]) == self._core.volatile.number)

    def _frame(self, kind: cython.uint, entry: cython.Py_ssize_t, sequence: cython.ulonglong,
               flags: cython.uint) -> None:
        c = self._c
        slot: cython.Py_ssize_t = c.e_message[entry]
        parts: cython.uint = kind == _DONE
        flags |= _LAST if parts else 0
        lsn: cython.ulonglong = self._frames.frame(
            kind, c.e_priority[entry], flags | (c.m_flags[slot] & 1), c.e_queue[entry],
            c.e_attempts[entry], c.m_qpool[slot], c.m_size[slot], 0, 0,
            self._frames.payload_bytes, c.m_file[slot],
            c.m_record[slot], parts, c.e_lease[entry], sequence, 0, 0)
        c.m_lsn[slot] = lsn
