"""How a reader finishes a message by letting new ones take its place: one atomic request, sent at
once.

Errors: LeaseLost, MessageTooLong, UnknownQueue; those of the link.

Several messages of a reader move at once: each is finished, and new ones take its place.

What fits goes in one request, which is carried out whole or not at all (MOVE_MANY); the next one
begins where it ended. So after an error the reader still holds what has not moved.

Errors: BadArgument, LeaseLost, those of Message.move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from omq.base import limits
from omq.base.errors import LeaseLost, MessageTooLong
from omq.fast.batch import part_bytes
from omq.fast.reader_note import Note
from omq.format.message import Part, pack_parts
from omq.format.wire import Operation, Settlement
from omq.ipc.client.message import Message
from omq.ipc.client.settling import Settling
from omq.ipc.client.touching import row_of
from omq.ipc.wire import arguments
from omq.ipc.wire.exchange import Answer
from omq.ipc.wire.outgoing import Encoded, Outgoing

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire

Moves = Sequence[tuple[Message, Sequence[Outgoing]]]

_PAIRS: Final = "each is a message of this reader and a list of omq.Outgoing"
_HEAD_BYTES: Final = limits.KIB
"""Room for rows, heads and descriptors of a message that is only estimated."""


def _checked(moves: Any) -> Moves:
    """All of them, so that an iterator is not at its end before the first request. BadArgument."""
    if not isinstance(moves, Iterable) or isinstance(moves, str | bytes):
        raise arguments.wrong("moves", moves, _PAIRS)
    listed = list(moves)
    for number, each in enumerate(listed):
        pair = isinstance(each, tuple | list) and len(each) == 2
        if not (pair and isinstance(each[0], Message) and isinstance(each[1], tuple | list)
                and all(isinstance(new, Outgoing) for new in each[1])):
            raise arguments.wrong(f"moves[{number}]", each, _PAIRS)
    return listed


def requests_of(moves: Iterable[tuple[Message, Sequence[Outgoing]]], room: int) -> Iterator[Moves]:
    """As many at once as surely fit into a request; one that may not fit goes alone."""
    some: list[tuple[Message, Sequence[Outgoing]]] = []
    left, news = room, 0
    for message, new in moves:
        need = sum(map(_estimate, new), _HEAD_BYTES)
        if some and (need > left or news + len(new) > limits.BATCH_MAX
                     or len(some) == limits.BATCH_MAX):
            yield some
            some, left, news = [], room, 0
        some.append((message, new))
        left, news = left - need, news + len(new)
    if some:
        yield some


def _estimate(new: Outgoing) -> int:
    """At least what it takes: a character has four bytes at most."""
    texts = sum(len(name) + len(value) for name, value in new.properties.items())
    return len(new.body) + 4 * texts + _HEAD_BYTES


def move_together(wire: Wire, moves: Moves) -> None:
    """One request for all of these."""
    rows = [row_of(message, Settlement.DONE, len(new)) for message, new in moves]

    def ask(encoded: list[Encoded]) -> None:
        data, length = part_bytes(rows, encoded)
        wire.link.request(Operation.MOVE_MANY, data, parts=len(rows), count=len(encoded),
                          length=length)

    wire.with_bodies([each for _, new in moves for each in new], (), ask)


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
        listed = _checked(moves)
        for message, _ in listed:
            if not self._holds(message):
                raise LeaseLost(qpool_id=message.qpool_id)
        for some in requests_of(listed, self._link.room):
            if len(some) == 1:
                some[0][0].move((), tuple(some[0][1]))
                continue
            move_together(self._wire, some)
            self.have_moved(message for message, _ in some)

    def _moved(self, message: Message, queues: int, parts: bytes, encoded: list[Encoded],
               want: int) -> Answer:
        data, at = part_bytes([row_of(message), parts], encoded)
        if len(data) > self._link.room:
            raise MessageTooLong(size=len(data), queue=self.queue, limit=self._link.room)
        return self._link.request(
            Operation.MOVE, data, count=len(encoded), parts=queues, length=at, want=want,
            wait_s=-1.0 if want else None, argument=-1 if want else 0)
