"""Readers: messages handed out by the queue manager, and how the work on each of them ends.

A disposition (done, defer, fail, release) is recorded and travels with the next request for
messages, so that "done with these and give me more" is one request; `flush` sends what is recorded.
`move` is sent at once: it is one atomic operation of its own.

Leaving the reader (the end of its `with`, `close`) sends what is recorded and gives back what is
still held, to its old place and no attempt counted. Leaving it by an exception does the same, but
the message that the iteration has in hand, if nothing was said of it, has failed: one attempt, so
that a message whose handling always raises ends on POISON and not in a circle. KeyboardInterrupt
and its like are nobody's failure. If the manager is away it is not waited for; when it comes back
what was handed out counts as a dead reader's.

A message that comes again after its reader died is flagged `redelivered`: at least once for
whatever the reader does outside, exactly once for what happens on queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from omq.base import limits
from omq.base.errors import (
    BadRequest,
    LeaseLost,
    ManagerUnavailable,
    MessageTooLong,
    OmqError,
    TimedOut,
)
from omq.format.message import Part, pack_parts
from omq.format.wire import GIVEN, REPLY, SETTLE, GivenFlag, Operation, Settlement
from omq.ipc.bodies import Bodies
from omq.ipc.link import Link
from omq.ipc.message import Copied, Extent, Message
from omq.ipc.outgoing import Encoded, Outgoing

if TYPE_CHECKING:
    from omq.ipc.client import Connection

EXTENT_BYTES_MAX = 1 << 20  # payloads read at once
_INLINE = int(GivenFlag.INLINE)
_NEXT = int(Operation.NEXT)


class Reader:
    """A registered reader of one queue: a context manager and an iterator over messages."""

    def __init__(self, connection: Connection, link: Link, queue: str, *, batch: int,
                 auxiliary: bool) -> None:
        if not 1 <= batch <= limits.BATCH_MAX:
            raise BadRequest(reason=f"a batch is 1 to {limits.BATCH_MAX} messages")
        self._connection = connection
        self._link = link
        self.queue = queue
        self.paths = connection.paths
        self.batch = batch
        self._ended = False  # interrupted: an iteration ends
        self.lost = 0  # dispositions that came too late: the manager had taken the message back
        self._held: dict[int, Message] = {}
        self._current: Message | None = None  # what the iteration has given last
        self._records: list[tuple[Settlement, Message, int, bytes]] = []
        self._sending: list[tuple[Settlement, Message, int, bytes]] = []  # not answered yet
        link.control({"op": "reader", "queue": queue, "auxiliary": auxiliary})
        link.reader.queue, link.reader.auxiliary = queue, auxiliary
        link.reader.messages = self._holding

    @property
    def id_prefix(self) -> str:
        return self._link.id_prefix

    def _holding(self) -> list[tuple[int, int]]:
        recorded = [(m.qpool_id, m.lease) for _, m, _, _ in (*self._records, *self._sending)]
        return [(m.qpool_id, m.lease) for m in self._held.values()] + recorded

    def next(self, n: int = 0, timeout_s: float | None = None) -> list[Message]:
        """Up to `n` messages (default: the batch), after sending what is recorded. Waits up to
        `timeout_s` (None: for ever); an empty list when the time is over or on `interrupt`."""
        n = n or self.batch
        if self._link.interrupted:
            self._link.interrupted = False
            self._ended = True
            self.flush()
            return []
        wait = -1.0 if timeout_s is None else timeout_s
        data, count, length = self._take_records()
        try:
            answer = self._link.request(
                _NEXT, data, count=count, length=length, want=n, wait_s=wait,
                argument=-1 if wait < 0 else int(wait * 1000))
        finally:
            self._sending = []
        if answer.recovered:  # the settlements were carried out; what was handed out is free again
            return self.next(n, timeout_s)
        self.lost += answer.lost
        return self._rows(answer.count)

    def _rows(self, count: int) -> list[Message]:
        reply = self._link.reply
        out: list[Message] = []
        if count == 1:
            out.append(self._message(GIVEN.unpack_from(reply, REPLY.size), None))
            return out
        extent: Extent | None = None
        by_files = self._connection.bodies.by_files
        word = -1
        end = REPLY.size + count * GIVEN.size
        for row in GIVEN.iter_unpack(reply[REPLY.size : end]):
            offset, length = row[7], row[8]
            if row[3] & _INLINE or not by_files:
                out.append(self._message(row, None))
                continue
            if (extent is not None and row[6] == word and offset == extent.end
                    and length < EXTENT_BYTES_MAX - (extent.end - extent.start)):
                extent.end += length
            else:
                word = row[6]
                extent = Extent(self, word, offset, offset + length)
            out.append(self._message(row, extent))
        return out

    def _message(self, row: tuple[int, ...], extent: Extent | None) -> Message:
        pieces = extent if not row[3] & _INLINE else Copied(
            bytes(self._link.reply[row[14] : row[14] + row[8]]))
        message = Message(self, row, pieces)
        self._held[message.qpool_id] = message
        return message

    @property
    def bodies(self) -> Bodies:
        return self._connection.bodies

    def record(self, kind: Settlement, message: Message, argument: int = 0, reason: str = ""
               ) -> None:
        """Note how the work on a message ended. LeaseLost when it is not held."""
        if self._held.pop(message.qpool_id, None) is None:
            raise LeaseLost(qpool_id=message.qpool_id)
        text = reason.encode()[: limits.REASON_BYTES_MAX] if reason else b""
        self._records.append((kind, message, argument, text))

    def _take_records(self) -> tuple[bytes, int, int]:
        records, self._records = self._records, []
        self._sending = records
        if not records:
            return b"", 0, 0
        at, heads, texts = 0, [], []
        for kind, message, argument, text in records:
            heads.append(SETTLE.pack(kind, 0, len(text), message.entry, message.qpool_id,
                                     message.lease, argument, at, 0))
            if text:
                texts.append(text)
                at += len(text)
        return b"".join((*heads, *texts)), len(records), at

    def flush(self) -> None:
        """Send what is recorded; what came too late is counted in `lost`."""
        data, count, length = self._take_records()
        if count:
            try:
                answer = self._link.request(Operation.SETTLE, data, count=count, length=length)
            finally:
                self._sending = []
            self.lost += answer.lost

    def move(self, message: Message, queues: tuple[str, ...], new: tuple[Outgoing, ...]) -> None:
        """See Message.move."""
        if message.qpool_id not in self._held:
            raise LeaseLost(qpool_id=message.qpool_id)
        numbers = [self._connection.queue_number(name) for name in queues]
        parts = pack_parts([Part(number, message.priority) for number in numbers])
        self._connection.with_bodies(
            new, (), lambda encoded: self._move(message, len(numbers), parts, encoded))
        self._held.pop(message.qpool_id, None)

    def _move(self, message: Message, queues: int, parts: bytes, encoded: list[Encoded]) -> None:
        heads, at = [], 0
        for item in encoded:
            heads.append(item.head(at))
            at += len(item.payload)
        head = SETTLE.pack(0, 0, 0, message.entry, message.qpool_id, message.lease, 0, 0, 0)
        data = b"".join((head, parts, *heads, *(item.payload for item in encoded)))
        if len(data) > self._link.room:
            raise MessageTooLong(size=len(data), queue=self.queue, limit=self._link.room)
        self._link.request(Operation.MOVE, data, count=len(encoded), parts=queues, length=at)

    def holds(self, message: Message) -> bool:
        """Whether nothing has been said of this message yet."""
        return self._held.get(message.qpool_id) is message

    def interrupt(self) -> None:
        """Callable from a signal handler: the wait under way ends, and the next call of `next`
        returns at once; an iteration ends."""
        self._link.interrupt()

    def __iter__(self) -> Iterator[Message]:
        while True:
            batch = self.next()
            if not batch and (self._link.interrupted or self._ended):
                return
            for message in batch:
                self._current = message
                yield message
            self._current = None

    def close(self) -> None:
        """Send what is recorded and give back what is held."""
        for message in list(self._held.values()):
            message.release()
        self.flush()
        self._link.reader.messages = list
        self._link.reader.queue = ""
        self._link.control({"op": "unread"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        current = self._current
        if isinstance(error, Exception) and current is not None and self.holds(current):
            current.fail(f"{type(error).__name__}: {error}")
        if isinstance(error, ManagerUnavailable | TimedOut):
            return
        try:
            self.close()
        except OmqError as second:
            error.add_note(f"omq: what was said of the messages could not be sent: {second}")

