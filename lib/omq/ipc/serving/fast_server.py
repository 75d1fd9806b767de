"""The request server with the fast path in front of it (omq.fast).

What is plain is done there, all else goes the way of RequestServer with untouched bytes. While a
crash point is armed the replies go that way too, for all points lie on it.
"""

from __future__ import annotations

from collections.abc import Callable

from omq.base import fault, form
from omq.base.errors import OmqError
from omq.core.engine.engine import Engine
from omq.fast.intake import take_all
from omq.fast.path import Path
from omq.fast.reply import ROWS_MAX
from omq.format.wire import REQUEST
from omq.ipc.serving.given import MANY, write_given
from omq.ipc.serving.server import RequestServer
from omq.ipc.serving.sessions import Session, Sessions
from omq.ipc.serving.units import UnitLimits
from omq.storage.payloads import PayloadReader

_CLIENT, _SEQUENCE = (REQUEST.names.index(name) for name in ("client", "sequence"))


class FastServer(RequestServer):
    """See the module."""

    def __init__(self, engine: Engine, sessions: Sessions, bodies: PayloadReader, epoch: int,
                 relocate: Callable[[memoryview], int], batch_max: int, units: UnitLimits,
                 running: str) -> None:
        super().__init__(engine, sessions, bodies, epoch, relocate, batch_max, units)
        self.form = running
        self.take_all = take_all if running == form.COMPILED else None
        self._rows_max = ROWS_MAX if running == form.COMPILED else MANY - 1
        self._path = Path(engine, sessions.by_id, self.looks, self._ok, epoch, batch_max)
        engine.move_offsets = self._path.move_offsets

    @property
    def fast(self) -> int:
        return self._path.taken

    def handle(self, raw: bytes) -> None:
        self.recent.under_way = raw
        try:
            if not self.stopping and self._path.handle(raw):
                return
        except OmqError as error:
            self._refuse(raw, error)
            return
        super().handle(raw)

    def _refuse(self, raw: bytes, error: OmqError) -> None:
        request = REQUEST.unpack(raw)
        self.engine.books.refused()
        self._refused.append((self.sessions.by_id[request[_CLIENT]], request[_SEQUENCE], error))

    def dispatch(self) -> None:
        self.recent.under_way = b""
        self.looks.look()
        self.engine.tick()
        if not self.stopping:
            self._path.dispatch(self._given)
        self._given += [(waiter, []) for waiter in self.engine.expire()]

    def release(self) -> None:
        if fault.armed():
            super().release()
            return
        lsn = self.engine.last_lsn
        answered: list[Session] = []
        self._path.answer(answered, lsn)
        self._ok.clear()
        for session, sequence, error in self._refused:
            if not session.gone:
                session.refuse(sequence, error)
                answered.append(session)
        self._refused.clear()
        self._give(answered, lsn)
        self._path.announce(answered)
        self.sessions.close_gone()

    def _give(self, answered: list[Session], lsn: int) -> None:
        engine, path, sessions = self.engine, self._path, self.sessions.by_id
        for waiter, entries in self._given:
            session = sessions.get(waiter.party.client)
            if session is None:
                continue
            session.waiter = None
            self.looks.after(session)
            if session.trusted and len(entries) <= self._rows_max:
                path.give(session, waiter.sequence, entries, lsn)
            else:
                engine.clients.answered(waiter.party)
                write_given(engine.index, session, waiter.sequence, entries, self.bodies, lsn)
            answered.append(session)
        self._given.clear()

    def close(self) -> None:
        self.engine.move_offsets = self.engine.move_each
        del self._path
