"""Settle: how a reader's work on a message ends: done, defer, fail, return; and the death of a
reader. Moves are core.engine.moves.

Each names the entry, the QPoolId and the lease of the hand-out. If they do not match the tables,
the message has been taken back in the meantime, and the settlement is refused (LeaseLost). After a
restart of the manager the low half of the lease is enough for the reader that claimed the message
when it registered again (core.engine.leases_resumed), so it can finish what it holds.

Frames: DONE (LAST_PART when the message is gone, TO_IDEL when idel.server has files to remove),
DEFER (FAILED when the attempt counts), RELEASE_GIVEN, POISON with evidence, of which a part stays
with the message (core.engine.failures).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omq.base import limits
from omq.base.clock import NS_PER_S as NS
from omq.base.errors import BadRequest, LeaseLost
from omq.core.engine.barriers import MEMBER
from omq.core.engine.durations import worked
from omq.core.engine.retry import idel_pause_ns, retry_ns
from omq.core.engine.state import (
    CONTAINER,
    IDEL,
    PERSISTENT,
    POISON,
    REPLAYED,
    Core,
    Party,
    Poisoned,
)
from omq.core.engine.transitions import Event, after
from omq.format.failure_note import note_of
from omq.format.frame_rules import WORDS, Reason
from omq.format.index import Counter, EntryState
from omq.format.journal import FrameFlag, FrameType
from omq.format.wire import Settlement

_ACTIVE = int(EntryState.ACTIVE)
_DEFERRED = int(EntryState.DEFERRED)
_LAST = int(FrameFlag.LAST_PART)
_IDEL = int(FrameFlag.TO_IDEL)
_FAILED = int(FrameFlag.FAILED)
END = int(FrameFlag.REQUEST_END)
_DONE = int(Settlement.DONE)
KINDS = frozenset(map(int, Settlement))
EVIDENCE_BYTES = 1024  # room for the evidence packet of a settlement that poisons
TEXT_GROWTH = 6  # bytes that JSON makes of one at most
UNTIL_MAX_NS = 0xFFFFFFFF * NS  # the pool keeps seconds in 32 bits


@dataclass(slots=True)
class Verdict:
    """One settlement as the wire says it; `argument`: wire.Settlement."""

    kind: int
    entry: int
    qpool: int
    lease: int
    argument: int = 0
    text: bytes = b""


def settle(core: Core, party: Party, verdicts: Sequence[Verdict], sequence: int,
           note: Callable[[Poisoned], None], *, ends: bool = True) -> int:
    """All settlements of one request, which they end, or not. How many did not hold; `note` hears
    of what was poisoned."""
    checked(verdicts)
    core.block.reserve(len(verdicts), payload_bytes(verdicts))
    last, lost = len(verdicts) - 1, 0
    for i, verdict in enumerate(verdicts):
        try:
            verdict.entry = held(core, party, verdict.entry, verdict.qpool, verdict.lease)
        except LeaseLost:
            lost += 1
            continue
        queue = core.t.e_queue[verdict.entry]
        if apply(core, party, verdict, sequence, ends=ends and i == last):
            note(core.dead(verdict.qpool, queue, Reason.FAILED, party.pid))
    core.settled(party, len(verdicts) - lost)
    return lost


def payload_bytes(verdicts: Sequence[Verdict]) -> int:
    """Of their frames, at most. DONE has none."""
    return sum(TEXT_GROWTH * len(each.text) + EVIDENCE_BYTES for each in verdicts
               if each.kind != _DONE)


def checked(verdicts: Sequence[Verdict]) -> None:
    """BadRequest: one is of an unknown kind."""
    if any(verdict.kind not in KINDS for verdict in verdicts):
        raise BadRequest(reason="a settlement of an unknown kind")


def held(core: Core, party: Party, entry: int, qpool: int, lease: int) -> int:
    """The entry that is handed out to this reader under this lease, or LeaseLost.

    `entry` is where it was when it was handed out; after a restart of the manager the message may
    have another one and is found by its QPoolId."""
    if _matches(core, party, entry, qpool, lease):
        return entry
    slot = core.t.slot_of(qpool)
    if slot >= 0:
        for other in core.t.entries_of(slot):
            if _matches(core, party, other, qpool, lease):
                return other
    raise LeaseLost(qpool_id=qpool)


def _matches(core: Core, party: Party, entry: int, qpool: int, lease: int) -> bool:
    t = core.t
    return bool(entry < t.entries.high and t.e_state[entry] == _ACTIVE
                and t.e_reader[entry] == party.slot + 1
                and t.m_qpool[t.e_message[entry]] == qpool
                and t.e_lease[entry] & 0xFFFFFFFF == lease & 0xFFFFFFFF)


def frame_for(core: Core, kind: FrameType, flags: int, entry: int, party: Party | None,
              sequence: int = 0, *, argument: int = 0, reason: int = 0, target: int = 0,
              unit: int = 0, parts: int = 0, payload: bytes = b"") -> int:
    """A frame about an entry, with everything that redo needs to find its pool record."""
    t = core.t
    slot = t.e_message[entry]
    lsn = core.block.frame(
        kind, flags | t.m_flags[slot] & PERSISTENT, t.e_queue[entry], t.m_qpool[slot],
        priority=t.e_priority[entry], attempt=t.e_attempts[entry], size=t.m_size[slot],
        client=party.client if party else 0, pid=party.pid if party else 0,
        uid=party.uid if party else 0, file=t.m_file[slot], record=t.m_record[slot],
        lease=t.e_lease[entry], token=party.token if party else 0, sequence=sequence,
        argument=argument, reason=reason, target=target, unit=unit, parts=parts, payload=payload)
    t.m_lsn[slot] = lsn
    return lsn


def leave(core: Core, entry: int) -> None:
    """The entry's reader no longer holds it."""
    core.t.e_reader[entry] = 0


