"""Begin and end of alarms as event messages on SYSTEM.EVENTS, where queue.manager's are, too.

    {"event": "alarm_raised", "queue": "ORDERS", "time_ns": 17..., "alarm": "deep",
     "severity": "warning", "value": 120.0}

`event_messages` of omq.conf says whether there are any; where there is no queue SYSTEM.EVENTS,
there are none. The watcher puts them as a client.

Invariants: 1. the queue manager is asked only when the index says that it works and something is to
be told, and is waited for alarms_run_timeout_s at most; 2. what cannot be put is kept for the next
look, WAITING_MAX at most, and the oldest go first: the event log has all (OM 1570, 1571); 3. that
they cannot be put is an event (OM 1572), once until they can.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Final

from omq.base import event_log, events
from omq.base.errors import OmqError
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.settings import ALL_EVENTS, Settings
from omq.cli.watch.conditions import Condition, Key
from omq.cli.watch.facts import Facts
from omq.ipc.client.connection import connect
from omq.ipc.wire.outgoing import Outgoing

QUEUE: Final = "SYSTEM.EVENTS"
WAITING_MAX: Final = 1000
RAISED: Final = "alarm_raised"
CLEARED: Final = "alarm_cleared"


class AlarmEvents:
    """See the module."""

    def __init__(self, paths: SpoolPaths, settings: Settings, log: EventLog) -> None:
        self._paths, self._log = paths, log
        self._waiting: deque[bytes] = deque(maxlen=WAITING_MAX)
        self._told = False  # that they cannot be put
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """At the start, and after a reload."""
        words = frozenset(settings.event_messages.split())
        self._wanted = frozenset(ALL_EVENTS) if "all" in words else words
        self._timeout_s = settings.alarms_run_timeout_s

    def changed(self, before: Mapping[Key, Condition], now: Mapping[Key, Condition], time_ns: int
                ) -> None:
        """What began and what is over is to be told."""
        was = {key: each for key, each in before.items() if each.raised}
        has = {key: each for key, each in now.items() if each.raised}
        for event, keys, found in ((RAISED, has.keys() - was.keys(), has),
                                   (CLEARED, was.keys() - has.keys(), was)):
            if event in self._wanted:
                self._waiting.extend(
                    _body(event, found[key], time_ns) for key in sorted(keys) if key[1] != QUEUE)

    def put(self, facts: Facts) -> None:
        """What is to be told, if there is somebody to tell."""
        if not self._waiting or not facts.alive:
            return
        if not any(each.row.name == QUEUE for each in facts.queues):
            self._waiting.clear()
            return
        try:
            with connect(self._paths.root, name="omq-alarms", timeout_s=self._timeout_s) as client:
                client.put_many(QUEUE, [Outgoing(body) for body in self._waiting])
        except OmqError as error:
            if not self._told:
                self._log.event(events.ALARM_NOT_TOLD, event_log.ERROR, alarm=QUEUE,
                                program="omq-alarms", reason=str(error))
            self._told = True
        else:
            self._waiting.clear()
            self._told = False


def _body(event: str, each: Condition, time_ns: int) -> bytes:
    about = {"queue": each.queue} if each.queue else {}
    return json.dumps({"event": event, **about, "time_ns": time_ns, "alarm": each.alarm,
                       "severity": each.severity, "value": each.value}).encode("ascii")
