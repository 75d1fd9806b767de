"""Pool records made again from history: the redo of a start, over nothing, for chosen messages.

Redo is fed with the frames of the wanted messages and of the units of work that they belong to, so
that a condemned unit is condemned here as well.

Invariant: the same history gives the same records. Memory: the wanted messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from omq.base.arrays import Rows, picked
from omq.core.redo.redo import Redo
from omq.core.redo.source import NoPool
from omq.format.frame_rules import mask
from omq.format.pool import PARTS_PER_RECORD, Message, Record, decode_record, encode_message
from omq.storage.journal_scan import Block

_AT_LARGE = mask(lambda rule: rule.at_large)


@dataclass(slots=True)
class Part:
    """Some frames of a block."""

    number: int
    offset: int
    frames: Rows
    payload_at: int
    _block: Block

    def payload(self, offset: int, length: int) -> bytes:
        return self._block.payload(offset, length)


class Shadow:
    """`messages` after all windows were applied: those of the wanted ones that are alive."""

    def __init__(self, wanted: Iterable[int]) -> None:
        self._wanted = np.array(sorted(set(wanted)), dtype="<u8")
        self._redo = Redo(NoPool(), settled=True)

    def apply(self, window: Iterable[Block]) -> None:
        parts = []
        for block in window:
            frames = block.frames
            mine = np.isin(frames["qpool"], self._wanted)
            units = frames["unit"][mine]
            keep = mine | np.isin(frames["unit"], units[units != 0])
            keep |= _AT_LARGE[frames["type"]]
            if keep.any():
                parts.append(
                    Part(block.number, block.offset, picked(frames, keep), block.payload_at, block))
        self._redo.apply(parts)
        self._redo.clears.clear()

    @property
    def queues(self) -> dict[int, str]:
        return self._redo.queues

    @property
    def definitions(self) -> dict[str, str]:
        """Of the queues that were made at run time."""
        return self._redo.definitions

    def messages(self) -> dict[int, Message]:
        """By QPoolId."""
        out = {q: message for q, message in self._redo.dirty.items() if message is not None}
        for file, record, image in self._redo.images.images():
            made = decode_record(image, 0, file, record)
            assert isinstance(made, Record)
            out[made.message.qpool] = made.message
        wanted = set(self._wanted.tolist())
        return {qpool: message for qpool, message in out.items() if qpool in wanted}


def images_of(message: Message) -> dict[tuple[int, int], bytes]:
    """(file, record) -> 512 bytes: the record and its continuations, which lie after it."""
    run = max(1, -(-len(message.parts) // PARTS_PER_RECORD))
    message.more = [message.record + i for i in range(1, run)]
    return {(message.file, number): image for number, image in encode_message(message)}
