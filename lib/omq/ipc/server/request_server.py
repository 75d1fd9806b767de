"""The server side of the request queue: bytes in, engine operations, replies after the commit.

Invariants: 1. nothing in a request is believed: size, magic, version, client and token are checked
first, counts and lengths against the channel before anything is read; 2. a request that cannot be a
client's is counted and discarded, a client's wrong request is answered with its error; 3. replies
of a group are collected and released after the commit, and never block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from omq.base import form
from omq.base.errors import BadRequest, OmqError, SequenceReused, ShuttingDown
from omq.core.engine.engine import Engine
from omq.core.engine.move_many import move_many
from omq.core.engine.put_many import put_many
from omq.core.engine.puts import NewMessage
from omq.core.engine.requester_put import ask
from omq.core.engine.settle import Verdict
from omq.core.engine.state import CONTAINER, IDEL, POISON
from omq.core.engine.waiters_by_id import cursor
from omq.format.journal import FRAME
from omq.format.message import DESCRIPTOR, PART
from omq.format.wire import (
    GIVEN,
    REPLY,
    REQUEST,
    REQUEST_MAGIC,
    SETTLE,
    VERSION,
    Key,
    Operation,
    PutFlag,
)
from omq.ipc.server.cancelling import Cancelling
from omq.ipc.server.foreign_messages import read_parts, taken, taken_batch
from omq.ipc.server.group_commit import GroupCommit
from omq.ipc.server.large_bodies import named
from omq.ipc.server.loop_parts import LoopParts
from omq.ipc.server.request_record import Request, ends_of, verdicts_of
from omq.ipc.server.requests import Intake
from omq.ipc.server.sessions import Session, Sessions
from omq.ipc.server.units import UnitLimits, UnitPlane
from omq.storage.payloads import PayloadReader

_PUT_FLAGS = int(sum(PutFlag))
_ASK_FLAGS = int(PutFlag.PERSISTENT | PutFlag.GROUPED)
_KEYS = (Key.CORRELATION, Key.MESSAGE_ID, Key.CURSOR, Key.GROUP)
_PUT_AT = tuple(map(FRAME.names.index, (
    "queue", "priority", "flags", "size", "crc", "correlation", "lease", "argument", "parts",
    "length", "offset")))


class RequestServer(GroupCommit):
    """See the module."""

    def __init__(self, engine: Engine, sessions: Sessions, bodies: PayloadReader, epoch: int,
                 relocate: Callable[[memoryview], int], batch_max: int, units: UnitLimits) -> None:
        super().__init__(engine, sessions, bodies)
        self.batch_max, self._epoch, self._relocate = batch_max, epoch, relocate
        self.form = form.OFF
        self.intake: Intake | None = None
        handlers: dict[Operation, Callable[[Session, Request], None]] = {
            Operation.PUT: self._put, Operation.PUT_MANY: self._put_many,
            Operation.NEXT: self._next, Operation.SETTLE: self._settle,
            Operation.MOVE: self._move, Operation.PING: self._ping,
            Operation.RELOCATE: self._relocated, Operation.TOUCH: self._touch,
            Operation.GET: self._next, Operation.LOOK: self._look, Operation.ASK: self._ask,
            Operation.MOVE_MANY: self._move_many}
        self.units = UnitPlane(self, units, lambda *answer: self._ok.append(answer))
        self.cancelling = Cancelling(self, lambda *answer: self._ok.append(answer))
        handlers[Operation.CANCEL] = self.cancelling.cancel
        handlers[Operation.SYNCED] = self._synced
        self._handlers = {int(operation): handler for operation, handler in handlers.items()
                          } | self.units.handlers

    def handle(self, raw: bytes) -> None:
        """One message of the request queue."""
        self.recent.under_way = raw
        if len(raw) != REQUEST.size:
            self.engine.books.garbage()
            return
        (operation, priority, flags, queue, count, client, length, token, sequence, size, crc,
         magic, version, correlation, want, argument, _entry, parts, _spare, expiry
         ) = REQUEST.unpack(raw)
        session = self.sessions.by_id.get(client)
        if (session is None or token != session.token or magic != REQUEST_MAGIC
                or version != VERSION):
            self.engine.books.garbage()
            return
        self.engine.clients.asked(session.party)
        try:
            if sequence <= session.sequence:
                raise SequenceReused(sequence=sequence)
            session.sequence = sequence
            handler = self._handlers.get(operation)
            if handler is None or length > len(session.request):
                raise BadRequest(reason=f"operation {operation}, {length} bytes")
            handler(session, Request(operation, priority, flags, queue, count, length, sequence,
                                     size, crc, correlation, want, argument, parts, expiry))
        except OmqError as error:
            self.engine.books.refused()
            self._refused.append((session, sequence, error))

    def may_put(self, session: Session, queue: int) -> None:
        if self.stopping and not session.party.active:  # who holds a message may finish with it
            raise ShuttingDown
        if queue in (IDEL, POISON) or not (queue in self.engine.rules or queue in session.opened):
            raise BadRequest(reason=f"queue {queue} takes no messages from clients")
        self.sessions.check(session, "put", queue)

    def _put(self, session: Session, r: Request) -> None:
        payload = taken(session.party, session.request[: r.length], r.parts,
                        (r.flags, r.size, r.crc, r.correlation, r.expiry), r.want)
        if r.parts:
            self._check_parts(session, payload, r.parts)
        else:
            self.may_put(session, r.queue)
        container = named(session, payload, r.size) if r.flags & CONTAINER else ""
        new = NewMessage(r.queue, r.priority, r.flags & _PUT_FLAGS, r.size, r.crc, r.correlation,
                         r.want, r.expiry, r.parts, payload)
        qpool = self.engine.put(session.party, new, r.sequence)
        session.containers.pop(container, None)
        self._ok.append((session, r.sequence, 1, qpool))

    def _check_parts(self, session: Session, payload: bytes | memoryview, count: int) -> None:
        for part in read_parts(payload, DESCRIPTOR.size, count):
            self.may_put(session, part.queue)

    def _put_many(self, session: Session, r: Request) -> None:
        self.may_put(session, r.queue)
        heads = r.count * FRAME.size
        if r.count > self.batch_max:
            raise BadRequest(reason=f"a batch has at most {self.batch_max} messages")
        if not r.count or heads + r.length > len(session.request):
            raise BadRequest(reason=f"{r.count} messages of {r.length} bytes do not fit")
        area = taken_batch(session.party, session.request, r.count, r.length)
        qpool = put_many(self.engine, session.party, area, area[heads : heads + r.length],
                         r.count, r.queue, r.sequence)
        self._ok.append((session, r.sequence, r.count, qpool))

    def _ping(self, session: Session, r: Request) -> None:
        self._ok.append((session, r.sequence, 0, 0))

    def _synced(self, session: Session, r: Request) -> None:
        if self.held is None:
            raise BadRequest(reason="nothing waits for standbys here (standby_sync)")
        self.held.synced(session, r.size)

    def _settle(self, session: Session, r: Request) -> None:
        self._settle_batch(session, r)
        self._ok.append((session, r.sequence, r.count, 0))
        self.looks.after(session)

    def _settle_batch(self, session: Session, r: Request) -> None:
        if r.count * SETTLE.size + r.length > len(session.request):
            raise BadRequest(reason=f"{r.count} settlements do not fit")
        verdicts = self.looks.without(session, verdicts_of(session.request, r))
        session.lost = self.engine.settle(session.party, verdicts, r.sequence)

    def _touch(self, session: Session, r: Request) -> None:
        if r.count * SETTLE.size + r.length > len(session.request):
            raise BadRequest(reason=f"{r.count} messages do not fit")
        verdicts = verdicts_of(session.request, r)
        session.lost = self.engine.renew(session.party, verdicts)
        self.engine.by_id.hear(session.party, verdicts)
        self._ok.append((session, r.sequence, r.count, 0))

    def _next(self, session: Session, r: Request) -> None:
        if not session.queue:
            raise session.no_reader()
        gets, key = r.operation == Operation.GET, r.correlation
        by = r.flags if gets else 0
        if gets and (session.queue == IDEL or by not in _KEYS or not (key or by == Key.GROUP)):
            raise BadRequest(reason="a message id or a correlation id is asked for, not on IDEL")
        if r.count:
            self._settle_batch(session, r)
        if not r.want:
            self._ok.append((session, r.sequence, 0, 0))
            return
        self._wait(session, r, by, cursor(key, r.size) if by == Key.CURSOR else key)

    def _look(self, session: Session, r: Request) -> None:
        if session.queue in (0, IDEL) or r.count or not r.want:
            raise BadRequest(reason="only a reader looks, to settle nothing")
        self.engine.wanted.arrivals.begin(session.party.client, session.queue)
        self._wait(session, r, int(Key.ARRIVAL), 0)

    def _ask(self, session: Session, r: Request) -> None:
        """A request, and the wait for its reply, which has its id as correlation id."""
        rows = r.count * SETTLE.size
        if not session.queue:
            raise session.no_reader()
        if (session.queue == IDEL or not r.want or r.parts or r.flags & ~_ASK_FLAGS
                or r.count >= self.batch_max or rows + r.length > len(session.request)):
            raise BadRequest(reason="a request without a container or id of its own, by a reader "
                             "of replies")
        payload = taken(session.party, session.request[rows : rows + r.length], 0,
                        (r.flags, r.size, r.crc, r.correlation, r.expiry), 0)
        self.may_put(session, r.queue)
        new = NewMessage(r.queue, r.priority, r.flags, r.size, r.crc, r.correlation, 0, r.expiry, 0,
                         payload)
        verdicts = self.looks.without(session, [
            Verdict(kind, entry, qpool, lease, argument) for kind, _, _, entry, qpool, lease,
            argument, _, _ in SETTLE.iter_unpack(session.request[:rows])])
        qpool, key, session.lost = ask(self.engine, session.party, verdicts, new, r.sequence)
        self.begun.append((session, r.sequence, qpool))
        self._wait(session, r, int(Key.CORRELATION), key, qpool)

    def _wait(self, session: Session, r: Request, by: int, key: int, put: int = 0) -> None:
        want = min(r.want, self.batch_max, (len(session.reply) - REPLY.size) // GIVEN.size)
        if session.waiter is not None and session.waiter.waiting:  # given up: one at a time
            self.engine.drop(session.waiter)
        session.waiter = self.engine.wait(session.party, session.queue, want, r.sequence,
                                          session.timeout_ns(r), auxiliary=session.auxiliary,
                                          by=by, key=key)
        session.waiter.put = put

    def _move(self, session: Session, r: Request) -> None:
        area = session.request
        head = SETTLE.size + r.parts * PART.size
        if head + r.count * FRAME.size + r.length > len(area):
            raise BadRequest(reason="the disposition does not fit the request")
        if r.want and not session.queue:
            raise session.no_reader()
        kind, _, _, entry, qpool, lease, argument, _, _ = SETTLE.unpack_from(area, 0)
        queues = read_parts(area, SETTLE.size, r.parts)
        for part in queues:
            self.may_put(session, part.queue)
        with _named_once(session):
            new = self._new_messages(session, r, head)
            first = self.engine.move(session.party, Verdict(kind, entry, qpool, lease, argument),
                                     queues, new, r.sequence)
        if not r.want:
            self._ok.append((session, r.sequence, r.count, first))
            return
        self.begun.append((session, r.sequence, first))
        self._wait(session, r, 0, 0, first)

    def _move_many(self, session: Session, r: Request) -> None:
        """Messages of a reader of batches that are finished, and those that take their place."""
        area, heads, most = session.request, r.parts * SETTLE.size, self.batch_max
        if heads + r.count * FRAME.size + r.length > len(area):
            raise BadRequest(reason="the dispositions do not fit the request")
        if not session.queue or r.parts > most or r.count > most:
            raise BadRequest(reason=f"a reader moves {most} messages at once at most")
        with _named_once(session):
            first = move_many(self.engine, session.party, ends_of(area, r.parts),
                              self._new_messages(session, r, heads), r.sequence)
        self._ok.append((session, r.sequence, r.count, first))

    def _new_messages(self, session: Session, r: Request, heads: int) -> list[NewMessage]:
        """Those of the request, whose FRAMEs lie there, before their payloads."""
        area, at = session.request, heads + r.count * FRAME.size
        payloads = area[at : at + r.length]
        return [self.new_message(session, area, heads + i * FRAME.size, payloads)
                for i in range(r.count)]

    def new_message(self, session: Session, area: memoryview, at: int, payloads: memoryview
                    ) -> NewMessage:
        """The message whose FRAME lies there, looked at."""
        row = FRAME.unpack_from(area, at)
        (queue, priority, flags, size, crc, correlation, key, expiry, parts, length, offset
         ) = (row[i] for i in _PUT_AT)
        if offset + length > len(payloads):
            raise BadRequest(reason="a message does not fit the request")
        payload = taken(session.party, payloads[offset : offset + length], parts,
                        (flags, size, crc, correlation, expiry), key)
        if flags & CONTAINER:
            session.containers.pop(named(session, payload, size), None)
        if parts:
            self._check_parts(session, payload, parts)
        else:
            self.may_put(session, queue)
        return NewMessage(queue, priority, flags & _PUT_FLAGS, size, crc, correlation, key, expiry,
                          parts, payload)

    def _relocated(self, session: Session, r: Request) -> None:
        self.sessions.check(session, "admin", POISON)
        self._ok.append((session, r.sequence, self._relocate(session.request[: r.length]), 0))

    def go_on_with(self, parts: LoopParts) -> None:
        """What `go_on` looks at."""

    def go_on(self, _look_due: int, _ease_above: int, _drain: Callable[[], bool]
              ) -> tuple[int, int] | None:
        """After a group of plain requests: further ones, as long as they are plain. When the last
        one began (monotonic ns), and its requests; None: the loop turns by itself."""
        return None

    def stir(self) -> None:
        """Something was done to the engine outside of a turn."""

    def close(self) -> None:
        """Nothing holds a view of the tables any more."""


@contextmanager
def _named_once(session: Session) -> Iterator[None]:
    """Each container is named once, also within a request; a refused request has named none."""
    known = dict(session.containers)
    try:
        yield
    except OmqError:
        session.containers = known
        raise
