"""A message comes back because its unit of work was backed out: at once and at its old place, as if
it was given back untouched, but with the attempt counted: POISON at the limit, so that a message
which no program can process does not go round for ever.
"""

from __future__ import annotations

from omq.core.engine.settle import frame_for, leave, poison
from omq.core.engine.state import IDEL, POISON, Core, Party
from omq.format.frame_rules import Reason
from omq.format.journal import FrameType


def back_out(core: Core, entry: int, party: Party | None, sequence: int = 0, flags: int = 0,
             unit: int = 0) -> bool:
    """True when it went to POISON. The caller has reserved a frame and EVIDENCE_BYTES."""
    t = core.t
    queue = t.e_queue[entry]
    if queue > POISON and t.e_attempts[entry] >= core.rules[queue].attempts_max:
        poison(core, entry, party, sequence, flags, reason=Reason.BACKED_OUT, unit=unit, evidence={
            "pid": party.pid if party else 0, "time_ns": core.now_ns})
        return True
    if queue != IDEL:  # of which nothing is journaled
        frame_for(core, FrameType.BACKOUT, flags, entry, party, sequence, unit=unit,
                  reason=Reason.BACKED_OUT)
        core.failures.attempt(t, entry, core.now_ns)
    leave(core, entry)
    core.back(entry)
    return False
