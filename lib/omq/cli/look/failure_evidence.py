"""The evidence of how a message came to POISON or another dead-letter queue: all of the packet of
its last POISON frame, while the journal or the archive has it; else what its pool record keeps.

Errors: DiskError.
"""

from __future__ import annotations

import json
from typing import Any

from omq.base.clock import iso_time
from omq.base.names import POISON_NAME
from omq.base.paths import SpoolPaths
from omq.cli.progress import reading_history
from omq.core.index.rows import EntryRow
from omq.core.index.view import IndexView
from omq.format.failure_note import FailureNote
from omq.format.frame_rules import WORDS
from omq.format.pool import Message, RecordFlag
from omq.storage.pool_reader import PoolReader
from omq.storage.spool import open_spool


def evidence(name: str, paths: SpoolPaths, view: IndexView, entry: EntryRow) -> dict[str, Any]:
    """Of the message on this queue, {} if it did not fail its way there, or nothing is known.
    `name`: of the command."""
    return _told(name, paths, entry) or _noted(_note(paths, view, entry))


def _told(name: str, paths: SpoolPaths, entry: EntryRow) -> dict[str, Any]:
    """The packet of the last POISON frame that put it on this queue."""
    found: dict[str, Any] = {}
    with reading_history(name, paths) as history:
        for each in history.of_message(entry.message.qpool):
            if each.rule.fails and entry.queue in (POISON_NAME, *each.targets):
                try:
                    packet = json.loads(each.text)
                except ValueError:
                    packet = {"text": each.text}
                found = {"lsn": each.lsn, "time": iso_time(each.time_ns),
                         **(packet if isinstance(packet, dict) else {})}
    return found


def _note(paths: SpoolPaths, view: IndexView, entry: EntryRow) -> FailureNote | None:
    """Of its pool record, which the last checkpoint wrote; its frames are in the journal till
    then."""
    message = entry.message
    if message.file is None or message.record is None or not message.flags & RecordFlag.NOTED:
        return None
    pool = PoolReader(paths, open_spool(paths.root).uuid, write=False)
    try:
        found = pool.read_record(message.file, message.record)
    finally:
        pool.close()
    if not isinstance(found, Message) or found.qpool != message.qpool or found.note is None:
        return None
    return found.note if view.queue_names()[found.note.to] == entry.queue else None


def _noted(note: FailureNote | None) -> dict[str, Any]:
    """The same keys as in a packet."""
    if note is None:
        return {}
    return {"time": iso_time(note.last_ns), "queue": note.queue, "attempts": note.attempts,
            "cause": WORDS.get(note.reason, str(note.reason)), "reason": note.text,
            "first_ns": note.first_ns, "time_ns": note.last_ns}
