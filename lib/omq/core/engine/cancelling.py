"""Cancel: a message that waits is taken off its queues by its id, for who put it or an operator.

One request is one unit: an OPERATOR frame that says who (uid and pid in the frame, the command in
its payload), then one DELETE frame for each queue, with its LSN as `unit`: to redo, the archive and
the analytics it is an operator's delete. Either all places that are named are left, or none.

Who may is for the caller (ipc.serving.cancelling) to say; the index knows who put a message, as its
frame and its pool record do. READY, DEFERRED and HELD ones wait. One that a reader has is refused
with its name (MessageBusy), one that a unit in doubt has is NotInState. What came with this very
group has not been acknowledged to anybody yet, so nobody knows its id: it is not there.

In the middle of a crash: all frames stand in one block, so a start finds all of it or nothing. Each
carries the token and the number of the request: a client that has lost the answer is told that it
was carried out, and does not ask again (core.redo.last_requests).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from omq.base.errors import MessageBusy, NotInState
from omq.core.engine.operate import delete, say_who
from omq.core.engine.state import HAS_ID, IDEL, REMEMBERS, Core, Party
from omq.core.engine.waiters_by_id import WALK_MAX
from omq.format.index import EntryState
from omq.format.journal import FrameFlag
from omq.format.message import id_hash, qpool_of

_ACTIVE, _PREPARED = int(EntryState.ACTIVE), int(EntryState.PREPARED)
_END = int(FrameFlag.REQUEST_END)
_IN_DOUBT: Final = "prepared in a unit of work in doubt"


class ById:
    """See the module."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def known_as(self, identifier: bytes) -> list[int]:
        """Slots of the messages that may have this id, of 24 bytes. One that the manager gave is
        of one message; of others the index has a hash, so the caller compares (`HAS_ID`)."""
        t, qpool = self._core.t, qpool_of(identifier, self._core.uuid)
        if qpool:
            slot = t.slot_of(qpool)
            return [slot] if slot >= 0 and not t.m_flags[slot] & (HAS_ID | REMEMBERS) else []
        found, steps, key = list[int](), 0, id_hash(identifier)
        at = t.b_id[key & t.mask]
        while at and steps < WALK_MAX:
            slot, steps = at - 1, steps + 1
            if t.m_key[slot] == key:
                found.append(slot)
            at = t.m_idnext[slot]
        if at:  # a chain that somebody made long
            found = np.flatnonzero(t.v["m_key"][: t.messages.high] == np.uint64(key)).tolist()
        return [slot for slot in found if t.m_qpool[slot]
                and t.m_flags[slot] & HAS_ID and not t.m_flags[slot] & REMEMBERS]

    def places(self, slot: int) -> list[int]:
        """Its entries on queues; not what waits on IDEL, and not what came with this group."""
        t, first = self._core.t, self._core.block.first_lsn
        return [entry for entry in t.entries_of(slot)
                if t.e_queue[entry] != IDEL and t.e_sequence[entry] < first]

    def reader_of(self, entry: int) -> str:
        """Who has it in work: the name of the reader and its process; "": nobody, or one of whom
        nothing is known since a restart."""
        t = self._core.t
        if t.e_state[entry] != _ACTIVE or not t.e_reader[entry]:
            return ""
        row = t.e_reader[entry] - 1
        return f"{t.reader_name(row)}[{t.r_pid[row]}]"

    def cancel(self, party: Party, entries: Sequence[int], sequence: int, text: bytes) -> None:
        """All of these entries leave their queues. MessageBusy, NotInState, SpoolFull: none
        does."""
        core, t = self._core, self._core.t
        for entry in entries:
            qpool, queue = t.m_qpool[t.e_message[entry]], core.rules[t.e_queue[entry]].name
            if t.e_state[entry] == _ACTIVE:
                raise MessageBusy(qpool_id=qpool, queue=queue,
                                  reader=self.reader_of(entry) or "a reader")
            if t.e_state[entry] == _PREPARED:
                raise NotInState(qpool_id=qpool, queue=queue, action="cancel", state=_IN_DOUBT)
        core.block.reserve(1 + len(entries), len(text))
        unit = say_who(core, party, len(entries), text)
        for left, entry in enumerate(entries, 1 - len(entries)):
            delete(core, party, entry, 0, unit, sequence, 0 if left else _END)
