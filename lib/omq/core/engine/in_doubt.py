"""Units of work in doubt: prepared, and neither committed nor backed out yet (ADR 0038).

    prepare   one block: a PUT for the unit itself, PREPARE for each message that it took, PUT
              (PREPARED) for each new one; from here on it outlives its client and the manager
    commit    one block: the end of the unit's message, DONE for what it took, COMMIT for its puts
    backout   one block: the same end, BACKOUT (attempt counted; POISON at the limit) and DELETE

A unit in doubt is itself a message, on IDEL: its body says whose it is and how many messages belong
to it (core.engine.unit_facts). So what is true of every message is true of it: it is redone, it is
in the pool when its journal file goes, its body moves with the others, a copy of the spool has it.
No journal file is kept for it, be it in doubt for a year.

All its entries, and that of its message, are PREPARED under the same number: `e_until` in the
index, `until` in the pool, `reason` in frames. Nobody else can hand out, expire, delete or move
them. What was taken has an attempt counted, what was put has none: so the two can be distinguished.

Invariants: 1. a number is that of one unit in doubt; 2. entries are PREPARED if and only if they
belong to one; 3. what is missing of a unit is noted (`missing`), and one whose message is lost is
there still, without a name, for an operator to end.

In the middle of a crash: each of the blocks is whole or absent. Before the first nobody was told
that the unit is prepared, and it is backed out as an open one; between them it is in doubt; after
the second it has ended. A payload that is torn condemns the first block with its request as it does
any (core.redo.redo); one that was promised and is damaged later costs its own message alone.

Errors: those of core.engine.units, UnitNotPrepared, UnitNameTaken, TooManyInDoubt, UnitUnknown,
SpoolFull; before anything is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from omq.base.checksum import crc32c
from omq.base.errors import (
    TooManyInDoubt,
    UnitNameTaken,
    UnitNotPrepared,
    UnitResolved,
    UnitUnknown,
)
from omq.base.names import escape
from omq.core.engine.backing_out import back_out
from omq.core.engine.duplicates import watching
from omq.core.engine.operate import say_who
from omq.core.engine.puts import NO_PLACE, NewMessage, append, check, place_bodies, rows_kept
from omq.core.engine.settle import (
    END,
    EVIDENCE_BYTES,
    Verdict,
    done,
    frame_for,
    last_of,
    leave,
    off,
)
from omq.core.engine.state import IDEL, PERSISTENT, Core, Party, Poisoned
from omq.core.engine.transitions import Event, after
from omq.core.engine.unit_facts import Facts, UnitInDoubt, payload_of, read_facts
from omq.core.engine.units import check_unit, entries_of
from omq.format import message as message_format
from omq.format.frame_rules import Reason
from omq.format.index import Counter, EntryState
from omq.format.journal import FrameFlag, FrameType
from omq.format.message import Part

_PREPARED = int(EntryState.PREPARED)
_NUMBERS = 0xFFFFFFFF
_ID_LIKE = re.compile(r"[0-9a-fA-F]{48}|number-\d+")
ENDED_MAX: Final = 1000  # ids and names of units that have ended, for who ends one twice


class InDoubt:
    """See the module. `note` hears of what was poisoned by a backout."""

    def __init__(self, core: Core, note: Callable[[Poisoned], None]) -> None:
        self._core, self._note = core, note
        self.units: dict[int, UnitInDoubt] = {}  # by number
        self.limit = 1
        self._ended: dict[str, tuple[str, int | None]] = {}  # id -> how, whose; the last ones

    def load(self, entries: Iterable[int], read: Callable[[int], bytes]) -> list[str]:
        """A start: the entries that the pool has as PREPARED. `read`: the body of the message in a
        slot, empty if it cannot be read. What is missing, for the event log."""
        t, said = self._core.t, list[str]()
        for entry in entries:
            number = t.e_until[entry]
            unit = self.units.get(number)
            if unit is None:
                unit = self.units[number] = UnitInDoubt(number, 0, Facts(), t.e_submitted[entry])
            if t.e_queue[entry] == IDEL:
                slot = t.e_message[entry]
                unit.own, unit.qpool, unit.since_ns = entry, t.m_qpool[slot], t.m_time[slot]
                unit.facts = read_facts(read(slot))
            else:
                unit.entries.append(entry)
        for unit in self.units.values():
            gets, puts = self.counts(unit)
            if unit.lost:
                said.append(f"whose unit of work {self.name_of(unit)} is, is lost; {gets} messages "
                            f"that it took and {puts} that it put are kept for an operator")
            elif missing := self.missing(unit):
                said.append(f"{missing} messages of unit of work {self.name_of(unit)} are missing")
        self._count()
        return said

    def counts(self, unit: UnitInDoubt) -> tuple[int, int]:
        """Entries that are there: taken, put."""
        taken = sum(self._core.t.e_attempts[entry] > 0 for entry in unit.entries)
        return taken, len(unit.entries) - taken

    def missing(self, unit: UnitInDoubt) -> int:
        """Entries that its facts know and that are not there."""
        return max(0, unit.facts.gets + unit.facts.puts - len(unit.entries))

    def name_of(self, unit: UnitInDoubt) -> str:
        """Its id for people, which ends it: that of its message, or its number if that is lost."""
        if unit.qpool:
            return message_format.derived_id(self._core.uuid, unit.qpool).hex()
        return f"number-{unit.number}"

    def find(self, said: str, party: Party) -> UnitInDoubt | None:
        """By its id, or by the name that a program of the same user gave; the owner and root find
        all."""
        named = None
        for unit in self.units.values():
            own = unit.facts.uid == party.uid
            if said == self.name_of(unit) and (own or party.owns or not party.uid):
                return unit
            if said and said == unit.facts.name and (own or ((party.owns or not party.uid)
                                                             and named is None)):
                named = unit
        return named

    def by_id(self, said: str) -> UnitInDoubt | None:
        """Anybody's, for an operator."""
        return next((unit for unit in self.units.values() if said == self.name_of(unit)), None)

    def ended(self, said: str, party: Party) -> UnitUnknown | UnitResolved:
        """The error for a unit that is not in doubt: how it ended, as far as that is remembered
        and concerns this client."""
        how, uid = self._ended.get(said, ("", None))
        if how and (party.owns or not party.uid or uid == party.uid):
            return UnitResolved(unit=said, how=how)
        return UnitUnknown(unit=escape(said))

    def queues(self, unit: UnitInDoubt) -> dict[int, tuple[int, int]]:
        """How many entries it took from and put on each queue."""
        t, found = self._core.t, dict[int, tuple[int, int]]()
        for entry in unit.entries:
            gets, puts = found.get(t.e_queue[entry], (0, 0))
            taken = t.e_attempts[entry] > 0
            found[t.e_queue[entry]] = (gets + taken, puts + (not taken))
        return found

    # prepare

    def prepare(self, party: Party, taken: Sequence[Verdict], new: Sequence[NewMessage],
                facts: Facts, sequence: int) -> int:
        """A whole unit; the QPoolId of its message, behind which come those of what it puts."""
        core = self._core
        entries = entries_of(core, party, taken)
        kept = rows_kept(core, party)
        listed = [check(core, message, kept) for message in new]
        self._check(entries, new, listed, facts, party)
        check_unit(core, (), listed, kept, more=1)
        payload = payload_of(facts)
        core.block.reserve(1 + len(entries) + len(new),
                           len(payload) + sum(len(message.payload) for message in new))
        bodies = place_bodies(core, new)
        lsn, left = core.block.lsn, len(entries) + len(new)
        unit = self.begin(party, facts, payload, sequence)
        unit.entries += entries
        for entry in entries:
            left -= 1
            self._set_prepared(entry, party, sequence, 0 if left else END, lsn, unit.number)
        party.active -= len(entries)
        for message, parts, body_at in zip(new, listed, bodies, strict=True):
            left -= 1
            append(core, party, message, parts, sequence, 0 if left else END, lsn, body_at,
                   unit.number)
            unit.entries += self._last_entries()
        return unit.qpool

    def begin(self, party: Party, facts: Facts, payload: bytes, sequence: int) -> UnitInDoubt:
        """A unit, without entries yet: the frame of its message is the first of its own. The caller
        has checked and reserved."""
        core, number = self._core, self._free_number()
        own = NewMessage(IDEL, 0, PERSISTENT, len(payload) - message_format.DESCRIPTOR.size,
                         crc32c(payload), 0, 0, 0, 0, payload)
        qpool = append(core, party, own, [Part(IDEL, 0)], sequence, 0, core.block.lsn, NO_PLACE,
                       number)
        unit = self.units[number] = UnitInDoubt(number, qpool, facts, core.now_ns,
                                                self._last_entries()[0])
        core.t.counters[Counter.UNITS_PREPARED] += 1
        self._count()
        return unit

    def _check(self, entries: Sequence[int], new: Sequence[NewMessage],
               listed: Sequence[Sequence[Part]], facts: Facts, party: Party) -> None:
        t = self._core.t
        if not entries and not new:
            raise UnitNotPrepared(reason="it is empty")
        if not (all(t.m_flags[t.e_message[entry]] & PERSISTENT for entry in entries)
                and all(message.flags & PERSISTENT for message in new)):
            raise UnitNotPrepared(reason="it has a message that is not persistent, and would be "
                                         "half a unit after a restart")
        if any(message.key and watching(self._core, message) for message in new):
            raise UnitNotPrepared(reason="a queue of it remembers ids (dedupe_s), which a backout "
                                         "would have to make it forget")
        if any(part.until for parts in listed for part in parts):
            raise UnitNotPrepared(reason="a message with a delay is not put in two phases")
        self.check(facts, party)

    def check(self, facts: Facts, party: Party) -> None:
        """May this client have one more in doubt, of this name? UnitNotPrepared, UnitNameTaken,
        TooManyInDoubt."""
        if _ID_LIKE.fullmatch(facts.name):
            raise UnitNotPrepared(reason="its name looks like the id of another")
        mine = [unit.facts.name for unit in self.units.values() if unit.facts.uid == party.uid]
        if facts.name and facts.name in mine:
            raise UnitNameTaken(name=escape(facts.name))
        share = self.limit if party.owns or not party.uid else max(1, self.limit // 2)
        if len(self.units) >= self.limit or len(mine) >= share:
            raise TooManyInDoubt(limit=share)

    def _free_number(self) -> int:
        """After that of the message to come: free at once, but for those in doubt for very
        long."""
        number = self._core.next_qpool & _NUMBERS
        while not number or number in self.units:
            number = number + 1 & _NUMBERS
        return number

    def _last_entries(self) -> list[int]:
        """Of the message that was appended last."""
        core = self._core
        return list(core.t.entries_of(core.block.puts[-1]))

    def _set_prepared(self, entry: int, party: Party, sequence: int, flags: int, lsn: int,
                      number: int) -> None:
        core = self._core
        assert after(Event.PREPARE, core.t.e_state[entry]) is EntryState.PREPARED
        frame_for(core, FrameType.PREPARE, flags, entry, party, sequence, reason=number, unit=lsn)
        leave(core, entry)
        core.set_state(entry, _PREPARED)
        core.t.e_until[entry] = number

    # the end

    def end(self, unit: UnitInDoubt, party: Party, sequence: int, *, commit: bool,
            order: bytes = b"") -> None:
        """Commit it or back it out; `order`: what an operator says of it. SpoolFull: it is in doubt
        still."""
        core, t = self._core, self._core.t
        entries = list(unit.entries)
        core.block.reserve(2 + len(entries),
                           len(order) + (0 if commit else EVIDENCE_BYTES * len(entries)))
        lsn = core.block.lsn
        if order:
            say_who(core, party, len(entries), order)
        by = By(party, sequence, lsn)
        for entry, flags in _marked([*entries, *([unit.own] if unit.own >= 0 else [])]):
            assert t.e_state[entry] == _PREPARED and t.e_until[entry] == unit.number
            if entry == unit.own:
                end_itself(core, by, entry, flags, commit=commit)
            elif commit:
                commit_entry(core, by, entry, flags)
            else:
                back_out_entry(core, by, entry, flags, self._note)
        self._ended_as(unit, commit=commit)

    def close(self, unit: UnitInDoubt, party: Party, sequence: int, lsn: int) -> None:
        """It is committed, but for its message, whose frame is the last of the request. `lsn`: of
        the first frame of its end."""
        end_itself(self._core, By(party, sequence, lsn), unit.own, END, commit=True)
        self._ended_as(unit, commit=True)

    def _ended_as(self, unit: UnitInDoubt, *, commit: bool) -> None:
        t = self._core.t
        del self.units[unit.number]
        for said in {self.name_of(unit), unit.facts.name} - {""}:
            self._ended.pop(said, None)
            self._ended[said] = ("committed" if commit else "backed out", unit.facts.uid)
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        t.counters[Counter.UNITS_COMMITTED if commit else Counter.UNITS_BACKED_OUT] += 1
        self._count()

    def _count(self) -> None:
        self._core.t.counters[Counter.UNITS_IN_DOUBT] = len(self.units)


def _marked(entries: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each with the flags of its frame: the last one carries out the request."""
    for left, entry in enumerate(entries, 1 - len(entries)):
        yield entry, 0 if left else END


_LAST = int(FrameFlag.LAST_PART)


@dataclass(frozen=True, slots=True)
class By:
    """Who ends the unit, by which request; `unit`: LSN of the first frame of its end. The functions
    below write the frame of an entry, then change the tables; their caller has reserved room for
    all of them in one block."""

    party: Party
    sequence: int
    unit: int


def end_itself(core: Core, by: By, entry: int, flags: int, *, commit: bool) -> None:
    """The message that stands for the unit is gone; how its frame says tells how the unit ended."""
    lsn = frame_for(core, FrameType.DONE if commit else FrameType.DELETE, flags | _LAST, entry,
                    by.party, by.sequence, unit=by.unit, parts=1,
                    reason=0 if commit else Reason.BACKED_OUT)
    off(core, entry, _LAST, lsn)


def commit_entry(core: Core, by: By, entry: int, flags: int) -> None:
    """What was taken is finished, what was put is READY where its prepare put it."""
    if core.t.e_attempts[entry]:
        done(core, entry, by.party, by.sequence, flags, by.unit)
        core.t.counters[Counter.DONES] += 1
        return
    assert after(Event.COMMIT, core.t.e_state[entry]) is EntryState.READY
    frame_for(core, FrameType.COMMIT, flags, entry, by.party, by.sequence, unit=by.unit)
    core.back(entry)
    core.t.counters[Counter.PUTS] += 1


def back_out_entry(core: Core, by: By, entry: int, flags: int, note: Callable[[Poisoned], None]
                   ) -> None:
    """What was taken is back at its old place, or on POISON (`note`); what was put is gone."""
    t = core.t
    if not t.e_attempts[entry]:
        _undo(core, by, entry, flags)
        return
    qpool, queue = t.m_qpool[t.e_message[entry]], t.e_queue[entry]
    if back_out(core, entry, by.party, by.sequence, flags, by.unit):
        note(core.dead(qpool, queue, Reason.BACKED_OUT, by.party.pid))


def _undo(core: Core, by: By, entry: int, flags: int) -> None:
    """A new message goes off a queue on which nobody has seen it."""
    t = core.t
    slot = t.e_message[entry]
    assert after(Event.UNDO, t.e_state[entry]) is EntryState.FREE
    last = last_of(core, slot)
    lsn = frame_for(core, FrameType.DELETE, flags | last, entry, by.party, by.sequence,
                    unit=by.unit, parts=core.runs.get(slot, 1) if last == _LAST else 0,
                    reason=Reason.BACKED_OUT)
    off(core, entry, last, lsn)