def done(core: Core, entry: int, party: Party, sequence: int, flags: int, unit: int = 0) -> int:
    """Finished on this queue; gone when it was the last one. LSN of the frame."""
    t = core.t
    slot, queue = t.e_message[entry], t.e_queue[entry]
    core.processed(queue)
    worked(t, entry, core.now_ns)
    leave(core, entry)
    if queue == IDEL:
        lsn = frame_for(core, FrameType.DELETE, flags | _LAST, entry, party, sequence,
                        parts=core.runs.get(slot, 1))
        off(core, entry, _LAST, lsn)
        return lsn
    last = last_of(core, slot)
    if last and t.m_flags[slot] & MEMBER:
        core.barriers.done(core, slot)
    lsn = frame_for(core, FrameType.DONE, flags | last, entry, party, sequence, unit=unit,
                    parts=core.runs.get(slot, 1) if last == _LAST else 0)
    if last == _LAST:
        t.q_ever[IDEL] += 1
        core.processed(IDEL)
    off(core, entry, last, lsn)
    return lsn


def last_of(core: Core, slot: int) -> int:
    """What the frame says by which a message leaves a queue: nothing while it is on others; that it
    is gone, or waits on IDEL until its file is."""
    if core.t.m_parts[slot] != 1:
        return 0
    return _IDEL if core.t.m_flags[slot] & CONTAINER else _LAST


def off(core: Core, entry: int, last: int, lsn: int) -> None:
    """The effect of that frame (`last_of`) on the tables."""
    slot = core.t.e_message[entry]
    core.drop_entry(entry)
    if last & _LAST:
        core.drop_message(slot)
    elif last & _IDEL:
        core.t.m_parts[slot] = 1
        core.new_entry(slot, IDEL, 0, lsn)


def put_off(core: Core, entry: int, party: Party | None, sequence: int, flags: int, *,
            delay_ns: int, reason: int, failed: bool, text: bytes = b"") -> None:
    """DEFERRED for a while; a failed attempt stays counted, a deferral by the reader does not."""
    t = core.t
    delay_ns = min(max(0, delay_ns), UNTIL_MAX_NS - core.now_ns)
    until = core.now_ns + delay_ns
    if failed:
        flags |= _FAILED
        t.q_failed[t.e_queue[entry]] += 1
        core.failures.attempt(t, entry, core.now_ns)
    elif t.e_attempts[entry]:
        t.e_attempts[entry] -= 1
        t.e_retries[entry] = min(t.e_retries[entry] + 1, limits.ATTEMPTS_MAX)
    if t.e_queue[entry] != IDEL:
        frame_for(core, FrameType.DEFER, flags, entry, party, sequence, argument=until,
                  reason=reason, payload=text)
    leave(core, entry)
    core.set_state(entry, _DEFERRED)
    t.e_until[entry] = until
    core.wake_at(entry, delay_ns)


def give_back(core: Core, entry: int, party: Party | None, sequence: int, flags: int,
              reason: Reason = Reason.RETURNED) -> None:
    """READY again at its old place, the attempt not counted."""
    t = core.t
    if t.e_attempts[entry]:
        t.e_attempts[entry] -= 1
    if t.e_queue[entry] != IDEL:
        frame_for(core, FrameType.RELEASE_GIVEN, flags, entry, party, sequence,
                  reason=reason)
    leave(core, entry)
    core.back(entry)


