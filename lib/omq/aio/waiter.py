"""What a coroutine waits for while a thread works for it: a future of its event loop.

A coroutine that was cancelled does not hear of the end any more; what the thread made is then given
to `unwanted`, if there is one, in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Self


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it: a value, or an error."""

    value: Any = None
    error: BaseException | None = None


class Waiter:
    """One coroutine and one piece of work. Made in the event loop, ended from the thread."""

    __slots__ = ("future", "loop", "unwanted")

    def __init__(self, unwanted: Callable[[Any], None] | None = None) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.future: Final[asyncio.Future[Any]] = self.loop.create_future()
        self.unwanted: Final = unwanted

    async def result(self) -> Any:
        """What the thread made; its error is raised."""
        try:
            return await self.future
        except asyncio.CancelledError:
            # The end may have come already, and the cancellation was quicker than the coroutine.
            if (self.unwanted is not None and self.future.done() and not self.future.cancelled()
                    and self.future.exception() is None):
                self.unwanted(self.future.result())
            raise

    def end(self, outcome: Outcome) -> None:
        """In the event loop: wake the coroutine."""
        if self.future.done():  # cancelled
            if outcome.error is None and self.unwanted is not None:
                self.unwanted(outcome.value)
        elif outcome.error is None:
            self.future.set_result(outcome.value)
        else:
            self.future.set_exception(outcome.error)

    def tell(self, outcome: Outcome) -> None:
        """From a thread."""
        Outcomes([(self, outcome)]).tell()


class Outcomes(list[tuple[Waiter, Outcome]]):
    """Several ends, told by one call into the event loop."""

    def tell(self) -> Self:
        """From a thread. An event loop that is closed has nobody who waits."""
        if self:
            try:
                self[0][0].loop.call_soon_threadsafe(self._all)
            except RuntimeError:  # asked here alone: it may be closed at any moment
                assert self[0][0].loop.is_closed()
        return self

    def _all(self) -> None:
        for waiter, outcome in self:
            waiter.end(outcome)


def same_for_all(waiters: Iterable[Waiter], error: BaseException) -> None:
    """From a thread: each of them gets the error."""
    Outcomes((waiter, Outcome(error=error)) for waiter in waiters).tell()
