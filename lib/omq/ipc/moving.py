"""How a reader finishes a message by letting new ones take its place: one atomic request, sent at
once.

Errors: LeaseLost, MessageTooLong, UnknownQueue; those of the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omq.base.errors import LeaseLost, MessageTooLong
from omq.fast.note import Note
from omq.format.message import Part, pack_parts
from omq.format.wire import SETTLE, Operation
from omq.ipc.exchange import Answer
from omq.ipc.message import Message
from omq.ipc.moving_many import move_many
from omq.ipc.outgoing import Encoded, Outgoing
from omq.ipc.settling import Settling

if TYPE_CHECKING:
    from omq.ipc.client_wire import Wire


class Moving(Settling):
    """See the module. Of one reader of `queue`."""

    def __init__(self, wire: Wire, queue: str, note: Note | None) -> None:
        super().__init__(wire.link, note)
        self.queue = queue
        self._wire = wire

    def _move(self, message: Message, queues: tuple[str, ...], new: tuple[Outgoing, ...],
              want: int = 0) -> Answer:
        """See Message.move. Then up to `want` messages, without end of the wait."""
        if message.qpool_id not in self._held:
            raise LeaseLost(qpool_id=message.qpool_id)
        numbers = [self._wire.queue_number(name) for name in queues]
        parts = pack_parts([Part(number, message.priority) for number in numbers])
        answer = self._wire.with_bodies(
            new, (), lambda encoded: self._moved(message, len(numbers), parts, encoded, want))
        self._held.pop(message.qpool_id, None)
        return answer

    def move_many(self, moves: Sequence[tuple[Message, Sequence[Outgoing]]]) -> None:
        """Finish each of these messages and put the new ones that take its place, at once: as
        `Message.move` to no queue, in as few requests as they fit into, each all or nothing. After
        an error the reader still holds what has not moved."""
        move_many(self, self._wire, self._held, moves)

    def _moved(self, message: Message, queues: int, parts: bytes, encoded: list[Encoded],
               want: int) -> Answer:
        heads, at = [], 0
        for item in encoded:
            heads.append(item.head(at))
            at += len(item.payload)
        head = SETTLE.pack(0, 0, 0, message.entry, message.qpool_id, message.lease, 0, 0, 0)
        data = b"".join((head, parts, *heads, *(item.payload for item in encoded)))
        if len(data) > self._link.room:
            raise MessageTooLong(size=len(data), queue=self.queue, limit=self._link.room)
        return self._link.request(
            Operation.MOVE, data, count=len(encoded), parts=queues, length=at, want=want,
            wait_s=-1.0 if want else None, argument=-1 if want else 0)
