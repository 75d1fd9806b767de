"""Jobs for a line: a call, a put that goes with others, a line kept for a while."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import Any, Final

from omq.aio.lines import Job
from omq.aio.waiter import Outcome, Outcomes, Waiter, same_for_all
from omq.base.errors import ManagerHung, ManagerUnavailable, OmqError, TimedOut
from omq.ipc.client.connection import Client

TOGETHER_MAX: Final = 200
"""Puts that wait together for one line."""
ALONE_BYTES: Final = 4096
"""A body of this size gains nothing by company; below it none goes into a container."""
HEAD_BYTES: Final = 512
"""More than a message takes in a request besides its body."""
_IN_DOUBT: Final = (ManagerHung, ManagerUnavailable, TimedOut)


class Call:
    """One call of a native connection."""

    def __init__(self, work: Callable[[Client], Any], waiter: Waiter) -> None:
        self._work, self._waiter = work, waiter

    def carry_out(self, connection: Client) -> None:
        try:
            outcome = Outcome(self._work(connection))
        except Exception as error:  # the coroutine's, whatever it is
            outcome = Outcome(error=error)
        self._waiter.tell(outcome)

    def fail(self, error: BaseException) -> None:
        self._waiter.tell(Outcome(error=error))

    def take_in(self, other: Job) -> bool:
        return False


class Put:
    """A message with nothing but queue and body; others for the same queue go by the
    same request, as many as surely fit into it: all of them happen or none does. A refusal of one
    is not the others': they are then put one by one."""

    def __init__(self, queue_name: str, body: bytes, waiter: Waiter) -> None:
        self.queue, self.puts = queue_name, [(body, waiter)]

    def take_in(self, other: Job) -> bool:
        if (not isinstance(other, Put) or other.queue != self.queue
                or len(self.puts) + len(other.puts) > TOGETHER_MAX):
            return False
        self.puts += other.puts
        return True

    def carry_out(self, connection: Client) -> None:
        some: list[tuple[bytes, Waiter]] = []
        size = 0
        for put in self.puts:
            size += HEAD_BYTES + len(put[0])
            if some and size > connection.room:
                self._together(connection, some)
                some, size = [], HEAD_BYTES + len(put[0])
            some.append(put)
        self._together(connection, some)

    def _together(self, connection: Client, puts: Sequence[tuple[bytes, Waiter]]) -> None:
        bodies, waiters = zip(*puts, strict=True)
        try:
            if len(puts) == 1:
                ids = [connection.put(self.queue, bodies[0])]
            else:
                ids = connection.put_many(self.queue, list(bodies))
        except _IN_DOUBT as error:
            same_for_all(waiters, error)
        except OmqError as error:
            if len(puts) == 1:
                same_for_all(waiters, error)
                return
            for put in puts:
                self._together(connection, [put])
        except Exception as error:  # the coroutines', whatever it is
            same_for_all(waiters, error)
        else:
            Outcomes((waiter, Outcome(text))
                     for waiter, text in zip(waiters, ids, strict=True)).tell()

    def fail(self, error: BaseException) -> None:
        same_for_all([waiter for _, waiter in self.puts], error)


class Kept:
    """A line that works for one coroutine until it is given back."""

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()

    def call(self, work: Callable[[Client], Any], waiter: Waiter) -> None:
        """From the event loop."""
        self._calls.put(Call(work, waiter))

    def give_back(self) -> None:
        """From the event loop; once."""
        self._calls.put(None)

    def carry_out(self, connection: Client) -> None:
        self._waiter.tell(Outcome(self))
        while (call := self._calls.get()) is not None:
            call.carry_out(connection)

    def fail(self, error: BaseException) -> None:
        self._waiter.tell(Outcome(error=error))

    def take_in(self, other: Job) -> bool:
        return False
