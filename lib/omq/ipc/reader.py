"""Readers: messages handed out by the queue manager, and how the work on each of them ends.

When a settlement (done, defer, fail, release) travels is the reader's `ack`:

    prompt   (default) at once when the last request is 30 ms or longer ago; else it is noted
             where the manager sees it (fast.note), and travels with the next request, or when the
             manager looks, which it does 50 ms after its last answer. If this process dies, what
             was noted holds, and only what the program had in work has failed
    batch    with the next request for messages, kept in this process until then. If it dies,
             everything that it held has failed

`flush` sends what is recorded. `move` is always sent at once: it is one atomic operation.

In work is what the iteration gave last, and what of a list (`next`) the program has looked into
(body, properties, ids), until it is settled. A program that dies with a list of which it has
neither looked into nor settled one had all of them in work.

Leaving the reader (the end of its `with`, `close`) sends what is recorded and gives back what is
still held, to its old place and no attempt counted. Leaving it by an exception does the same, but
the message that the iteration has in hand, if nothing was said of it, has failed: one attempt, so
that a message whose handling always raises ends on POISON and not in a circle. KeyboardInterrupt
and its like are nobody's failure, nor is a manager that stops or is away. One that is away is not
waited for; when it comes back what was handed out counts as a dead reader's.

A message that comes again after its reader died is flagged `redelivered`: at least once for
whatever the reader does outside, exactly once for what happens on queues.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from omq.base import limits
from omq.base.clock import NS_PER_S as NS
from omq.base.errors import (
    LeaseLost,
    ManagerUnavailable,
    MessageTooLong,
    OmqError,
    ReaderClosed,
    ShuttingDown,
    TimedOut,
)
from omq.fast.handed import Rows
from omq.format.message import Part, pack_parts
from omq.format.wire import SETTLE, Operation, Settlement
from omq.ipc import arguments
from omq.ipc.message import Message
from omq.ipc.outgoing import Encoded, Outgoing
from omq.ipc.settling import Settling
from omq.ipc.wish import STRANGER, STRANGER_S, Wish, wish

if TYPE_CHECKING:
    from omq.ipc.client_wire import Wire

PROMPT: Final = "prompt"
BATCH: Final = "batch"
_NEXT, _GET = int(Operation.NEXT), int(Operation.GET)
_NOBODYS_FAULT: Final = (ManagerUnavailable, TimedOut, ShuttingDown)


class Reader(Settling):
    """A registered reader of one queue: a context manager and an iterator over messages.

        with connection.reader("ORDERS", batch=10) as reader:
            for message in reader:
                work(message.body)
                message.done()

    `lost` counts settlements that came too late: the manager had taken the message back."""

    def __init__(self, wire: Wire, queue: str, *, batch: int, auxiliary: bool, ack: str) -> None:
        if ack not in (PROMPT, BATCH):
            raise arguments.wrong("ack", ack, f"it is {PROMPT!r} or {BATCH!r}")
        super().__init__(wire.link, wire.link.reader.note if ack == PROMPT else None)
        self.queue = queue
        self.batch = arguments.whole(batch, "batch", 1, limits.BATCH_MAX)
        self._wire = wire
        self._ended = False  # interrupted: an iteration ends
        self._closed = False
        self._ahead: deque[Message] = deque()  # handed out, and not given by the iteration yet
        self._current: Message | None = None  # what the iteration has given last
        self._rows = Rows(self, self._held, wire, wire.bodies.files, Message)
        prompt = self._note is not None
        self._link.control({"op": "reader", "queue": queue, "auxiliary": auxiliary,
                            "prompt": prompt})
        held = self._link.reader
        held.queue, held.auxiliary, held.prompt = queue, auxiliary, prompt
        held.messages, held.say_again = self._holding, self._say_again

    # taking

    def next(self, n: int = 0, timeout_s: float | None = None, *,
             correlation: bytes | str | None = None, message_id: bytes | str | None = None
             ) -> list[Message]:
        """Up to `n` messages (default: the batch), after sending what is recorded. Waits up to
        `timeout_s` for messages (None: for ever), and besides for a manager that is away as the
        connection does; an empty list when the time is over or on `interrupt`.

        `correlation`, `message_id`: only those with this id, as bytes, as a text, or as `put`
        returned it. They are found at the same cost at any depth, and in work from then on;
        what an iteration had fetched ahead goes back first. BadArgument, BadRequest."""
        if n != 0:
            n = arguments.whole(n, "n", 1, limits.BATCH_MAX)
        if timeout_s is not None:
            timeout_s = arguments.seconds(timeout_s, "timeout_s")
        n = n or self.batch
        wanted = wish(correlation, message_id, self._link.id_prefix)
        if wanted is not None:
            return self._take_certain(wanted, n, timeout_s)
        ahead = [self._ahead.popleft() for _ in range(min(n, len(self._ahead)))]
        messages = [each for each in ahead if self._holds(each)] or self._take(n, timeout_s)
        if messages and self._note is not None:
            self._list = messages[-1].lease
            self._note.listed(self._list)
        return messages

    def _take_certain(self, wanted: Wish, n: int, timeout_s: float | None) -> list[Message]:
        """Messages with an id."""
        while self._ahead:
            message = self._ahead.popleft()
            if self._holds(message):
                self._record(Settlement.RELEASE, message, later=True)
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            found = self._take(n, timeout_s, wanted)
            meant = []
            for message in found:
                if wanted.meant(message):
                    meant.append(message)
                else:
                    self._record(Settlement.DEFER, message, STRANGER_S * NS, STRANGER, later=True)
            if meant or not found:
                for message in meant:
                    self.looked_into(message)
                return meant
            if ends is not None:
                timeout_s = max(0.0, ends - time.monotonic())

    def _take(self, n: int, timeout_s: float | None, wanted: Wish | None = None) -> list[Message]:
        if self._closed:
            raise ReaderClosed(queue=self.queue)
        link = self._link
        if link.interrupted:
            link.interrupted = False
            self._ended = True
            self.flush()
            return []
        wait = -1.0 if timeout_s is None else timeout_s
        if link.woken:
            wait = 0.0
        answer = self._request(_NEXT if wanted is None else _GET, n, wait,
                                -1 if wait < 0 else int(wait * 1000), wanted)
        link.woken = False
        if answer.recovered:  # the settlements were carried out; what was handed out is free again
            return self._take(n, timeout_s, wanted)
        return self._rows.take(self._link.reply, answer.count, self._link.trusted)

    def __iter__(self) -> Iterator[Message]:
        note, ahead = self._note, self._ahead
        while True:
            while ahead:
                message = ahead.popleft()
                if message.qpool_id not in self._held:
                    continue  # settled before its turn
                self._current = message
                if note is not None:
                    self._work = message
                    note.current(message.lease)
                yield message
            self._current = None
            batch = self._take(self.batch, None)
            if not batch and (self._link.interrupted or self._ended):
                return
            ahead.extend(batch)

    def _move(self, message: Message, queues: tuple[str, ...], new: tuple[Outgoing, ...]) -> None:
        """See Message.move."""
        if message.qpool_id not in self._held:
            raise LeaseLost(qpool_id=message.qpool_id)
        numbers = [self._wire.queue_number(name) for name in queues]
        parts = pack_parts([Part(number, message.priority) for number in numbers])
        self._wire.with_bodies(
            new, (), lambda encoded: self._moved(message, len(numbers), parts, encoded))
        self._held.pop(message.qpool_id, None)

    def _moved(self, message: Message, queues: int, parts: bytes, encoded: list[Encoded]) -> None:
        heads, at = [], 0
        for item in encoded:
            heads.append(item.head(at))
            at += len(item.payload)
        head = SETTLE.pack(0, 0, 0, message.entry, message.qpool_id, message.lease, 0, 0, 0)
        data = b"".join((head, parts, *heads, *(item.payload for item in encoded)))
        if len(data) > self._link.room:
            raise MessageTooLong(size=len(data), queue=self.queue, limit=self._link.room)
        self._link.request(Operation.MOVE, data, count=len(encoded), parts=queues, length=at)

    # the end

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def interrupt(self) -> None:
        """Callable from a signal handler and from another thread: the wait under way ends, and the
        next call of `next` returns at once; an iteration ends."""
        self._link.interrupt()

    def wake(self) -> None:
        """As `interrupt`, for a program that has other work to look after: the wait under way ends,
        with what is there, an iteration goes on, and a manager that is away is still waited
        for."""
        self._link.wake()

    def close(self) -> None:
        """Send what is recorded and give back what is held. A closed reader is closed for ever; the
        connection may make another."""
        if self._closed:
            return
        for message in list(self._held.values()):
            self._record(Settlement.RELEASE, message, later=True)
        self.flush()
        self._link.control({"op": "unread"})
        self._closed = True
        held = self._link.reader
        held.messages, held.queue, held.prompt, held.say_again = list, "", False, _nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        current = self._current
        if (isinstance(error, Exception) and not isinstance(error, _NOBODYS_FAULT)
                and current is not None and self._holds(current)):
            self._record(Settlement.FAIL, current, 0, f"{type(error).__name__}: {error}",
                         later=True)
        try:
            if not isinstance(error, ManagerUnavailable | TimedOut):
                self.close()
        except OmqError as second:
            error.add_note(f"omq: what was said of the messages could not be sent: {second}")
        finally:
            self._closed = True  # the connection does not try once more


def _nothing() -> None:
    return None
