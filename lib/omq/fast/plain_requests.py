"""One request after the other: which kind of plain request it is, if any, and the replies after the
commit. As RequestServer.handle and release, on the same lists of replies."""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.engine.engine import Engine
from omq.core.engine.state import CONTAINER, IDEL
from omq.fast.client_state import ClientState
from omq.fast.columns import Columns
from omq.fast.done import Dones
from omq.fast.frames import Frames
from omq.fast.give import Gives
from omq.fast.groups import Rings
from omq.fast.in_doubt import Doubts
from omq.fast.limited_keys import Keys
from omq.fast.look_line import LookLine
from omq.fast.move import Moves
from omq.fast.party import Party
from omq.fast.put import Puts
from omq.fast.reply import Replies
from omq.fast.request import Request
from omq.fast.requester_put import Asks
from omq.fast.unit import Units
from omq.fast.unit_parts import Parts
from omq.fast.waiter import Waiter
from omq.format.wire import SETTLE, Key, Operation

(_PUT, _PUT_MANY, _NEXT, _GET, _SETTLE, _MOVE, _TAKE, _COMMIT, _ASK, _PREPARE, _RESOLVE,
 _STAGE) = (
    int(Operation.PUT), int(Operation.PUT_MANY), int(Operation.NEXT), int(Operation.GET),
    int(Operation.SETTLE), int(Operation.MOVE), int(Operation.TAKE), int(Operation.COMMIT),
    int(Operation.ASK), int(Operation.PREPARE), int(Operation.RESOLVE),
    int(Operation.STAGE))
_CORRELATION, _MESSAGE_ID, _GROUP, _IDEL = (
    int(Key.CORRELATION), int(Key.MESSAGE_ID), int(Key.GROUP), IDEL)
_CONTAINER, _ROW, _MOST = CONTAINER, SETTLE.size, 1024


