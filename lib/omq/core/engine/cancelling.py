"""Cancel: a message that waits is taken off its queues by its id, for who put it or an operator.

One request is one unit: an OPERATOR frame that says who (uid and pid in the frame, the command in
its payload), then one DELETE frame for each queue, with its LSN as `unit`: to redo, the archive and
the analytics it is an operator's delete. Either all places that are named are left, or none.

Who may is for the caller (ipc.server.cancelling) to say; the index knows who put a message, as its
frame and its pool record do. READY, DEFERRED and HELD ones wait. One that a reader has is refused
with its name (MessageBusy), unless it is to be cancelled all the same: then it is taken out of the
reader's hands first, as an operator's force does it, and the reader learns it when it asks (lost).
One that a unit in doubt has is NotInState. What came with this very group has not been acknowledged
to anybody yet, so nobody knows its id: it is not there.

What a reader says of its work (`hear`), and what was taken from one, is in memory alone: a manager
that was started anew knows neither. Of each KNOWN_MAX are kept.

In the middle of a crash: all frames are in one block, so a start finds all of it or nothing. Each
carries the token and the number of the request: a client that has lost the answer learns that it
was carried out, and does not ask again (core.redo.last_requests).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np

from omq.base.errors import LeaseLost, MessageBusy, NotInState
from omq.core.engine.barrier_ends import room
from omq.core.engine.operate import FRAMES_PER_ITEM, delete, say_who
from omq.core.engine.settle import Verdict, give_back, held
from omq.core.engine.state import HAS_ID, IDEL, REMEMBERS, Core, Party
from omq.core.engine.waiters_by_id import WALK_MAX
from omq.format.index import EntryState
from omq.format.journal import FrameFlag
from omq.format.message import id_hash, qpool_of

_ACTIVE, _PREPARED = int(EntryState.ACTIVE), int(EntryState.PREPARED)
_END = int(FrameFlag.REQUEST_END)
KNOWN_MAX: Final = 10_000
T = TypeVar("T")
_IN_DOUBT: Final = "prepared in a unit of work in doubt"


class ById:
    """See the module."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._said: dict[int, tuple[int, bytes, int]] = {}  # by QPoolId: lease, words, wall ns
        self._taken: dict[int, int] = {}  # the lease of a message that was taken from its reader

    def known_as(self, identifier: bytes) -> list[int]:
        """Slots of the messages that may have this id, of 24 bytes. One that the manager gave is
        of one message; of others the index has a hash, so the caller compares (`HAS_ID`)."""
        t, qpool = self._core.t, qpool_of(identifier, self._core.uuid)
        if qpool:
            slot = t.slot_of(qpool)
            return [slot] if slot >= 0 and not t.m_flags[slot] & (HAS_ID | REMEMBERS) else []
        found, steps, key = list[int](), 0, id_hash(identifier)
        at = t.b_id[t.bucket(key)]
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
        """Who processes it: the name of the reader and its process; "": nobody, or one of whom
        nothing is known since a restart."""
        t = self._core.t
        if t.e_state[entry] != _ACTIVE or not t.e_reader[entry]:
            return ""
        row = t.e_reader[entry] - 1
        return f"{t.reader_name(row)}[{t.r_pid[row]}]"

    def hear(self, party: Party, verdicts: Sequence[Verdict]) -> None:
        """What a reader says of the messages that it has."""
        for verdict in verdicts:
            if verdict.text:
                try:
                    held(self._core, party, verdict.entry, verdict.qpool, verdict.lease)
                except LeaseLost:
                    continue
                _keep(self._said, verdict.qpool, (
                    _short(verdict.lease), verdict.text, self._core.now_ns))

    def said_of(self, entry: int) -> tuple[bytes, int]:
        """What its reader said last, and when; nothing: (b"", 0)."""
        t = self._core.t
        lease, words, time_ns = self._said.get(t.m_qpool[t.e_message[entry]], (0, b"", 0))
        if t.e_state[entry] != _ACTIVE or lease != _short(t.e_lease[entry]):
            return b"", 0
        return words, time_ns

    def take(self, entry: int) -> None:
        """Somebody takes it out of its reader's hands."""
        t = self._core.t
        _keep(self._taken, t.m_qpool[t.e_message[entry]], _short(t.e_lease[entry]))

    def was_taken(self, qpool: int, lease: int) -> bool:
        """Whether it was taken from who had it under this lease, as far as is remembered."""
        return self._taken.get(qpool) == _short(lease)

    def cancel(self, party: Party, entries: Sequence[int], sequence: int, text: bytes,
               take_back: Callable[[int], None] | None = None) -> None:
        """All of these entries leave their queues, with `take_back` (which makes the manager forget
        who holds one) also those that readers have. MessageBusy, NotInState, SpoolFull: none
        does."""
        core, t = self._core, self._core.t
        for entry in entries:
            qpool, queue = t.m_qpool[t.e_message[entry]], core.rules[t.e_queue[entry]].name
            if t.e_state[entry] == _ACTIVE and take_back is None:
                raise MessageBusy(qpool_id=qpool, queue=queue,
                                  reader=self.reader_of(entry) or "a reader")
            if t.e_state[entry] == _PREPARED:
                raise NotInState(qpool_id=qpool, queue=queue, action="cancel", state=_IN_DOUBT)
        frames, size = room(core, {t.e_message[entry] for entry in entries})
        core.block.reserve(1 + FRAMES_PER_ITEM * len(entries) + frames, len(text) + size)
        unit = say_who(core, party, len(entries), text)
        for left, entry in enumerate(entries, 1 - len(entries)):
            if t.e_state[entry] == _ACTIVE and take_back is not None:
                take_back(entry)
                give_back(core, entry, None, 0, 0)
            delete(core, party, entry, 0, unit, sequence, 0 if left else _END)


def _short(lease: int) -> int:
    return lease & 0xFFFFFFFF  # as settle.held compares


def _keep(kept: dict[int, T], key: int, value: T) -> None:
    kept.pop(key, None)
    while len(kept) >= KNOWN_MAX:
        del kept[next(iter(kept))]
    kept[key] = value
