"""The checks of a put against the spool, the place of its message, and its birth: frame, message
and entry. As core.engine.puts.
"""

from __future__ import annotations

from typing import Any

from omq.base import limits
from omq.base import shim as cython
from omq.core.engine.state import FIRST_QUEUE, HAS_ID, PERSISTENT, Core
from omq.fast.client_state import ClientState
from omq.fast.columns import Columns
from omq.fast.frames import Frames
from omq.fast.groups import Rings
from omq.fast.limited_keys import Keys
from omq.fast.party import Party
from omq.fast.records import take_record
from omq.format.index import EntryState, QueueFlag
from omq.format.journal import FrameType
from omq.format.location import LocationKind, location
from omq.format.pool import NO_RECORD

_PUT, _READY, _PREPARED, _FIRST, _PRIORITIES = (
    int(FrameType.PUT), int(EntryState.READY), int(EntryState.PREPARED), FIRST_QUEUE,
    limits.PRIORITIES)
_IN_USE, _LOOK_AT = int(QueueFlag.IN_USE), int(
    QueueFlag.IN_USE | QueueFlag.PUT_INHIBITED | QueueFlag.LIMITS_TIME)
_NO_RECORD, _HAS_ID, _KEYED = NO_RECORD, HAS_ID, int(QueueFlag.KEYED)
assert PERSISTENT == 1


