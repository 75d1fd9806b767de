"""Suspects: messages that were in the manager's own hands when it died, and may be why.

A hand-out is journaled with its attempt, then written for its reader. A reader that outlives the
manager and never saw the hand-out shows that the manager died in between; it counts like a reader's
death. At the limit the message goes to POISON with evidence, so that no message kills manager after
manager. Before that it is ready at once, but a suspect, as is whatever nobody claimed from limbo.

Invariants: 1. of all suspects one a group is handed out, and its reader gets nothing else with it:
the next death tells the guilty one from those that were only near it, whose attempts it does not
count again; 2. a suspect is one until it has been handed out or leaves its queue; 3. one that is
READY is in a return lane.

What a message's content can break comes after the journal: until then only numbers are handled
that the tables, made anew at each start, hold. Suspects themselves are in memory only: whoever
survives a hand-out is none any more, and who does not is found in limbo again.
"""

from __future__ import annotations

from omq.core.engine import settle
from omq.core.engine.gives import next_ready
from omq.core.engine.state import POISON, Core, Party
from omq.format.frame_rules import Reason
from omq.format.journal import FrameType


def unseen(core: Core, entry: int, party: Party) -> bool:
    """The manager died handing this to its reader: READY again, or POISON (True). SpoolFull."""
    t = core.t
    queue = t.e_queue[entry]
    core.block.reserve(1, settle.EVIDENCE_BYTES)
    if queue != POISON and t.e_attempts[entry] >= core.rules[queue].attempts_max:
        settle.poison(core, entry, party, 0, 0, reason=Reason.UNSEEN, evidence={
            "pid": party.pid, "lease": t.m_lsn[t.e_message[entry]], "time_ns": core.now_ns})
        return True
    core.failures.attempt(t, entry, core.now_ns)
    settle.frame_for(core, FrameType.RELEASE_GIVEN, 0, entry, party, reason=Reason.UNSEEN)
    settle.leave(core, entry)
    core.back(entry)
    core.suspects.add(entry)
    return False


def must_wait(core: Core, queue: int) -> bool:
    """A suspect goes next, and this group has handed out one already."""
    return core.suspect_given and next_ready(core, queue) in core.suspects