def fail(core: Core, entry: int, party: Party | None, sequence: int, flags: int, *, reason: int,
         evidence: dict[str, object], delay_ns: int | None = None) -> bool:
    """A failed attempt: deferred, or POISON at the limit. True when it was poisoned."""
    t = core.t
    queue = t.e_queue[entry]
    rules = core.rules[queue]
    if queue == IDEL:
        delay_ns = idel_pause_ns(rules.death_delay_ns, t.e_attempts[entry])
    elif queue != POISON and t.e_attempts[entry] >= rules.attempts_max:
        poison(core, entry, party, sequence, flags, reason=reason, evidence=evidence)
        return True
    if delay_ns is None:
        delay_ns = retry_ns(rules, reason, t.e_attempts[entry], t.m_qpool[t.e_message[entry]])
    put_off(core, entry, party, sequence, flags, failed=True, reason=reason,
            delay_ns=delay_ns,
            text=str(evidence.get("reason", "")).encode())
    return False


def poison(core: Core, entry: int, party: Party | None, sequence: int, flags: int, *, reason: int,
           evidence: dict[str, object], unit: int = 0) -> None:
    """To POISON, or where its queue sends what failed too often, with the evidence packet in the
    frame; other messages flow on."""
    t = core.t
    slot, queue = t.e_message[entry], t.e_queue[entry]
    assert after(Event.POISON, t.e_state[entry]) is EntryState.FREE
    core.failures.attempt(t, entry, core.now_ns)
    packet: dict[str, object] = {
        "queue": core.rules[queue].name, "attempts": t.e_attempts[entry],
        "cause": WORDS.get(reason, str(reason)), "first_ns": core.failures.first(t, entry),
        "replayed": bool(t.m_flags[slot] & REPLAYED), **evidence}
    t.q_failed[queue] += 1
    t.q_dead[queue] += 1
    target = core.rules[queue].dead_letter
    if target != POISON:
        t.e_attempts[entry] = 0  # they begin anew
    priority, attempts = t.e_priority[entry], t.e_attempts[entry]
    lsn = frame_for(core, FrameType.POISON, flags | _FAILED, entry, party, sequence, reason=reason,
                    target=target, unit=unit, payload=json.dumps(packet, sort_keys=True).encode())
    leave(core, entry)
    known = t.entry_on(slot, target)
    core.drop_entry(entry)
    t.m_origin[slot] = queue
    if known < 0:
        t.m_parts[slot] += 1
        fresh = core.new_entry(slot, target, priority, lsn)
        t.e_attempts[fresh] = attempts
    core.failures.note(t, slot, note_of(packet, target, reason, core.now_ns))
    if t.m_flags[slot] & MEMBER:
        core.barriers.poisoned(core, slot, queue)


def apply(core: Core, party: Party, verdict: Verdict, sequence: int, *, ends: bool) -> bool:
    """One settlement that holds, with room reserved. True when the message went to POISON."""
    flags = END if ends else 0
    entry = verdict.entry
    if verdict.kind == _DONE:
        done(core, entry, party, sequence, flags)
    elif verdict.kind == Settlement.DEFER:
        put_off(core, entry, party, sequence, flags, delay_ns=verdict.argument, failed=False,
                reason=Reason.DEFERRED, text=verdict.text)
    elif verdict.kind == Settlement.RELEASE:
        give_back(core, entry, party, sequence, flags)
    else:
        assert verdict.kind == Settlement.FAIL, "kinds are checked for the whole request"
        return fail(core, entry, party, sequence, flags, reason=Reason.FAILED,
                    delay_ns=verdict.argument - 1 if verdict.argument > 0 else None,
                    evidence={"reason": verdict.text.decode("utf-8", "replace"),
                              "pid": party.pid, "time_ns": core.now_ns})
    return False


def reader_died(core: Core, party: Party, entries: Sequence[int], reason: int,
                evidence: dict[str, object], delay_ns: int | None = None) -> list[int]:
    """Its messages come back, deferred, attempts counted; the entries that were poisoned."""
    poisoned = []
    for entry in entries:
        core.block.reserve(1, 1024)
        core.t.counters[Counter.DEATHS] += 1
        if fail(core, entry, party, 0, 0, reason=reason, evidence=evidence, delay_ns=delay_ns):
            poisoned.append(entry)
    return poisoned
