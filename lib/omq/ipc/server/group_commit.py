"""A turn of the manager's loop: a group of requests, hand-outs, one commit, the replies.

Invariants: 1. replies are collected and written after the commit, all of a group before the first
client is woken; 2. an error of the disk is raised as DiskError, and nobody is answered.
omq.fast.group_commit does the same when all requests are plain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from omq.base.errors import BadRequest, OmqError
from omq.base.fault import point
from omq.core.engine.engine import Engine
from omq.core.engine.waiting import Waiter
from omq.ipc.server.doors import Door
from omq.ipc.server.held_replies import HeldReplies
from omq.ipc.server.leased_replies import LeasedReplies
from omq.ipc.server.next_reply import write_given
from omq.ipc.server.reader_notes import Looks
from omq.ipc.server.recent_requests import RecentRequests
from omq.ipc.server.sessions import Session, Sessions, say
from omq.storage import durable
from omq.storage.payloads import PayloadReader


class GroupCommit(ABC):
    """See the module. `stopping`: nothing new is taken, and who waits is answered by the next
    manager."""

    def __init__(self, engine: Engine, sessions: Sessions, bodies: PayloadReader) -> None:
        self.engine, self.sessions, self.bodies = engine, sessions, bodies
        self.recent = RecentRequests()
        self.looks = Looks(engine)
        # Replies that wait for the commit: session, request, count, QPoolId.
        self._ok: list[tuple[Session, int, int, int]] = []
        self._refused: list[tuple[Session, int, OmqError]] = []
        self.refused = self._refused  # others may add to it, and look
        # Carried out, and what they wait for is answered later: session, request, QPoolId.
        self.begun: list[tuple[Session, int, int]] = []
        self._given: list[tuple[Waiter, list[int]]] = []
        self.stopping = False
        self.held: HeldReplies | None = None  # replies that wait for standbys; None: none do

    @abstractmethod
    def handle(self, raw: bytes) -> None:
        """One message of the request queue."""

    def group(self, batch: list[bytes], wall_ns: int, mono_ns: int, drain: Callable[[], bool]
              ) -> None:
        """A turn of the manager's loop: these requests, what came over the control connections
        (`drain`; True: there was something), hand-outs, one commit, the replies. DiskError: nobody
        is answered."""
        self.engine.begin(wall_ns, mono_ns)
        self.recent.group(wall_ns, batch)
        for raw in batch:
            self.handle(raw)
        drain()
        self.dispatch()
        durable.check_latch()  # an error inside a request, as of a new journal file: no answers
        self.engine.commit()
        self.release()

    @property
    def plain(self) -> bool:
        """The last group had plain requests and nothing else."""
        return False

    def due(self) -> int:
        """When a turn is wanted though nobody asks for anything (monotonic ns)."""
        return min(self.engine.next_deadline(), self.looks.due)

    def dispatch(self) -> None:
        """Messages to waiting readers; empty answers to those whose time is over."""
        self.recent.under_way = b""
        self.looks.look()
        self.engine.tick()
        given = [] if self.stopping else self.engine.dispatch()  # who waits has the next manager's
        self._given += [*given, *((waiter, []) for waiter in self.engine.expire())]

    def release(self) -> None:
        """After the commit: all replies of the group are written, then all are announced. The
        clients that wake push the manager off its processor and its data out of the caches, so that
        nothing but announcing is left to do then."""
        engine, lsn = self.engine, self.engine.last_lsn
        answered: list[Session] = []
        point("engine.before_reply")
        self.remember(lsn)
        for session, sequence, count, qpool in self._ok:
            if not session.gone:
                engine.clients.answered(session.party)
                session.answer(sequence, count=count, qpool=qpool, lsn=lsn)
                answered.append(session)
        for session, sequence, error in self._refused:
            if not session.gone:
                session.refuse(sequence, error)
                answered.append(session)
        for waiter, entries in self._given:
            session_of = self.sessions.by_id.get(waiter.party.client)
            if session_of is not None:
                session_of.waiter = None
                self.looks.after(session_of)
                engine.clients.answered(waiter.party)
                write_given(engine.index, session_of, waiter, entries, self.bodies, lsn)
                answered.append(session_of)
        if self.held is not None:
            self.held.add(answered)
        else:
            for session in answered:
                session.announce()
        point("engine.after_reply")
        self._ok.clear()
        self._refused.clear()
        self._given.clear()
        self.sessions.close_gone()

    def say(self, door: Door, answer: dict[str, Any]) -> None:
        """The answer to a question. What became of a request waits as a reply does."""
        if self.held is not None and answer.get("answered") is not None and not (
                self.sessions.by_door[id(door)].unheld):
            self.engine.sync()
            self.held.answer(door, answer)
        else:
            say(door, answer)

    def is_held(self, session: Session) -> bool:
        """Must it not be told yet what its last request came to?"""
        return self.held is not None and self.held.is_held(session)

    def standby(self, session: Session, question: dict[str, Any]) -> None:
        """How far a standby has synced. BadRequest."""
        if self.held is None:
            raise BadRequest(reason="nothing waits for standbys here (standby_sync)")
        self.held.heard(session, question)

    def lease(self, session: Session, question: dict[str, Any]) -> None:
        """Until when the lease is. BadRequest."""
        if not isinstance(self.held, LeasedReplies):
            raise BadRequest(reason="nothing waits for a lease here (standby_lease)")
        self.held.lease(session, question)

    def remember(self, lsn: int) -> None:
        """After the commit: a client that loses its manager while it waits learns that what it
        asked for was put, and under which number, and does not put it again."""
        for session, sequence, qpool in self.begun:
            session.last = (sequence, 1, qpool, lsn)
        self.begun.clear()

    def carry_out(self, session: Session) -> None:
        """A client is gone and may ask at once what became of its request of this group."""
        if self.held is not None:
            self.held.lost(session)
        begun = ((asked, sequence, 1, qpool) for asked, sequence, qpool in self.begun)
        for asked, sequence, count, qpool in (*self._ok, *begun):
            if asked is session:
                self.engine.sync()
                session.last = (sequence, count, qpool, 0)
