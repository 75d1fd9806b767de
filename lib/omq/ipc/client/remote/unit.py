"""Units of work over AMQP: transactions of the server (ADR 0081), as omq.Unit.

Errors: UnitEnded, UnitBackedOut, MessageInUnit, NotRemote, those of the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

from proton import Described, Message, symbol

from omq.base import limits
from omq.base.errors import (
    MessageInUnit,
    NotRemote,
    RemoteLost,
    RemoteRefused,
    TimedOut,
    UnitEnded,
)
from omq.ipc.client.remote.line import Line
from omq.ipc.client.remote.links import (
    ACCEPTED,
    TRANSACTIONAL,
    DeliveryOutcome,
    Giving,
    Taking,
    refuse,
)
from omq.ipc.client.remote.message import RemoteMessage
from omq.ipc.client.remote.translated import decoded, encoded
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

_DECLARED = 0x33


class Connected(Protocol):
    """What a unit and a reader need of their connection."""

    @property
    def line(self) -> Line: ...

    def transaction(self) -> Transaction: ...

    def sent(self, queue: str, data: bytes, transaction: bytes = ...) -> DeliveryOutcome: ...

    def outgoing(self, queues: str | Sequence[str], body: bytes, outgoing: Outgoing | None,
                 **more: Any) -> Outgoing: ...


class Transaction:
    """One of the server's."""

    def __init__(self, connection: Connected, coordinator: Giving) -> None:
        self._connection, self._line = connection, connection.line
        self._coordinator = coordinator
        told = self._asked(Described(symbol("amqp:declare:list"), [None]))
        if told.state != _DECLARED or not told.data:
            refuse("a unit of work", told)
        self.name = bytes(told.data[0])

    def _asked(self, body: Any) -> DeliveryOutcome:
        data, line = bytes(Message(body=body).encode()), self._line
        tag = line.until(lambda: self._coordinator.send(data), line.timeout_s)
        return line.until(lambda: self._coordinator.told(tag), line.timeout_s)

    def put(self, message: Outgoing) -> str:
        """On each of its queues; the id."""
        identifier, data = encoded(message)
        for queue in message.queues:
            told = self._connection.sent(queue, data, self.name)
            if told.state != TRANSACTIONAL:
                refuse(queue, told)
        return identifier

    def accept(self, link: Taking, tag: str) -> None:
        self._line.until(partial(link.settle, tag, ACCEPTED, transaction=self.name),
                         self._line.timeout_s)

    def discharge(self, *, fails: bool = False) -> None:
        """RemoteRefused: it was rolled back."""
        told = self._asked(Described(symbol("amqp:discharge:list"), [self.name, fails]))
        if told.state != ACCEPTED:
            raise RemoteRefused(queue="a unit of work", condition=told.condition,
                                reason=told.reason)


class RemoteUnit:
    """See the module."""

    def __init__(self, connection: Connected) -> None:
        self._connection, self._line = connection, connection.line
        self._transaction = connection.transaction()
        self._taken: list[tuple[Taking, RemoteMessage]] = []
        self._links: dict[str, Taking] = {}
        self._ended = ""
        self.ids: list[str] = []

    @property
    def open(self) -> bool:
        return not self._ended

    def __len__(self) -> int:
        return len(self._taken) + len(self.ids)

    def get(self, queue: str, timeout_s: float | None = None, **by: Any) -> RemoteMessage | None:
        found = self.next(queue, 1, timeout_s, **by)
        return found[0] if found else None

    def next(self, queue: str, n: int = 1, timeout_s: float | None = None, **by: Any
             ) -> list[RemoteMessage]:
        """Up to `n` that belong to the unit then."""
        self._check_open()
        if by:
            raise NotRemote(what="a unit's get by an id", instead="a reader with where, and move")
        n = arguments.whole(n, "n", 1, limits.BATCH_MAX)
        wait_s = None if timeout_s is None else arguments.seconds(timeout_s, "timeout_s")
        link = self._links.get(arguments.queue(queue))
        if link is None:
            link = self._links[queue] = Taking(self._line, queue)
            link.attach()
        if wait_s != 0:
            self._line.until(partial(link.want, n), self._line.timeout_s)
            try:
                self._line.until(lambda: len(link.alive().found) or None, wait_s)
            except TimedOut:
                if wait_s is None:
                    raise
        self._line.until(partial(link.drain, n), self._line.timeout_s)
        self._line.until(lambda: link.alive().is_drained or None, self._line.timeout_s)
        messages = self._line.until(lambda: [self._message(link) for _ in range(len(link.found))],
                                    self._line.timeout_s)
        for message in messages:
            self._transaction.accept(link, message.tag)
            self._taken.append((link, message))
        return messages

    def _message(self, link: Taking) -> RemoteMessage:
        came = link.found.popleft()
        return RemoteMessage(self, link.queue, came.tag, decoded(came.data))

    def settle(self, message: RemoteMessage, state: int, reason: str = "") -> NoReturn:
        raise MessageInUnit(qpool_id=message.message_id)

    def replace(self, message: RemoteMessage, new: Sequence[Outgoing]) -> None:
        """It ends with the unit; its answer is put by it."""
        for each in new:
            self.put(each.queues, outgoing=each)

    def put(self, queues: str | Sequence[str], body: bytes = b"", *,
            outgoing: Outgoing | None = None, **more: Any) -> None:
        """As Connection.put; it happens with the commit."""
        self._check_open()
        self.ids.append(self._transaction.put(
            self._connection.outgoing(queues, body, outgoing, **more)))

    def commit(self) -> list[str]:
        """RemoteRefused: it was backed out, unlike a native one, which stays open."""
        self._check_open()
        self._ended = "backed out"
        try:
            self._transaction.discharge()
            self._ended = "committed"
        finally:
            self._end()
        return self.ids

    def backout(self) -> None:
        self._check_open()
        self._ended = "backed out"
        self._transaction.discharge(fails=True)
        self._end()

    def prepare(self, name: str = "") -> str:
        raise NotRemote(what="prepare", instead="two phases need a program on the host itself")

    def _end(self) -> None:
        for link in self._links.values():
            self._line.until(link.close, self._line.timeout_s)

    def _check_open(self) -> None:
        if self._ended:
            raise UnitEnded(how=self._ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if not self.open or isinstance(error, RemoteLost | TimedOut):
            self._ended = self._ended or "backed out"
        elif error is None:
            self.commit()
        else:
            self.backout()
