"""What clients ask over the control connection, carried out by the manager's main loop.

    register  a new client, or one that lost its manager: its token, channel, and what became of its
              request under way          open    number of a queue
    reader    register as a reader      unread  no longer one      cancel  end the wait for messages
    locate    where a body lies now     bye     good-bye           checkpoint  pool.writer took one
    status    counters, for tools       operate, free  operator commands: see ipc.operator_plane

Every question is one JSON line and gets one JSON line: {"status": 0, ...} or the error's status and
fields. Nothing in a line is believed: wrong types are BadRequest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from omq.base import clock, events, names
from omq.base.errors import (
    BadRequest,
    NoMessage,
    NotRegistered,
    OmqError,
    SpoolFull,
    UnknownQueue,
)
from omq.base.event_log import ERROR, REPORT, WARNING, EventLog
from omq.core.engine import Engine
from omq.core.state import Party
from omq.format.index import Counter, ReaderFlag
from omq.format.journal import FrameType
from omq.format.message import ID_PREFIX
from omq.format.poolctrl import Answered
from omq.format.wire import VERSION
from omq.ipc.doorkeeper import Door, DoorEvent, Doorkeeper, What
from omq.ipc.objects import ObjectList, make_channel
from omq.ipc.operator_plane import OperatorPlane
from omq.ipc.server import RequestServer
from omq.ipc.sessions import (
    Peer,
    Session,
    Sessions,
    is_trusted,
    new_token,
    peer_of,
    say,
    split_channel,
)

Question = dict[str, Any]
TOKEN_BYTES = 16


class ControlPlane:
    """See the module."""

    def __init__(self, server: RequestServer, doorkeeper: Doorkeeper, listed: ObjectList,
                 log: EventLog, *, uuid: bytes, epoch: int, requests: tuple[int, int],
                 owner: tuple[int, int], channel_bytes: int, threshold: int,
                 answered: dict[int, Answered]) -> None:
        self._server = server
        self._sessions: Sessions = server.sessions
        self._engine: Engine = server.engine
        self._doors = doorkeeper
        self._listed = listed
        self._log = log
        self._uuid, self._epoch = uuid, epoch
        self._requests = requests
        self._owner, self._group = owner
        self._channel_bytes, self._threshold = channel_bytes, threshold
        self._sessions.answered = answered
        self.renumber()
        self._operations: dict[str, Callable[[Session, Question], Question]] = {
            "open": self._open, "reader": self._reader, "unread": self._unread,
            "cancel": self._cancel, "locate": self._locate, "bye": self._bye,
            "checkpoint": self._checkpoint, "status": self._status}
        self.operators = OperatorPlane(self._engine, self._sessions, log, self._number, self._free)
        self._later = {"operate": self.operators.operate, "free": self.operators.free,
                       "note": self.operators.note}

    def renumber(self) -> None:
        """At the start, and after a reload: queues may have been added."""
        self._numbers: dict[str, int] = {r.name: q for q, r in self._engine.core.rules.items()}

    def drain(self) -> None:
        """All events that the doorkeeper has queued."""
        events_queue = self._doors.events
        while events_queue:
            self._event(events_queue.popleft())

    def _event(self, event: DoorEvent) -> None:
        session = self._sessions.by_door.get(id(event.door))
        if event.what is What.LINE:
            self._line(event.door, session, event.line)
        else:  # closed without "bye", or the process ended: either way the reader is lost
            if session is not None:
                self.end(session, died=True)
            self._doors.close(event.door)

    def _line(self, door: Door, session: Session | None, line: bytes) -> None:
        try:
            question = json.loads(line)
            if not isinstance(question, dict):
                raise BadRequest(reason="a question is a JSON object")
            operation = str(question.get("op"))
            self._server.recent.question(self._engine.core.now_ns, operation, session)
            if operation == "register":
                answer = self._register(door, session, question)
            elif session is None:
                raise NotRegistered
            elif operation in self._later:  # answered after the commit
                self._later[operation](session, question)
                return
            elif operation in self._operations:
                answer = self._operations[operation](session, question)
            else:
                raise BadRequest(reason=f"unknown operation {names.escape(operation)}")
            say(door, {"status": 0, **answer})
        except OmqError as error:
            self._refuse(door, error)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            self._refuse(door, BadRequest(reason=f"malformed question: {names.escape(str(error))}"))

    def _refuse(self, door: Door, error: OmqError) -> None:
        self._engine.core.t.counters[Counter.REFUSED] += 1
        self._log.event(events.REQUEST_REFUSED, WARNING, reason=str(error))
        fields = {k: v if isinstance(v, int) else str(v) for k, v in error.fields.items()}
        say(door, {"status": error.status, "fields": fields})

    # registration

    def _register(self, door: Door, session: Session | None, question: Question) -> Question:
        if session is not None:
            raise BadRequest(reason="registered already")
        if question.get("version") != VERSION:
            raise BadRequest(reason=f"protocol version {question.get('version')!r}, "
                             f"this manager speaks {VERSION}")
        name = names.check_client_name(str(question["name"]))
        old = bytes.fromhex(str(question.get("token", "")))
        if len(old) not in (0, TOKEN_BYTES):
            raise BadRequest(reason="a token has 16 bytes")
        peer = peer_of(door.connection)
        token = new_token(old or None)
        known = self._sessions.answered.get(int.from_bytes(token[:8], "little")) if old else None
        if known and known.uid != peer.uid:
            raise BadRequest(reason="the token is another user's")
        if any(s.token[:8] == token[:8] for s in self._sessions.by_id.values()):
            raise BadRequest(reason="the token is in use")
        session = self._admit(door, peer, name, token)
        in_doubt = int(question.get("in_doubt", 0))
        session.sequence = max(0, in_doubt - 1, known.sequence if known else 0)
        self._resume(session, question, known)
        answered = None
        if known and known.sequence == in_doubt:
            answered = {"sequence": in_doubt, "qpool": known.qpool, "count": known.count,
                        "lsn": known.lsn}
        return {
            "client": session.party.client, "token": token.hex(), "epoch": self._epoch,
            "channel": session.channel.segment.id, "requests": self._requests,
            "semaphore": [session.channel.semaphore.key, session.channel.semaphore.id],
            "trusted": session.trusted, "threshold": self._threshold, "answered": answered,
            "id_prefix": (ID_PREFIX + self._uuid[:12]).hex()}

    def _admit(self, door: Door, peer: Peer, name: str, token: bytes) -> Session:
        row = self._sessions.claim_row()
        try:
            self._doors.watch(door, peer.pid)
            channel = make_channel(self._listed, self._channel_bytes, peer.uid)
        except ProcessLookupError as error:
            self._sessions.return_row(row)
            raise NotRegistered from error
        except OmqError:
            self._sessions.return_row(row)
            raise
        reply, request = split_channel(channel.view)
        party = Party(self._sessions.next_id(), row, peer.pid, peer.uid,
                      int.from_bytes(token[:8], "little"),
                      owns=peer.uid in (0, self._owner, os.geteuid()))
        session = Session(party, token, name, peer.gids, door, channel, reply, request,
                          is_trusted(peer, self._owner, self._group), self._epoch)
        self._sessions.add(session)
        t, core = self._engine.core.t, self._engine.core
        t.r_pid[row], t.r_uid[row], t.r_client[row] = peer.pid, peer.uid, party.client
        t.r_started[row] = clock.process_start_ticks(peer.pid) or 0
        t.r_registered[row] = t.r_request[row] = core.now_ns
        t.r_response[row] = t.r_processed[row] = t.r_queue[row] = t.r_timeout[row] = 0
        t.r_flags[row] = ReaderFlag.IN_USE
        t.set_reader_name(row, name)
        t.counters[Counter.READERS_HIGH] = self._sessions.rows_high
        t.counters[Counter.CLIENTS] = len(self._sessions.by_id)
        return session

    def _resume(self, session: Session, question: Question, known: Answered | None) -> None:
        """A reader that outlived the manager takes up its messages again."""
        queue = str(question.get("queue", ""))
        held = [(int(qpool), int(lease)) for qpool, lease in question.get("held", [])]
        if queue:
            self._reader(session, question)
        self._engine.adopt(session.party, session.queue, held,
                           (known.given, known.given_last) if known else (0, 0))

    # questions

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            raise UnknownQueue(queue=names.escape(name))
        return number

    def _open(self, session: Session, question: Question) -> Question:
        number = self._number(str(question["queue"]))
        rules = self._engine.core.rules[number]
        return {"queue": number, "max_length": rules.max_length, "max_depth": rules.max_depth,
                "priority": rules.priority, "persistent": rules.persistent}

    def _reader(self, session: Session, question: Question) -> Question:
        number = self._number(str(question["queue"]))
        self._sessions.check(session, "get", number)
        if session.queue and session.queue != number:
            raise BadRequest(reason="one reader a connection; it reads another queue already")
        session.queue, session.auxiliary = number, bool(question.get("auxiliary"))
        t, row = self._engine.core.t, session.party.slot
        kind = ReaderFlag.AUXILIARY if session.auxiliary else ReaderFlag(0)
        t.r_queue[row], t.r_flags[row] = number, ReaderFlag.IN_USE | ReaderFlag.READS | kind
        self._note_reader(session, FrameType.READER_UP)
        return {"queue": number}

    def _unread(self, session: Session, question: Question) -> Question:
        if session.queue:
            self._note_reader(session, FrameType.READER_DOWN)
        t, row, session.queue = self._engine.core.t, session.party.slot, 0
        t.r_flags[row], t.r_queue[row] = ReaderFlag.IN_USE, 0
        return {}

    def _note_reader(self, session: Session, kind: FrameType) -> None:
        block, party = self._engine.core.block, session.party
        try:
            block.reserve(1, len(session.name))
        except SpoolFull:  # history lacks a line; a reader must be able to come and go all the same
            return
        block.frame(kind, 0, session.queue, 0, client=party.client, pid=party.pid, uid=party.uid,
                    payload=session.name.encode())

    def _cancel(self, session: Session, question: Question) -> Question:
        if session.waiter is not None:
            self._engine.cancel(session.waiter)
        return {}

    def _locate(self, session: Session, question: Question) -> Question:
        t, qpool = self._engine.core.t, int(question["qpool"])
        slot = t.slot_of(qpool) if qpool > 0 else -1
        if slot < 0:
            raise NoMessage(queue="any")
        return {"location": t.m_location[slot], "offset": t.m_offset[slot]}

    def _bye(self, session: Session, question: Question) -> Question:
        self.end(session, died=False)
        return {}

    def _checkpoint(self, session: Session, question: Question) -> Question:
        self._sessions.check(session, "admin", self._number("POISON"))
        core, lsn = self._engine.core, int(question["lsn"])
        core.t.counters[Counter.CHECKPOINT_LSN] = lsn
        core.t.counters[Counter.CHECKPOINT_TIME] = core.now_ns
        core.block.reserve(1, 0)
        core.block.frame(FrameType.CHECKPOINT, 0, 0, 0, argument=lsn, pid=session.party.pid)
        return {}

    def _status(self, session: Session, question: Question) -> Question:
        t = self._engine.core.t
        return {"counters": {c.name.lower(): t.counters[c] for c in Counter}, "epoch": self._epoch}

    # the end of a client

    def end(self, session: Session, *, died: bool) -> None:
        """A client is gone: what it held comes back; untouched if it left in order."""
        if session.gone:
            return
        self._server.carry_out(session)
        waiters = [session.waiter] if session.waiter is not None else []
        evidence: dict[str, object] = {"reader": session.name, "queue_read": session.queue}
        returned = self._engine.forget(session.party, waiters, evidence, orderly=not died)
        if session.queue:
            self._note_reader(session, FrameType.READER_DOWN)
        t = self._engine.core.t
        t.r_flags[session.party.slot] = 0
        self._sessions.remove(session)
        t.counters[Counter.CLIENTS] = len(self._sessions.by_id)
        if died and returned:
            self._log.event(events.READER_LOST, ERROR, pid_of_reader=session.party.pid,
                            name=session.name, messages=returned)
        elif died:
            self._log.event(events.CLIENT_DIED, REPORT, pid_of_client=session.party.pid,
                            name=session.name)

    def _free(self, session: Session) -> None:
        self.end(session, died=True)
        self._doors.close(session.door)
