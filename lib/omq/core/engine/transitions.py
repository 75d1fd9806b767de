"""Which event may happen to an entry in which state, and what state follows: one total table.

Sources: the original's life cycle (birth, life, death; defer 30 s and POISON at the third death;
IDEL). Operator commands ask `after`; the paths of every message restate the table,
since a question for each would cost more than the work. tests/model/test_transitions.py drives
engine and restart through every event in every state, so neither can disagree with the table.

    event     READY     ACTIVE     DEFERRED   HELD     PREPARED
    GIVE      ACTIVE    -          -          -
    DONE      -         FREE       -          -        FREE         its unit was committed
    DEFER     -         DEFERRED   -          -          reader gave it back for later
    FAIL      -         DEFERRED   -          -          reader failed or died: attempt counts
    RETURN    -         READY      -          -          reader gave it back untouched
    BACKOUT   -         READY      -          -        READY        its unit: attempt counts
    PREPARE   -         PREPARED   -          -        -            its unit is in doubt
    COMMIT    -         -          -          -        READY        a unit's put
    UNDO      -         -          -          -        FREE         a unit's put, backed out
    DUE       -         -          READY      -
    POISON    FREE      FREE       FREE       FREE     FREE         here; READY on POISON
    MOVE      FREE      FREE       FREE       FREE     -            here; READY on the targets
    HOLD      HELD      -          HELD       -
    RELEASE   -         -          READY      READY
    DELETE    FREE      -          FREE       FREE
    EXPIRE    FREE      -          FREE       -          its time is over
"""

from __future__ import annotations

from enum import Enum

from omq.format.index import EntryState


class Event(Enum):
    """What can happen to an entry (a message on one queue)."""

    PUT = "put"
    GIVE = "give"
    DONE = "done"
    DEFER = "defer"
    FAIL = "fail"
    RETURN = "return"
    BACKOUT = "backout"
    DUE = "due"
    POISON = "poison"
    MOVE = "move"
    HOLD = "hold"
    RELEASE = "release"
    DELETE = "delete"
    EXPIRE = "expire"
    PREPARE = "prepare"
    COMMIT = "commit"
    UNDO = "undo"


_F, _R, _A = EntryState.FREE, EntryState.READY, EntryState.ACTIVE
_D, _H, _P = EntryState.DEFERRED, EntryState.HELD, EntryState.PREPARED
_ANY = {_R: _F, _A: _F, _D: _F, _H: _F}

_TABLE: dict[Event, dict[EntryState, EntryState]] = {
    Event.PUT: {_F: _R},
    Event.GIVE: {_R: _A},
    Event.DONE: {_A: _F, _P: _F},
    Event.DEFER: {_A: _D},
    Event.FAIL: {_A: _D},
    Event.RETURN: {_A: _R},
    Event.BACKOUT: {_A: _R, _P: _R},
    Event.DUE: {_D: _R},
    Event.POISON: {**_ANY, _P: _F},
    Event.MOVE: dict(_ANY),
    Event.HOLD: {_R: _H, _D: _H},
    Event.RELEASE: {_D: _R, _H: _R},
    Event.DELETE: {_R: _F, _D: _F, _H: _F},
    Event.EXPIRE: {_R: _F, _D: _F},
    Event.PREPARE: {_A: _P},
    Event.COMMIT: {_P: _R},
    Event.UNDO: {_P: _F},
}


def after(event: Event, state: EntryState | int) -> EntryState | None:
    """State that follows, None when the event is not allowed in this state."""
    return _TABLE[event].get(EntryState(state))
