"""The thread that takes messages for a link: what ends a wait that is under way, and what not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Self

import pytest

from omq.base.settings import Settings
from tests.process.amqp_world import needs_proton

needs_proton()

from omq.services.amqp.taker import TakenMessage, Taker  # noqa: E402
from omq.services.daemon.thread_pool import ThreadPool  # noqa: E402

WAIT_S = 120


class Native:
    """A connection and its reader, whose queue is empty."""

    def __init__(self) -> None:
        self.wakes, self.entered = 0, threading.Semaphore(0)
        self._woken = threading.Semaphore(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def reader(self, queue: str, where: str) -> Native:
        return self

    def next(self, count: int, timeout_s: float | None) -> list[Any]:
        self.entered.release()
        assert self._woken.acquire(timeout=WAIT_S)
        return []

    def wake(self) -> None:
        self.wakes += 1
        self._woken.release()

    def close(self) -> None: ...


class Ear:
    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def began(self) -> None: ...
    def took(self, messages: list[TakenMessage], *, drained: bool) -> None: ...

    def ended_by(self, error: Exception | None) -> None:
        assert error is None, error
        self.ended.set()


ENDS: dict[str, Callable[[Taker], None]] = {
    "less is wanted": lambda taker: taker.want(1, 1000),
    "something is said": lambda taker: taker.say(lambda: None)}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_more_that_is_wanted_ends_no_wait(end: Callable[[Taker], None]) -> None:
    """The first message ends it: whoever waits for one is not called back for more room."""
    native = Native()

    async def entered() -> None:
        assert await asyncio.to_thread(native.entered.acquire, timeout=WAIT_S)

    async def run() -> None:
        ear = Ear()
        connect: Any = lambda: native  # noqa: E731
        taker = Taker(connect, "A", "x = 1", Settings(), ear, ThreadPool(1, "turns"))
        taker.want(2, 1000)
        await entered()
        taker.want(2, 2000)
        taker.want(5, 2000)
        assert native.wakes == 0
        end(taker)
        assert native.wakes == 1
        await entered()  # it waits anew
        taker.close()
        await ear.ended.wait()
        taker.join(WAIT_S)

    asyncio.run(run())
