"""Bodies for clients that may not read the spool's files, the manager's side (ADR 0021).

    locate      where a payload lies now; for those who read the files themselves
    fetch       a piece of a payload, copied into the reply half of the channel
    container   a read-only descriptor of the container of a large body, over the connection

A client may fetch what it holds, what lies on a queue that it may browse, and what the queue that
it reads could hand it (`seeing`). Of anything else it is not even told whether it exists.

Invariants: 1. a descriptor is of one container, never of a file with several bodies; 2. a client
has at most one descriptor on the way: one that does not take it gets no second one.

A descriptor outlives the message. idel.server cuts a container before it removes it, so that who
holds on to one holds no space, and uses none again that was passed on.
"""

from __future__ import annotations

import fcntl
import socket
import termios
from typing import Any

from omq.base.errors import BadRequest, BodyUnavailable, NoMessage
from omq.core.engine.engine import Engine
from omq.core.engine.state import CONTAINER, IDEL
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.index import EntryState
from omq.format.wire import REPLY
from omq.ipc.server.queue_rows import Seeing
from omq.ipc.server.sessions import Session, Sessions, say
from omq.storage import containers
from omq.storage.payloads import PayloadReader

Question = dict[str, Any]
_ACTIVE = int(EntryState.ACTIVE)
_HIDDEN = "that you read or may browse"


class Fetching:
    """See the module."""

    def __init__(self, engine: Engine, sessions: Sessions, bodies: PayloadReader) -> None:
        self._engine, self._sessions, self._bodies = engine, sessions, bodies
        self.seeing = Seeing(engine, sessions)

    def locate(self, session: Session, question: Question) -> Question:
        """File and offset of a payload."""
        if not session.trusted:
            raise BadRequest(reason="you may not read the files of the spool; use fetch")
        t, slot = self._engine.index, self._slot(question)
        return {"location": t.m_location[slot], "offset": t.m_offset[slot]}

    def fetch(self, session: Session, question: Question) -> Question:
        """The payload from `at` on, as much as the channel takes."""
        slot, at = self._allowed(session, question), int(question.get("at", 0))
        t = self._engine.index
        length = t.m_length[slot]
        if not 0 <= at <= length:
            raise BadRequest(reason=f"the payload has {length} bytes")
        count = min(length - at, len(session.reply) - REPLY.size)
        raw = self._bodies.read(t.m_location[slot], t.m_offset[slot] + at, count, t.m_qpool[slot])
        session.reply[REPLY.size : REPLY.size + count] = raw
        return {"length": length, "bytes": count, "crc": t.m_crc[slot], "size": t.m_size[slot],
                "container": bool(t.m_flags[slot] & CONTAINER)}

    def container(self, session: Session, question: Question) -> None:
        """Answers with a descriptor."""
        slot = self._allowed(session, question)
        t = self._engine.index
        qpool = t.m_qpool[slot]
        raw = self._bodies.read(t.m_location[slot], t.m_offset[slot], t.m_length[slot], qpool)
        found = message_format.bounds(raw)
        if not t.m_flags[slot] & CONTAINER or isinstance(found, Finding):
            raise BadRequest(reason="the body of this message is not in a container")
        reference = raw[found[1] :].decode("ascii", "replace")
        try:
            file = containers.open_item(self._bodies.paths, reference)
        except FileNotFoundError as error:
            raise BodyUnavailable(qpool_id=qpool, where=reference, reason=str(error)) from error
        try:
            if _waiting_bytes(session.door.connection):
                raise BadRequest(reason="take the answers first")
            containers.give_out(file)
            say(session.door, {"status": 0, "ref": reference}, file.fd)
        finally:
            file.close()

    def _slot(self, question: Question) -> int:
        qpool = int(question["qpool"])
        slot = self._engine.index.slot_of(qpool) if qpool > 0 else -1
        if slot < 0:
            raise NoMessage(queue=_HIDDEN)
        return slot

    def _allowed(self, session: Session, question: Question) -> int:
        slot = self._slot(question)
        t = self._engine.index
        for entry in t.entries_of(slot):
            if (t.e_sequence[entry] > self._engine.last_lsn and t.e_queue[entry] != IDEL):
                continue  # it came with this group: its payload has no place in the file yet
            held = t.e_state[entry] == _ACTIVE and t.e_reader[entry] == session.party.slot + 1
            if (held or self._sessions.allows(session, "browse", t.e_queue[entry])
                    or self.seeing.may_see(session, entry)):
                return slot
        raise NoMessage(queue=_HIDDEN)


def _waiting_bytes(connection: socket.socket) -> int:
    """Bytes that the other side has not taken yet."""
    answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, "little")
