"""What a reader noted in its channel, judged when it has died (ADR 0035).

A reader writes down, in memory that it shares with the manager, which message its program has in
work and how it ended the others, before the settlements travel. So the manager knows more than that
a process is gone:

    a settlement that was noted      holds, as if it had been sent
    begun, and not settled           a failed attempt: deferred, or POISON
    handed out, not begun            back to its old place, untouched

Nothing of it is believed beyond what the reader could have asked for itself: the bytes are copied
first, then each settlement is judged like one of a request (core.engine.settle: whose message,
which lease). A note that is none (never written, or nonsense) counts as if everything had been in
work. Settlements that wait too long in a note are carried out too, without a death.

Of a reader that dies while there is no manager the note outlives both: the next manager keeps it by
the reader's token, and judges it when the grace time for its messages in limbo is over. A reader
that lives and has not come back by then (it is stopped, or gets no processor) may begin with a
message right after that judgement: what it has not settled counts as begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from omq.base import limits
from omq.base.errors import LeaseLost, SpoolFull
from omq.core.engine import settle
from omq.core.engine.settle import EVIDENCE_BYTES, KINDS, TEXT_GROWTH, Verdict
from omq.core.engine.state import Core, Party, Poisoned
from omq.core.engine.taking_back import Returning
from omq.format.frame_rules import Reason
from omq.format.index import EntryState
from omq.format.pool import lease_tag
from omq.format.wire import NOTE, NOTE_MAGIC, NOTE_ROWS, NOTE_TEXT_AT, NOTE_TEXT_BYTES, SETTLE

_ACTIVE = int(EntryState.ACTIVE)
LOW: Final = 0xFFFFFFFF
Told = Callable[[Poisoned], None]
"""Hears of what goes to POISON."""


@dataclass(slots=True)
class ReaderNote:
    """A copy of a note. Leases are compared by their low halves, which a restart keeps."""

    token: int
    verdicts: list[Verdict] = field(default_factory=list)
    in_work: set[int] = field(default_factory=set)  # leases
    listed: int = 0  # the highest lease of those that the program got as a list

    def charged(self, leases: Iterable[int]) -> set[int]:
        """Which of these leases (of messages that are still held) the program had begun. It got
        a list and looked at none of them: all of that list."""
        held = {lease & LOW for lease in leases}
        found = held & self.in_work
        if found or not self.listed:
            return found
        return {lease for lease in held if (self.listed - lease) & LOW < 1 << 31}


class OldNote(Protocol):
    """The note of a reader that the manager before this one knew."""

    def is_final(self) -> bool:
        """Whether nobody lives who could write into it; to be asked before it is read."""

    def read(self) -> ReaderNote | None: ...
    def close(self) -> None: ...


def read(area: bytes | memoryview) -> ReaderNote | None:
    """Copy a note and take it apart; None: it is none."""
    head = bytes(area[: NOTE.size])
    magic, count, text, current, listed, token, _ = NOTE.unpack(head)
    if magic != NOTE_MAGIC or count > NOTE_ROWS or text > NOTE_TEXT_BYTES:
        return None
    rows = bytes(area[NOTE.size : NOTE.size + count * SETTLE.size])
    texts = bytes(area[NOTE_TEXT_AT : NOTE_TEXT_AT + text])
    noted = ReaderNote(token, listed=listed)
    if current:
        noted.in_work.add(current & LOW)
    for kind, _, size, entry, qpool, lease, argument, at, _ in SETTLE.iter_unpack(rows):
        if kind in KINDS:
            reason = texts[at : at + min(size, limits.REASON_BYTES_MAX)]
            noted.verdicts.append(Verdict(kind, entry, qpool, lease, argument, reason))
        else:
            noted.in_work.add(lease & LOW)
    return noted


def settle_noted(core: Core, party: Party, noted: ReaderNote, poisoned: Told) -> None:
    """The settlements that a reader noted and that hold, each as far as there is space."""
    settled = 0
    for verdict in noted.verdicts:
        try:
            verdict.entry = settle.held(core, party, verdict.entry, verdict.qpool, verdict.lease)
        except LeaseLost:  # carried out already, or nonsense
            continue
        settled += _settle(core, party, verdict, poisoned)
    core.settled(party, settled)


def _settle(core: Core, party: Party, verdict: Verdict, poisoned: Told) -> bool:
    try:
        core.block.reserve(1, TEXT_GROWTH * len(verdict.text) + EVIDENCE_BYTES)
    except SpoolFull:
        core.space_left = False
        return False
    queue = core.t.e_queue[verdict.entry]
    if settle.apply(core, party, verdict, 0, ends=True):
        poisoned(core.dead(verdict.qpool, queue, Reason.FAILED, party.pid))
    return True


def left(core: Core, party: Party, evidence: dict[str, object], noted: ReaderNote | None,
         poisoned: Told, reason: Reason) -> list[Returning]:
    """What a client that is gone leaves behind: its messages on their way back, those that it had
    begun as a failed attempt. What it noted as settled is."""
    if noted is not None:
        settle_noted(core, party, noted, poisoned)
    v, high, leases = core.t.v, core.t.entries.high, core.t.e_lease
    entries = np.flatnonzero((v["e_reader"][:high] == party.slot + 1)
                             & (v["e_state"][:high] == _ACTIVE)).tolist()
    charged = {leases[entry] & LOW for entry in entries}
    if reason is Reason.DIED and noted is not None:
        charged = noted.charged(charged)
    return [Returning(entry, leases[entry],
                      reason if leases[entry] & LOW in charged else Reason.RETURNED, party, None,
                      evidence) for entry in entries]


class OldNotes:
    """The notes of readers that the manager before this one knew, by token; none of those who came
    back."""

    def __init__(self) -> None:
        self.by_token: dict[int, OldNote] = {}

    def drop(self, token: int) -> None:
        """Its reader is there again, with a note of its own."""
        note = self.by_token.pop(token, None)
        if note is not None:
            note.close()

    def close(self) -> None:
        """None is needed any more."""
        for token in list(self.by_token):
            self.drop(token)

    def judge(self, core: Core, limbo: dict[int, int], delay_ns: int, poisoned: Told
              ) -> list[Returning]:
        """The readers of these entries (entry -> pool.lease_tag) did not come back: what the dead
        noted as settled is, the rest comes back, and is suspect."""
        spared: set[int] = set()
        for token, note in self.by_token.items():
            final = note.is_final()
            noted = note.read()
            if noted is not None:
                not_begun = _judge(core, limbo, token, noted, poisoned)
                spared |= not_begun if final else set()
        self.close()
        core.suspects.update(limbo)
        return [Returning(entry, lease, Reason.RETURNED if entry in spared else Reason.DIED, None,
                          delay_ns)
                for entry, lease in limbo.items()]


def _judge(core: Core, limbo: dict[int, int], token: int, noted: ReaderNote, poisoned: Told
           ) -> set[int]:
    """Settle what this note says of entries in limbo; those that its program never began."""
    t, nobody = core.t, Party(0, 0, 0, 0, token)
    leases = {entry: lease_tag(tag, token) for entry, tag in limbo.items()}
    said = {(verdict.qpool, verdict.lease & LOW): verdict for verdict in noted.verdicts}
    mine: dict[int, int] = {}
    for entry, low in leases.items():
        slot = t.e_message[entry]
        verdict = said.get((t.m_qpool[slot], low))
        if verdict is not None:
            verdict.entry = entry
            if _settle(core, nobody, verdict, poisoned):
                del limbo[entry]
        elif low == t.m_lsn[slot] & LOW:  # else nobody knows whose it is
            mine[entry] = low
    charged = noted.charged(mine.values())
    return {entry for entry, low in mine.items() if low not in charged}
