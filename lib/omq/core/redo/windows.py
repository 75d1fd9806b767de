"""Journal blocks in windows for redo, so that what may be torn comes last.

Invariant: in every window but the last one all frames are at or below `durable`, the highest LSN
that some block so far says was durable before it. What lies above `durable` in the last window was
perhaps promised to nobody: redo judges it more strictly (core.redo.redo).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omq.storage.journal_scan import Block

WINDOW_BYTES = 8 << 20  # of journal, a call of redo: a second at most between two signs of life


class Windows:
    """Lists of blocks of about `size` bytes; `durable` belongs to the list that was given last."""

    def __init__(self, blocks: Iterable[Block], size: int = WINDOW_BYTES) -> None:
        self._blocks = blocks
        self._size = size
        self.durable = 0

    def __iter__(self) -> Iterator[list[Block]]:
        held: list[Block] = []
        size = 0
        for block in self._blocks:
            self.durable = max(self.durable, block.header.durable)
            held.append(block)
            size += block.header.length
            if size >= self._size:
                sure = sum(each.header.last_lsn <= self.durable for each in held)
                if sure:
                    yield held[:sure]
                    held = held[sure:]
                    size = sum(each.header.length for each in held)
        if held:
            yield held
