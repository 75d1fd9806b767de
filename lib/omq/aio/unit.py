"""A unit of work for coroutines: a native unit on a line that is kept until its end.

Invariants: 1. what a `get` took whose coroutine was cancelled is given back before anything else of
the unit is done: a commit must not finish a message that nobody saw; 2. a wait for messages is one
request, which is woken when its coroutine is cancelled, or the connection is closed; 3. a wake that
was meant for a wait which had ended by itself ends no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from omq.aio.jobs import Kept
from omq.aio.lines import CLOSED, Lines
from omq.aio.message import AsyncMessage
from omq.aio.waiter import Waiter
from omq.base.errors import (
    ConnectionClosed,
    ManagerUnavailable,
    OmqError,
    TimedOut,
    UnitEnded,
)
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.ipc.client.unit import Unit


@dataclass(slots=True)
class _Take:
    """One `get` or `next`."""

    given_up: bool = False  # its coroutine was cancelled
    found: list[Message] = field(default_factory=list)


class AsyncUnit:
    """See omq.Unit. `async with` commits at its end, and backs out by an exception or when the
    coroutine is cancelled. `ids`: of what was put, after the commit. Made by AsyncClient.unit;
    a connection has as many at once as it has native connections, others wait for one."""

    def __init__(self, lines: Lines) -> None:
        self._lines, self._kept = lines, None
        self._unit: Unit | None = None
        self._takes: list[_Take] = []  # whose coroutines were cancelled
        self._closed = False  # the connection was
        self.ids: list[str] = []

    _kept: Kept | None

    async def __aenter__(self) -> Self:
        if self._unit is not None:
            raise UnitEnded(how="begun before")
        waiter = Waiter(unwanted=Kept.give_back)
        job = Kept(waiter)
        self._lines.give(job)
        try:
            self._kept = await waiter.result()
        except asyncio.CancelledError:
            self._lines.withdraw(job)
            raise
        begun: list[Unit] = []

        def begin(connection: Client) -> Unit:
            begun.append(connection.unit())
            return begun[0]

        try:
            self._unit = await self._on_line(begin)
        except BaseException:
            # The thread may begin it after a cancellation: who has the line next must find none.
            self._kept.call(lambda _: _back_out_all(begun), Waiter())
            self._give_back()
            raise
        return self

    async def put(self, queues: str | list[str], body: bytes = b"", **said: Any) -> None:
        """As Unit.put."""
        await self._call(lambda unit: unit.put(queues, body, **said))

    async def barrier(self, queue: str, body: bytes = b"", **said: Any) -> None:
        """As Unit.barrier."""
        await self._call(lambda unit: unit.barrier(queue, body, **said))

    async def get(self, queue: str, timeout_s: float | None = None) -> AsyncMessage | None:
        """As Unit.get; the message ends with the unit."""
        found = await self.next(queue, 1, timeout_s)
        return found[0] if found else None

    async def next(self, queue: str, n: int = 1, timeout_s: float | None = None
                   ) -> list[AsyncMessage]:
        """As Unit.next."""
        take = _Take()
        try:
            found = await self._call(lambda unit: [
                AsyncMessage(each, self._run)
                for each in self._taken(unit, take, queue, n, timeout_s)])
        except asyncio.CancelledError:
            take.given_up = True
            self._takes.append(take)
            self._wake()
            raise
        if self._closed:
            raise ConnectionClosed(name=CLOSED)
        return list(found)

    async def commit(self) -> list[str]:
        """As Unit.commit."""
        self.ids = list(await self._call(Unit.commit))
        return self.ids

    async def backout(self) -> None:
        """As Unit.backout."""
        await self._call(Unit.backout)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        if error is not None and self._closed:
            return  # backed out already: what was raised goes on
        try:
            # Not given up half-way, also if the coroutine is cancelled once more.
            await asyncio.shield(self._call(lambda unit: _end(unit, error)))
        finally:
            self._give_back()

    def cut_off(self) -> None:
        """The connection is closed: back out what is open, and give the line back. A commit that
        was asked for comes first."""
        unit, kept = self._unit, self._kept
        if kept is not None:
            self._closed = True
            self._wake()
            if unit is not None:
                kept.call(lambda _: unit.backout() if unit.open else None, Waiter())
            self._give_back()

    def _taken(self, unit: Unit, take: _Take, queue: str, n: int, timeout_s: float | None
               ) -> list[Message]:
        """In the thread. Who wakes it says before why: either that is seen here, or the wake comes
        after this look and ends the wait."""
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        left_s = timeout_s
        while True:
            unit._forget_wake()
            if take.given_up or self._closed:
                return take.found
            take.found = unit.next(queue, n, left_s)
            if take.found or (ends is not None and time.monotonic() >= ends):
                return take.found
            left_s = None if ends is None else max(0.0, ends - time.monotonic())

    def _wake(self) -> None:
        if self._unit is not None:
            self._unit._wake()

    async def _call(self, work: Callable[[Unit], Any]) -> Any:
        unit = self._unit
        if unit is None:
            raise UnitEnded(how="not begun")
        unseen, self._takes = self._takes, []

        def whole(_: Client) -> Any:
            try:
                for message in (each for take in unseen for each in take.found if unit.open):
                    unit._give_back(message)
            except OmqError as error:
                unit._leave_by(error)
                raise
            return work(unit)

        answer = await self._on_line(whole)
        self.ids = unit.ids
        return answer

    async def _run(self, say: Callable[[], Any]) -> Any:
        return await self._on_line(lambda _: say())

    async def _on_line(self, work: Callable[[Client], Any]) -> Any:
        if self._kept is None:
            raise ConnectionClosed(name=CLOSED) if self._closed else UnitEnded(how="left")
        waiter = Waiter()
        self._kept.call(work, waiter)
        return await waiter.result()

    def _give_back(self) -> None:
        if self._kept is not None:
            self._kept.give_back()
            self._kept = None


def _end(unit: Unit, error: BaseException | None) -> None:
    """In the thread: what the end of the native `with` does."""
    if error is None or isinstance(error, ManagerUnavailable | TimedOut):
        unit.__exit__(type(error) if error else None, error, None)
    elif unit.open:
        unit.backout()


def _back_out_all(units: list[Unit]) -> None:
    for unit in units:
        unit.backout()
