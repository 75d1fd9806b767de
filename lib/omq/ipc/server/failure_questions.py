"""What clients ask of a message on a dead-letter queue: how it came there.

    failure  {"op": "failure", "queue": its name, "qpool": QPoolId}
               -> {"failure": null} or {"failure": {"queue", "cause", "reason", "attempts",
                  "first_ns", "last_ns"}}: `cause` a name of frame_rules.Reason in small letters

Of a message that is on POISON, or that has last failed on a queue which sends it here, and of whose
failure nothing is known any more (core.engine.failures), the answer has the queue, and "" and 0 for
the rest.

Who may ask: who holds the message from this queue, and who may `browse` the queue or `get` from it.
Invariant: everybody else gets the very answer (null) of a message that did not fail;
what came with this very group, and may yet not be, is not there.

Errors: none of its own; what is not a question is BadRequest.
"""

from __future__ import annotations

from typing import Any

from omq.core.engine.engine import Engine
from omq.core.engine.state import POISON
from omq.format.frame_rules import Reason
from omq.ipc.server.cancelling import LOOKERS
from omq.ipc.server.sessions import Session, Sessions

Question = dict[str, Any]
_CAUSES = {int(reason): reason.name.lower() for reason in Reason}


class Failing:
    """See the module."""

    def __init__(self, engine: Engine, sessions: Sessions) -> None:
        self._engine, self._sessions = engine, sessions

    def failure(self, session: Session, question: Question) -> Question:
        """The question."""
        name, qpool = str(question["queue"]), int(question["qpool"])
        engine, t = self._engine, self._engine.index
        queue, slot = engine.queues.numbers.get(name, 0), t.slot_of(qpool)
        if not queue or slot < 0:
            return {"failure": None}
        entry = next((each for each in engine.by_id.places(slot) if t.e_queue[each] == queue), -1)
        if entry < 0 or not self._may(session, entry, queue):
            return {"failure": None}
        return {"failure": self._known(qpool, queue) or self._origin(slot, queue)}

    def _known(self, qpool: int, queue: int) -> Question | None:
        note = self._engine.failures.of(qpool, queue)
        if note is None:
            return None
        return {"queue": note.queue, "cause": _CAUSES.get(note.reason, ""), "reason": note.text,
                "attempts": note.attempts, "first_ns": note.first_ns, "last_ns": note.last_ns}

    def _origin(self, slot: int, queue: int) -> Question | None:
        rules = self._engine.rules.get(origin := self._engine.index.m_origin[slot])
        if not origin or (queue != POISON and (rules is None or rules.dead_letter != queue)):
            return None
        return {"queue": rules.name if rules is not None else "", "cause": "", "reason": "",
                "attempts": 0, "first_ns": 0, "last_ns": 0}

    def _may(self, session: Session, entry: int, queue: int) -> bool:
        if self._engine.index.e_reader[entry] == session.party.slot + 1:
            return True
        return any(self._sessions.allows(session, action, queue) for action in LOOKERS)