class Path:
    """See the module. `sessions`: the registered ones (ipc.server.sessions); `looks`: at their
    notes (ipc.server.reader_notes); `foreign`: ipc.server.foreign_messages; `done`: answers that
    wait for the commit, (session, request, count, QPoolId) each; `begun`: what was put and waits
    on, (session, request, QPoolId) each; `taken`: requests so far; `units`: ipc.server.units."""

    def __init__(self, engine: Engine, columns: Columns, sessions: Any, looks: LookLine,
                 foreign: Any, done: list[Any], begun: list[Any], epoch: int, batch_max: int,
                 units: Any) -> None:
        core = engine.core
        self._begun = begun
        self._core, self._sessions, self._done = core, sessions.by_id, done
        self._batch_max, self._looks, self._foreign = batch_max, looks, foreign
        self._c, self._frames = columns, Frames(core.block)
        self._request = Request()
        most = max(_MOST, batch_max, units.limits.messages)
        self._keys = keys = Keys(core, self._c, most)
        rings = Rings(core, self._c, keys)
        self._puts = Puts(core, self._c, self._frames, rings, keys, sessions, most)
        self._dones = Dones(core, self._c, self._frames, rings, keys, most)
        self._parts = parts = Parts(core, self._frames, self._puts, units)
        self._units = Units(core, self._c, self._frames, self._puts, self._dones, parts, units)
        self._doubts = Doubts(core, self._c, self._frames, self._puts, self._dones, keys,
                              engine.in_doubt, parts, units)
        self._moves = Moves(core, self._frames, self._puts, self._dones)
        self._asks = Asks(core, self._frames, self._puts, self._dones)
        self._gives = Gives(engine, self._c, self._frames, rings, keys)
        self._replies = Replies(self._c, epoch)
        self.taken = 0

    def handle(self, raw: bytes) -> cython.bint:
        """Carry out a plain request. False: it is none, and nothing has changed. SpoolFull,
        DiskError: it is refused, as the engine would, and nothing but its number was taken."""
        r = self._request
        self._keys.forget()
        if not r.read(raw):
            return False
        known: Any = self._sessions.get(r.client)
        if known is None:
            return False
        session: ClientState = known
        party: Party = session.party
        if (r.token != session.token or r.sequence <= session.sequence
                or r.length > len(session.request)):
            return False
        area = session.request if party.owns else self._looked_at(r, session.request)
        if area is None:
            return False
        self._c.r_request[party.slot] = self._core.now_ns
        qpool: cython.ulonglong = 0
        count: cython.uint = r.count
        many: cython.Py_ssize_t
        if r.operation == _NEXT or r.operation == _GET:
            if not self._next(r, session, party):
                return False
            if r.want:
                self.taken += 1
                return True
            count = 0
        elif r.operation == _TAKE:
            left: cython.Py_ssize_t = self._units.left(r, session, party)
            if not left or not self._gives.plain(r, session, self._batch_max):
                return False
            self._gives.wait(r, session, party, min(left, self._batch_max), r.queue, 0, 0, 0)
            self.taken += 1
            return True
        elif r.operation == _ASK:
            return self._ask(r, session, area, party)
        elif r.operation == _MOVE and r.want:
            return self._move_and_next(r, session, area, party)
        elif r.operation == _SETTLE:
            if not self._dones.settle(r, session, party):
                return False
            self._looks.answered(session, self._core.mono_ns)
        else:
            qpool = self._core.next_qpool
            if r.operation == _COMMIT or r.operation == _PREPARE or r.operation == _STAGE:
                many = self._unit(r, session, area, party)
                if many < 0:
                    return False
                count = many
                if r.operation == _STAGE or (not count and r.operation == _COMMIT):
                    qpool = 0
            elif r.operation == _RESOLVE:
                count, qpool = 1, self._doubts.commit(r, session, party)
                if not qpool:
                    return False
            elif r.operation == _MOVE:
                if not self._moves.reply(r, session, area, party):
                    return False
            elif r.operation == _PUT:
                count = 1
                if not self._puts.one(r, session, area, party):
                    return False
            elif r.operation != _PUT_MANY or not self._puts.many(r, session, area, party,
                                                                 self._batch_max):
                return False
        self.taken += 1
        self._done.append((session, r.sequence, count, qpool))
        return True

    def _unit(self, r: Request, session: ClientState, area: Any, party: Party) -> cython.Py_ssize_t:
        """A part of a unit of work, or its end; how many messages it puts. -1: it is not plain."""
        if r.operation == _COMMIT:
            return self._units.commit(r, session, area, party)
        if r.operation == _PREPARE:
            return self._doubts.prepare(r, session, area, party)
        return r.count if self._parts.stage(r, session, area) else -1

    def _looked_at(self, r: Request, area: Any) -> Any:
        """The bytes of a member's request as they may be used: what he puts is copied and must be
        what he says about it. None: it is the engine's, which says what is wrong."""
        operation: cython.uint = r.operation
        if operation in (_PUT, _ASK):
            if r.parts or r.flags & _CONTAINER:
                return None
            return self._foreign.copy_single(
                area, r.count * _ROW if operation == _ASK else 0, r.length,
                (r.flags, r.size, r.crc, r.correlation, r.expiry),
                r.want if operation == _PUT else 0)
        if operation == _PUT_MANY and r.count <= self._batch_max:
            return self._foreign.copy_several(area, 0, r.count, r.length, 0)
        if operation == _MOVE and not r.parts and r.count == 1:
            return self._foreign.copy_several(area, _ROW, 1, r.length, 0)
        if operation in (_COMMIT, _PREPARE, _STAGE):
            return self._foreign.copy_several(area, r.parts * _ROW, r.count, r.length,
                                              r.queue if operation == _PREPARE else 0)
        return area

    def _next(self, r: Request, session: ClientState, party: Party) -> cython.bint:
        """Settlements, and the wait after them."""
        by: cython.uint = 0
        if r.operation == _GET:
            by = r.flags
            if session.queue == _IDEL or (by != _GROUP and (
                    (by != _CORRELATION and by != _MESSAGE_ID) or not r.correlation)):
                return False
        if r.want and not (session.queue and self._gives.plain(r, session, self._batch_max)):
            return False
        if (r.count or not r.want) and not self._dones.settle(r, session, party):
            return False
        if r.want:
            self._gives.wait(r, session, party, self._batch_max, session.queue, by, r.correlation,
                             0)
        return True

    def _ask(self, r: Request, session: ClientState, area: Any, party: Party) -> cython.bint:
        """A request, and the wait for its reply."""
        qpool: cython.ulonglong = self._core.next_qpool
        if (session.noted or not session.queue
                or not self._gives.plain(r, session, self._batch_max)
                or not self._asks.ask(r, session, area, party, self._batch_max)):
            return False
        self._begun.append((session, r.sequence, qpool))
        self._gives.wait(r, session, party, self._batch_max, session.queue, _CORRELATION,
                         self._asks.key(qpool), qpool)
        self.taken += 1
        return True

    def _move_and_next(self, r: Request, session: ClientState, area: Any, party: Party
                       ) -> cython.bint:
        """A reply, and the wait for the next request."""
        qpool: cython.ulonglong = self._core.next_qpool
        if (not session.queue or not self._gives.plain(r, session, self._batch_max)
                or not self._moves.reply(r, session, area, party)):
            return False
        self._begun.append((session, r.sequence, qpool))
        self._gives.wait(r, session, party, self._batch_max, session.queue, 0, 0, qpool)
        self.taken += 1
        return True

    def dispatch(self, given: list[Any]) -> cython.bint:
        """Messages to waiting readers; (waiter, entries) each is added to `given`. False: some were
        handed out by the engine."""
        return self._gives.dispatch(given)

    def next_token(self) -> cython.longlong:
        """As Keys.soonest."""
        return self._keys.soonest()

    def soonest(self) -> cython.longlong:
        """As Gives.soonest."""
        return self._gives.soonest()

    def answer(self, answered: list[Any], lsn: cython.ulonglong) -> None:
        """Replies to what was carried out and needs no rows; who got one is added to `answered`."""
        now: cython.longlong = self._core.now_ns
        session: ClientState
        for session, sequence, count, qpool in self._done:
            if not session.gone:
                self._replies.answer(session, sequence, count, qpool, lsn, now)
                answered.append(session)
        self._done.clear()

    def give(self, session: ClientState, waiter: Waiter, entries: list[Any], lsn: cython.ulonglong
             ) -> None:
        """The reply with these hand-outs, for one that reads the spool's files itself."""
        self._replies.given(session, waiter.sequence, entries, waiter.put, lsn, self._core.now_ns)

    def announce(self, answered: list[Any]) -> None:
        """Wake them."""
        self._replies.announce(answered)
