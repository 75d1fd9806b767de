"""What clients ask over the control connection, carried out by the manager's main loop.

    register  a new client, or one that lost its manager: its token, channel, and what became of its
              request under way          open    number of a queue
    name      name of a queue number
    reader    register as a reader      unread  no longer one      cancel  end the wait for messages
    bye       good-bye                  checkpoint, room  of pool.writer: pool_plane
    selects   see opening
    locate, fetch, container, contain, discard    bodies: see body_plane
    state, failure  of a message: cancelling, failing
    see       rows of the queue that it reads: seeing
    status    counters, for tools       operate, free, recall, resolve  operator_plane
    units     units of work in doubt, of this user or, who may `admin` POISON, of all
    standby   how far a standby has synced: held_replies
    lease     until when this primary may acknowledge, as its keeper says: leased_replies
    queue, temporary  queues are made, changed and removed: queue_plane

Every question is one JSON line and gets one JSON line: {"status": 0, ...} or the error's status and
fields. Nothing in a line is believed: wrong types are BadRequest.

Users other than the spool's owner and root send their requests here too, in a line that begins with
REQUEST_MARK: a queue that they could write to they could fill. Lines are taken in turns
(ipc.server.doors) and a connection that says too much that is not a question is closed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Protocol

from omq.base import events, names
from omq.base.errors import BadRequest, NotRegistered, OmqError, UnitOpen
from omq.base.event_log import ERROR, REPORT, WARNING, EventLog
from omq.base.rated_log import RatedLog
from omq.base.settings import Settings
from omq.core.engine.engine import Engine
from omq.core.engine.reader_notes import read as read_note
from omq.format.index import Counter
from omq.format.wire import BELL, REQUEST_MARK, is_of, payload_bytes
from omq.ipc.server.bell import give_bell
from omq.ipc.server.body_plane import BodyPlane
from omq.ipc.server.doorkeeper import Doorkeeper
from omq.ipc.server.doors import Door, Turn
from omq.ipc.server.failure_questions import Failing
from omq.ipc.server.open_queues import Opening
from omq.ipc.server.operator_plane import OperatorPlane
from omq.ipc.server.pool_plane import PoolPlane
from omq.ipc.server.queue_plane import QueuePlane
from omq.ipc.server.registration import Registrar
from omq.ipc.server.request_server import RequestServer
from omq.ipc.server.sessions import Session, Sessions, say
from omq.ipc.server.units_plane import UnitsPlane

Question = dict[str, Any]


class Watching(Protocol):
    """Who hears of what happens to clients."""

    def aborted(self, session: Session, messages: int) -> None:
        """It ended without saying so; `messages` came back from it."""

    def denied(self, uid: int, error: OmqError) -> None:
        """What it asked for was refused."""


class ControlPlane:
    """See the module."""

    def __init__(self, server: RequestServer, doorkeeper: Doorkeeper, registrar: Registrar,
                 log: EventLog, rated: RatedLog, settings: Settings, epoch: int) -> None:
        self._server = server
        self._sessions: Sessions = server.sessions
        self._engine: Engine = server.engine
        self._doors, self._waiting = doorkeeper, doorkeeper.ring.users
        self._registrar = registrar
        self._log, self._rated = log, rated
        self._epoch = epoch
        self._bad_lines_max = settings.bad_lines_max
        self._share_ns = settings.uid_turn_us * 1000
        registrar.reader = self._reader
        self._watching: Watching | None = None
        self._opening = Opening(self._engine)
        self.bodies = BodyPlane(server, doorkeeper, self._number, self._refuse)
        self._operations: dict[str, Callable[[Session, Question], Question]] = {
            "open": self._opening.open, "name": self._opening.name,
            "reader": self._reader, "bell": self._bell, "unread": self._unread,
            "selects": self._opening.selects,
            "claim": registrar.claim, "cancel": self._cancel, "bye": self._bye,
            "status": self._status, **self.bodies.operations}
        self._operations |= PoolPlane(self._engine, self._sessions, self._number).operations
        self._operations |= {"units": UnitsPlane(self._engine, self._sessions).units,
                             **server.cancelling.operations,
                             "failure": Failing(self._engine, self._sessions).failure}
        self.operators = OperatorPlane(self._engine, self._sessions, log, self._number, self._free,
                                       settings.operator_undo_s)
        self.queues = QueuePlane(server, settings, log, self.operators.answer_later)
        self._later = {**self.operators.later, "queue": self.queues.queue,
                       "temporary": self.queues.temporary, "standby": server.standby,
                       "lease": server.lease, **self.bodies.later}

    def watched_by(self, watching: Watching) -> None:
        """Somebody hears of it from now on."""
        self._watching = watching

    def drain(self) -> bool:
        """The doors' turn in this group; True: there was something but requests, which say so
        themselves. What is left comes with the next one, which is woken."""
        doors = self._doors
        if doors.failure is not None:
            raise doors.failure
        if not self._waiting and not self.bodies.finished:
            return False
        told = self.bodies.tell_made()
        turn, requests = Turn(self._share_ns), list[bytes]()
        self._server.recent.group(self._engine.now_ns, requests)
        while not turn.over and (door := doors.ring.take(turn)) is not None:
            before = len(requests)
            turn.charge(door.uid, self._serve(door, requests))
            told = told or len(requests) == before
        if doors.ring:
            doors.wake()
        return told

    def _serve(self, door: Door, requests: list[bytes]) -> int:
        """One line of a door, or its end. How many bytes it brought to be written."""
        if door.closed:
            return 0
        session = self._sessions.by_door.get(id(door))
        line, size = door.take_line(), 0
        if line is None:
            if door.ended:  # without "bye", or its process ended: either way the reader is lost
                if session is not None:
                    self.end(session, died=True)
                self._doors.close(door)
            else:
                self._doors.rearm(door)
            return 0
        if line.startswith(REQUEST_MARK):
            size = self._request(door, session, line, requests)
        else:
            self._with_descriptor(door, session, line)
        if door.bad > self._bad_lines_max:
            self._rated.event(events.DOOR_CLOSED, WARNING, door.uid, uid=door.uid, lines=door.bad)
            door.ended = True
            door.received.clear()
        if door.ended or b"\n" in door.received:
            self._doors.ring.add(door)
        else:
            self._doors.rearm(door)
        return size

    def _with_descriptor(self, door: Door, session: Session | None, line: bytes) -> None:
        """A question, with what came with it. The door is not read meanwhile: the descriptor of the
        next question cannot be taken for this one's, however soon the answer is there."""
        descriptor = door.take_descriptor()
        if session is None or descriptor < 0:
            self._line(door, session, line)
        else:
            session.descriptor = descriptor
            try:
                self._line(door, session, line)
            finally:
                session.descriptor = -1
        if descriptor >= 0:
            os.close(descriptor)

    def _request(self, door: Door, session: Session | None, line: bytes, requests: list[bytes]
                 ) -> int:
        """A request as it would lie on the request queue. It must be this connection's own."""
        try:
            raw = bytes.fromhex(line[len(REQUEST_MARK) :].decode("ascii"))
        except ValueError:
            raw = b""
        if session is None or session.gone or not is_of(raw, session.party.client, session.token):
            self._engine.books.garbage()
            door.bad += 1
            return 0
        requests.append(raw)
        self._server.handle(raw)
        return payload_bytes(raw)

    def garbage(self) -> None:
        """Something was on the request queue that can be nobody's request."""
        self._engine.books.garbage()
        self._rated.event(events.GARBAGE_TAKEN, WARNING, "queue")

    def _line(self, door: Door, session: Session | None, line: bytes) -> None:
        try:
            question = json.loads(line)
            if not isinstance(question, dict):
                raise BadRequest(reason="a question is a JSON object")
            operation = str(question.get("op"))
            self._server.recent.question(self._engine.now_ns, operation, session)
            if operation == "register":
                answer = self._registrar.register(door, session, question)
            elif session is None:
                raise NotRegistered
            elif operation in self._later:  # answered after the commit
                self._later[operation](session, question)
                return
            elif operation in self._operations:
                answer = self._operations[operation](session, question)
            else:
                raise BadRequest(reason=f"unknown operation {names.escape(operation)}")
            door.bad = 0  # only those in a row tell a stranger from a program with a mistake
            self._server.say(door, {"status": 0, **answer})
        except OmqError as error:
            self._refuse(door, error)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            self._refuse(door, BadRequest(reason=f"malformed question: {names.escape(str(error))}"))

    def _refuse(self, door: Door, error: OmqError) -> None:
        self._engine.books.refused()
        if self._watching is not None:
            self._watching.denied(door.uid, error)
        door.bad += isinstance(error, (BadRequest, NotRegistered))
        self._rated.event(events.REQUEST_REFUSED, WARNING, door.uid, uid=door.uid,
                          reason=str(error))
        fields = {k: v if isinstance(v, int) else str(v) for k, v in error.fields.items()}
        say(door, {"status": error.status, "fields": fields})

    # questions

    def _number(self, name: str) -> int:
        return self._engine.queues.number(names.escape(name))

    def _reader(self, session: Session, question: Question) -> Question:
        number = self._opening.read(names.escape(str(question["queue"])),
                                   int(question.get("number", 0)))
        self._sessions.check(session, "get", number)
        if session.party.active and not session.queue:
            raise UnitOpen(what="a unit of work", wanted="the reader")
        if session.queue and session.queue != number:
            raise BadRequest(reason="one reader a connection; it reads another queue already")
        session.queue, session.auxiliary = number, bool(question.get("auxiliary"))
        session.prompt = bool(question.get("prompt"))
        give_bell(session, question)
        self._engine.clients.reads(session.party, session.name, number,
                                   auxiliary=session.auxiliary)
        self._opening.selects(session, question)
        return {"queue": number}

    def _bell(self, session: Session, question: Question) -> Question:
        give_bell(session, {BELL: True})
        return {}

    def _unread(self, session: Session, question: Question) -> Question:
        self._engine.clients.reads_no_more(session.party, session.name, session.queue)
        self._engine.wanted.forget(session.party.client, session.queue)
        session.queue = 0
        return {}

    def _cancel(self, session: Session, question: Question) -> Question:
        session.cancelled = int(question.get("sequence", 0))  # it may lie on the request queue yet
        if session.waiter is not None:
            self._engine.cancel(session.waiter)
        return {}

    def _bye(self, session: Session, question: Question) -> Question:
        """The last one of its connection: who registers anew comes in anew."""
        self.end(session, died=False)
        session.door.received.clear()
        session.door.ended = True
        return {}

    def _status(self, session: Session, question: Question) -> Question:
        counters = self._engine.index.counters
        return {"counters": {c.name.lower(): counters[c] for c in Counter}, "epoch": self._epoch}

    # the end of a client

    def end(self, session: Session, *, died: bool, freed: bool = False) -> None:
        """A client is gone: what it held comes back; untouched if it left in order or an operator
        released it."""
        if session.gone:
            return
        self._server.carry_out(session)
        self._server.units.forget(session)
        self.bodies.large.forget(session)
        waiters = [session.waiter] if session.waiter is not None else []
        evidence: dict[str, object] = {"reader": session.name}
        noted = read_note(session.note) if session.prompt else None
        returned = self._engine.forget(session.party, waiters, evidence, orderly=not died,
                                       freed=freed, noted=noted)
        self._engine.clients.gone(session.party, session.name, session.queue)
        self._engine.wanted.forget(session.party.client, session.queue)
        self._sessions.remove(session)
        self._engine.clients.count(len(self._sessions.by_id), self._sessions.rows_high)
        if died and self._watching is not None:
            self._watching.aborted(session, returned)
        if freed:
            self._log.event(events.READER_FREED, WARNING, uid_of_reader=session.party.uid,
                            pid_of_reader=session.party.pid, name=session.name, messages=returned)
        elif died and returned:
            self._rated.event(events.READER_LOST, ERROR, session.party.uid, uid=session.party.uid,
                              pid_of_reader=session.party.pid, name=session.name,
                              messages=returned)
        elif died:
            self._rated.event(events.CLIENT_DIED, REPORT, session.party.uid, uid=session.party.uid,
                              pid_of_client=session.party.pid, name=session.name)

    def _free(self, session: Session) -> None:
        """Its process may work on: what it then says of these messages does not count."""
        self.end(session, died=False, freed=True)
        self._doors.close(session.door)
