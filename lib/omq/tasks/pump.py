"""A reader of one queue in a thread of its own, for a library that calls from several threads.

The thread alone uses the native connection. Others say how many messages are wanted, take what has
arrived, and say how the work on a message ended; the thread is woken for that.

Invariants: 1. a message is in `arrived`, in the hands of who took it, or the manager's; 2. what was
said of a message is carried out in the order in which it was said; 3. behind `close` no thread is
left, and what nobody settled is given back, no attempt counted.

The crash argument is the reader's (omq.ipc.client.reader): a settlement counts when the thread has
carried it out; a death before that hands the message out again, flagged `redelivered`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from omq.base.errors import BodyDamaged, BodyUnavailable, LeaseLost, ReaderClosed
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.ipc.client.reader import Reader

Order = Callable[[Reader], Any]
Arrived = tuple[Message, bytes]


class _Asked:
    """An order whose outcome somebody waits for."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._ended = threading.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def carry_out(self, reader: Reader) -> None:
        try:
            self._value = self._order(reader)
        except Exception as error:  # the asker's, whatever it is
            self._error = error
        self._ended.set()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._ended.set()

    def outcome(self) -> Any:
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._value


class Pump:
    """See the module. `told` is called from the thread: something has arrived, or it has ended with
    `error`. `lost` counts settlements that came too late."""

    def __init__(self, connect: Callable[[], Client], queue: str, told: Callable[[], None]) -> None:
        self.queue = queue
        self.error: Exception | None = None
        self.lost = 0
        self._connect, self._told = connect, told
        self._pid: Final = os.getpid()
        self._changed = threading.Condition()
        self._orders: deque[_Asked | Order] = deque()
        self._arrived: deque[Arrived] = deque()
        self._want = 0
        self._taking = self._closing = False
        self._native: Reader | None = None
        self._thread = threading.Thread(target=self._serve, name=f"omq-{queue}", daemon=True)
        self._thread.start()

    # for any thread

    def take(self) -> Arrived | None:
        """A message that has arrived; the pump's error when it has none left to give."""
        try:
            return self._arrived.popleft()
        except IndexError:
            if self.error is not None:
                raise self.error from None
            return None

    def want(self, count: int) -> None:
        """Have up to `count` messages ready; 0: no more, what has arrived goes back, so that
        others can have it meanwhile."""
        with self._changed:
            if not count and not self._want:
                return
            self._want = count
            if count:
                self._changed.notify_all()
            else:
                self._send_back()
                self._stir()

    def say(self, order: Order) -> None:
        """How the work on a message ended: nobody waits for it. The pump's error."""
        with self._changed:
            self._give(order)

    def ask(self, order: Order) -> Any:
        """Carried out by the thread; its result."""
        asked = _Asked(order)
        with self._changed:
            self._give(asked)
        return asked.outcome()

    def close(self) -> None:
        """Give back what is held. In a child of a fork nothing is its own: nothing happens."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._closing = True
            self._stir()
        self._thread.join()

    def _give(self, order: _Asked | Order) -> None:
        if self._closing or self.error is not None:
            raise self.error or ReaderClosed(queue=self.queue)
        self._orders.append(order)
        self._stir()

    def _stir(self) -> None:
        self._changed.notify_all()
        if self._taking and self._native is not None:
            self._native.wake()

    # the thread

    def _serve(self) -> None:
        error: Exception = ReaderClosed(queue=self.queue)
        try:
            with self._connect() as connection:
                self._native = connection.reader(self.queue)
                self._work(self._native)
                self._native.close()
        except Exception as raised:  # who uses the pump hears of it
            error = self.error = raised
        with self._changed:
            self._closing = True
            left, self._orders = self._orders, deque()
        for each in left:
            if isinstance(each, _Asked):
                each.fail(error)
        self._told()

    def _work(self, reader: Reader) -> None:
        while True:
            with self._changed:
                self._taking = False
                self._changed.wait_for(lambda: self._orders or self._closing or self._missing())
                orders, self._orders = self._orders, deque()
                closing = self._closing
            for order in orders:
                self._carry_out(order, reader)
            if closing:
                return
            with self._changed:
                if self._orders or self._closing or not (missing := self._missing()):
                    continue
                self._taking = True
            # A wake from here on ends the wait, this one or that which is about to begin.
            self._take_in(reader.next(missing, timeout_s=None))

    def _missing(self) -> int:
        return max(0, self._want - len(self._arrived))

    def _carry_out(self, order: _Asked | Order, reader: Reader) -> None:
        if isinstance(order, _Asked):
            order.carry_out(reader)
            return
        try:
            order(reader)
        except LeaseLost:
            self.lost += 1  # the manager has taken it back: it returns

    def _take_in(self, messages: list[Message]) -> None:
        """What cannot be read is that message's own failure: POISON has it with the reason."""
        for message in messages:
            try:
                self._arrived.append((message, message.body))
            except (BodyUnavailable, BodyDamaged) as error:
                message.fail(str(error))
        with self._changed:
            if not self._want:
                self._send_back()
        self._told()

    def _send_back(self) -> None:
        while True:
            try:
                message, _ = self._arrived.popleft()
            except IndexError:  # somebody else takes, too
                return
            self._orders.append(_release(message))


def _release(message: Message) -> Order:
    return lambda _: message.release()
