"""Replies: written into the channels of clients when the group is durable, then announced. As
Session.answer, ipc.server.next_reply and Session.announce.

A reply is put together in memory of our own and copied over with one call, so that nothing here
reads or indexes what a client can write. Compiled, semop(2) is called directly; its errors are
left to Session.announce.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.engine.failures import NOTED
from omq.fast.client_state import ClientState
from omq.fast.columns import Columns
from omq.format.wire import GIVEN, REPLY, REQUEST_MAGIC, GivenFlag

if cython.compiled:
    from cython.cimports.omq.fast.sysv import release as _release
else:
    from omq.base.shim import release as _release

_REPLY_NAMES = ("magic", "status", "flags", "sequence", "count", "length", "qpool", "lsn", "epoch",
                "reserved")
_GIVEN_NAMES = ("entry", "queue", "priority", "flags", "qpool", "lease", "location", "offset",
                "length", "crc", "size", "submitted", "attempts", "retries", "inline")
assert REPLY.size == GIVEN.size == 64
assert REPLY.names == _REPLY_NAMES and GIVEN.names == _GIVEN_NAMES
assert tuple(map(REPLY.offset, _REPLY_NAMES)) == (0, 2, 4, 8, 16, 20, 24, 32, 40, 48)
assert tuple(map(GIVEN.offset, _GIVEN_NAMES)) == (0, 4, 6, 7, 8, 16, 24, 28, 32, 36, 40, 48, 56, 58,
                                                  60)
_MAGIC, _REDELIVERED, _ROWS_MAX = REQUEST_MAGIC, int(GivenFlag.REDELIVERED), 1024
_IS_NOTED, _NOTED = NOTED, int(GivenFlag.NOTED)
_PACK_REPLY, _PACK_GIVEN = REPLY.pack_into, GIVEN.pack_into
ROWS_MAX = _ROWS_MAX
"""More of them are the engine's."""


class Replies:
    """See the module."""

    def __init__(self, columns: Columns, epoch: int) -> None:
        self._c, self._epoch = columns, epoch
        made = memoryview(bytearray(64 + 64 * _ROWS_MAX))
        self._made, self._b8, self._b16 = made, made, made.cast("H")
        self._b32, self._b64 = made.cast("I"), made.cast("Q")

    def answer(self, session: ClientState, sequence: cython.ulonglong, count: cython.uint,
               qpool: cython.ulonglong, lsn: cython.ulonglong, now: cython.longlong) -> None:
        """A reply without rows."""
        self._head(session.lost, sequence, count, qpool, lsn)
        session.reply[:64] = self._made[:64]
        session.lost = 0
        session.last = (sequence, count, qpool, lsn)
        self._c.r_response[session.party.slot] = now

    def given(self, session: ClientState, sequence: cython.ulonglong, entries: list[Any],
              qpool: cython.ulonglong, lsn: cython.ulonglong, now: cython.longlong) -> None:
        """Rows of messages for a reader that may read the spool's files itself, and the reply."""
        count: cython.Py_ssize_t = len(entries)
        end: cython.Py_ssize_t = 64 + 64 * count
        i: cython.Py_ssize_t
        for i in range(count):
            self._row(i, entries[i])
        self._head(session.lost, sequence, count, qpool, lsn)
        session.reply[:end] = self._made[:end]
        session.lost = 0
        session.last = (sequence, count, qpool, lsn)
        self._c.r_response[session.party.slot] = now

    def announce(self, sessions: list[Any]) -> None:
        """Wake those that were answered, in this order."""
        session: ClientState
        for session in sessions:
            if not cython.compiled or not _release(session.semaphore):
                session.announce()

    def _head(self, lost: cython.uint, sequence: cython.ulonglong, count: cython.uint,
              qpool: cython.ulonglong, lsn: cython.ulonglong) -> None:
        if not cython.compiled:
            _PACK_REPLY(self._made, 0, _MAGIC, 0, lost, sequence, count, 0, qpool, lsn,
                        self._epoch, b"")
        else:
            self._b16[0], self._b16[1], self._b32[1], self._b64[1] = _MAGIC, 0, lost, sequence
            self._b32[4], self._b32[5], self._b64[3], self._b64[4] = count, 0, qpool, lsn
            self._b64[5] = self._epoch
            self._b64[6] = self._b64[7] = 0

    def _row(self, i: cython.Py_ssize_t, entry: cython.Py_ssize_t) -> None:
        c = self._c
        slot: cython.Py_ssize_t = c.e_message[entry]
        failed: cython.uint = c.e_attempts[entry]
        flags: cython.uint = c.m_flags[slot] & 3
        if failed:
            failed -= 1
        if failed:
            flags |= _REDELIVERED
        if c.m_flags[slot] & _IS_NOTED:
            flags |= _NOTED
        if not cython.compiled:
            _PACK_GIVEN(self._made, 64 + 64 * i, entry, c.e_queue[entry], c.e_priority[entry],
                        flags, c.m_qpool[slot], c.e_lease[entry], c.m_location[slot],
                        c.m_offset[slot], c.m_length[slot], c.m_crc[slot], c.m_size[slot],
                        c.e_submitted[entry], failed, c.e_retries[entry], 0)
        else:
            at: cython.Py_ssize_t = 64 + 64 * i
            at8: cython.Py_ssize_t = at // 8
            at4: cython.Py_ssize_t = at // 4
            at2: cython.Py_ssize_t = at // 2
            self._b32[at4], self._b16[at2 + 2] = entry, c.e_queue[entry]
            self._b8[at + 6], self._b8[at + 7] = c.e_priority[entry], flags
            self._b64[at8 + 1], self._b64[at8 + 2] = c.m_qpool[slot], c.e_lease[entry]
            self._b32[at4 + 6], self._b32[at4 + 7] = c.m_location[slot], c.m_offset[slot]
            self._b32[at4 + 8], self._b32[at4 + 9] = c.m_length[slot], c.m_crc[slot]
            self._b64[at8 + 5], self._b64[at8 + 6] = c.m_size[slot], c.e_submitted[entry]
            self._b16[at2 + 28], self._b16[at2 + 29] = failed, c.e_retries[entry]
            self._b32[at4 + 15] = 0
