"""What a start or a reload has changed of the queues, for the event log."""

from __future__ import annotations

from omq.base import events
from omq.base.event_log import ERROR, REPORT, WARNING, EventLog
from omq.core.engine.queue_book import Changes


def say_changes(log: EventLog, changes: Changes) -> None:
    """An event for each queue."""
    for event, queues in ((events.QUEUE_DEFINED, changes.defined),
                          (events.QUEUE_REMOVED, changes.removed),
                          (events.QUEUE_CHANGED, changes.changed)):
        for name in queues:
            log.event(event, REPORT, queue=name)
    for name in changes.taken_over:
        log.event(events.QUEUE_OF_FILE, WARNING, queue=name)
    for name in changes.lost:
        log.event(events.QUEUE_LOST, ERROR, queue=name)
    for error in changes.unusable:
        log.event(events.DEFINITION_UNUSABLE, WARNING, reason=str(error))
