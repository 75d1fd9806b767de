"""Puts of several links that come in one turn of the event loop go to their queue together: one
request and one sync for all of them (putter).

A batch with a body in a file, or for several queues, goes by itself: others would wait for its
disk. What happens to each is what would have become of it alone; only a batch that stands behind
one which its queue does not take now waits with it.

Invariant: a batch is given to the putters once, in the order of its link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from omq.ipc.client.connection import Client
from omq.ipc.client.ending_together import New
from omq.services.amqp.putter import PutResult, of_each, put_batch

Put = Callable[[Callable[[Client], list[PutResult]]], Awaitable[list[PutResult]]]


@dataclass(slots=True)
class _Waits:
    """A batch, and who waits for its fates."""

    batch: Sequence[New]
    told: asyncio.Future[list[PutResult]]


class JoinedPuts:
    """See the module. `put`: Host.put. `most`: messages of one request."""

    def __init__(self, put: Put, most: int) -> None:
        self._put, self._most = put, most
        self._turn: dict[tuple[str, ...], list[_Waits]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, queues: tuple[str, ...], batch: Sequence[New]) -> list[PutResult]:
        """Their fates, as put_batch tells them; it may tell none: then nothing was tried."""
        if len(queues) > 1 or any(file is not None for _, file in batch):
            return await self._put(lambda native: put_batch(native, queues, batch))
        loop = asyncio.get_running_loop()
        if not self._turn:
            loop.call_soon(self._go)
        waits = _Waits(batch, loop.create_future())
        self._turn.setdefault(queues, []).append(waits)
        return await waits.told

    def _go(self) -> None:
        turn, self._turn = self._turn, {}
        for queues, waiting in turn.items():
            while waiting:
                some = [waiting.pop(0)]
                count = len(some[0].batch)
                while waiting and count + len(waiting[0].batch) <= self._most:
                    count += len(waiting[0].batch)
                    some.append(waiting.pop(0))
                task = asyncio.get_running_loop().create_task(self._together(queues, some))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _together(self, queues: tuple[str, ...], some: Sequence[_Waits]) -> None:
        batch = [each for waits in some for each in waits.batch]
        try:
            told = await self._put(lambda native: put_batch(native, queues, batch))
        except Exception as error:
            for waits in some:
                if not waits.told.done():
                    waits.told.set_exception(error)
            return
        for waits, own in zip(some, of_each(told, [len(each.batch) for each in some]), strict=True):
            if not waits.told.done():  # its link has been cancelled
                waits.told.set_result(own)
