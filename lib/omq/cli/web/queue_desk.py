"""A desk: the one reader that omq-web has of a queue, for all gets of the REST interface that wait
for its messages, and for all deliveries of it.

A thread with a native connection takes as many messages as gets that wait want, gives them out in
the order in which the gets came, and carries out settlements of deliveries: many at once, with one
sync. So a thousand long polls of a queue cost one reader, and nothing while nothing arrives.

Invariants: 1. the native connection is used by its thread alone, but for Reader.wake; 2. a message
is given to one get; one whose get has ended meanwhile goes to the next, else back untouched; 3. of
what is handed out no body stays in memory; 4. what was said before `close` is carried out, and what
is in hand then goes back untouched.

Errors: those of omq.connect and of a reader; ReaderClosed once it has ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from omq.aio.waiter import Outcome, Outcomes, Waiter, same_for_all
from omq.base.errors import LeaseLost, OmqError, ReaderClosed
from omq.cli.web.budget import Budget
from omq.cli.web.delivered_message import Taken, take
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.ipc.client.reader import Reader

T = TypeVar("T")
Say = Callable[[Reader], Any]
TAKEN_MAX: Final = 1000
"""Messages of one request to the queue manager."""


@dataclass(slots=True, eq=False)
class Poll:
    """A get that waits. `now`: for what is there, and no longer."""

    user: str
    count: int
    now: bool
    waiter: Waiter


class Desk:
    """See the module. Its methods are for the event loop."""

    def __init__(self, connect: Callable[[], Client], opened: Callable[[Client], str],
                 budget: Budget) -> None:
        self._connect, self._opened, self._budget = connect, opened, budget
        self._changed: Final = threading.Condition()
        self._polls: deque[Poll] = deque()
        self._says: list[tuple[Waiter, Say]] = []
        self._taking = self._closing = False
        self._native: Reader | None = None
        self.queue = ""
        self.ended = False  # for the event loop to see: it gives nothing any more
        self.began: Final = _unheard()
        self._thread = threading.Thread(target=self._serve, name="omq desk", daemon=True)
        self._thread.start()

    async def get(self, user: str, count: int, *, now: bool) -> list[Taken]:
        """Up to so many messages, when there is one. Whoever waits may be cancelled."""
        poll = Poll(user, count, now, Waiter(unwanted=self.put_back))
        with self._changed:
            self._check()
            self._polls.append(poll)
            self._stir()
        try:
            found: list[Taken] = await poll.waiter.result()
            return found
        except BaseException:
            self._left()
            raise

    async def say(self, said: Say) -> Any:
        """Carried out by the thread, and on the disk then. Its error; ReaderClosed."""
        waiter = Waiter()
        with self._changed:
            self._check()
            self._says.append((waiter, said))
            self._stir()
        return await waiter.result()

    def put_back(self, taken: Sequence[Taken]) -> None:
        """Given to a get whose client is gone: untouched, to its old place."""
        self._end(taken, Message.release)

    def finish(self, taken: Sequence[Taken]) -> None:
        """Nobody wants it any more, here or elsewhere."""
        self._end(taken, Message.done)

    def _end(self, taken: Sequence[Taken], how: Callable[[Message], None]) -> None:
        for each in taken:
            self.forget(each)

        def end(_reader: Reader) -> None:
            for each in taken:
                with suppress(LeaseLost):
                    how(each.message)

        self._aside(end)

    def let_go(self, end: Callable[[], None], message: Message) -> None:
        """Somebody has read of it as far as he will: nothing of it stays open, or in memory."""

        def done(_reader: Reader) -> None:
            end()
            message.let_go()

        self._aside(done)

    def _aside(self, say: Say) -> None:
        with self._changed:
            if not self.ended:
                self._says.append((_unheard(), say))
                self._stir()

    def forget(self, taken: Taken) -> None:
        """Its answer has been written, or will not be."""
        if taken.cost:
            self._budget.give(taken.user, taken.cost)
            taken.cost = 0

    def send_away(self) -> None:
        """Who waits has got nothing: omq-web stops."""
        with self._changed:
            left, self._polls = self._polls, deque()
            if left:
                self._stir()
        for poll in left:
            poll.waiter.end(Outcome([]))

    def close(self) -> None:
        """It ends; `join` waits for that."""
        with self._changed:
            self._closing = self.ended = True
            self._stir()

    def join(self, timeout_s: float) -> None:
        """In another thread."""
        self._thread.join(timeout_s)

    def _check(self) -> None:
        if self.ended:
            raise ReaderClosed(queue=self.queue or "?")

    def _left(self) -> None:
        """A get has ended: where nobody waits any more nothing is taken."""
        with self._changed:
            if self._taking and all(each.waiter.future.done() for each in self._polls):
                self._stir()

    def _stir(self) -> None:
        self._changed.notify()
        if self._taking and self._native is not None:
            self._native.wake()

    # the thread

    def _serve(self) -> None:
        failed: Exception | None = None
        try:
            with self._connect() as connection:
                self.queue = self._opened(connection)
                self._native = reader = connection.reader(self.queue)
                self.began.tell(Outcome())
                self._work(reader)
        except Exception as error:  # of all who wait
            failed = error
        with self._changed:
            self.ended = True
            left = [*(each.waiter for each in self._polls), *(waiter for waiter, _ in self._says)]
            self._polls.clear()
            self._says.clear()
        if self._native is None:
            left.append(self.began)
        same_for_all(left, failed or ReaderClosed(queue=self.queue or "?"))

    def _work(self, reader: Reader) -> None:
        while True:
            with self._changed:
                self._taking = False
                self._changed.wait_for(lambda: self._says or self._polls or self._closing)
                says, self._says = self._says, []
                closing = self._closing
            self._carry_out(reader, says)
            if closing:
                reader.close()
                return
            with self._changed:
                self._polls = deque(each for each in self._polls if not each.waiter.future.done())
                if self._says or self._closing or not self._polls:
                    continue
                count = min(TAKEN_MAX, sum(each.count for each in self._polls))
                now = any(each.now for each in self._polls)
                self._taking = not now
            # A wake from here on ends the wait, this one or that which is about to begin.
            found = reader.next(count, timeout_s=0.0 if now else None)
            self._hand_out(deque(found), now=now)

    def _carry_out(self, reader: Reader, says: Sequence[tuple[Waiter, Say]]) -> None:
        if not says:
            return
        ends = Outcomes((waiter, _said(say, reader)) for waiter, say in says)
        try:
            reader.flush()
        except OmqError as error:  # nobody knows: it may be on the disk
            same_for_all([waiter for waiter, _ in says], error)
            raise
        ends.tell()

    def _hand_out(self, found: deque[Message], *, now: bool) -> None:
        ends = Outcomes()
        try:
            self._share_out(found, ends)
        except BaseException as error:  # of those whose gets fail with it
            for waiter, outcome in ends:
                for each in outcome.value:
                    self.forget(each)
                waiter.tell(Outcome(error=error))
            raise
        for message in found:  # nobody wants it any more, and nothing of it was read
            with suppress(LeaseLost):
                message.release()
        if now:
            with self._changed:
                ends += [(each.waiter, Outcome([])) for each in self._polls if each.now]
                self._polls = deque(each for each in self._polls if not each.now)
        ends.tell()

    def _share_out(self, found: deque[Message], ends: Outcomes) -> None:
        """To the gets in turn: `ends` has whoever was given something, or is about to be."""
        while found:
            with self._changed:
                poll = self._polls.popleft() if self._polls else None
            if poll is None:
                return
            if poll.waiter.future.done():
                continue
            taken: list[Taken] = []
            ends.append((poll.waiter, Outcome(taken)))
            while found and len(taken) < poll.count:
                each = take(found.popleft(), self.queue, poll.user, self._budget)
                if each is not None:
                    taken.append(each)
            if not taken:
                ends.pop()
                with self._changed:
                    self._polls.appendleft(poll)


def _unheard() -> Waiter:
    """One that perhaps nobody waits for: its error is not a mistake of the program."""
    made = Waiter()
    made.future.add_done_callback(lambda future: future.cancelled() or future.exception())
    return made


def _said(say: Say, reader: Reader) -> Outcome:
    try:
        return Outcome(say(reader))
    except Exception as error:  # the caller's, whatever it is
        return Outcome(error=error)
