"""A unit of work as requests carry it (ipc.client.unit): in parts, each of which fits into one
request.

A part is SETTLE rows of what was taken, FRAME heads of what is put, and their payloads.

Errors: MessageInUnit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NoReturn

from omq.base import limits
from omq.base.errors import MessageInUnit
from omq.fast.handed_messages import done_rows
from omq.format.journal import FRAME
from omq.format.wire import SETTLE, Settlement
from omq.ipc.client.message import Message
from omq.ipc.wire.outgoing import Encoded, Outgoing

ROWS_MAX: Final = 4096
"""Taken messages in one part: their number has 16 bits."""


class Taken:
    """Who holds the messages that a unit took from one queue."""

    def __init__(self, queue: str, touch: Callable[[Message, bytes], None],
                 put: Callable[[Outgoing], None]) -> None:
        self.queue = queue
        self._touch, self._put = touch, put

    def _set_aside(self, message: Message) -> None:
        """The unit has it, whether it was looked into or not."""

    def looked_into(self, message: Message) -> None:
        """The manager takes all of a unit as being processed."""

    def _record(self, kind: Settlement, message: Message, argument: int = 0, reason: str = "",
                *, later: bool = False) -> NoReturn:
        raise MessageInUnit(qpool_id=message.qpool_id)

    def _move(self, message: Message, queues: tuple[str, ...], new: tuple[Outgoing, ...]
              ) -> None:
        """It is finished with the unit; what takes its place (a reply) is put by it."""
        if queues:
            raise MessageInUnit(qpool_id=message.qpool_id)
        for each in new:
            self._put(each)


def rows_max(room: int) -> int:
    """Rows that fit into a request of so many bytes."""
    return min(ROWS_MAX, room // SETTLE.size)


def parts_of(taken: Sequence[Message], new: Sequence[Encoded], room: int
             ) -> Iterator[tuple[list[bytes], list[Encoded]]]:
    """The unit in parts; one at least."""
    rows: list[bytes] = []
    heads: list[Encoded] = []
    most = rows_max(room)
    for at in range(0, len(taken), most):
        if rows:
            yield rows, []
        rows = done_rows(list(taken[at : at + most]))
    size = SETTLE.size * len(rows)
    for encoded in new:
        need = FRAME.size + len(encoded.payload)
        if size + need > room or len(heads) == limits.BATCH_MAX:
            yield rows, heads
            rows, heads, size = [], [], 0
        heads.append(encoded)
        size += need
    yield rows, heads
