"""What pool.writer tells the manager: a checkpoint was taken, and how the disk is.

    checkpoint  lsn; file, offset: where the journal goes on after it (absent from an older one)
    room        stuck: no room can be made; says: what fills the spool, for who is refused

Both are of who may `admin` POISON; nothing in them is believed further than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omq.base import names
from omq.core.engine.disk_state import TEXT_MAX
from omq.core.engine.engine import Engine
from omq.ipc.server.sessions import Session, Sessions

Question = dict[str, Any]


class PoolPlane:
    """See the module."""

    def __init__(self, engine: Engine, sessions: Sessions, number: Callable[[str], int]) -> None:
        self._engine, self._sessions, self._number = engine, sessions, number
        self.operations = {"checkpoint": self._checkpoint, "room": self._room}

    def _checkpoint(self, session: Session, question: Question) -> Question:
        self._check(session)
        self._engine.books.checkpointed(session.party, int(question["lsn"]))
        room = self._engine.room
        room.file = int(question.get("file", room.file))
        room.offset = int(question.get("offset", room.offset))
        return {}

    def _room(self, session: Session, question: Question) -> Question:
        self._check(session)
        room = self._engine.room
        room.stuck = bool(question["stuck"])
        room.says = names.escape(str(question.get("says", "")))[:TEXT_MAX]
        return {}

    def _check(self, session: Session) -> None:
        self._sessions.check(session, "admin", self._number("POISON"))
