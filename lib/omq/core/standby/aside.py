"""What a former primary has that the new one does not: message by message, from its journal.

The new primary's history is that of this spool up to one LSN (storage.promotions). Every frame
above it that changed a persistent message is this spool's alone, and so is what it acknowledged by
them:

    lost        put here, and not finished: nobody else has it
    finished    put here, and finished here: nobody else ever knew of it
    again       put before, finished here: the new primary has it, and its work is done once more
    changed     put before, moved, held, deferred, given back ... here: it is as it was there

Invariants: 1. nothing is written; 2. each message is in one line; 3. what the journal does not
reach back to, or cannot be read, is noted (`complete`): a report that may lack something never
looks like a whole one.

Memory: a line a message above that LSN. Errors: those of core.history.frames.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.base.paths import SpoolPaths
from omq.core.history.frames import Happening, History
from omq.format.frame_rules import About, Hand, mask
from omq.format.journal import FrameFlag

LOST, FINISHED, AGAIN, CHANGED = "lost", "finished", "again", "changed"
_MAKES: Final = mask(lambda rule: rule.makes)
_MESSAGE: Final = mask(lambda rule: rule.about is About.MESSAGE)
_KEPT: Final = int(FrameFlag.PERSISTENT)
_NO_CHANGE: Final = int(FrameFlag.REPEATED)
_MEMORY: Final = int(FrameFlag.MEMORY)
_LAST: Final = FrameFlag.LAST_PART | FrameFlag.TO_IDEL


@dataclass(slots=True)
class Line:
    """One message."""

    qpool: int
    queue: str  # where it was put, or where it was when it changed first
    lsn: int  # of the first frame above the common history
    time_ns: int
    born: bool
    size: int = 0
    ended: bool = False
    to_idel: bool = False  # it had a container, which may be removed by now
    how: list[str] = field(default_factory=list)  # kinds of frames, in order

    @property
    def state(self) -> str:
        """One of the words of the module."""
        if self.born:
            return FINISHED if self.ended else LOST
        return AGAIN if self.ended else CHANGED


@dataclass(frozen=True, slots=True)
class Aside:
    """`complete`: nothing is missing in `lines`; else `why`. `last_lsn`: of this spool. `short`: it
    was read whole, and ends before that LSN: a power cut took what another member had."""

    lines: tuple[Line, ...]
    last_lsn: int
    complete: bool
    why: str = ""
    short: bool = False


def aside(paths: SpoolPaths, since: int) -> Aside:
    """What is above that LSN."""
    history, lines, last, first = History(paths), dict[int, Line](), 0, 0
    memories = set[int]()  # no messages: what queues remember of ids

    def choose(frames: Vector) -> Vector:
        nonlocal last, first
        last, first = max(last, int(frames["lsn"][-1])), first or int(frames["lsn"][0])
        flags = frames["flags"]
        memories.update(frames["qpool"][flags & _MEMORY != 0].tolist())
        chosen = ((frames["lsn"] > since) & _MESSAGE[frames["type"]] & (flags & _KEPT != 0)
                  & (flags & _NO_CHANGE == 0))
        if memories:
            chosen &= ~np.isin(frames["qpool"], list(memories))
        return np.asarray(chosen)

    for found in history.read(choose):
        _note(lines, found)
    why = ""
    if history.findings:
        why = f"{history.findings[0].file}: {history.findings[0].reason}"
    elif first > since + 1:
        why = f"its journal begins at LSN {first}: what was between is not known"
    elif last < since:
        why = f"its journal ends at LSN {last}, before what both should have"
    shown = tuple(each for each in lines.values() if each.born or each.how)
    short = last < since and not history.findings and first <= since + 1
    return Aside(shown, last, complete=not why, why=why, short=short)


def _note(lines: dict[int, Line], found: Happening) -> None:
    line = lines.get(found.qpool)
    if line is None:
        born = bool(_MAKES[found.kind])
        queue = ", ".join(found.targets) or found.queue
        line = lines[found.qpool] = Line(found.qpool, queue if born else found.queue, found.lsn,
                                         found.time_ns, born, found.size)
        if born:
            return
    if found.rule.hand is Hand.GIVEN:
        return  # it was in somebody's hands: no change that anybody asked for
    line.how.append(found.kind.name.lower())
    line.ended |= bool(found.flags & _LAST) and found.rule.leaves
    line.to_idel |= bool(found.flags & FrameFlag.TO_IDEL)
