"""Queues by command over the control connection: made, changed, looked at and removed.

    queue     {"do", "queue", ..., "command", "reason"} -> what `do` says:
      define  {"kind", "keys"}   alter {"keys"}: a value of null is taken away
      rename  {"to"}             roll_over {"to"}            delete {"force"}
      clear   {"until"}: delete what is there up to this LSN, a piece at a time -> {"cleared",
              "left", "until"}
      truncate                   (its four conditions: NoTruncate)
      pause   {"key"}: nothing of it is handed out          resume {"key"}
      why     {"qpool"} -> {"text"}: which limit of work holds this message
      show    -> definition and facts          list -> {"queues": [...]}
    temporary {"model", "note"} -> {"queue"}: a queue of this client, made of a model

The answers wait for the commit of their group. Who may: `admin` on the name, `get` on the model of
a temporary queue; `show` and `list` tell of what somebody may do anything with. Changes are
journaled by their frames and an OPERATOR frame with uid, command and reason.

A client that has a queue open under a name that is no longer right gets QueueGone when it puts
there, and opens it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from omq.base import events, names
from omq.base.arrays import Vector
from omq.base.authority import ACTIONS
from omq.base.defined_queue import keys_of
from omq.base.errors import (
    BadDefinition,
    BadRequest,
    NoAuthority,
    NoTruncate,
    OmqError,
    SpoolFull,
    TooManyQueues,
    UnknownQueue,
)
from omq.base.event_log import REPORT, EventLog
from omq.base.settings import Settings
from omq.core.engine.engine import Engine
from omq.core.engine.operate import ITEMS_MAX, Action, Item, Order
from omq.core.engine.queue_judge import NOTE, SYSTEM_KEYS
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import IDEL, POISON, Party
from omq.core.engine.waiting import FOREVER
from omq.format.definition import Definition, Kind
from omq.format.index import Counter, EntryState
from omq.format.pool import RECORD_BYTES
from omq.ipc.server.operator_plane import order_text
from omq.ipc.server.request_server import RequestServer
from omq.ipc.server.sessions import Session

Question = dict[str, Any]
_NOT_DEFINED = (Kind.TEMPORARY, Kind.PAUSE)
TEMPORARY = "TEMPORARY"
"""Asked for in authority.conf when a temporary queue is of no model."""


class QueuePlane:
    """See the module. `answer(session, answer)` goes out after the commit."""

    def __init__(self, server: RequestServer, settings: Settings, log: EventLog,
                 answer: Callable[[Session, Question], None]) -> None:
        self._server, self._sessions = server, server.sessions
        self._engine: Engine = server.engine
        self._settings, self._log, self._answer = settings, log, answer
        self.ends = QueueEnds(server, log)
        self._doings: dict[str, Callable[[Session, str, Question], Question]] = {
            "define": self._define, "alter": self._alter, "rename": self._rename,
            "roll_over": self._rename, "delete": self._delete, "clear": self._clear,
            "truncate": self._truncate, "pause": self._pause, "resume": self._pause}

    # questions

    def queue(self, session: Session, question: Question) -> None:
        """One command."""
        do, name = str(question["do"]), names.escape(str(question.get("queue", "")), 32)
        if do == "list":
            return self._answer(session, {"queues": [
                defined(self._engine, each) for each in self._engine.queues.all_names()
                if self._sees(session, each)]})
        if do == "show":
            if self._engine.queues.kind(name) is None or not self._sees(session, name):
                raise UnknownQueue(queue=name)
            return self._answer(session, {**defined(self._engine, name),
                                          "facts": facts(self._engine, name)})
        if do == "why":
            if not self._sees(session, name):
                raise UnknownQueue(queue=name)
            return self._answer(session, {"text": self._engine.queues.message_told(
                self._engine.queues.number(name), int(question["qpool"]))})
        if do not in self._doings:
            raise BadRequest(reason=f"unknown command {names.escape(do, 32)}")
        self._may(session, "admin", name)
        answer = self._doings[do](session, name, question)
        if do != "clear" or not question.get("until"):  # the pieces of a clear are one command
            self._say(session, name, question)
        return self._answer(session, answer)

    def temporary(self, session: Session, question: Question) -> None:
        """A queue of this client, or (of a model that says so) one that stays."""
        queues, model = self._engine.queues, names.escape(str(question.get("model", "")), 32)
        keys: dict[str, str] = {}
        if model:
            definition = queues.definitions.get(model)
            if definition is None or definition.kind is not Kind.MODEL:
                raise BadDefinition(queue=model, key="kind", reason="it is not a model queue",
                                    allowed="a queue of kind model")
            keys = dict(definition.keys)
        self._may(session, "get", model or TEMPORARY)
        kind = Kind.LOCAL if keys.pop("lifetime", "") == "permanent" else Kind.TEMPORARY
        keys |= {"model": model or TEMPORARY}
        if note := str(question.get("note", "")):
            keys |= {NOTE: note}
        if kind is Kind.TEMPORARY:
            keys |= {"owner": str(session.party.token)}
            self._room(session)
        core = self._engine
        name = f"{(model or TEMPORARY)[:7]}.{(core.last_lsn + 1) & 0xFFFFFFFF:08X}"
        queues.define(Definition(name, kind, keys))
        self._answer(session, {"queue": name})

    def _room(self, session: Session) -> None:
        made = [each for each in self._engine.queues.going() if each.owner]
        own = sum(each.owner == session.party.token for each in made)
        if own >= self._settings.queues_temporary_per_client:
            raise TooManyQueues(limit=own, what="temporary queues of a client")
        if len(made) >= self._settings.queues_temporary_max:
            raise TooManyQueues(limit=len(made), what="temporary queues")

    # commands

    def _define(self, session: Session, name: str, question: Question) -> Question:
        try:
            kind = Kind(str(question.get("kind", Kind.LOCAL.value)))
        except ValueError:
            kind = Kind.TEMPORARY
        if kind in _NOT_DEFINED:
            raise BadDefinition(
                queue=name, key="kind", reason="not a kind that is defined", allowed=", ".join(
                    each.value for each in Kind if each not in _NOT_DEFINED))
        keys = _keys(question)
        self._engine.queues.define(Definition(
            name, kind, {key: value for key, value in keys.items() if value is not None}))
        return {}

    def _alter(self, session: Session, name: str, question: Question) -> Question:
        queues = self._engine.queues
        old, keys = queues.altered(name), dict(queues.altered(name).keys)
        for key, value in _keys(question).items():
            keys.pop(key, None)
            if value is not None:
                keys[key] = value
        queues.define(Definition(name, old.kind, keys), known=True)
        self._sessions.alias_changed(name)
        return {}

    def _rename(self, session: Session, name: str, question: Question) -> Question:
        """A rename, or a roll over."""
        to, queues = names.escape(str(question["to"]), 32), self._engine.queues
        self._may(session, "admin", to)
        if question["do"] == "rename":
            number = queues.numbers.get(name, 0)
            queues.rename(name, to)
        else:
            number = queues.number(name)
            queues.roll_over(name, to)
        self.ends.changed(name, number)
        self._log.event(events.QUEUE_RENAMED, REPORT, queue=name, now=to)
        return {}

    def _delete(self, session: Session, name: str, question: Question) -> Question:
        queues = self._engine.queues
        number = queues.numbers.get(name, 0)
        queues.removable(name)  # before anybody loses it
        if number and question.get("force") and not self._engine.index.q_depth[number]:
            self.ends.leave(number)
        queues.remove(name)
        self.ends.changed(name, number)
        self._log.event(events.QUEUE_DELETED, REPORT, queue=name)
        return {}

    def _clear(self, session: Session, name: str, question: Question) -> Question:
        """What readers have stays theirs."""
        number = self._engine.queues.number(name)
        if number == IDEL:
            raise BadRequest(reason="messages on IDEL are deleted already")
        until = int(question.get("until") or self._engine.last_lsn)
        cleared = self.ends.purge(session.party, number, until, order_text(question))
        left = len(messages_of(self._engine, number, until, 1))
        if cleared and not left:
            self._engine.books.cleared()
        return {"cleared": cleared, "left": left, "until": until}

    def _pause(self, session: Session, name: str, question: Question) -> Question:
        self._engine.queues.pause(name, str(question.get("key", "")),
                                  resume=question["do"] == "resume",
                                  keyed=question.get("keyed") is not False)
        return {}

    def _truncate(self, session: Session, name: str, question: Question) -> Question:
        """VOS's s$truncate_queue: the same four conditions, each with its own words."""
        number, t = self._engine.queues.number(name), self._engine.index
        if number in (IDEL, POISON):
            raise BadRequest(reason=f"{name} is the queue manager's own")
        others = [each for each in self._sessions.by_id.values()
                  if each is not session and each.rights.get(("put", number))]
        if others:
            raise NoTruncate(queue=name, condition="a requester has it open",
                             detail=f"pid {others[0].party.pid}")
        if t.q_depth[number]:
            raise NoTruncate(queue=name, condition="it is not drained",
                             detail=f"{t.q_depth[number]} messages")
        if session.queue != number:
            raise NoTruncate(queue=name, condition="only a server of it may do that",
                             detail="a connection with a reader of this queue")
        if self._server.units.holds(number):
            raise NoTruncate(queue=name, condition="it is part of a unit of work",
                             detail="which is open")
        self._engine.queues.reset(number)
        return {}

    # who

    def _may(self, session: Session, action: str, name: str) -> None:
        party = session.party
        if not self._sessions.authority.allows(action, name, party.uid, session.gids):
            raise NoAuthority(uid=party.uid, action=action, queue=name)

    def _sees(self, session: Session, name: str) -> bool:
        party = session.party
        return any(self._sessions.authority.allows(action, name, party.uid, session.gids)
                   for action in ACTIONS)

    def _say(self, session: Session, name: str, question: Question) -> None:
        text, party = order_text(question), session.party
        self._engine.books.operator(party, self._engine.queues.numbers.get(name, 0), 0, text)
        self._log.event(events.OPERATOR_COMMAND, REPORT, uid=party.uid,
                        pid_of_operator=party.pid, queue=name, **json.loads(text))


