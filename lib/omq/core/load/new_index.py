"""An index as a start of the queue manager makes it: empty tables after a header.

It is a new segment each time; core.load.rebuild fills it, then core.engine is its only writer.
"""

from __future__ import annotations

from dataclasses import replace

from omq.core.index.tables import Tables
from omq.format.index import Counter, IndexFlag, IndexHeader, IndexLayout, read_header, write_header


def new_index(buffer: memoryview, layout: IndexLayout, header: IndexHeader, checkpoint: int
              ) -> Tables:
    """Empty tables in `buffer`. `checkpoint`: LSN up to which the pool has everything, the numbers
    that are void before the first one of this epoch included: what is behind a checkpoint is
    counted from there, for a new term leaves very many free."""
    tables = Tables(buffer, layout)
    write_header(buffer, header)
    tables.counters[Counter.STARTED] = header.time_ns
    tables.counters[Counter.CHECKPOINT_LSN] = checkpoint
    return tables


def mark_damaged(tables: Tables) -> None:
    """While something is damaged or missing, nothing that may hold what is needed is deleted."""
    header = read_header(tables.buffer)
    assert isinstance(header, IndexHeader)
    write_header(tables.buffer, replace(header, flags=header.flags | IndexFlag.POOL_DAMAGED))
