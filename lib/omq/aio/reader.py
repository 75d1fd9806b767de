"""A reader of a queue for coroutines: a native reader in a thread of its own.

The thread takes as many messages as `batch` says when somebody waits for one, and looks into a
message only when it is given to a coroutine: what was fetched and not given costs no attempt if the
process dies. Everything else (settlements, the end) is done between two requests; a wait that is
under way is ended for it by Reader.wake, which loses nothing.

Invariants: 1. the native reader is used by its thread alone, but for wake; 2. a message is given to
one coroutine; one whose coroutine was cancelled meanwhile goes to the next, else back to its queue.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, overload

from omq.aio.message import AsyncMessage
from omq.aio.waiter import Outcome, Waiter
from omq.base.errors import BodyDamaged, BodyUnavailable, ReaderClosed
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.ipc.client.reader import Reader


class AsyncReader:
    """A registered reader of one queue: a context manager, and an iterator for any number of
    coroutines, each of which gets messages of its own. Made by AsyncConnection.reader.

    Leaving it gives back what nobody has settled, no attempt counted, also by an exception or by a
    cancellation; a message whose `async with` ends by an exception has failed."""

    def __init__(self, connect: Callable[[], Client], queue: str, options: dict[str, Any],
                 batch: int, entered: Callable[[AsyncReader], None]) -> None:
        self.queue, self._batch, self._entered = queue, batch, entered
        self._connect, self._options = connect, options
        self._changed: Final = threading.Condition()
        self._wanting: deque[Waiter] = deque()
        self._says: deque[tuple[Waiter, Callable[[], Any]]] = deque()
        self._ahead: deque[Message] = deque()  # the thread's
        self._native: Reader | None = None
        self._taking = self._closing = False
        self._ended: Waiter | None = None  # told when the thread is through
        self._thread: threading.Thread | None = None

    @property
    def closed(self) -> bool:
        """It was entered, and left."""
        return self._thread is not None and self._ended is None

    async def __aenter__(self) -> Self:
        """The errors of omq.connect and Connection.reader."""
        if self._thread is not None:
            raise ReaderClosed(queue=self.queue)
        self._entered(self)
        began, self._ended = Waiter(), Waiter()
        self._thread = threading.Thread(target=self._serve, args=(began, self._ended),
                                        name=f"omq reader of {self.queue}", daemon=True)
        self._thread.start()
        try:
            await asyncio.shield(began.future)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back what is held, and end. A second time does nothing. The errors of a settlement
        that could not be sent."""
        if self._thread is None or self._ended is None:
            return
        self._stir(closing=True)
        await asyncio.shield(self._ended.future)
        self._thread.join()  # it has nothing left to do
        self._ended = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncMessage:
        """The next message. The iteration ends when the reader is closed."""
        try:
            return await self._wanted()
        except ReaderClosed:
            raise StopAsyncIteration from None

    @overload
    async def get(self, timeout_s: None = None) -> AsyncMessage: ...

    @overload
    async def get(self, timeout_s: float | None) -> AsyncMessage | None: ...

    async def get(self, timeout_s: float | None = None) -> AsyncMessage | None:
        """One message; None when `timeout_s` is over without. ReaderClosed."""
        if timeout_s is None:
            return await self._wanted()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wanted()
        except TimeoutError:
            return None

    async def _wanted(self) -> AsyncMessage:
        waiter = Waiter(unwanted=self._return)
        self._stir(wanting=waiter)
        message: AsyncMessage = await waiter.result()
        return message

    async def _run(self, say: Callable[[], Any]) -> Any:
        """Something that settles a message, even if its coroutine is cancelled meanwhile."""
        waiter = Waiter()
        self._stir(says=(waiter, say))
        return await waiter.result()

    def _return(self, message: AsyncMessage) -> None:
        """Given to a coroutine that was cancelled."""
        with suppress(ReaderClosed):  # which gives back what is held
            self._stir(says=(Waiter(), lambda: self._again(message.native)))

    def _again(self, message: Message) -> None:
        message.set_aside()
        self._ahead.appendleft(message)

    def _stir(self, *, wanting: Waiter | None = None, closing: bool = False,
              says: tuple[Waiter, Callable[[], Any]] | None = None) -> None:
        """In the event loop: work for the thread."""
        with self._changed:
            if (wanting or says) and (self._closing or self._thread is None):
                raise ReaderClosed(queue=self.queue)
            if wanting is not None:
                self._wanting.append(wanting)
            if says is not None:
                self._says.append(says)
            self._closing = self._closing or closing
            self._changed.notify()
            if self._taking and self._native is not None:
                self._native.wake()

    # the thread

    def _serve(self, began: Waiter, ended: Waiter) -> None:
        outcome = Outcome()
        try:
            with self._connect() as connection:
                self._native = reader = connection.reader(self.queue, batch=self._batch,
                                                          **self._options)
                began.tell(Outcome())
                self._work(reader)
        except Exception as error:
            outcome = Outcome(error=error)
            if self._native is None:
                began.tell(outcome)
                outcome = Outcome()
        with self._changed:
            self._closing = True
            left = [*self._wanting, *(waiter for waiter, _ in self._says)]
        # Whoever waits hears why, and so does the one who closes it.
        for waiter in left:
            waiter.tell(Outcome(error=outcome.error or ReaderClosed(queue=self.queue)))
        ended.tell(outcome)

    def _work(self, reader: Reader) -> None:
        while True:
            with self._changed:
                self._taking = False
                self._changed.wait_for(lambda: self._says or self._wanting or self._closing)
                self._wanting = deque(each for each in self._wanting if not each.future.done())
                says, closing = list(self._says), self._closing
                self._says.clear()
            for waiter, say in says:
                waiter.tell(_said(say))
            if closing:
                reader.close()
                return
            self._hand_out()
            with self._changed:
                if self._says or self._closing or not self._wanting:
                    continue
                self._taking = True
            # A wake from here on ends the wait, this one or that which is about to begin.
            self._ahead.extend(reader.next(timeout_s=None))
            self._hand_out()

    def _hand_out(self) -> None:
        while self._ahead:
            with self._changed:
                waiter = self._wanting.popleft() if self._wanting else None
            if waiter is None:
                return
            if waiter.future.done():
                continue
            if not self._give(waiter, self._ahead.popleft()):
                with self._changed:
                    self._wanting.appendleft(waiter)

    def _give(self, waiter: Waiter, message: Message) -> bool:
        """Whether it could be read. What cannot is that message's own failure: it comes to POISON
        with the reason, and others go on."""
        try:
            given = AsyncMessage(message, self._run)
        except (BodyUnavailable, BodyDamaged) as error:
            message.fail(str(error))
            return False
        waiter.tell(Outcome(given))
        return True


def _said(say: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(say())
    except Exception as error:  # the coroutine's, whatever it is
        return Outcome(error=error)
