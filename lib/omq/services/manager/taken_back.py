"""What the manager took back from readers in a group, for the event log and as event messages."""

from __future__ import annotations

from omq.base import events
from omq.base.event_log import ERROR, WARNING, EventLog
from omq.core.engine.engine import Engine
from omq.services.manager.event_messages import EventMessages


def say_taken_back(log: EventLog, engine: Engine, messages: EventMessages) -> None:
    """Leases that ended, and what went to POISON; both lists begin anew."""
    for ended in engine.back.ended:
        log.event(events.LEASE_ENDED, WARNING, queue=ended.queue, qpool_id=ended.qpool,
                  pid_of_reader=ended.pid)
    engine.back.ended.clear()
    for poisoned in engine.poisoned:
        log.event(events.MESSAGE_POISONED, ERROR, queue=poisoned.queue, qpool_id=poisoned.qpool,
                  reason=poisoned.reason, pid_of_reader=poisoned.pid)
        messages.poisoned(poisoned.queue, poisoned.qpool, poisoned.pid)
    engine.poisoned.clear()
