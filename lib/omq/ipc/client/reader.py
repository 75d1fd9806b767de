"""Readers: messages handed out by the queue manager, and how the work on each of them ends.

When a settlement (done, defer, fail, release) travels is the reader's `ack`:

    prompt   (default) at once when the last request is 30 ms or longer ago; else it is noted
             where the manager sees it (fast.reader_note), and travels with the next request, or
             when the manager looks, which it does 50 ms after its last answer. If this process
             dies, what was noted counts, and only the message being processed has failed
    batch    with the next request for messages, kept in this process until then. If it dies,
             everything that it held has failed

`flush` sends what is recorded. `move` is always sent at once: it is one atomic operation.

Being processed are the last message of the iteration, and those of a list (`next`) that the program
has looked into (body, properties, ids), until they are settled. If a program dies with a list of
which it has neither looked into nor settled any, all of them were being processed.

Leaving the reader (the end of its `with`, `close`) sends what is recorded and gives back what is
still held, to its old place and no attempt counted. Leaving it by an exception does the same, but
the current message of the iteration, if it is not settled, has a failed attempt, so that a message
whose handling always raises ends on POISON instead of coming back for ever. KeyboardInterrupt and
its like do not count as failures, nor does a manager that stops or is away. One that is away is not
waited for; when it comes back, the messages that were handed out count as a dead reader's.

A message that is redelivered after its reader died is flagged `redelivered`: the reader's own work
happens at least once, operations on queues exactly once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from omq.base import limits
from omq.base.clock import NS_PER_S as NS
from omq.base.errors import (
    BadRequest,
    ManagerUnavailable,
    OmqError,
    ReaderClosed,
    ShuttingDown,
    TimedOut,
)
from omq.fast.handed_messages import Rows
from omq.format.wire import Operation, Settlement
from omq.ipc.client.ids_asked import STRANGER, STRANGER_S, IdAsked, under, wish
from omq.ipc.client.interruptible import Interruptible
from omq.ipc.client.message import Message
from omq.ipc.wire import arguments

if TYPE_CHECKING:
    from omq.ipc.client.browsed import Browsed
    from omq.ipc.client.connection_parts import Wire
    from omq.ipc.client.reader_selector import Selected

PROMPT: Final = "prompt"
BATCH: Final = "batch"
_NEXT, _GET, _LOOK = int(Operation.NEXT), int(Operation.GET), int(Operation.LOOK)
NOBODYS_FAULT: Final = (ManagerUnavailable, TimedOut, ShuttingDown)


class Reader(Interruptible):
    """A registered reader of one queue: a context manager and an iterator over messages.

        with connection.reader("ORDERS", batch=10) as reader:
            for message in reader:
                work(message.body)
                message.done()

    `lost` counts settlements that came too late: the manager had taken the message back."""

    def __init__(self, wire: Wire, queue: str, *, batch: int, auxiliary: bool, ack: str,
                 where: str = "") -> None:
        if ack not in (PROMPT, BATCH):
            raise arguments.wrong("ack", ack, f"it is {PROMPT!r} or {BATCH!r}")
        super().__init__(wire, queue, wire.link.reader.note if ack == PROMPT else None)
        self.batch = arguments.whole(batch, "batch", 1, limits.BATCH_MAX)
        self.where = where
        self._selected: Selected | None = None
        if where:
            self._select(where)  # BadSelector now, not with the first message
        self._ahead: deque[Message] = deque()  # handed out, and not given by the iteration yet
        self._current: Message | None = None  # what the iteration has given last
        self._rows = Rows(self, self._held, wire, wire.bodies.files, Message)
        prompt, held = self._note is not None, self._link.reader
        told = self._link.control({"op": "reader", "queue": queue, "auxiliary": auxiliary,
                                   "prompt": prompt, "where": where, "bell": held.bell})
        held.where = where
        held.queue, held.auxiliary, held.prompt = queue, auxiliary, prompt
        held.number = int(told["queue"])
        held.messages, held.say_again = self._holding, self._say_again

    # taking

    def next(self, n: int = 0, timeout_s: float | None = None, *,
             correlation: bytes | str | None = None, message_id: bytes | str | None = None,
             where: str | None = None) -> list[Message]:
        """Up to `n` messages (default: the batch), after sending what is recorded. Waits up to
        `timeout_s` for messages (None: for ever), and besides for a manager that is away as the
        connection does; an empty list when the time is over or on `interrupt`.

        `correlation`, `message_id`: only those with this id, as bytes, as a text, or as `put`
        returned it. They are found at the same cost at any depth, and active from then on;
        what an iteration had fetched ahead goes back first. `where`: only those that this selector
        chooses, instead of the reader's; "" for all. They are looked for where this program runs,
        once, and then among what arrives; `timeout_s` bounds the wait for that.
        BadArgument, BadRequest, BadSelector."""
        if n != 0:
            n = arguments.whole(n, "n", 1, limits.BATCH_MAX)
        if timeout_s is not None:
            timeout_s = arguments.seconds(timeout_s, "timeout_s")
        n = n or self.batch
        wanted = wish(correlation, message_id, self._link.id_prefix)
        if wanted is not None and where is not None:
            raise BadRequest(reason="it is asked for by an id or by a selector, not both")
        where = self.where if where is None else arguments.text(where, "where")
        if wanted is None and not where and self._ahead:
            ahead = [self._ahead.popleft() for _ in range(min(n, len(self._ahead)))]
            if held := [each for each in ahead if self._holds(each)]:
                return self._listed(held)
        if self._interrupted():
            return []
        if wanted is None and where != self._link.reader.where:
            self._chooses_by(where)
        if wanted is not None:
            self._put_back()
            found = self._certain(wanted, n, timeout_s)
        elif where:
            self._put_back()
            found = self._listed(self._select(where).take(n, timeout_s))
        else:
            found = self._listed(self._take(n, timeout_s))
        if timeout_s != 0:
            self._waited()
        return found

    def _listed(self, messages: list[Message]) -> list[Message]:
        """The program gets these, and the note says so."""
        if messages and self._note is not None:
            self._list = max(message.lease for message in messages)
            self._note.listed(self._list)
        return messages

    def take(self, row: Browsed) -> Message | None:
        """The message under the cursor of a browse; None: it is not there any more, or somebody has
        it, or it is not its turn. BadRequest for a row of another queue, BadArgument."""
        if not hasattr(row, "entry"):
            raise arguments.wrong("row", row, "it is a row of browse")
        if row.queue != self.queue:
            raise BadRequest(reason=f"a message on {row.queue}, and the reader reads {self.queue}")
        found = self._listed(self._take_under(row))
        return found[0] if found else None

    def _select(self, where: str) -> Selected:
        from omq.ipc.client.reader_selector import Selected  # who never selects needs no numpy

        if self._selected is None or self._selected.where != where:
            old, self._selected = self._selected, Selected(self, self._wire, where)
            if old is not None:
                old.close()
        return self._selected

    def _chooses_by(self, where: str) -> None:
        """Operators see by what a reader chooses: a queue with messages that none of its readers
        wants looks like one that is read."""
        if not self._closed:
            with suppress(BadRequest):  # a manager of an earlier version, which shows none
                self._link.control({"op": "selects", "where": where})
            self._link.reader.where = where

    def _certain(self, wanted: IdAsked, n: int, timeout_s: float | None,
                 found: list[Message] | None = None) -> list[Message]:
        """Up to `n` messages with an id, active from then on. `found`: what the manager has given
        already; None: it is asked."""
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if found is None:
                found = self._take(n, timeout_s, wanted)
            meant = list[Message]()
            for message in found:
                if wanted.meant(message):
                    meant.append(message)
                else:
                    self._record(Settlement.DEFER, message, STRANGER_S * NS, STRANGER, later=True)
            if meant or not found:
                for message in meant:
                    self.looked_into(message)
                return meant
            found = None
            if ends is not None:
                timeout_s = max(0.0, ends - time.monotonic())

    def _take_under(self, row: Browsed) -> list[Message]:
        return self._take(1, 0.0, under(row.qpool_id, row.entry))

    def _look(self, wait_s: float, want: int = limits.BATCH_MAX) -> int:
        """Wait for arrivals; how many rows of the reply name one. LookBehind."""
        self.flush()
        answer = self._request(_LOOK, want, wait_s, -1 if wait_s < 0 else int(wait_s * 1000))
        return 0 if answer.recovered else answer.count

    def _put_back(self) -> None:
        """What an iteration had fetched ahead."""
        while self._ahead:
            message = self._ahead.popleft()
            if self._holds(message):
                self._record(Settlement.RELEASE, message, later=True)

    def _take(self, n: int, timeout_s: float | None, wanted: IdAsked | None = None
              ) -> list[Message]:
        """One step of a call. It does not wait where somebody has ended that; that it was ended is
        for the call to forget."""
        if self._closed:
            raise ReaderClosed(queue=self.queue)
        link = self._link
        while True:
            wait = -1.0 if timeout_s is None else timeout_s
            if link.woken or link.interrupted:
                wait = 0.0
            answer = self._request(_NEXT if wanted is None else _GET, n, wait,
                                   -1 if wait < 0 else int(wait * 1000), wanted)
            if not answer.recovered:  # else settlements were carried out, what was given is free
                return self._rows.take(link.reply, answer.count, link.trusted)

    def __iter__(self) -> Iterator[Message]:
        note, ahead = self._note, self._ahead
        self._ended = False  # an iteration before this one
        while True:
            while ahead:
                message = ahead.popleft()
                if message.qpool_id not in self._held:
                    continue  # settled before its turn
                self._current = message
                if note is not None:
                    self._work = message
                    note.current(message.lease)
                yield message
            self._current = None
            if self._ended or self._interrupted():
                return
            if self.where != self._link.reader.where:
                self._chooses_by(self.where)
            batch = (self._take(self.batch, None) if not self.where
                     else self._select(self.where).take(self.batch, None))
            self._waited()
            if not batch and self._link.interrupted:
                return
            ahead.extend(batch)

    def serve(self, function: Callable[[Message], bytes | None]) -> None:
        """Give each message to `function` and its reply, which that returns, to whoever has asked
        (Message.reply); None: it wants none, or has got it, and is finished. Until `interrupt`.
        With a reply the next messages are fetched, in one request to the manager. An error of
        `function` leaves by here, and with it the reader fails the message."""
        link = self._link
        for message in self:
            body = function(message)
            if not self._holds(message):
                continue
            if body is None:
                message.done()
            elif (self._ahead or self._records or self.where or link.woken or link.interrupted
                  or not link.asks):
                message.reply(body)
            else:
                self._reply_and_take(message, body)

    def _reply_and_take(self, message: Message, body: bytes) -> None:
        new = message.answer(body)
        answer = self._move(message, (), () if new is None else (new,), self.batch)
        if not answer.recovered:
            self._ahead.extend(self._rows.take(
                self._link.reply, answer.count, self._link.trusted))
        self._waited()

    # the end

    def close(self) -> None:
        """Send what is recorded and give back what is held. A closed reader is closed for ever; the
        connection may make another."""
        if self._closed:
            return
        for message in list(self._held.values()):
            self._record(Settlement.RELEASE, message, later=True)
        self.flush()
        if self._selected is not None:
            self._selected.close()
        self._link.take_leave({"op": "unread"})
        self._closed = True
        self._link.forget_ends()
        held = self._link.reader
        held.messages, held.queue, held.prompt, held.say_again = list, "", False, _nothing
        held.where = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        current = self._current
        if (isinstance(error, Exception) and not isinstance(error, NOBODYS_FAULT)
                and current is not None and self._holds(current)):
            self._record(Settlement.FAIL, current, 0, f"{type(error).__name__}: {error}",
                         later=True)
        try:
            if not isinstance(error, ManagerUnavailable | TimedOut):
                self.close()
        except OmqError as second:
            error.add_note(f"omq: what was said of the messages could not be sent: {second}")
        finally:
            self._closed = True  # the connection does not try once more


def _nothing() -> None:
    return None
