"""Trigger messages: a queue asks for a program (ADR 0051).

    {"queue": "ORDERS", "trigger": "first", "program": "ORDERS", "messages": 3, "time_ns": 17...}

on SYSTEM.TRIGGERS, where trigger.monitor takes it; without that queue nothing is triggered. When:

    first  messages are READY, and there were none
    depth  trigger_depth messages are READY, and there were fewer
    every  for each message that arrives

first and depth only while nobody reads the queue and no trigger message of it is under way. A
trigger message is under way until its program has ended, so a condition that still holds then, or
holds since nobody could be started, triggers again `trigger_interval_s` after the last time. With
every, what has become READY without arriving (a message that came back) triggers then, too. A queue
that is held (get = inhibited) triggers nothing until it is released.

Conditions are looked at over the counters of the queues that have a trigger: once a group of those
whose counters have changed, once a second of all (a reader that went, a queue that was released,
room for what is owed). A message costs nothing, and queues without one are not looked at.

Invariants: 1. what could not be put (SYSTEM.TRIGGERS is full or inhibited, no disk) is still owed
and put later; 2. a trigger message is only news of a condition that can be seen at any time.

In the middle of a crash: whatever trigger messages are lost with a manager, the next one finds the
conditions in the tables; of every, one is owed for each message that is READY. So a program may be
started once more than needed, never once less.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from omq.base import clock, events
from omq.base.checksum import crc32c
from omq.base.config import EVERY, FIRST
from omq.base.errors import OmqError
from omq.base.event_log import WARNING
from omq.base.rated_log import RatedLog
from omq.base.settings import Settings
from omq.core.engine.engine import Engine
from omq.core.engine.puts import NewMessage
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import PERSISTENT, Party
from omq.core.engine.waiting import FOREVER
from omq.format.message import Descriptor, encode

QUEUE: Final = "SYSTEM.TRIGGERS"
GROUP_MAX: Final = 100  # trigger messages of one queue in a group: others are served between


@dataclass(slots=True)
class _Watch:
    """A queue with a trigger."""

    told: int  # messages that had arrived: at the last look, or (every) that were triggered for
    low: bool = True  # the condition has not held since the last trigger message
    last_ns: int = 0
    under_way: list[tuple[int, int]] = field(default_factory=list)  # entry and its sequence
    seen: tuple[int, int] | None = None  # q_ever and q_ready at the last look; None: look again


class Triggers:
    """See the module."""

    def __init__(self, engine: Engine, settings: Settings, rated: RatedLog) -> None:
        self._engine, self._queues, self._rated = engine, engine.queues, rated
        self._party = Party(0, 0, 0, 0, 0)
        self._watches: dict[int, _Watch] = {}
        self._due = self._all_due = 0
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """At the start, and after a reload."""
        self._interval_ns = settings.trigger_interval_s * clock.NS_PER_S

    @property
    def due(self) -> int:
        """Monotonic ns of the next look, though nobody asks for anything."""
        return self._due if self._queues.triggered else FOREVER

    def turn(self, mono_ns: int, *, stopping: bool) -> bool:
        """In a group: look at the queues with a trigger. True: something was put."""
        triggered, watches = self._queues.triggered, self._watches
        self._due = mono_ns + clock.NS_PER_S
        if len(watches) > len(triggered) or not watches.keys() <= triggered:
            self._watches = watches = {number: watches[number] for number in watches
                                       if number in triggered}
        if stopping or QUEUE not in self._queues.numbers:
            return False
        put, t, look_at_all = False, self._engine.index, mono_ns >= self._all_due
        if look_at_all:
            self._all_due = mono_ns + clock.NS_PER_S
        for number in triggered:
            watch, seen = watches.get(number), (t.q_ever[number], t.q_ready[number])
            if watch is None:
                watch = watches[number] = _Watch(t.q_ever[number] - t.q_ready[number])
            elif watch.seen == seen and not look_at_all:
                continue
            watch.seen = seen
            rules = self._engine.rules[number]
            if rules.name != QUEUE and rules.get_allowed:
                put |= (self._every if rules.trigger == EVERY else self._level)(
                    rules, watch, mono_ns)
        return put

    def _level(self, rules: QueueRules, watch: _Watch, mono_ns: int) -> bool:
        """Of first and depth: the condition holds, or not."""
        t, least = self._engine.index, 1 if rules.trigger == FIRST else rules.trigger_depth
        ready, ever = t.q_ready[rules.queue], t.q_ever[rules.queue]
        # Between two looks messages may have gone before others came: those that came do not count.
        if ready - (ever - watch.told) < least:
            watch.low = True
        watch.told = ever
        if ready < least:
            return False
        if self._waits(rules, watch, mono_ns, at_once=watch.low):
            return False
        return self._put(rules, watch, mono_ns)

    def _every(self, rules: QueueRules, watch: _Watch, mono_ns: int) -> bool:
        """One for each that arrived; and for what is there without having arrived."""
        t, number = self._engine.index, rules.queue
        if t.q_ever[number] < watch.told:  # it was truncated
            watch.told = 0
        owed = t.q_ever[number] - watch.told
        if not owed:
            if not t.q_ready[number] or self._waits(rules, watch, mono_ns, at_once=False):
                return False
            owed = t.q_ready[number]
            watch.told -= owed
        for _ in range(min(owed, GROUP_MAX)):
            if not self._put(rules, watch, mono_ns):
                return True
            watch.told += 1
        if owed > GROUP_MAX:
            self._due, watch.seen = mono_ns, None  # the next group goes on
        return True

    def _waits(self, rules: QueueRules, watch: _Watch, mono_ns: int, *, at_once: bool) -> bool:
        """Somebody sees to the queue already, or it was told a moment ago."""
        if not at_once and mono_ns < watch.last_ns + self._interval_ns:
            return True
        t = self._engine.index
        watch.under_way = [(entry, sequence) for entry, sequence in watch.under_way
                           if t.e_sequence[entry] == sequence]
        return bool(watch.under_way) or self._queues.rows.readers(rules.queue) > 0

    def _put(self, rules: QueueRules, watch: _Watch, mono_ns: int) -> bool:
        """A trigger message; False: it is owed."""
        number, t = self._queues.numbers[QUEUE], self._engine.index
        goes = self._engine.rules[number]
        body = json.dumps({"queue": rules.name, "trigger": rules.trigger, "program": rules.program,
                           "messages": t.q_ready[rules.queue], "time_ns": clock.wall_ns()}).encode()
        payload = encode(Descriptor(application=b"qmgr"), (), b"", body)
        try:
            qpool = self._engine.put(self._party, NewMessage(
                number, goes.priority, PERSISTENT if goes.persistent else 0, len(body),
                crc32c(payload), 0, 0, 0, 0, payload), 0)
        except OmqError as error:
            self._rated.event(events.TRIGGER_OWED, WARNING, None, queue=rules.name,
                              reason=str(error))
            return False
        entry = t.entry_on(t.slot_of(qpool), number)
        watch.under_way.append((entry, t.e_sequence[entry]))
        watch.last_ns, watch.low = mono_ns, False
        return True