def _keys(question: Question) -> dict[str, str | None]:
    keys = question.get("keys", {})
    if not isinstance(keys, dict) or not all(
            isinstance(value, str | None) for value in keys.values()):
        raise BadRequest(reason="keys are words with text or null")
    if set(keys) & set(SYSTEM_KEYS):
        raise BadRequest(reason=f"only the queue manager says {', '.join(SYSTEM_KEYS)} of a queue")
    return {str(key): value for key, value in keys.items()}


SWEEP_NS = 1_000_000_000
_MANAGER = Party(0, 0, 0, 0, 0)
_ENDED = json.dumps({"command": "queue.manager",
                     "reason": "its connection has ended"}).encode()


class QueueEnds:
    """The ends of queues that end by themselves, and what all ends have in common.

    A temporary queue ends with its client, and what is on it ends with it, journaled as deleted;
    one that was rolled over ends when it is empty and nobody reads it. Readers of a queue that goes
    get QueueGone when they hold nothing; what they hold they may finish first."""

    def __init__(self, server: RequestServer, log: EventLog) -> None:
        self._server, self._sessions, self._log = server, server.sessions, log
        self._engine: Engine = server.engine
        self._due = self._grace_until = 0
        self._stay: set[int] = set()  # queues that could not end, which was told

    def begin(self, mono_ns: int, grace_ns: int) -> None:
        """Clients can come from now on, those of an earlier manager too."""
        self._due, self._grace_until = mono_ns, mono_ns + grace_ns

    def sweep(self) -> None:
        """Queues whose client is gone end, with what is on them (of an earlier manager's clients
        only when they have had time to come back); those that drain when they are empty. Called in
        each group; it looks once a second, and only while there are any."""
        now, queues = self._engine.mono_ns, self._engine.queues
        if now < self._due or self._server.stopping:
            return
        self._due = now + SWEEP_NS
        living = {each.party.token for each in self._sessions.by_id.values()}
        for rules in queues.going():
            if rules.owner and rules.owner not in living and now >= self._grace_until:
                try:
                    self.leave(rules.queue)
                    gone = self.purge(_MANAGER, rules.queue, self._engine.last_lsn, _ENDED)
                    if gone == ITEMS_MAX:  # the next group goes on; clients are served between
                        self._due = now
                except SpoolFull:  # the journal has no room to say it: the next sweep does it
                    continue
            elif rules.owner or queues.rows.readers(rules.queue):
                continue
            if not self._engine.index.q_depth[rules.queue]:
                self._end(rules)

    @property
    def due(self) -> int:
        """Monotonic ns of the next `sweep` that has something to do."""
        return self._due if self._engine.queues.any_going else FOREVER

    def _end(self, rules: QueueRules) -> None:
        if self._engine.queues.rows.readers(rules.queue):
            return
        try:
            self._engine.queues.remove(rules.name)
        except OmqError as error:  # another queue names it, or no room: it stays until then
            if rules.queue not in self._stay:
                self._stay.add(rules.queue)
                self._log.event(events.FAILED, REPORT, at=f"the end of {rules.name}",
                                reason=str(error))
            return
        self._stay.discard(rules.queue)
        self.changed(rules.name, rules.queue)
        if not rules.owner:
            self._log.event(events.QUEUE_DELETED, REPORT, queue=rules.name)

    def leave(self, number: int) -> None:
        """Readers that hold nothing read it no more, and learn so."""
        for session in self._sessions.by_id.values():
            if session.queue == number and not session.party.active:
                self._lose(session)

    def _lose(self, session: Session) -> None:
        session.lost_queue = self._engine.rules[session.queue].name
        if (waiter := session.waiter) is not None and waiter.waiting:
            self._engine.drop(waiter)
            session.waiter = None
            self._server.refused.append((session, waiter.sequence, session.no_reader()))
        self._engine.clients.reads_no_more(session.party, session.name, session.queue)
        self._engine.wanted.forget(session.party.client, session.queue)
        session.queue = 0

    def changed(self, name: str, number: int) -> None:
        if number:
            self._sessions.changed(number)
        self._sessions.alias_changed(name)

    def purge(self, party: Party, number: int, until: int, text: bytes) -> int:
        """Delete a piece of what is on a queue."""
        items = tuple(Item(qpool, number)
                      for qpool in messages_of(self._engine, number, until, ITEMS_MAX))
        if not items:
            return 0
        return len(self._engine.operate(party, Order(Action.DELETE, items, text)).done)


