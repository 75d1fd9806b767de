"""What the index has, as JSON records: of omqdump and of the console's API alike.

A record is a contract: keys are only added. Times are local with their offset, null for never.
"""

from __future__ import annotations

from omq.base.clock import iso_time
from omq.core.index.rows import EntryRow, QueueRow
from omq.format.index import EntryState


def queue_record(row: QueueRow) -> dict[str, object]:
    """The JSON object of a queue."""
    return {
        "queue": row.name,
        "special": row.special,
        "messages": row.messages,
        "active": row.active,
        "ready": row.ready,
        "deferred": row.deferred,
        "held": row.held,
        "prepared": row.prepared,
        "ever": row.ever,
        "expired": row.expired,
        "remembered": row.remembered,
        "processed": row.processed,
        "load": list(row.load),
        "throughput": list(row.throughput),
    }


def entry_record(entry: EntryRow) -> dict[str, object]:
    """The JSON object of a message on a queue."""
    message = entry.message
    return {
        "queue": entry.queue,
        "qpool_id": message.qpool,
        "state": entry.state.name.lower(),
        "priority": entry.priority,
        "sequence": entry.sequence,
        "failed_attempts": entry.attempts,
        "retries": entry.retries,
        "size": message.size,
        "persistent": message.persistent,
        "queues": message.parts,
        "submitted": _time(entry.submitted_ns),
        "due": _time(entry.until_ns if entry.state is EntryState.DEFERRED else 0),
        "created": _time(message.created_ns),
        "expiry": _time(message.expiry_ns),
        "reader": entry.reader,
        "pool_file": message.file,
        "pool_record": message.record,
        "item_ref": message.item_ref,
        "lsn": message.lsn,
        "replayed": message.replayed,
        "remembers": message.remembers,
    }


def _time(wall_ns: int) -> str | None:
    return iso_time(wall_ns) if wall_ns else None
