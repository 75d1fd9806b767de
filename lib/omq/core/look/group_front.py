"""Which message of a group others wait for, for tools: the first of its group on its queue.

The index does not have the groups; payloads do. So the messages with a group that came to the queue
before are read until one of the same group is found: the time is the tool's.
"""

from __future__ import annotations

from omq.base.errors import OmqError
from omq.core.index.rows import EntryRow
from omq.core.index.view import IndexView
from omq.core.look.stored import StoredMessages
from omq.format.pool import RecordFlag


def group_of(stored: StoredMessages, entry: EntryRow) -> bytes:
    """The group id of a message; empty: it has none, or cannot be read."""
    if not entry.message.flags & RecordFlag.GROUPED:
        return b""
    try:
        return stored.read(entry.message).descriptor.group_id
    except OmqError:
        return b""


def front_of(view: IndexView, stored: StoredMessages, entry: EntryRow) -> EntryRow | None:
    """The message that must leave the queue before this one has its turn; None: none."""
    group = group_of(stored, entry)
    if not group:
        return None
    before = sorted((each for each in view.entries(entry.queue)
                     if each.sequence < entry.sequence
                     and each.message.flags & RecordFlag.GROUPED), key=lambda each: each.sequence)
    return next((each for each in before if group_of(stored, each) == group), None)
