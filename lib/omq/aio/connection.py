"""The connection that coroutines share: `omq.aio.connect` gives it.

After it are native connections with a thread each, opened when they are wanted: up to
`connections` for puts, as many for requests, and for units of work, and one for each reader. Puts
that wait at the same time for the same queue go in one request and share its sync.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self
from weakref import WeakSet

from omq.aio.jobs import ALONE_BYTES, Call, Put
from omq.aio.lines import CLOSED, Job, Lines
from omq.aio.reader import AsyncReader
from omq.aio.unit import AsyncUnit
from omq.aio.waiter import Waiter
from omq.base.errors import ConnectionClosed
from omq.format.property_values import Value
from omq.ipc.client.cancelling import MessageState
from omq.ipc.client.connection import TIMEOUT_S, Client
from omq.ipc.client.connection import connect as connect_native
from omq.ipc.client.file_puts import FilePut
from omq.ipc.client.reader import PROMPT
from omq.ipc.client.request_reply import REPLIES, Reply
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

CONNECTIONS: Final = 4
CONNECTIONS_MAX: Final = 64


class _Connecting(Awaitable["AsyncConnection"]):
    """`await connect(...)`, or `async with connect(...)`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def __await__(self) -> Generator[Any, None, AsyncConnection]:
        return self._connection._open().__await__()

    async def __aenter__(self) -> AsyncConnection:
        return await self._connection._open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._connection.close()


def connect(spool: Path | str | None = None, instance: str | None = None, name: str = "python",
            timeout_s: float = TIMEOUT_S, connections: int = CONNECTIONS) -> _Connecting:
    """As omq.connect, awaited, or as `async with`. `connections`: how many native ones are shared
    by puts, by requests and by units of work (1 to 64 each); a reader has one of its own."""
    connections = arguments.whole(connections, "connections", 1, CONNECTIONS_MAX)
    return _Connecting(AsyncConnection(
        lambda: connect_native(spool, instance, name, timeout_s), connections))


