"""Event messages: what happens to queues and to the instance, as JSON on the queue SYSTEM.EVENTS.

    {"event": "depth_high", "queue": "ORDERS", "time_ns": 17..., "messages": 80, "limit": 100}

A program reads them as it reads any queue. `event_messages` of omq.conf says which there are; where
there is no queue SYSTEM.EVENTS, there are none. Depths and what is inhibited are looked at once a
second, over the table of queues: nothing is done for a message.

Invariants: 1. an event never stops anything: when SYSTEM.EVENTS or the disk is full, it is dropped
and counted; 2. no event is made of SYSTEM.EVENTS itself; 3. what is noted and not put yet is
bounded; 4. what another user causes whenever he likes (authority, service_aborted), and what goes
to POISON from one queue, is put `event_burst` times within `event_period_s`, the rest is dropped
and counted: who has no right at all, or fails what he puts, must not fill the queue, and with it
the index.

In the middle of a crash: events that were noted and not committed are lost; nobody was promised
them, and the event log has the same.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from omq.base import clock
from omq.base.checksum import crc32c
from omq.base.errors import NoAuthority, OmqError
from omq.base.settings import ALL_EVENTS, Settings
from omq.core.engine.engine import Engine
from omq.core.engine.puts import NewMessage
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import PERSISTENT, SPECIAL_QUEUES, Party
from omq.core.engine.waiting import FOREVER
from omq.format.message import Descriptor, encode
from omq.ipc.server.sessions import Session

QUEUE: Final = "SYSTEM.EVENTS"
WAITING_MAX: Final = 1000  # events between two groups; what comes beyond is dropped
USERS_MAX: Final = 256  # users and queues counted each by itself; beyond them all count as one
_OTHERS: Final = -1


class EventMessages:
    """See the module."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._party = Party(0, 0, 0, 0, 0)
        self._caused: dict[int | str, int] = {}  # events by uid or queue, in this period
        self._period_ends = 0  # monotonic ns
        self._on: set[tuple[str, str]] = set()  # (event, queue) that holds since it was told
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """At the start, and after a reload."""
        self._high, self._low = settings.event_depth_high, settings.event_depth_low
        self._old_ns = settings.event_oldest_s * clock.NS_PER_S
        self._burst = settings.event_burst
        self._period_ns = settings.event_period_s * clock.NS_PER_S
        words = frozenset(settings.event_messages.split())
        self._wanted = frozenset(ALL_EVENTS) if "all" in words else words
        self._due = 1 if self._wanted else FOREVER

    @property
    def due(self) -> int:
        """Monotonic ns of the next `turn`; where no events are wanted, there is none."""
        return 1 if self._waiting or self._dropped else self._due

    def turn(self, mono_ns: int) -> None:
        """In a group: look, and put what was noted."""
        if mono_ns >= self._due:
            self._due = mono_ns + clock.NS_PER_S
            self._look()
        self._put_all()

    def note(self, event: str, queue: str = "", **fields: Any) -> None:
        """It happened; the next `turn` puts it."""
        if event not in self._wanted or queue == QUEUE or QUEUE not in self._engine.queues.numbers:
            return
        if len(self._waiting) >= WAITING_MAX:
            self._dropped += 1
            return
        about = {"queue": queue} if queue else {}
        self._waiting.append(json.dumps({
            "event": event, **about, "time_ns": clock.wall_ns(), **fields}).encode())

    def refused(self, requests: Iterable[tuple[Session, int, OmqError]]) -> None:
        """Requests of this group were answered with an error: those that lacked a right."""
        for session, _sequence, error in requests:
            self.denied(session.party.uid, error)

    def denied(self, uid: int, error: OmqError) -> None:
        """What this user asked for was refused; told if he lacked a right."""
        if isinstance(error, NoAuthority):
            self._rated(uid, "authority", str(error.fields["queue"]), uid=uid,
                        action=str(error.fields["action"]))

    def aborted(self, session: Session, messages: int) -> None:
        """A reader has ended without saying so; `messages` came back from it."""
        rules = self._engine.rules.get(session.queue)
        if rules is not None:
            fields = {"name": session.name, "pid_of_reader": session.party.pid,
                      "messages": messages}
            if session.party.owns or not session.party.uid:
                self.note("service_aborted", rules.name, uid=session.party.uid, **fields)
            else:
                self._rated(session.party.uid, "service_aborted", rules.name,
                            uid=session.party.uid, **fields)

    def poisoned(self, queue: str, to: str, qpool: int, pid: int) -> None:
        """A message of this queue has failed too often, in the hands of this process, and is on
        another one now."""
        self._rated(queue, "poison", queue, to=to, qpool_id=qpool, pid_of_reader=pid)

    def _rated(self, cause: int | str, event: str, queue: str, **fields: Any) -> None:
        """What this user, or whoever reads this queue, causes at will; see invariant 4."""
        if event not in self._wanted:
            return
        now = self._engine.mono_ns
        if now >= self._period_ends:
            self._caused.clear()
            self._period_ends = now + self._period_ns
        who = cause if cause in self._caused or len(self._caused) < USERS_MAX else _OTHERS
        self._caused[who] = self._caused.get(who, 0) + 1
        if self._caused[who] > self._burst:
            self._dropped += 1
        else:
            self.note(event, queue, **fields)

    def _put_all(self) -> None:
        """What was noted goes on SYSTEM.EVENTS, or is dropped and counted."""
        while self._waiting:
            try:
                self._put(self._waiting.popleft())
            except OmqError:
                self._dropped += 1
        self._engine.books.events_dropped(self._dropped)
        self._dropped = 0

    def _put(self, body: bytes) -> None:
        number = self._engine.queues.number(QUEUE)
        rules = self._engine.rules[number]
        payload = encode(Descriptor(application=b"qmgr"), (), b"", body)
        self._engine.put(self._party, NewMessage(
            number, rules.priority, PERSISTENT if rules.persistent else 0, len(body),
            crc32c(payload), 0, 0, 0, 0, payload), 0)

    def _look(self) -> None:
        """Depths, and what is inhibited; each change is one event."""
        if QUEUE not in self._engine.queues.numbers:
            return  # what holds is put when there is one
        for number, rules in self._engine.rules.items():
            if number not in SPECIAL_QUEUES:
                self._look_at(number, rules)
        if self._on:  # a queue that is made again tells anew
            names = {rules.name for rules in self._engine.rules.values()}
            self._on = {known for known in self._on if known[1] in names}

    def _look_at(self, number: int, rules: QueueRules) -> None:
        depth, most, name = self._engine.index.q_depth[number], rules.max_depth, rules.name
        was_high = ("depth_high", name) in self._on
        if depth * 100 >= most * self._high:
            self._edge("depth_high", name, holds=True, messages=depth, limit=most)
        elif was_high and depth * 100 <= most * self._low:
            self._on.discard(("depth_high", name))
            self.note("depth_low", name, messages=depth, limit=most)
        self._edge("full", name, holds=depth >= most, messages=depth, limit=most)
        self._edge("put_inhibited", name, holds=not rules.put_allowed)
        self._edge("get_inhibited", name, holds=not rules.get_allowed)
        if "oldest_age" in self._wanted:
            since, now = self._engine.queues.oldest_ns(number), self._engine.now_ns
            self._edge("oldest_age", name, holds=0 < since <= now - self._old_ns,
                       age_s=(now - since) // clock.NS_PER_S)

    def _edge(self, event: str, queue: str, *, holds: bool, **fields: int) -> None:
        if not holds:
            self._on.discard((event, queue))
        elif (event, queue) not in self._on:
            self._on.add((event, queue))
            self.note(event, queue, **fields)
