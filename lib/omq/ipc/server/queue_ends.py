"""The ends of queues that end by themselves, and what all ends have in common.

A temporary queue ends with its client, and what is on it ends with it, journaled as deleted; one
that was rolled over ends when it is empty and nobody reads it. Readers of a queue that goes are
told so (QueueGone) when they hold nothing; what they hold they may finish first.
"""

from __future__ import annotations

import json

from omq.base import events
from omq.base.errors import OmqError, SpoolFull
from omq.base.event_log import REPORT, EventLog
from omq.core.engine.engine import Engine
from omq.core.engine.operate import ITEMS_MAX, Action, Item, Order
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import Party
from omq.core.engine.waiting import FOREVER
from omq.ipc.server.queue_facts import messages_of
from omq.ipc.server.request_server import RequestServer
from omq.ipc.server.sessions import Session

SWEEP_NS = 1_000_000_000
_MANAGER = Party(0, 0, 0, 0, 0)
_ENDED = json.dumps({"command": "queue.manager",
                     "reason": "its connection has ended"}).encode()


class QueueEnds:
    """See the module."""

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

