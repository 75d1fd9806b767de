"""The manager's side of units of work (ADR 0034): what a client stages, and its end.

    TAKE      messages of a queue are handed out to the client, as to a reader
    STAGE     a part of what it will finish and put; kept here, nothing has happened
    COMMIT    the rest of it: all of it is carried out, in one block, or refused
    BACKOUT   messages that it took come back; what was staged is forgotten
    PREPARE   as COMMIT, but all of it is in doubt from then on (core.engine.in_doubt)
    RESOLVE   the end of a unit in doubt, of this user's programs; root and the owner end any

STAGE and COMMIT carry SETTLE rows of what was taken (`parts` of them, kind DONE), FRAME heads of
what is put (`count`) and their payloads. COMMIT says how many there are in all (`argument` rows,
`want` heads): a manager that did not see all of the unit refuses it.

Invariants: 1. a client reads queues as a reader or for a unit, never both: what it holds is then
known to be the unit's, in its death too; 2. what is staged is a copy, with containers named once
(plain parts stay the bytes that they are, see Staged);
3. a refused COMMIT leaves what was taken with the client and forgets what was staged; 4. what is
staged is bounded for each unit, for each user (half) and for all of them together.

In the middle of a crash: what was staged is gone, and nobody was promised anything.
Errors: UnitTooLarge, UnitsFull, UnitOpen, LeaseLost, BadRequest, those of a put; UnitUnknown (of
another user's too: who may not end it learns nothing), UnitResolved.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omq.base import limits
from omq.base.errors import BadRequest, OmqError, ShuttingDown, UnitOpen, UnitsFull, UnitTooLarge
from omq.base.settings import Settings
from omq.core.engine.puts import NewMessage
from omq.core.engine.settle import Verdict
from omq.core.engine.state import IDEL
from omq.core.engine.unit_facts import Facts
from omq.format.journal import FRAME
from omq.format.message import DESCRIPTOR
from omq.format.wire import GIVEN, REPLY, SETTLE, Key, Operation
from omq.ipc.server.foreign_messages import read_parts
from omq.ipc.server.request_record import ends_of
from omq.ipc.server.sessions import Session

if TYPE_CHECKING:
    from omq.ipc.server.request_record import Request
    from omq.ipc.server.server_parts import ServerParts


_HEAD = tuple(map(FRAME.names.index, (
    "queue", "priority", "flags", "size", "crc", "correlation", "lease", "argument", "length",
    "offset")))


@dataclass(frozen=True, slots=True)
class UnitLimits:
    """Of one unit, and of the memory for all. `bytes`: frames and payloads as in the journal."""

    messages: int
    bytes: int
    staged: int

    @classmethod
    def of(cls, settings: Settings) -> UnitLimits:
        """What the configuration allows and a block can hold."""
        return cls(min(settings.unit_messages_max, settings.block_frames_max),
                   min(settings.unit_bytes_max, settings.journal_file_bytes // 2),
                   settings.units_bytes_max)


@dataclass(slots=True)
class Staged:
    """What a client has said of its unit so far. Parts that are plain (omq.fast.unit_parts) are
    kept as bytes, `rows`, `heads` and `bodies`, as if one request had said them; what is not plain
    begins the lists, and ends the bytes."""

    taken: list[Verdict] = field(default_factory=list)
    new: list[NewMessage] = field(default_factory=list)
    rows: bytearray = field(default_factory=bytearray)
    heads: bytearray = field(default_factory=bytearray)
    bodies: bytearray = field(default_factory=bytearray)
    bytes: int = 0
    containers: set[str] = field(default_factory=set)

    @property
    def messages(self) -> int:
        """That it takes and puts."""
        return (len(self.taken) + len(self.new) + len(self.rows) // SETTLE.size
                + len(self.heads) // FRAME.size)

    @property
    def is_plain(self) -> bool:
        """All of it is bytes."""
        return not self.taken and not self.new

    def listed(self) -> None:
        """No part of it is bytes from here on. Nothing is looked at again: it was when it came."""
        self.taken += ends_of(memoryview(self.rows), len(self.rows) // SETTLE.size)
        bodies = memoryview(bytes(self.bodies))
        for row in FRAME.iter_unpack(self.heads):
            queue, priority, flags, size, crc, correlation, key, expiry, length, offset = (
                row[i] for i in _HEAD)
            self.new.append(NewMessage(queue, priority, flags, size, crc, correlation, key, expiry,
                                       0, bodies[offset : offset + length]))
        self.rows, self.heads, self.bodies = bytearray(), bytearray(), bytearray()


class UnitPlane:
    """See the module. `answer` notes a reply that waits for the commit; `kept`: what is staged."""

    def __init__(self, server: ServerParts, most: UnitLimits,
                 answer: Callable[[Session, int, int, int], None]) -> None:
        self._server, self._limits, self._answer = server, most, answer
        self.kept: dict[int, Staged] = {}  # by client
        self.bytes_by_user: Tally[int] = Tally()
        self.handlers: dict[int, Callable[[Session, Request], None]] = {
            int(Operation.STAGE): self._stage, int(Operation.COMMIT): self._commit,
            int(Operation.BACKOUT): self._backout, int(Operation.TAKE): self._take,
            int(Operation.PREPARE): self._prepare, int(Operation.RESOLVE): self._resolve}

    @property
    def limits(self) -> UnitLimits:
        """As they hold."""
        return self._limits

    def has_room(self, session: Session, messages: int, size: int) -> bool:
        """May its unit have so many more?"""
        return self._refusal(session, messages, size) is None

    def of(self, session: Session) -> Staged | None:
        """What it has said of its unit; None: nothing yet."""
        return self.kept.get(session.party.client)

    def keep(self, session: Session, rows: bytes, heads: bytes, bodies: bytes) -> None:
        """A plain part of a unit of which all is plain so far and that has room; the places in
        `heads` are in the bodies of all of it."""
        staged = self.kept.setdefault(session.party.client, Staged())
        self._count(session, staged, _size(len(rows) // SETTLE.size, len(heads), len(bodies)))
        staged.rows += rows
        staged.heads += heads
        staged.bodies += bodies

    def forget(self, session: Session) -> None:
        """Its client is gone, or its unit has ended."""
        staged = self.kept.pop(session.party.client, None)
        if staged is not None:
            self.bytes_by_user[session.party.uid] -= staged.bytes

    def holds(self, queue: int) -> bool:
        """A unit that is open puts there."""
        return any(new.queue == queue or queue in {part.queue for part in read_parts(
            new.payload, DESCRIPTOR.size, new.parts)}
            for staged in self.kept.values() for new in staged.new) or any(
                row[_HEAD[0]] == queue for staged in self.kept.values()
                for row in FRAME.iter_unpack(staged.heads))

    def _stage(self, session: Session, r: Request) -> None:
        try:
            self._read(session, r)
        except OmqError:
            self.forget(session)
            raise
        self._answer(session, r.sequence, r.count, 0)

    def _commit(self, session: Session, r: Request) -> None:
        units = self._server.engine.units
        self._whole(session, r, lambda staged: units.commit(
            session.party, staged.taken, staged.new, r.sequence))

    def _prepare(self, session: Session, r: Request) -> None:
        at = r.parts * SETTLE.size + r.count * FRAME.size + r.length
        name = session.request[at : at + r.queue]
        self.text(name)  # before anything else is looked at
        in_doubt = self._server.engine.in_doubt

        def prepare(staged: Staged) -> int:
            puts = sum(max(1, message.parts) for message in staged.new)
            return in_doubt.prepare(
                session.party, staged.taken, staged.new,
                self.facts(session, name, len(staged.taken), puts), r.sequence)

        self._whole(session, r, prepare)

    def facts(self, session: Session, name: memoryview, gets: int, puts: int) -> Facts:
        """Of a unit with this name, that takes and puts so many. BadRequest: it is none."""
        party = session.party
        return Facts(self.text(name), session.name, party.uid, party.pid, gets, puts)

    @staticmethod
    def text(area: memoryview) -> str:
        """The id or the name of a unit. BadRequest."""
        if len(area) > limits.UNIT_NAME_BYTES_MAX:
            most = limits.UNIT_NAME_BYTES_MAX
            raise BadRequest(reason=f"a unit's name has at most {most} bytes")
        try:
            return str(area, "utf-8")
        except ValueError as error:
            raise BadRequest(reason="the name of a unit is not UTF-8") from error

    def _whole(self, session: Session, r: Request, end: Callable[[Staged], int]) -> None:
        """The last part of a unit: all of it is carried out by `end`, or it is refused."""
        try:
            staged = self._read(session, r)
            if len(staged.taken) != r.argument or len(staged.new) != r.want:
                raise BadRequest(reason="the queue manager has not seen all of the unit of work")
            first = end(staged)
        finally:
            self.forget(session)
        for container in staged.containers:
            session.containers.pop(container, None)
        self._end(session)
        self._answer(session, r.sequence, len(staged.new), first)

    def _resolve(self, session: Session, r: Request) -> None:
        server, in_doubt = self._server, self._server.engine.in_doubt
        if server.stopping:
            raise ShuttingDown
        said = self.text(session.request[: r.length])
        unit = in_doubt.find(said, session.party)
        if unit is None:
            raise in_doubt.ended(said, session.party)
        qpool = unit.qpool
        in_doubt.end(unit, session.party, r.sequence, commit=bool(r.want))
        self._answer(session, r.sequence, 1, qpool)

    def _backout(self, session: Session, r: Request) -> None:
        self.forget(session)
        lost = self._server.engine.units.back_out(session.party, ends_of(session.request, r.parts))
        if r.want:  # the last of its requests
            self._server.engine.units.backed_out()
            self._end(session)
        self._answer(session, r.sequence, lost, 0)

    def _end(self, session: Session) -> None:
        """A client that gave up waiting (a signal) knows nothing of what it got since."""
        if not session.queue:
            self._give_up(session)
            self._server.engine.units.back_out_rest(session.party)

    def _give_up(self, session: Session) -> None:
        if session.waiter is not None and session.waiter.waiting:
            self._server.engine.drop(session.waiter)
            session.waiter = None

    def _take(self, session: Session, r: Request) -> None:
        server, engine = self._server, self._server.engine
        if session.queue:
            raise UnitOpen(what="a reader", wanted="a unit of work")
        if r.queue == IDEL or r.queue not in engine.rules:
            raise BadRequest(reason=f"queue {r.queue} is not a queue to take from")
        server.sessions.check(session, "get", r.queue)
        self._give_up(session)
        left = self._limits.messages - session.party.active
        if left <= 0:
            raise UnitTooLarge(limit=self._limits.messages, what="messages",
                               key="unit_messages_max")
        want = min(r.want, left, server.batch_max, (len(session.reply) - REPLY.size) // GIVEN.size)
        if want <= 0:
            raise BadRequest(reason="nothing is wanted")
        if r.flags not in (0, Key.CORRELATION, Key.MESSAGE_ID) or bool(r.flags) != bool(
                r.correlation):
            raise BadRequest(reason="a message id or a correlation id is asked for, or nothing")
        session.waiter = engine.wait(session.party, r.queue, want, r.sequence,
                                     session.timeout_ns(r), auxiliary=False, by=r.flags,
                                     key=r.correlation)

    def _read(self, session: Session, r: Request) -> Staged:
        """Take in a part of a unit."""
        server, area = self._server, session.request
        if server.stopping and not session.party.active:
            raise ShuttingDown
        heads = r.parts * SETTLE.size
        payloads_at = heads + r.count * FRAME.size
        if payloads_at + r.length > len(area):
            raise BadRequest(reason="the part of a unit of work does not fit the request")
        staged = self.kept.setdefault(session.party.client, Staged())
        self._grow(session, staged, _size(r.parts, r.count * FRAME.size, r.length),
                   r.parts + r.count)
        staged.listed()
        staged.taken += ends_of(area, r.parts)
        copy = memoryview(bytes(area[heads : payloads_at + r.length]))
        payloads = copy[r.count * FRAME.size :]
        known = session.containers  # they stay the session's until the commit
        free = session.containers = {name: of for name, of in known.items()
                                     if name not in staged.containers}
        try:
            for i in range(r.count):
                staged.new.append(server.new_message(session, copy, i * FRAME.size, payloads))
        finally:
            session.containers = known
        staged.containers |= known.keys() - free.keys()
        return staged

    def _grow(self, session: Session, staged: Staged, size: int, messages: int) -> None:
        refusal = self._refusal(session, messages, size)
        if refusal is not None:
            raise refusal
        self._count(session, staged, size)

    def _refusal(self, session: Session, messages: int, size: int) -> OmqError | None:
        own, uid = self._limits, session.party.uid
        staged = self.kept.get(session.party.client)
        if staged is not None:
            messages += staged.messages
        if messages > own.messages:
            return UnitTooLarge(limit=own.messages, what="messages", key="unit_messages_max")
        if size + (staged.bytes if staged is not None else 0) > own.bytes:
            return UnitTooLarge(limit=own.bytes, what="bytes", key="unit_bytes_max")
        of_all = self.bytes_by_user.total()
        others = of_all - self.bytes_by_user[uid]
        most = own.staged if session.trusted else own.staged // 2  # no user shuts out others
        if self.bytes_by_user[uid] + size > min(most, own.staged - others):
            return UnitsFull(bytes=of_all)
        return None

    def _count(self, session: Session, staged: Staged, size: int) -> None:
        staged.bytes += size
        self.bytes_by_user[session.party.uid] += size


def _size(rows: int, heads: int, bodies: int) -> int:
    """Of a part with so many messages that were taken and bytes of what is put, as in the
    journal."""
    return rows * FRAME.size + heads + bodies
