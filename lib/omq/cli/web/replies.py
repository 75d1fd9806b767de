"""Requests of the REST interface: put a message that wants an answer, and wait for just that one.

All share one temporary queue for their answers, read by one desk, so a thousand that wait cost no
thread each. A request may be served for as long as its program waits, and no longer: that is its
expiry. An answer for which nobody waits any more is finished.

Crash argument: the question is put as any message. If omq-web ends, its temporary queue goes with
what is on it, and the question when its time is over: the program asks again. For the event loop.

Errors: NoReply; those of a put and of a reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from omq.base.errors import LeaseLost, MessageTooLong, NoReply, OmqError
from omq.cli.web.budget import Budget
from omq.cli.web.desk import INLINE_BYTES, Desk, Taken
from omq.ipc.client import Client
from omq.ipc.reader import Reader

_USER: Final = ""
"""Whose bytes answers are until they are somebody's."""
_BATCH: Final = 100
_EARLY_MAX: Final = 1000
"""Answers that came before their question's id was known here."""


class Replies:
    """See the module."""

    def __init__(self, connect: Callable[[], Client], budget: Budget) -> None:
        self._connect, self._budget = connect, budget
        self._desk: Desk | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._early: dict[str, dict[str, Any]] = {}
        self._asking = 0

    def __len__(self) -> int:
        return self._asking

    async def ask(self, queue: str, timeout_s: float, put: Callable[[str], Awaitable[str]]
                  ) -> dict[str, Any]:
        """The record of the answer. `put`: puts the question with this `reply_to`; its id."""
        desk = await self._reading()
        self._asking += 1
        asked = "?"
        try:
            async with asyncio.timeout(timeout_s):
                asked = await put(desk.queue)
                found = self._early.pop(asked, None)
                if found is None:
                    future = self._waiting[asked] = asyncio.get_running_loop().create_future()
                    found = await future
                return found
        except TimeoutError as error:
            raise NoReply(request=asked, queue=queue, seconds=timeout_s, reply_to=desk.queue
                          ) from error
        finally:
            self._asking -= 1
            self._waiting.pop(asked, None)
            if not self._asking:
                self._early.clear()

    async def _reading(self) -> Desk:
        if self._desk is None or self._desk.ended:
            self._desk = Desk(self._connect, lambda client: client.queues.temporary(),
                              self._budget)
            self._task = asyncio.get_running_loop().create_task(self._read(self._desk))
        await asyncio.shield(self._desk.began.future)
        return self._desk

    async def _read(self, desk: Desk) -> None:
        error: OmqError | None = None
        while error is None:
            try:
                found = await desk.get(_USER, _BATCH, now=False)
                await desk.say(_done(found))
            except OmqError as said:
                error = said
            else:
                for each in found:
                    desk.forget(each)
                    self._came(desk, each.record)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()

    def _came(self, desk: Desk, record: dict[str, Any]) -> None:
        asked = str(record["correlation"])
        future = self._waiting.pop(asked, None)
        if future is None:
            if self._asking:
                while len(self._early) >= _EARLY_MAX:
                    del self._early[next(iter(self._early))]
                self._early[asked] = record
        elif not future.done():
            if "body" in record or "body_base64" in record:
                future.set_result(record)
            else:
                future.set_exception(MessageTooLong(size=record["size"], queue=desk.queue,
                                                    limit=INLINE_BYTES))

    async def close(self) -> None:
        """Whoever waits hears that it ends."""
        if self._desk is not None:
            self._desk.close()
        if self._task is not None:
            await self._task


def _done(found: Sequence[Taken]) -> Callable[[Reader], None]:
    def say(_reader: Reader) -> None:
        for each in found:
            with suppress(LeaseLost):
                each.message.done()

    return say
