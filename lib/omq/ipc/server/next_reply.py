"""The reply to "next": what a reader must know of each message, in its channel.

For readers that may read the spool the payload stays where it is and the reply says where; for
others the manager copies it after the rows, of as many messages as fit. What does not fit, or
cannot be read, is handed out all the same: its reader asks for the body by itself
(ipc.server.fetching), meets the error if there is one, and can say what happens to the message.
"""

from __future__ import annotations

import contextlib

from omq.base.errors import OmqError
from omq.base.fault import point
from omq.core.engine.failures import NOTED
from omq.core.engine.waiting import Waiter
from omq.core.index.tables import Tables
from omq.format.wire import GIVEN, REPLY, GivenFlag
from omq.ipc.server.sessions import Session
from omq.storage.payloads import PayloadReader

_PACK = GIVEN.pack_into
_REDELIVERED, _NOTED = int(GivenFlag.REDELIVERED), int(GivenFlag.NOTED)


def write_given(t: Tables, session: Session, waiter: Waiter, entries: list[int],
                bodies: PayloadReader, lsn: int) -> None:
    """Rows for `entries`, then the reply."""
    count = len(entries)
    if count:
        point("engine.before_hand_out")
    for i, entry in enumerate(entries):
        _one(t, session.reply, REPLY.size + i * GIVEN.size, entry, 0, 0)
    if count and not session.trusted:
        _copy_payloads(t, session, entries, bodies)
    session.answer(waiter.sequence, count=count, qpool=waiter.put, lsn=lsn)


def _one(t: Tables, area: memoryview, at: int, entry: int, extra_flags: int, inline: int) -> None:
    slot = t.e_message[entry]
    attempts = t.e_attempts[entry]
    failed = attempts - 1 if attempts else 0
    flags = (t.m_flags[slot] & 3) | extra_flags
    if failed:
        flags |= _REDELIVERED
    if t.m_flags[slot] & NOTED:
        flags |= _NOTED
    _PACK(area, at, entry, t.e_queue[entry], t.e_priority[entry], flags, t.m_qpool[slot],
          t.e_lease[entry], t.m_location[slot], t.m_offset[slot], t.m_length[slot],
          t.m_crc[slot], t.m_size[slot], t.e_submitted[entry], failed, t.e_retries[entry], inline)


def _copy_payloads(t: Tables, session: Session, entries: list[int], bodies: PayloadReader) -> None:
    at = REPLY.size + len(entries) * GIVEN.size
    for i, entry in enumerate(entries):
        slot = t.e_message[entry]
        length = t.m_length[slot]
        if at + length > len(session.reply):
            continue  # a shorter one may still fit
        with contextlib.suppress(OmqError):
            session.reply[at : at + length] = bodies.read(
                t.m_location[slot], t.m_offset[slot], length, t.m_qpool[slot])
            _one(t, session.reply, REPLY.size + i * GIVEN.size, entry, int(GivenFlag.INLINE), at)
            at += length
