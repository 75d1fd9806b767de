"""Reading over AMQP: as omq.Reader, by link credit.

`batch` is the credit: so many are on their way or here, and nobody else gets them. When a
settlement travels is `ack`, as natively: "prompt" at once, "batch" with the next request. `flush`
returns when all of them are on the server's disk.

Errors: ReaderClosed, those of the line, NotRemote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import NoReturn, Self

from omq.base import limits
from omq.base.errors import NotRemote, OmqError, ReaderClosed, RemoteLost, TimedOut
from omq.ipc.client.remote.links import ACCEPTED, REJECTED, RELEASED, Taking
from omq.ipc.client.remote.message import RemoteMessage, say
from omq.ipc.client.remote.translated import decoded
from omq.ipc.client.remote.unit import Connected
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

PROMPT, BATCH = "prompt", "batch"


class RemoteReader:
    """See the module."""

    def __init__(self, connection: Connected, queue: str, *, batch: int = 1,
                 ack: str = PROMPT, where: str = "") -> None:
        if ack not in (PROMPT, BATCH):
            raise arguments.wrong("ack", ack, f"it is {PROMPT!r} or {BATCH!r}")
        self.batch = arguments.whole(batch, "batch", 1, limits.BATCH_MAX)
        self.where, self.lost, self.closed = where, 0, False
        self._connection, self._line, self._ack = connection, connection.line, ack
        self._link = Taking(self._line, queue, where=where)
        self._link.attach()
        self.queue = self._link.queue
        self._held: dict[str, RemoteMessage] = {}
        self._said: list[tuple[str, int, str]] = []  # with ack "batch", not sent
        self._sent: list[str] = []  # not known to be on the disk
        self._interrupted = self._woken = False
        self._current: RemoteMessage | None = None

    # taking

    def next(self, n: int = 0, timeout_s: float | None = None, *,
             correlation: bytes | str | None = None, message_id: bytes | str | None = None,
             where: str | None = None) -> list[RemoteMessage]:
        """As Reader.next; by an id: NotRemote, a reader with `where` does that."""
        if correlation is not None or message_id is not None or where is not None:
            raise NotRemote(what="next by an id or a selector", instead="give the reader a where")
        n = arguments.whole(n, "n", 1, limits.BATCH_MAX) if n else self.batch
        wait_s = None if timeout_s is None else arguments.seconds(timeout_s, "timeout_s")
        if self.closed:
            raise ReaderClosed(queue=self.queue)
        self._send()
        self._line.until(partial(self._link.want, max(n, self.batch)), self._line.timeout_s)
        if wait_s == 0:
            return self._there_now(n)
        try:
            return self._line.until(lambda: self._found(n), wait_s)
        except TimedOut:
            if wait_s is None:
                raise
            return []

    def _found(self, n: int) -> list[RemoteMessage] | None:
        """In the thread of the line."""
        self._link.check()
        if not self._link.found:
            ends, self._interrupted, self._woken = (
                self._interrupted or self._woken, False, False)
            return [] if ends else None
        return [self._message() for _ in range(min(n, len(self._link.found)))]

    def _there_now(self, n: int) -> list[RemoteMessage]:
        """What the server has for it now: it is asked."""
        link = self._link
        self._line.until(partial(link.drain, n), self._line.timeout_s)
        self._line.until(lambda: link.alive().is_drained or None, self._line.timeout_s)
        return self._line.until(lambda: [
            self._message() for _ in range(min(n, len(link.found)))], self._line.timeout_s)

    def _message(self) -> RemoteMessage:
        came = self._link.found.popleft()
        made = RemoteMessage(self, self.queue, came.tag, decoded(came.data))
        self._held[came.tag] = made
        return made

    def __iter__(self) -> Iterator[RemoteMessage]:
        while True:
            found = self.next(1)
            if not found:
                return
            self._current = found[0]
            yield found[0]
            self._current = None

    def take(self, row: object) -> NoReturn:
        raise NotRemote(what="take", instead="give the reader a where that chooses the message")

    def interrupt(self) -> None:
        """The wait under way, or the next one, ends; callable from a signal handler."""
        self._interrupted = True
        self._line.poke()

    def wake(self) -> None:
        """As `interrupt`."""
        self._woken = True
        self._line.poke()

    # settling

    def holds(self, message: RemoteMessage) -> bool:
        return message.open and self._held.get(message.tag) is message

    def settle(self, message: RemoteMessage, state: int, reason: str = "") -> None:
        message.ended()
        del self._held[message.tag]
        self._said.append((message.tag, state, reason))
        if self._ack == PROMPT:
            self._send()

    def _send(self) -> None:
        said, self._said = self._said, []
        if said:
            self._line.until(lambda: [self._settled(*each) for each in said],
                             self._line.timeout_s)
            self._sent += [tag for tag, _, _ in said]
        if self._sent:
            self._sent = self._line.until(lambda: [
                tag for tag in self._sent if not self._link.is_settled(tag)], None)

    def _settled(self, tag: str, state: int, reason: str) -> bool:
        if state in (ACCEPTED, RELEASED):
            return self._link.settle(tag, state)
        return self._link.settle(tag, state, partial(say, reason if state == REJECTED else ""))

    def flush(self) -> None:
        """All that was said is on the server's disk."""
        self._send()
        self._line.until(
            lambda: all(map(self._link.is_settled, self._sent)) or None, self._line.timeout_s)
        self._sent = []

    def replace(self, message: RemoteMessage, new: Sequence[Outgoing]) -> None:
        """Finish it and put these, by a transaction of its own."""
        if not self.holds(message):
            message.open = False
            message.ended()
        self._send()
        transaction = self._connection.transaction()
        try:
            for each in new:
                transaction.put(each)
            transaction.accept(self._link, message.tag)
            transaction.discharge()
        except OmqError:
            message.open = False
            self._held.pop(message.tag, None)  # it is the queue's again
            raise
        message.open = False
        del self._held[message.tag]

    def move_many(self, moves: Sequence[tuple[RemoteMessage, Sequence[Outgoing]]]) -> None:
        """One after the other."""
        for message, new in moves:
            self.replace(message, new)

    # the end

    def close(self) -> None:
        """Send what was said; what is held is back at its old place."""
        if self.closed:
            return
        self.closed = True
        for message in tuple(self._held.values()):
            self.settle(message, RELEASED)
        self.flush()
        self._line.until(self._link.close, self._line.timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        current = self._current
        if isinstance(error, RemoteLost | TimedOut):
            self.closed = True
            return
        if isinstance(error, Exception) and current is not None and self.holds(current):
            self.settle(current, REJECTED, f"{type(error).__name__}: {error}")
        self.close()