FILE, RUN_TIME, NOBODY = "queues.conf", "run time", "nobody"
_ACTIVE = int(EntryState.ACTIVE)


def defined(engine: Engine, name: str) -> dict[str, Any]:
    """What it is, in the words of queues.conf."""
    queues = engine.queues
    definition, conf = queues.definitions.get(name), queues.confs.get(name)
    keys = dict(definition.keys) if definition is not None else {}
    kind = queues.kind(name)
    number = queues.numbers.get(name, 0)
    return {
        "queue": name, "kind": kind.value if kind else "", "number": number,
        "by": RUN_TIME if definition is not None else FILE if conf is not None else NOBODY,
        "keys": {**(keys_of(conf) if conf is not None else {}), **keys},
        "paused": queues.pauses.of(name),
        "messages": engine.index.q_depth[number] if number else 0}


def facts(engine: Engine, name: str) -> dict[str, Any]:
    """What is on it, and was; none of one that holds no messages. One look over the table of
    entries: asked for, never kept."""
    queues, t = engine.queues, engine.index
    number = queues.numbers.get(name)
    if number is None:
        return {}
    entries = np.flatnonzero(_on(engine, number))
    slots = t.v["e_message"][entries]
    newest = int(slots[np.argmax(t.v["m_qpool"][slots])]) if len(slots) else -1
    return {
        "ready": t.q_ready[number], "active": t.q_active[number],
        "deferred": t.q_deferred[number], "held": t.q_held[number],
        "readers": queues.rows.readers(number), "ever": t.q_ever[number],
        "processed": t.q_processed[number],
        "high_water": max(t.q_depth[number], engine.statistics.peak(number)),
        "bytes": int(t.v["m_length"][slots].sum()),
        "blocks_used": int((t.v["m_length"][slots].astype("<u8") // RECORD_BYTES + 1).sum()),
        "last_message": int(t.m_qpool[newest]) if newest >= 0 else 0,
        "last_message_ns": int(t.m_time[newest]) if newest >= 0 else 0,
        "keys": queues.remembered(name), **queues.limits_told(number)}


def messages_of(engine: Engine, number: int, until: int, most: int) -> list[int]:
    """QPoolIds of messages that are on a queue since this LSN and that no reader has."""
    t = engine.index
    high = int(t.counters[Counter.ENTRIES_HIGH])
    chosen = (_on(engine, number) & (t.v["e_state"][:high] != _ACTIVE)
              & (t.v["e_sequence"][:high] <= until))
    slots = t.v["e_message"][np.flatnonzero(chosen)[:most]]
    return [int(qpool) for qpool in t.v["m_qpool"][slots]]


def _on(engine: Engine, number: int) -> Vector:
    t = engine.index
    high = int(t.counters[Counter.ENTRIES_HIGH])
    return np.asarray((t.v["e_queue"][:high] == number) & (t.v["e_state"][:high] != 0))
