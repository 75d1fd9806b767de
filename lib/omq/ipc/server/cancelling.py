"""What clients ask of a message by its id: cancel it (a request), or say how it is (a question).

    CANCEL   the id, 24 bytes; the messages with it leave the queues where this client has the
             right; flag IN_WORK: also those that a reader has, which learns it at its next touch
    state    {"op": "state", "id": hexadecimal digits}
               -> {"places": [{"queue", "state", "until_ns", "attempts", "reader", "progress",
                   "progress_ns"}, ...]}
    said     {"op": "said", "message": QPoolId, "queue": name}: what its reader said of it last
               -> {"progress", "progress_ns"}
    members  {"op": "members", "ids": [hexadecimal digits ...]}: for a barrier
               -> {"qpools": [QPoolId ...]}, of those that are there and this client may see
    lost     {"op": "lost", "message": QPoolId, "lease": that it was held under} -> {"taken": true}
             if it was taken out of this reader's hands, as far as this manager remembers

Who may cancel on a queue: who may `admin` it; and the user who put the message, as the kernel named
him then, where he may still `put`. A message that somebody has moved elsewhere, or that failed its
way to a dead-letter queue, is that queue's: not his, unless he may put there, and never on POISON.
Who may ask for the state: the same, and who may `browse` the queue or `get` from it, which could be
given the message.

Invariants: 1. who has no right on any queue of a message gets the very answer of one that is not
there, whatever its state is; 2. an id that a program gave is compared whole, not by its hash; what
cannot be read is not meant.

Errors: NoMessage, MessageBusy, NotInState, BadRequest, ShuttingDown, SpoolFull.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from omq.base import limits
from omq.base.errors import BadRequest, BodyUnavailable, NoMessage, ShuttingDown
from omq.base.names import message_id_text
from omq.core.engine.operate import ITEMS_MAX
from omq.core.engine.state import HAS_ID, POISON
from omq.format.index import EntryState
from omq.format.message import DESCRIPTOR, id_of
from omq.format.wire import CancelFlag
from omq.ipc.server.operator_plane import order_text
from omq.ipc.server.sessions import Session

if TYPE_CHECKING:
    from omq.ipc.server.request_record import Request
    from omq.ipc.server.server_parts import ServerParts

Question = dict[str, Any]
_NOWHERE = "(any that you have a right to)"
_DEFERRED = int(EntryState.DEFERRED)
LOOKERS = ("browse", "get")
"""Whoever may do one of these with a queue may know how its messages are."""


class Cancelling:
    """See the module. `answer` notes a reply that waits for the commit."""

    def __init__(self, server: ServerParts,
                 answer: Callable[[Session, int, int, int], None]) -> None:
        self._server, self._engine, self._answer = server, server.engine, answer

    def cancel(self, session: Session, r: Request) -> None:
        """The request CANCEL."""
        if self._server.stopping:
            raise ShuttingDown
        identifier = bytes(session.request[: r.length])
        entries = self._meant(session, identifier, self._may_cancel)
        in_work = bool(r.flags & CancelFlag.IN_WORK)
        words = "cancel --in-work" if in_work else "cancel"
        text = order_text({"command": f"{words} {message_id_text(identifier)}"})
        self._engine.by_id.cancel(session.party, entries, r.sequence, text,
                                  self._engine.forget_reader if in_work else None)
        self._answer(session, r.sequence, len(entries), 0)

    def state(self, session: Session, question: Question) -> Question:
        """The question."""
        identifier = bytes.fromhex(str(question["id"]))
        t, engine = self._engine.index, self._engine
        return {"places": [
            {"queue": engine.rules[t.e_queue[entry]].name,
             "state": EntryState(t.e_state[entry]).name.lower(),
             "until_ns": t.e_until[entry] if t.e_state[entry] == _DEFERRED else 0,
             "attempts": t.e_attempts[entry], "reader": engine.by_id.reader_of(entry),
             "waits_for": engine.waits_for(entry),
             **self._progress(entry)}
            for entry in self._meant(session, identifier, self._may_look)]}

    def members(self, session: Session, question: Question) -> Question:
        """The question. Who may not see one gets the answer of one that is not there: it has
        ended."""
        said = list(question["ids"])
        if len(said) > ITEMS_MAX:
            raise BadRequest(reason=f"{len(said)} ids, a question has {ITEMS_MAX}")
        found = set[int]()
        for each in said:
            try:
                entries = self._meant(session, bytes.fromhex(str(each)), self._may_look)
            except NoMessage:
                continue
            t = self._engine.index
            found |= {t.m_qpool[t.e_message[entry]] for entry in entries}
        return {"qpools": sorted(found)}

    def said(self, session: Session, question: Question) -> Question:
        """The question. NoMessage."""
        engine, name = self._engine, str(question["queue"])
        slot = engine.index.slot_of(int(question["message"]))
        for entry in engine.by_id.places(slot) if slot >= 0 else ():
            if (engine.rules[engine.index.e_queue[entry]].name == name
                    and self._may_look(session, entry)):
                return self._progress(entry)
        raise NoMessage(queue=_NOWHERE)

    def lost(self, _session: Session, question: Question) -> Question:
        """The question. The lease is known to who held it alone."""
        return {"taken": self._engine.by_id.was_taken(
            int(question["message"]), int(question["lease"]))}

    @property
    def operations(self) -> dict[str, Callable[[Session, Question], Question]]:
        """The questions by their names."""
        return {"state": self.state, "said": self.said, "lost": self.lost,
                "members": self.members}

    def _progress(self, entry: int) -> Question:
        words, time_ns = self._engine.by_id.said_of(entry)
        return {"progress": words.decode("utf-8", "replace"), "progress_ns": time_ns}

    def _meant(self, session: Session, identifier: bytes,
               may: Callable[[Session, int], bool]) -> list[int]:
        """The entries of the messages with this id that this client may do it with, at least one.
        The right is asked first: a payload is read only of what he has a right to."""
        if len(identifier) != limits.MESSAGE_ID_BYTES or not any(identifier):
            raise BadRequest(reason=f"an id has {limits.MESSAGE_ID_BYTES} bytes, not all zero")
        by_id = self._engine.by_id
        found = {slot: entries for slot in by_id.known_as(identifier)
                 if (entries := [entry for entry in by_id.places(slot) if may(session, entry)])}
        if len(found) > ITEMS_MAX:
            raise BadRequest(reason=f"more than {ITEMS_MAX} messages may have this id")
        meant = [entry for slot, entries in found.items() if self._has(slot, identifier)
                 for entry in entries]
        if not meant:
            raise NoMessage(queue=_NOWHERE)
        return meant

    def _has(self, slot: int, identifier: bytes) -> bool:
        """Whether the message has this very id."""
        t = self._engine.index
        if not t.m_flags[slot] & HAS_ID:
            return True
        try:
            raw = self._server.bodies.read(t.m_location[slot], t.m_offset[slot], DESCRIPTOR.size,
                                           t.m_qpool[slot])
        except BodyUnavailable:
            return False
        return id_of(raw) == identifier

    def _may_cancel(self, session: Session, entry: int) -> bool:
        t = self._engine.index
        queue = t.e_queue[entry]
        return self._server.sessions.allows(session, "admin", queue) or (
            t.m_uid[t.e_message[entry]] == session.party.uid and queue != POISON
            and self._server.sessions.allows(session, "put", queue))

    def _may_look(self, session: Session, entry: int) -> bool:
        queue = self._engine.index.e_queue[entry]
        return self._may_cancel(session, entry) or any(
            self._server.sessions.allows(session, action, queue) for action in LOOKERS)
