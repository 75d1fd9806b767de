"""The question `see`: what lies on the queue that a reader reads, as rows, for readers that choose
by themselves and may not map the index (ADR 0062). The manager's side of
ipc.client.rows_from_manager.

    {"op": "see", "after": [priority, sequence] or null, "want": n}
                            the next messages in the order of hand-out; `next`: where to go on
    {"op": "see", "entries": [...]}
                            these, as an answer to LOOK named them
    answer: {"count", "next"}, SEEN * count in the reply half

Who may `get` from a queue may see what it could be handed there, and fetch it (`fetching`): nothing
else, and nothing of other queues. The right is asked anew with each question, so that one that was
taken away ends it.

While get is inhibited it could be handed nothing, so nothing is shown: `see` is refused, a fetch
knows of no such message.

Errors: NoAuthority, BadRequest, GetInhibited, QueueGone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from omq.base import limits
from omq.base.arrays import Vector
from omq.base.errors import BadRequest, GetInhibited
from omq.core.engine.backlog import Place
from omq.core.engine.engine import Engine
from omq.core.engine.state import IDEL
from omq.format.wire import REPLY, SEEN
from omq.ipc.server.sessions import Session, Sessions

Question = dict[str, Any]
_OF_ENTRY = ("sequence", "submitted", "until", "queue", "attempts", "retries", "priority", "state")
_OF_MESSAGE = ("qpool", "lsn", "expiry", "size", "crc", "length", "pid", "flags", "parts", "origin")


class Seeing:
    """See the module."""

    def __init__(self, engine: Engine, sessions: Sessions) -> None:
        self._engine, self._sessions = engine, sessions

    def may_see(self, session: Session, entry: int) -> bool:
        """Whether it reads the queue that this message is on, and could be handed it."""
        queue = session.queue
        return (queue not in (0, IDEL) and self._engine.wanted.backlog.shows(queue, entry)
                and self._sessions.allows(session, "get", queue))

    def see(self, session: Session, question: Question) -> Question:
        """See the module."""
        queue, backlog = session.queue, self._engine.wanted.backlog
        if queue in (0, IDEL):
            raise session.no_reader()
        self._sessions.check(session, "get", queue)
        if backlog.inhibited(queue):
            raise GetInhibited(queue=self._engine.index.queue_name(queue))
        most = min(limits.BATCH_MAX, (len(session.reply) - REPLY.size) // SEEN.size)
        place: Place | None = None
        if "entries" in question:
            named = question["entries"]
            if not isinstance(named, list) or len(named) > most:
                raise BadRequest(reason=f"entries are a list of at most {most}")
            found = [entry for entry in map(int, named) if backlog.shows(queue, entry)]
        else:
            want = max(1, min(int(question["want"]), most))
            found, place = backlog.behind(session.party.client, queue,
                                          _after(question.get("after")), want)
        self._write(session, np.array(found, dtype=np.int64))
        return {"count": len(found), "next": place}

    def _write(self, session: Session, entries: Vector) -> None:
        v = self._engine.index.v
        slots = v["e_message"][entries]
        rows = SEEN.array(session.reply, len(entries), REPLY.size)
        rows["entry"], rows["slot"] = entries, slots
        for name in _OF_ENTRY:
            rows[name] = v[f"e_{name}"][entries]
        for name in _OF_MESSAGE:
            rows[name] = v[f"m_{name}"][slots]
        rows["created"], rows["spare"] = v["m_time"][slots], 0


def _after(said: Any) -> Place | None:
    """The place that a question names. BadRequest."""
    if said is None:
        return None
    if (not isinstance(said, list) or len(said) != 2 or not all(type(n) is int for n in said)
            or not 0 <= said[0] < limits.PRIORITIES or not 0 <= said[1] < 1 << 56):
        raise BadRequest(reason="after is a priority and a sequence")
    return said[0], said[1]
