"""Questions about units of work in doubt over the control connection.

    units  {"behind": number of the last one known, 0 = from the first on}
           -> {"units": [...], "more": whether there are others}

Each as ROW: id, name, since (wall clock ns), uid and pid and program of who prepared it (null, 0
and "" when that is lost), what it took and put, by queue, and what of it is missing.
"""

from __future__ import annotations

from typing import Any, Final

from omq.core.engine.engine import Engine
from omq.core.engine.state import POISON
from omq.core.engine.unit_facts import UnitInDoubt
from omq.ipc.server.sessions import Session, Sessions

ROWS_MAX: Final = 50
"""In one answer, so that it stays a short line."""
Question = dict[str, Any]


class UnitsPlane:
    """See the module."""

    def __init__(self, engine: Engine, sessions: Sessions) -> None:
        self._engine, self._sessions = engine, sessions

    def units(self, session: Session, question: Question) -> Question:
        """The next of them, by number."""
        behind, uid = int(question.get("behind", 0)), session.party.uid
        every = session.trusted or self._sessions.allows(session, "admin", POISON)
        listed = sorted((unit for number, unit in self._engine.in_doubt.units.items()
                         if number > behind and (every or unit.facts.uid == uid)),
                        key=lambda unit: unit.number)
        return {"units": [self._row(unit) for unit in listed[:ROWS_MAX]],
                "more": len(listed) > ROWS_MAX}

    def _row(self, unit: UnitInDoubt) -> Question:
        in_doubt, rules, facts = self._engine.in_doubt, self._engine.rules, unit.facts
        gets, puts = in_doubt.counts(unit)
        return {"number": unit.number, "unit": in_doubt.name_of(unit), "name": facts.name,
                "since_ns": unit.since_ns, "uid": facts.uid, "pid": facts.pid,
                "program": facts.program, "gets": gets, "puts": puts,
                "missing": in_doubt.missing(unit), "queues": {
                    rules[queue].name if queue in rules else str(queue): {"gets": took, "puts": put}
                    for queue, (took, put) in sorted(in_doubt.queues(unit).items())}}
