"""Puts in the event loop: where the bytes of small messages were heard their request is sent, and
the bell of the queue manager calls the event loop back (ipc.client.parked_puts). No thread has to
run, so one message costs one wake-up for its bytes and one for its answer.

What is put while nothing else is under way goes at once; else what comes in one turn of the event
loop, or while all connections are busy, goes together by queues: one request and one sync for the
messages of several links (as in joined_puts, which has everything that does not go this way).

Nothing here waits. A name that the connection does not know yet, a refusal, a manager that has
gone: a thread goes on with it, over the same connection.

Invariants: 1. of a batch `heard` is called once, in the event loop, with what put_batch would have
told; 2. the event loop listens only while no thread has the connection: that may register anew, and
the descriptor be another one's then; 3. a batch is in one request at a time, in the order of its
link.

Crash argument: `heard` says PUT after the manager's reply, which follows the sync; a request of
which nobody knows is asked for at the next manager under its number (ipc.client.link), as a thread
asks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from omq.base.errors import OmqError, QueueGone
from omq.ipc.client import parked_puts
from omq.ipc.client.connection import Client
from omq.ipc.wire.alike import Alike, joined
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp.putter import (
    TOGETHER_BYTES,
    Fate,
    PutResult,
    of_each,
    put_batch,
    refused,
)
from omq.services.daemon.thread_pool import ThreadPool

Heard = Callable[[list[PutResult]], None]
LATE_S: Final = 5.0
"""The answer of a manager that has nothing wrong is there before."""
_PUT: Final = PutResult(Fate.PUT)
_ENDS: Final = (Fate.LATER, Fate.IN_DOUBT)


@dataclass(slots=True)
class _Batch:
    """Of one link."""

    messages: Sequence[Outgoing]
    heard: Heard


@dataclass(slots=True, eq=False)
class _Line:
    """A native connection, and what is being put over it."""

    native: Client
    queue: str = ""
    batches: list[_Batch] = field(default_factory=list)
    messages: Sequence[Outgoing] = ()
    told: list[PutResult] = field(default_factory=list)
    parked: int = 0  # messages of the request under way
    since_s: float = 0.0  # when it went
    listening: int = -1


def _quick(messages: Sequence[Outgoing]) -> bool:
    """Whether each is small, wants no reply and is put now."""
    if isinstance(messages, Alike):
        if max(map(len, messages.bodies)) > TOGETHER_BYTES:
            return False
        messages = (messages.pattern,)
    for each in messages:
        if len(each.body) > TOGETHER_BYTES or each.reply_to or each.delay_s:
            return False
    return True


class QuickPuts:
    """See the module. For the event loop, but `close`. `most`: connections; `together`: messages of
    several links in one request."""

    def __init__(self, connect: Callable[[], Client], most: int, together: int,
                 failed: Callable[[BaseException], None]) -> None:
        """`failed` hears of a mistake of ours."""
        self._connect, self._most, self._together, self._failed = connect, most, together, failed
        self._lines: list[_Line] = []
        self._idle: list[_Line] = []
        self._turn: dict[str, deque[_Batch]] = {}
        self._waits: list[asyncio.Future[None]] = []
        self._opening = self._never = False
        self._hands = ThreadPool(most, "amqp quick puts")
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, queues: tuple[str, ...], messages: Sequence[Outgoing], heard: Heard) -> bool:
        """Whether they go this way, and `heard` comes."""
        if len(queues) != 1 or self._never:
            return False
        if not _quick(messages):
            return False
        if not self._lines:
            self._open()
            return False
        batch = _Batch(messages, heard)
        if not self._turn and len(self._idle) == len(self._lines):
            self._send(self._idle.pop(), queues[0], [batch])
            return True
        if not self._turn:
            self._home.call_soon(self._go)
        self._turn.setdefault(queues[0], deque()).append(batch)
        return True

    @property
    def busy(self) -> bool:
        """Something is being put, or waits for that."""
        return bool(self._turn) or len(self._idle) < len(self._lines)

    async def calm(self, wait_s: float) -> int:
        """Until nothing is busy, at most so long; how many messages are under way then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self.busy:
                    waits = self._home.create_future()
                    self._waits.append(waits)
                    await waits
        return (sum(len(line.messages) - len(line.told) for line in self._lines)
                + sum(len(batch.messages) for waiting in self._turn.values() for batch in waiting))

    def close(self, wait_s: float) -> None:
        """At the end, in another thread, when nothing is busy."""
        self._hands.close(wait_s)
        for line in self._lines:
            line.native.close()

    @property
    def _home(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    # connections

    def _open(self) -> None:
        if self._opening or self._never or len(self._lines) >= self._most:
            return
        self._opening = True
        loop = self._home

        def opened() -> None:
            try:
                native = self._connect()
                if not parked_puts.wanted(native):
                    native.close()
                    loop.call_soon_threadsafe(self._opened, None, None)
                    return
            except Exception as error:  # whoever waits for a connection without a bell meets it
                loop.call_soon_threadsafe(self._opened, None, error)
                return
            loop.call_soon_threadsafe(self._opened, native, None)

        self._hands.give(opened)

    def _opened(self, native: Client | None, error: Exception | None) -> None:
        self._opening = False
        if native is not None:
            line = _Line(native)
            self._lines.append(line)
            self._idle.append(line)
            self._listen(line)
            self._go()
        elif error is None:
            self._never = True  # the manager is older
        elif not isinstance(error, OmqError):
            self._failed(error)

    # requests

    def _go(self) -> None:
        """Batches of one turn, by queues, as far as there are connections."""
        while self._turn and self._idle:
            queue, waiting = next(iter(self._turn.items()))
            del self._turn[queue]
            some = [waiting.popleft()]
            count = len(some[0].messages)
            while waiting and count + len(waiting[0].messages) <= self._together:
                count += len(waiting[0].messages)
                some.append(waiting.popleft())
            if waiting:
                self._turn[queue] = waiting  # after the other queues
            self._send(self._idle.pop(), queue, some)
        if self._turn:
            self._open()

    def _send(self, line: _Line, queue: str, batches: list[_Batch]) -> None:
        line.queue, line.batches, line.told = queue, batches, []
        line.messages = batches[0].messages if len(batches) == 1 else joined(
            [each.messages for each in batches])
        self._next(line)

    def _next(self, line: _Line) -> None:
        """The first of them, or those after what was put."""
        at = len(line.told)
        messages = line.messages[at:] if at else line.messages
        line.parked = parked_puts.begin(line.native, line.queue, messages)
        line.since_s = self._home.time()
        if not line.parked or line.listening < 0 or not parked_puts.sent(line.native):
            self._hand_on(line)

    def _listen(self, line: _Line) -> None:
        """From request to request to the same descriptor."""
        line.listening = parked_puts.descriptor(line.native)
        if line.listening >= 0:
            self._home.add_reader(line.listening, self._hear, line)

    def _deafen(self, line: _Line) -> None:
        if line.listening >= 0:
            self._home.remove_reader(line.listening)
            line.listening = -1

    def _hear(self, line: _Line) -> None:
        if not line.parked:
            if not parked_puts.hear(line.native):
                self._deafen(line)  # the next put meets it
        elif parked_puts.are_put(line.native):
            self._told(line, [_PUT] * line.parked)
        else:
            self._hand_on(line)

    def _told(self, line: _Line, told: list[PutResult]) -> None:
        line.parked = 0
        line.told = line.told + told if line.told else told
        if len(line.told) < len(line.messages) and line.told[-1].fate not in _ENDS:
            self._next(line)
            return
        batches, told = line.batches, line.told
        line.batches, line.messages, line.told = [], (), []
        self._idle.append(line)
        if len(batches) == 1:
            batches[0].heard(told)
        else:
            for batch, own in zip(batches, of_each(told, [len(each.messages) for each in batches]),
                                  strict=True):
                batch.heard(own)
        if self._turn:
            self._go()
        if self._waits and not self.busy:
            waits, self._waits = self._waits, []
            for each in waits:
                if not each.done():
                    each.set_result(None)

    # what may wait

    def stir(self) -> None:
        """Now and then: a manager that does not answer is waited for by a thread, which knows for
        how long."""
        for line in self._lines:
            if line.parked and line.listening >= 0 and self._late(line):
                self._hand_on(line)

    def _late(self, line: _Line) -> bool:
        return self._home.time() - line.since_s > LATE_S

    def _hand_on(self, line: _Line) -> None:
        self._deafen(line)
        self._hands.give(lambda: self._apart(line))

    def _apart(self, line: _Line) -> None:
        """In a thread."""
        loop = self._home
        try:
            told = self._waited(line)
        except Exception as error:
            loop.call_soon_threadsafe(self._broke, line, error)
        else:
            loop.call_soon_threadsafe(self._came, line, told)

    def _waited(self, line: _Line) -> list[PutResult]:
        """What a thread has made of it; nothing: the bell was another's."""
        queues, at = (line.queue,), len(line.told)
        ends = at + line.parked if line.parked else len(line.messages)
        some = [(each, None) for each in line.messages[at:ends]]
        if line.parked:
            try:
                done = parked_puts.finish(line.native, now=self._late(line))
                return [_PUT] * len(some) if done else []
            except QueueGone:  # the name is another queue's now: it is asked for
                line.native.forget()
            except OmqError as error:
                return refused(line.native, queues, some, error)
        return put_batch(line.native, queues, some)

    def _came(self, line: _Line, told: list[PutResult]) -> None:
        self._listen(line)
        if told:
            self._told(line, told)

    def _broke(self, line: _Line, error: BaseException) -> None:
        """A mistake of ours: nobody knows what became of them."""
        self._failed(error)
        self._came(line, [PutResult(Fate.IN_DOUBT)] * (len(line.messages) - len(line.told)))
