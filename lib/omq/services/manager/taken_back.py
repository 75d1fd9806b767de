"""What the manager took back from readers in a group, for the event log and as event messages:
each says where the message is now."""

from __future__ import annotations

from omq.base import events
from omq.base.event_log import ERROR, WARNING, EventLog
from omq.base.names import POISON_NAME
from omq.core.engine.engine import Engine
from omq.services.manager.event_messages import EventMessages


def say_taken_back(log: EventLog, engine: Engine, messages: EventMessages) -> None:
    """Leases that ended, and what failed too often; both lists begin anew."""
    for ended in engine.back.ended:
        log.event(events.LEASE_ENDED, WARNING, queue=ended.queue, qpool_id=ended.qpool,
                  pid_of_reader=ended.pid)
    engine.back.ended.clear()
    for poisoned in engine.poisoned:
        event = (events.MESSAGE_POISONED if poisoned.to == POISON_NAME
                 else events.MESSAGE_DEAD_LETTER)
        log.event(event, ERROR, queue=poisoned.queue, to=poisoned.to, qpool_id=poisoned.qpool,
                  reason=poisoned.reason, pid_of_reader=poisoned.pid)
        messages.poisoned(poisoned.queue, poisoned.to, poisoned.qpool, poisoned.pid)
    engine.poisoned.clear()
