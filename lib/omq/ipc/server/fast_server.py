"""The request server with the fast path in front of it (omq.fast).

What is plain is done there, all else goes the way of RequestServer with untouched bytes. While a
crash point is armed a turn goes that way too, for all points lie on it.
"""

from __future__ import annotations

from collections.abc import Callable

from omq.base import fault, form
from omq.base.errors import OmqError
from omq.core.engine.engine import Engine
from omq.core.engine.waiting import Waiter
from omq.fast import intake
from omq.fast.group_commit import Turn
from omq.fast.plain_groups import PlainGroups
from omq.fast.reply import ROWS_MAX
from omq.format.wire import REQUEST, Operation
from omq.ipc.server import foreign_messages
from omq.ipc.server.loop_parts import LoopParts
from omq.ipc.server.next_reply import write_given
from omq.ipc.server.request_server import RequestServer
from omq.ipc.server.sessions import Session, Sessions
from omq.ipc.server.units import UnitLimits
from omq.storage.payloads import PayloadReader

_SYNCED = int(Operation.SYNCED)
_CLIENT, _SEQUENCE = (REQUEST.names.index(name) for name in ("client", "sequence"))


class FastServer(RequestServer):
    """See the module."""

    def __init__(self, engine: Engine, sessions: Sessions, bodies: PayloadReader, epoch: int,
                 relocate: Callable[[memoryview], int], batch_max: int, units: UnitLimits,
                 running: str) -> None:
        super().__init__(engine, sessions, bodies, epoch, relocate, batch_max, units)
        self.form, self.foreign = running, foreign_messages
        self.intake = intake if running == form.COMPILED else None
        self._turn = Turn(self, epoch, batch_max, self._ok, self._given,
                          ROWS_MAX)
        self._path = self._turn.path
        self._plain: PlainGroups | None = None

    @property
    def fast(self) -> int:
        return self._path.taken

    def group(self, batch: list[bytes], wall_ns: int, mono_ns: int, drain: Callable[[], bool]
              ) -> None:
        if fault.armed():
            self._turn.stir()
            super().group(batch, wall_ns, mono_ns, drain)
        else:
            self._turn.run(batch, wall_ns, mono_ns, drain)

    def go_on_with(self, parts: LoopParts) -> None:
        if self.intake is not None:
            self._plain = PlainGroups(self._turn, parts, parts.requests.company)

    def go_on(self, look_due: int, ease_above: int, drain: Callable[[], bool]
              ) -> tuple[int, int] | None:
        if self._plain is None or self.held is not None or fault.armed():
            return None
        return self._plain.go_on(look_due, ease_above, drain)

    def due(self) -> int:
        return self._turn.due()

    @property
    def plain(self) -> bool:
        return self._turn.is_plain()

    def stir(self) -> None:
        self._turn.stir()

    def handle(self, raw: bytes) -> None:
        self.recent.under_way = raw
        try:
            if not self.stopping and self._path.handle(raw):
                return
        except OmqError as error:
            self.refuse(raw, error)
            return
        self._turn.stir()
        super().handle(raw)

    def hears(self, raw: bytes) -> bool:
        """A standby has so far synced: as plain as a put, where it changes nothing else. False: it
        is another request."""
        if self.held is None or len(raw) != REQUEST.size or raw[0] != _SYNCED:
            return False
        before = self.held.protection
        super().handle(raw)
        if self.held.protection is not before:
            self._turn.stir()
        return True

    def handle_unplain(self, raw: bytes) -> None:
        """A request that the fast path leaves alone."""
        super().handle(raw)

    def refuse(self, raw: bytes, error: OmqError) -> None:
        """The answer to a request that the fast path could not carry out."""
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
        else:
            self._turn.release()

    def answer_refused(self, answered: list[Session]) -> None:
        """The errors of this group; who got one is added to `answered`."""
        for session, sequence, error in self._refused:
            if not session.gone:
                session.refuse(sequence, error)
                answered.append(session)
        self._refused.clear()

    def give_unplain(self, session: Session, waiter: Waiter, entries: list[int], lsn: int) -> None:
        """Hand-outs to a member, or more than the fast path writes."""
        self.engine.clients.answered(waiter.party)
        write_given(self.engine.index, session, waiter, entries, self.bodies, lsn)

    def close(self) -> None:
        self._turn.close()
        del self._path, self._turn, self._plain