class Births:
    """See the module. `rights`: ipc.server.sessions, which knows them."""

    def __init__(self, core: Core, columns: Columns, frames: Frames, rings: Rings, keys: Keys,
                 rights: Any) -> None:
        self._core, self._c, self._frames, self._rings = core, columns, frames, rings
        self._limits, self._rights = keys, rights
        self._messages, self._entries = core.t.messages, core.t.entries
        self._file = self._word = self._offset = self._journal = 0
        self._now = 0

    def takes(self, session: ClientState, party: Party, queue: cython.uint,
              count: cython.Py_ssize_t, size: cython.ulonglong) -> cython.bint:
        """May this client put `count` messages of up to `size` bytes there, and is there room?"""
        core, c = self._core, self._c
        if (queue < _FIRST or queue >= c.queues
                or c.q_flags[queue] & _LOOK_AT != _IN_USE
                or size > c.q_max_length[queue] or not core.space_left
                or c.q_depth[queue] + count > c.q_max_depth[queue]
                or (c.q_flags[queue] & _KEYED and not self._limits.flat(queue))):
            return False
        return self.may(session, "put", queue) and self.room(count, party)

    def knows(self, session: ClientState, queue: cython.uint) -> cython.bint:
        """Is it a queue of users, where this client may put?"""
        return bool(_FIRST <= queue < self._c.queues and self._c.q_flags[queue] & _IN_USE
                    and self.may(session, "put", queue))

    def may(self, session: ClientState, action: str, queue: cython.uint) -> cython.bint:
        """Has it this right? Asked for the first time it is looked up, and remembered."""
        known = session.rights.get((action, queue))
        return bool(known is True
                    or (known is None and self._rights.allows(session, action, queue)))

    def room(self, count: cython.Py_ssize_t, party: Party) -> cython.bint:
        """Are there rows for so many more, each on one queue?"""
        core, messages, entries = self._core, self._messages, self._entries
        used: cython.Py_ssize_t = messages.high
        used -= messages.top
        spare: cython.Py_ssize_t = entries.capacity
        spare -= entries.high
        spare += entries.top
        rows: cython.Py_ssize_t = core.index_reserve
        if party.owns or not party.uid:
            rows //= 2  # the owner and root leave half of the reserve, all others the whole
        rows += count
        return bool(spare >= rows and used + rows <= messages.capacity
                    and used + rows <= core.messages_total_max)

    def place(self, party: Party, persistent: cython.uint, bodies: list[Any]) -> None:
        """Where bodies and pool records are to be. SpoolFull, DiskError: nothing has changed."""
        core = self._core
        self._now, self._journal = core.now_ns, core.block.journal_word
        if persistent:
            if party.pool_file < 0:
                party.pool_file = core.slots.choose_file(party.pid)
            self._file = party.pool_file
            self._slots = core.slots.file(party.pool_file)
        else:
            number, self._offsets = core.volatile.append(bodies)
            self._word, self._offset = location(LocationKind.VOLATILE, number), 0

    def born(self, slot: cython.Py_ssize_t, entry: cython.Py_ssize_t, qpool: cython.ulonglong,
             queue: cython.uint, priority: cython.uint, flags: cython.uint,
             size: cython.ulonglong, length: cython.uint, crc: cython.uint,
             correlation: cython.ulonglong, expiry: cython.longlong,
             sequence: cython.ulonglong, key: cython.ulonglong, number: cython.uint,
             place: cython.Py_ssize_t, given: cython.ulonglong, party: Party) -> None:
        """Frame, message and entry; all was checked. `key`: of its group, `given`: of its own id;
        0: it has none; `number`: in its group; `place`: in its request, as Keys.mark was told.
        Frames with a reason are those of the unit in doubt of that number."""
        c, frames = self._c, self._frames
        record: cython.uint = _NO_RECORD
        lsn: cython.ulonglong
        if flags & 1:
            record = take_record(self._slots)
            c.m_location[slot], c.m_offset[slot] = self._journal, frames.payload_bytes
            c.m_file[slot] = self._file
            lsn = frames.frame(_PUT, priority, flags, queue, 0, qpool, size, length, crc,
                               frames.payload_bytes, self._file, record, 0, given, sequence,
                               correlation, expiry)
            frames.payload_bytes += length
            self._core.block.puts.append(slot)
        else:
            c.m_location[slot], c.m_offset[slot] = self._word, self._offsets[self._offset]
            self._offset += 1
            c.m_file[slot] = 0
            lsn = frames.frame(_PUT, priority, flags, queue, 0, qpool, size, 0, crc,
                               frames.payload_bytes, 0, record, 0, given, sequence, correlation,
                               expiry)
        own: cython.ulonglong = given if given else qpool
        c.m_qpool[slot], c.m_lsn[slot], c.m_time[slot], c.m_key[slot] = qpool, lsn, self._now, own
        c.enchain(c.b_id, c.m_idnext, c.m_idprev, own, slot)
        c.m_corr[slot] = correlation
        if correlation:
            c.enchain(c.b_corr, c.m_corrnext, c.m_corrprev, correlation, slot)
        c.m_expiry[slot], c.m_length[slot], c.m_crc[slot] = expiry, length, crc
        c.m_size[slot], c.m_pid[slot], c.m_record[slot] = size, party.pid, record
        c.m_uid[slot] = party.uid
        c.m_flags[slot], c.m_parts[slot], c.m_origin[slot] = flags & 1, 1, 0
        if given:
            c.m_flags[slot] |= _HAS_ID
            self._core.t.given += 1
        c.m_first[slot] = entry + 1
        c.e_message[entry], c.e_queue[entry], c.e_priority[entry] = slot, queue, priority
        c.e_sequence[entry], c.e_submitted[entry] = lsn, self._now
        c.e_until[entry], c.e_lease[entry] = frames.reason, 0
        c.e_attempts[entry] = c.e_retries[entry] = 0
        c.e_reader[entry] = c.e_sibling[entry] = 0
        c.q_ever[queue] += 1
        c.q_depth[queue] += 1
        if expiry:
            self._core.times.begin(slot, self._now, self._core.mono_ns)
        if c.q_flags[queue] & _KEYED:
            self._limits.came(entry, queue, key, place)
        if frames.reason:
            c.e_state[entry] = _PREPARED
        else:
            c.e_state[entry] = _READY
            self._appear(slot, entry, queue, priority, key, number)

    def _appear(self, slot: cython.Py_ssize_t, entry: cython.Py_ssize_t, queue: cython.uint,
                priority: cython.uint, key: cython.ulonglong, number: cython.uint) -> None:
        """It is READY, in its chain, its key's line, or behind those of its group."""
        c = self._c
        c.q_ready[queue] += 1
        if key and not self._rings.join(slot, entry, queue, key, number):
            c.e_prev[entry] = c.e_next[entry] = 0
        elif c.q_flags[queue] & _KEYED:
            c.e_prev[entry] = c.e_next[entry] = 0
            self._limits.enter(entry, queue)
        else:
            c.link(entry, queue * _PRIORITIES + priority)
        watched = self._core.watched
        if watched and queue in watched:
            watched[queue].append(entry)
