"""Connection.browse: rows of the index as messages, chosen by a selector where one is given.

Errors: NotOperator, UnknownQueue, BadSelector; those of a browsed message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from omq.base import limits
from omq.core.index.rows import RawEntry
from omq.ipc.client.browse_selector import chooser
from omq.ipc.client.browsed import Browsed
from omq.ipc.client.rows_from_manager import index_of

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire
    from omq.ipc.client.rows_from_manager import IndexRows


def browse(wire: Wire, queue: str, limit: int, where: str) -> Iterator[Browsed]:
    """See Connection.browse. NotOperator, UnknownQueue and BadSelector at once, not at the first
    row."""
    chosen = chooser(where) if where else None
    view = index_of(wire.paths)
    try:
        names = view.queue_names()
        rows = view.raw_entries(queue, limits.BROWSE_MAX if chosen is not None else limit)
    except BaseException:
        view.close()
        raise
    found = _rows(wire, view, names, rows)
    return found if chosen is None else islice(filter(chosen, found), limit)


def _rows(wire: Wire, view: IndexRows, names: list[str], rows: Iterator[RawEntry]
          ) -> Iterator[Browsed]:
    with closing(view):
        for row in rows:
            yield Browsed(wire, view, names, row)
