"""What the end of a unit of work in doubt does to each of its entries (core.engine.in_doubt): the
frame, then the tables. The caller has reserved room for all of them in one block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from omq.core.engine.backing_out import back_out
from omq.core.engine.settle import done, frame_for
from omq.core.engine.state import CONTAINER, IDEL, Core, Party, Poisoned
from omq.core.engine.transitions import Event, after
from omq.format.frame_rules import Reason
from omq.format.index import Counter, EntryState
from omq.format.journal import FrameFlag, FrameType

_LAST, _IDEL = int(FrameFlag.LAST_PART), int(FrameFlag.TO_IDEL)


@dataclass(frozen=True, slots=True)
class By:
    """Who ends the unit, by which request; `unit`: LSN of the first frame of its end."""

    party: Party
    sequence: int
    unit: int


def end_itself(core: Core, by: By, entry: int, flags: int, *, commit: bool) -> None:
    """The message that stands for the unit is gone; how its frame says tells how the unit ended."""
    slot = core.t.e_message[entry]
    frame_for(core, FrameType.DONE if commit else FrameType.DELETE, flags | _LAST, entry, by.party,
              by.sequence, unit=by.unit, parts=1, reason=0 if commit else Reason.BACKED_OUT)
    core.drop_entry(entry)
    core.drop_message(slot)


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
    if t.m_parts[slot] == 1:
        flags |= _IDEL if t.m_flags[slot] & CONTAINER else _LAST
    lsn = frame_for(core, FrameType.DELETE, flags, entry, by.party, by.sequence, unit=by.unit,
                    parts=core.runs.get(slot, 1) if flags & _LAST else 0, reason=Reason.BACKED_OUT)
    core.drop_entry(entry)
    if flags & _LAST:
        core.drop_message(slot)
    elif flags & _IDEL:  # idel.server removes its file
        t.m_parts[slot] = 1
        core.new_entry(slot, IDEL, 0, lsn)
