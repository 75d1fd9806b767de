"""A message in a coroutine's hands. What it says is there; what ends its work is awaited.

As a context manager it ends by itself, unless something was said of it: done at the end of the
block, failed by an exception, given back when the coroutine is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from omq.base.errors import (
    ConnectionClosed,
    ManagerUnavailable,
    OmqError,
    ReaderClosed,
    ShuttingDown,
    TimedOut,
    UnitEnded,
)
from omq.format.property_values import Value
from omq.ipc.client.failures import Failure
from omq.ipc.client.message import Message
from omq.ipc.wire.outgoing import Outgoing

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
_NOBODYS_FAULT = (ManagerUnavailable, TimedOut, ShuttingDown)


class AsyncMessage:
    """See omq.Message for what the attributes say and what each end of the work means: `done`,
    `defer`, `fail`, `release`, `move` and `reply`, once, LeaseLost after that. `native` is that
    message, which only its own thread may use."""

    __slots__ = ("_run", "_settled", "attempts", "body", "correlation", "message_id", "native",
                 "persistent", "priority", "properties", "queue", "redelivered", "reply_to", "size")

    def __init__(self, native: Message, run: Run) -> None:
        """In the thread of the message, which reads its payload. BodyUnavailable, BodyDamaged."""
        self.native, self._run, self._settled = native, run, False
        self.body: bytes = native.body
        self.properties: dict[str, Any] = native.properties
        self.message_id: str = native.message_id
        self.correlation: str = native.correlation
        self.reply_to: str = native.reply_to
        self.queue: str = native.queue
        self.priority: int = native.priority
        self.persistent: bool = native.persistent
        self.attempts: int = native.attempts
        self.redelivered: bool = native.redelivered
        self.size: int = native.size

    async def done(self) -> None:
        """Finished: the message leaves this queue."""
        await self._end(self.native.done)

    async def defer(self, seconds: float, reason: str = "") -> None:
        """Hand it out again after `seconds`; no failed attempt is counted."""
        await self._end(lambda: self.native.defer(seconds, reason))

    async def fail(self, reason: str = "", delay_s: float | None = None) -> None:
        """A failed attempt."""
        await self._end(lambda: self.native.fail(reason, delay_s))

    async def release(self) -> None:
        """Give it back untouched, to its old place."""
        await self._end(self.native.release)

    async def move(self, queues: str | Sequence[str], new: Sequence[Outgoing] = ()) -> None:
        """Off this queue, onto `queues`, and put `new`: all or nothing."""
        await self._end(lambda: self.native.move(queues, new))

    async def reply(self, body: bytes = b"", *, properties: Mapping[str, Value] | None = None,
                    priority: int | str | None = None, persistent: bool | None = None) -> bool:
        """Answer a request, and finish with it. False: its time is over."""
        return bool(await self._end(lambda: self.native.reply(
            body, properties=properties, priority=priority, persistent=persistent)))

    async def touch(self, progress: str = "") -> None:
        """The work goes on: as of omq.Message."""
        await self._run(lambda: self.native.touch(progress))

    async def failure(self) -> Failure | None:
        """As of omq.Message."""
        found: Failure | None = await self._run(lambda: self.native.failure)
        return found

    async def _end(self, say: Callable[[], Any]) -> Any:
        self._settled = True  # also if this is cancelled: it is settled all the same
        try:
            return await self._run(say)
        except OmqError:
            self._settled = False
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        if self._settled:
            return
        if error is None:
            await self.done()
        elif isinstance(error, Exception) and not isinstance(error, _NOBODYS_FAULT):
            await self.fail(f"{type(error).__name__}: {error}")
        else:
            # Said before this coroutine goes on with its end, which nobody is to wait for.
            with suppress(ReaderClosed, ConnectionClosed, UnitEnded):  # which gave it back
                await asyncio.shield(self.release())
