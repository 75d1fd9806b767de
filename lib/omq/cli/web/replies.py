"""Requests of the REST interface: put a message that wants an answer, and wait for just that one.

Whoever asks has one temporary queue for answers, read by one desk, so a thousand requests that wait
cost no thread each, and nobody gets what another one was answered, whatever ids the two gave
their questions. A request may be served for as long as its program waits, and no longer: that is
its expiry. An answer for which nobody waits any more is finished; one whose body is long, or for
which there is no memory, is a delivery of who asked, with a link.

Crash argument: the question is put as any message. If omq-web ends, its temporary queues go with
what is on them, and the question when its time is over: the program asks again. For the event loop.

Errors: NoReply, ConsoleBusy; those of a put and of a reader.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from omq.aio.waiter import Outcome, Waiter
from omq.base.errors import BadRequest, LeaseLost, NoReply
from omq.cli.web.delivered_message import Taken
from omq.cli.web.deliveries import WAIT_MAX_S, Deliveries
from omq.cli.web.queue_desk import Desk
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.ipc.client.reader import Reader

_BATCH: Final = 100
_EARLY_MAX: Final = 1000
"""Answers that came before their question's id was known here."""


class Replies:
    """See the module."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._of: dict[Desk, _Answers] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    async def ask(self, user: str, owner: str, queue: str, timeout_s: float,
                  put: Callable[[str], Awaitable[str]]) -> Taken:
        """The answer; without its body in the record it is a delivery of `owner`. `put`: puts the
        question with this `reply_to`; its id."""
        with self._deliveries.waiting(f"replies to {owner}", user, _temporary) as desk:
            self._deliveries.room(user, 1)  # before anything is put
            answers = self._answers(desk, user)
            await asyncio.shield(desk.began.future)
            asked, waiter = "?", Waiter(unwanted=answers.unwanted)
            try:
                async with asyncio.timeout(timeout_s):
                    with answers.putting():
                        asked = await put(desk.queue)
                        answers.wait(asked, waiter)
                    found: Taken = await waiter.result()
            except TimeoutError as error:
                raise NoReply(request=asked, queue=queue, seconds=timeout_s, reply_to=desk.queue
                              ) from error
            finally:
                answers.leave(asked, waiter)
            if not found.whole:
                self._deliveries.hold(desk, found, user, owner)
            return found

    def _answers(self, desk: Desk, user: str) -> _Answers:
        answers = self._of.get(desk)
        if answers is None:
            answers = self._of[desk] = _Answers(desk)
            task = asyncio.get_running_loop().create_task(answers.read(user))
            answers.task = task
            task.add_done_callback(lambda _: self._of.pop(desk, None))
        return answers

    async def close(self) -> None:
        """When the desks are closed: whoever waits has heard it then."""
        await asyncio.gather(*(each.task for each in self._of.values() if each.task is not None))


class _Answers:
    """To one who asks."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._waiting: dict[str, Waiter] = {}
        self._early: dict[str, tuple[float, Taken]] = {}  # until when somebody may want it
        self._putting = 0
        self.task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting) + self._putting

    @contextmanager
    def putting(self) -> Iterator[None]:
        """A question whose id is not known before the end of this."""
        self._putting += 1
        try:
            yield
        finally:
            self._putting -= 1
            if not self._putting:
                self._late(math.inf)

    def wait(self, asked: str, waiter: Waiter) -> None:
        """For the answer to a question. Who asked the same before hears that he did."""
        found = self._early.pop(asked, None)
        if found is not None:
            waiter.end(Outcome(found[1]))
            return
        before, self._waiting[asked] = self._waiting.get(asked), waiter
        if before is not None:
            before.end(Outcome(error=BadRequest(
                reason=f"{asked} was asked again meanwhile, and who did gets the answer")))

    def leave(self, asked: str, waiter: Waiter) -> None:
        """It is not waited for any more."""
        if self._waiting.get(asked) is waiter:
            del self._waiting[asked]

    def unwanted(self, taken: Taken) -> None:
        """Whoever waited is gone."""
        self._desk.finish([taken])

    async def read(self, user: str) -> None:
        """Until the desk ends."""
        error: Exception | None = None
        while error is None:
            try:
                found = await self._desk.get(user, _BATCH, now=False)
                self._late(time.monotonic())
                whole = [each.message for each in found if each.whole]
                for each in found:
                    self._came(each)
                if whole:
                    await self._desk.say(_done(whole))
            except Exception as said:  # of all who wait, whatever it is
                error = said
        for waiter in self._waiting.values():
            waiter.end(Outcome(error=error))
        self._waiting.clear()
        self._late(math.inf)

    def _came(self, taken: Taken) -> None:
        asked = str(taken.record["correlation"])
        waiter = self._waiting.pop(asked, None)
        if waiter is not None:
            waiter.end(Outcome(taken))
        elif not self._putting:
            self.unwanted(taken)
        else:
            before = self._early.pop(asked, None)
            self._early[asked] = (time.monotonic() + WAIT_MAX_S, taken)
            if before is not None:
                self.unwanted(before[1])
            elif len(self._early) > _EARLY_MAX:
                self.unwanted(self._early.pop(next(iter(self._early)))[1])

    def _late(self, now: float) -> None:
        while self._early:
            asked = next(iter(self._early))
            until, taken = self._early[asked]
            if until > now:
                break
            del self._early[asked]
            self.unwanted(taken)


def _temporary(client: Client) -> str:
    return client.queues.temporary()


def _done(messages: Sequence[Message]) -> Callable[[Reader], None]:
    def say(_reader: Reader) -> None:
        for message in messages:
            with suppress(LeaseLost):
                message.done()

    return say
