"""Messages that an operator deleted and that can be brought back: they wait on IDEL for their
end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from omq.core.engine.state import SPECIAL_QUEUES
from omq.core.index.rows import EntryRow
from omq.format.index import EntryState


def deleted(rows: Iterable[EntryRow], names: Sequence[str]) -> Iterator[EntryRow]:
    """Of rows on IDEL those that can be restored, each with the queue that it was deleted from.
    `names`: of the queues by number."""
    for row in rows:
        origin = row.message.origin
        if row.state is EntryState.DEFERRED and 0 < origin < len(names) and (
                origin not in SPECIAL_QUEUES):
            yield replace(row, queue=names[origin])
