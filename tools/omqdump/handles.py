"""Opened messages: their handles, from 2000 on as in the original, and how far a queue was walked.

Opening a message is looking at it: it stays on its queue, nobody is kept from it and no attempt is
counted. What was seen is remembered with its LSN, so that a change of a message that has moved on
meanwhile is refused. Walks are a position in the order of hand-out (priority, sequence), not a
count: a message that leaves or comes does not shift them, and looking at the status of the queue
does not reset them, as it did in the original.

Errors: NoSuchHandle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from omq.base.errors import NoSuchHandle
from omq.core.index.rows import EntryRow
from omq.core.index.view import IndexView, RawEntry
from omq.core.look.stored import Stored

FIRST: Final = 2000
Position = tuple[int, int]


@dataclass(slots=True)
class Opened:
    """One opened message. `row` None: it was read from files and is on no queue."""

    handle: int
    stored: Stored
    source: str  # item reference or file that it came from
    row: EntryRow | None = None
    body: bytes | None = None  # of files
    priority: int = 4
    persistent: bool = True
    reply_to: str = ""


def position(raw: RawEntry) -> Position:
    """Where a message is in the order of hand-out."""
    return -raw[1][2], raw[1][3]


@dataclass(slots=True)
class Handles:
    """What one session has opened."""

    opened: dict[int, Opened] = field(default_factory=dict)
    walks: dict[str, Position] = field(default_factory=dict)  # queue -> the message got last
    last: int = FIRST

    def free(self) -> int:
        """The lowest number that is free."""
        handle = FIRST
        while handle in self.opened:
            handle += 1
        return handle

    def add(self, message: Opened) -> None:
        self.opened[message.handle] = message
        self.last = message.handle

    def get(self, handle: int) -> Opened:
        found = self.opened.get(handle)
        if found is None:
            raise NoSuchHandle(handle=handle)
        return found

    def close(self, handle: int) -> None:
        del self.opened[self.get(handle).handle]
        self.last = max(self.opened, default=FIRST)

    def is_open(self, qpool: int, queue: str) -> bool:
        return any(each.row is not None and each.row.message.qpool == qpool
                   and each.row.queue == queue for each in self.opened.values())

    def ahead(self, view: IndexView, queue: str) -> Iterator[RawEntry]:
        """The messages that the walk has not come to."""
        walked = self.walks.get(queue)
        return (raw for raw in view.raw_entries(queue) if walked is None or position(raw) > walked)

    def passed(self, view: IndexView, queue: str) -> int:
        """How many messages the walk has after it."""
        walked = self.walks.get(queue)
        if walked is None:
            return 0
        return sum(position(raw) <= walked for raw in view.raw_entries(queue))
