"""Take messages back from readers that died, left, or overstayed their lease.

Each needs a frame, and a frame needs room in a journal file. On a full disk there may be none: then
nobody holds the message any more (its reader's word does not count), it stays ACTIVE, and the
attempt to take it back is repeated each RETRY_NS until there is space.

In the middle of a crash: a message not yet taken back is ACTIVE in the pool, so a restart finds it
in limbo and takes it back as a dead reader's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from omq.base.errors import SpoolFull
from omq.core.engine import settle
from omq.core.engine.backing_out import back_out
from omq.core.engine.state import Core, Party, Poisoned
from omq.core.engine.waiting import FOREVER
from omq.format.frame_rules import Reason
from omq.format.index import EntryState

RETRY_NS = 1_000_000_000
_ACTIVE = int(EntryState.ACTIVE)
_UNTOUCHED = (Reason.RETURNED, Reason.OPERATOR)
_NOBODY = Party(0, 0, 0, 0, 0)


@dataclass(slots=True)
class Returning:
    """A message on its way back. `reason` RETURNED (its reader left in order) or OPERATOR (its
    reader was released, omfreeq): no attempt is counted. BACKED_OUT: one is, and it is READY."""

    entry: int
    lease: int
    reason: int
    party: Party | None = None  # who held it, if that is known
    delay_ns: int | None = None  # None: as its queue has it
    evidence: dict[str, object] = field(default_factory=dict)


class TakingBack:
    """What could not be taken back at once; `due` is when it is tried again (monotonic ns)."""

    def __init__(self, core: Core, note: Callable[[Poisoned], None]) -> None:
        self._core = core
        self._note = note
        self._waiting: list[Returning] = []
        self.ended: list[Poisoned] = []  # leases that were over, for the event log
        self.due = FOREVER

    def take(self, messages: Iterable[Returning]) -> None:
        """Take these back, as far as there is space. Each is ACTIVE."""
        core = self._core
        for message in messages:
            holder = message.party
            if holder is not None:
                holder.active -= 1
            core.t.e_reader[message.entry] = 0
            self._try(message)

    @property
    def entries(self) -> set[int]:
        """Those that wait."""
        return {message.entry for message in self._waiting}

    def retry(self) -> None:
        """Once more, those that had to wait and that nobody has taken meanwhile."""
        if self._core.mono_ns < self.due:
            return
        waiting, self._waiting, self.due = self._waiting, [], FOREVER
        t = self._core.t
        for message in waiting:
            if (t.e_state[message.entry] == _ACTIVE and not t.e_reader[message.entry]
                    and t.e_lease[message.entry] == message.lease):
                self._try(message)

    def _try(self, message: Returning) -> None:
        core = self._core
        try:
            self._back(message)
        except SpoolFull:
            core.space_left = False
            self._waiting.append(message)
            self.due = core.mono_ns + RETRY_NS

    def _back(self, message: Returning) -> None:
        core, entry, party = self._core, message.entry, message.party
        if message.reason in _UNTOUCHED:
            core.block.reserve(1, 0)
            settle.give_back(core, entry, party, 0, 0, Reason(message.reason))
            return
        qpool, queue = core.t.m_qpool[core.t.e_message[entry]], core.t.e_queue[entry]
        pid = party.pid if party else 0
        if message.reason == Reason.BACKED_OUT:
            core.block.reserve(1, settle.EVIDENCE_BYTES)
            if back_out(core, entry, party):
                self._note(core.dead(qpool, queue, message.reason, pid))
            return
        if message.reason == Reason.LEASE:
            self.ended.append(core.dead(qpool, queue, message.reason, pid))
        packet = {"pid": pid, "time_ns": core.now_ns, **message.evidence}
        if settle.reader_died(core, party or _NOBODY, [entry], message.reason, packet,
                              message.delay_ns):
            self._note(core.dead(qpool, queue, message.reason, pid))