class AsyncConnection:
    """A connection for any number of coroutines of one event loop; a context manager. Its calls
    are those of omq.Connection, awaited, with the same arguments, rules and errors.

    A coroutine that is cancelled while it waits for a put: it did not happen if it had not begun,
    else it goes on and nobody hears of it. `close` ends readers, and waits for what was given."""

    def __init__(self, connect: Callable[[], Client], connections: int) -> None:
        self._connect = connect
        self._puts = Lines(connect, connections, "puts")
        self._asks = Lines(connect, connections, "requests")
        self._units = Lines(connect, connections, "units")
        self._readers: list[AsyncReader] = []
        self._begun: WeakSet[AsyncUnit] = WeakSet()
        self._closed = False

    async def _open(self) -> Self:
        """The first native connection: the errors of omq.connect come here."""
        try:
            await self._call(self._puts, lambda _: None)
        except BaseException:
            await self.close()
            raise
        return self

    # putting

    async def put(self, queues: str | Sequence[str], body: bytes = b"", *,
                  priority: int | str | None = None, properties: Mapping[str, Value] | None = None,
                  persistent: bool | None = None, correlation_id: bytes | str = b"",
                  message_id: bytes | str = b"", expiry_s: float | None = None, reply_to: str = "",
                  delay_s: float = 0.0, at: datetime | None = None, group_id: bytes | str = b"",
                  group_sequence: int = 0, last_in_group: bool = False,
                  unique_key: bytes | str | None = None, outgoing: Outgoing | None = None) -> str:
        """Put one message on one queue, or on several at once; its id. It is on the disk then."""
        if (type(queues) is str and type(body) is bytes and len(body) < ALONE_BYTES
                and (correlation_id, message_id, expiry_s, reply_to, delay_s, at, group_sequence,
                     last_in_group, unique_key) == arguments.NOTHING_SAID and group_id == b""
                and (priority, persistent, properties, outgoing) == (None,) * 4):
            waiter = Waiter()
            return str(await self._wait(self._puts, Put(arguments.queue(queues), body, waiter),
                                        waiter))
        return str(await self._call(self._puts, lambda native: native.put(
            queues, body, priority=priority, properties=properties, persistent=persistent,
            correlation_id=correlation_id, message_id=message_id, expiry_s=expiry_s,
            reply_to=reply_to, delay_s=delay_s, at=at, group_id=group_id,
            group_sequence=group_sequence, last_in_group=last_in_group, unique_key=unique_key,
            outgoing=outgoing)))

    async def put_many(self, queue: str, messages: Iterable[Outgoing | bytes]) -> list[str]:
        """As Connection.put_many; an iterable that is not a list runs in another thread."""
        return list(await self._call(self._puts, lambda native: native.put_many(queue, messages)))

    async def put_file(self, queues: str | Sequence[str],
                       file: str | os.PathLike[str] | BinaryIO | int,
                       outgoing: Outgoing | None = None, *, copy: bool = True) -> FilePut:
        """As Connection.put_file."""
        put: FilePut = await self._call(self._puts, lambda native: native.put_file(
            queues, file, outgoing, copy=copy))
        return put

    async def barrier(self, queue: str, members: Iterable[bytes | str], body: bytes = b"", *,
                      within_s: float | None = None,
                      properties: Mapping[str, Value] | None = None,
                      priority: int | str | None = None, message_id: bytes | str = b"") -> str:
        """As Connection.barrier."""
        listed = members if isinstance(members, bytes | str) else tuple(members)
        return str(await self._call(self._puts, lambda native: native.barrier(
            queue, listed, body, within_s=within_s, properties=properties, priority=priority,
            message_id=message_id)))

    async def cancel(self, message_id: bytes | str, *, in_work: bool = False) -> None:
        """As Connection.cancel."""
        await self._call(self._puts, lambda native: native.cancel(message_id, in_work=in_work))

    async def state(self, message_id: bytes | str) -> list[MessageState]:
        """As Connection.state."""
        return list(await self._call(self._puts, lambda native: native.state(message_id)))

    # requests

    async def request(self, queue: str, body: bytes = b"", timeout_s: float = TIMEOUT_S, *,
                      reply_to: str = REPLIES, properties: Mapping[str, Value] | None = None,
                      priority: int | str | None = None, persistent: bool | None = None) -> Reply:
        """Put a message that wants an answer, and wait for it. As many at once as there are native
        connections; others wait for their turn, and `timeout_s` begins with it."""
        reply: Reply = await self._call(self._asks, lambda native: native.request(
            queue, body, timeout_s, reply_to=reply_to, properties=properties, priority=priority,
            persistent=persistent))
        return reply

    # reading

    def reader(self, queue: str, *, batch: int = 1, auxiliary: bool = False, ack: str = PROMPT
               ) -> AsyncReader:
        """A reader of a queue, to be used with `async with`; any number a connection. `batch`: how
        many messages are fetched at once."""
        arguments.queue(queue)
        return AsyncReader(self._connect, queue, {"auxiliary": auxiliary, "ack": ack}, batch,
                           self._entered)

    def _entered(self, reader: AsyncReader) -> None:
        """It is to be closed with the connection; what is never entered has nothing to close.
        ConnectionClosed."""
        if self._closed:
            raise ConnectionClosed(name=CLOSED)
        self._readers = [each for each in self._readers if not each.closed]
        self._readers.append(reader)

    def unit(self) -> AsyncUnit:
        """A unit of work, to be used with `async with`."""
        unit = AsyncUnit(self._units)
        self._begun.add(unit)
        return unit

    # the end

    async def close(self) -> None:
        """End the readers, back out the units that are open, wait for what was given, say good-bye.
        A second time does nothing. The first error of them."""
        self._closed = True
        for unit in tuple(self._begun):
            unit.cut_off()  # its coroutine may never come to its end
        errors: list[BaseException] = []
        for reader in self._readers:
            try:
                await reader.close()
            except Exception as error:  # the others are closed first
                errors.append(error)
        self._readers.clear()
        for lines in (self._puts, self._asks, self._units):
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, lines.close))
            errors += lines.errors
            lines.errors.clear()
        if errors:
            raise errors[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    async def _call(self, lines: Lines, work: Callable[[Client], Any]) -> Any:
        waiter = Waiter()
        return await self._wait(lines, Call(work, waiter), waiter)

    async def _wait(self, lines: Lines, job: Job, waiter: Waiter) -> Any:
        lines.give(job)
        try:
            return await waiter.result()
        except asyncio.CancelledError:
            lines.withdraw(job)
            raise
