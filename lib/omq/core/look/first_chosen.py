"""Whether a reader's selector chooses any message that is ready on its queue, for tools.

The selector is tested as `--where` is (core.look.selection): on columns first, and on payloads for
those that columns leave, `most` of them at most.

Errors: BadSelector; AccessDenied and those of core.look.stored for payloads.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from omq.base.paths import SpoolPaths
from omq.core.index.rows import QueueRow
from omq.core.index.view import IndexView
from omq.core.look.message_facts import MessageFacts
from omq.core.look.selection import parse
from omq.core.look.stored import StoredMessages
from omq.core.look.terms import Columns, columns_of
from omq.format.index import EntryState
from omq.storage.spool import open_spool


class Verdict(Enum):
    """What is known."""

    SOME = "some"
    NONE = "none"
    UNKNOWN = "unknown"  # too many to look at, or one that cannot be read


def first_chosen(view: IndexView, paths: SpoolPaths, row: QueueRow, where: str, now_ns: int,
                 most: int) -> Verdict:
    """See the module."""
    root = parse(f"({where})", files=False).root
    columns = columns_of(view.copies, row.number, paths, open_spool(paths.root).uuid, now_ns)
    ready = columns.values["e_state"] == int(EntryState.READY)
    if not root.deep:
        return Verdict.SOME if root.maybe(columns, ready).any() else Verdict.NONE
    rows = np.flatnonzero(ready)
    beyond = np.zeros(columns.count, dtype=bool)
    beyond[rows[most:]] = True
    among = ready & ~beyond
    picked = np.flatnonzero(root.maybe(columns, among))
    sure = not beyond.any()
    stored = StoredMessages(paths)
    try:
        for each in picked.tolist():
            facts = _facts(view, columns, stored, each)
            if facts is None:
                sure = False
            elif root.holds(columns, each, facts) is True:
                return Verdict.SOME
            elif facts.unreadable:
                sure = False
    finally:
        stored.close()
    return Verdict.NONE if sure else Verdict.UNKNOWN


def _facts(view: IndexView, columns: Columns, stored: StoredMessages, at: int
           ) -> MessageFacts | None:
    """None: it is not there any more."""
    some = slice(at, at + 1)
    for raw in view.raw_at((columns.numbers[some], columns.sequences[some])):
        return MessageFacts(stored, view.entry_of(raw, columns.queues).message)
    return None
