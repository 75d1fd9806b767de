"""How what a link's native reader has to do is done: in turns, one at a time.

Turns are done by a few threads that all links share (thread_pool). A link that waits for messages
has its request parked (ipc.client.parking), the event loop listens for the bell, and there is no
thread. A link with a selector looks for itself at what arrives, so its turns have a thread of their
own (`apart`), and so have all where the manager has no bells.

Invariants: 1. one turn at a time, and it alone uses the native connection, but for wake; 2. the
event loop listens only while no turn is under way: a turn may register anew, and the descriptor be
another one's then; 3. the end comes once, and no turn behind it.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from omq.ipc.client import parking
from omq.ipc.client.connection import Client
from omq.ipc.client.reader import Reader
from omq.services.amqp.thread_pool import ThreadPool


class After(Enum):
    """What comes behind a step of a turn."""

    ANOTHER = auto()
    NEWS = auto()  # no thread is needed until there is any
    THE_END = auto()


class ReaderTurns:
    """See the module. Methods without another word are for turns; `_changed` is held where a method
    says so."""

    def __init__(self, connect: Callable[[], Client], queue: str, where: str,
                 hands: ThreadPool) -> None:
        """In the event loop. The first turn opens the connection."""
        self.queue = queue
        self._connect, self._where, self._hands = connect, where, hands
        self._loop = asyncio.get_running_loop()
        self._changed: Final = threading.Condition()
        self._connection: Client | None = None
        self._native: Reader | None = None
        self._apart = bool(where)
        self._taking = False  # a wait is under way that is to be woken
        self._running = True  # a turn is under way, or is to be
        self._parked = False
        self._rung = self._recalled = False  # of the parked request: the bell, or it is to end
        self._parks = 0  # so many were parked: which one the event loop is to listen for
        self._listening = -1  # the event loop's
        self._ended = False
        self._through = threading.Event()

    def _begin(self) -> None:
        if self._apart:
            self._go_apart()
        else:
            self._hands.give(self._serve)

    def join(self, timeout_s: float) -> None:
        """At the end of the daemon; in any thread."""
        self._through.wait(timeout_s)

    # in the event loop, `_changed` held

    def _stir(self, *, recalls: bool = True) -> None:
        """There is something for a turn; `recalls`: a wait for messages ends for it."""
        self._recalled = self._recalled or (recalls and self._parked)
        if recalls and self._taking and self._native is not None:
            self._native.wake()
        if self._apart:
            self._changed.notify()
        elif recalls or not self._parked:
            self._go()

    def _go(self) -> None:
        if self._listening >= 0:
            self._loop.remove_reader(self._listening)
            self._listening = -1
        if not self._running and not self._ended:
            self._running = True
            self._hands.give(self._serve)

    def _listen(self, parked: int, descriptor: int) -> None:
        """For the bell of that one, unless a turn is under way again. (`_changed` is not held.)"""
        with self._changed:
            if self._running or not self._parked or parked != self._parks or self._listening >= 0:
                return
            if descriptor >= 0:
                self._listening = descriptor
                self._loop.add_reader(descriptor, self._hear)
                return
        self._hear()

    def _hear(self) -> None:
        with self._changed:
            self._rung = True
            self._go()

    # turns

    def _go_apart(self) -> None:
        self._apart = True
        threading.Thread(target=self._serve, name=f"omq amqp {self.queue}", daemon=True).start()

    def _serve(self) -> None:
        """Steps, until there is nothing to do; or, apart, until the end."""
        failed: Exception | None = None
        try:
            if self._native is None and not self._open():
                return
            while (after := self._step()) is After.ANOTHER:
                pass
            if after is After.NEWS:
                return
        except Exception as error:  # the link's, whatever it is
            failed = error
        try:
            if self._connection is not None:
                self._connection.__exit__(type(failed) if failed else None, failed, None)
        except Exception as error:
            failed = failed or error
        with self._changed:
            self._ended = True
        self._over(failed)
        self._through.set()

    def _open(self) -> bool:
        """The connection and its reader; whether this thread goes on with it."""
        connection = self._connect()
        if not self._apart and not parking.wanted(connection):
            connection.close()
            self._go_apart()  # which begins anew
            return False
        self._connection = connection
        self._native = connection.reader(self.queue, where=self._where)
        self._began()
        return True

    def _leave(self) -> After:
        """No thread is needed; `_changed` is held."""
        self._running = False
        if self._parked:
            assert self._native is not None
            parks, descriptor = self._parks, parking.descriptor(self._native)
            self._tell(lambda: self._listen(parks, descriptor))
        return After.NEWS

    def _tell(self, what: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(what)

    @abstractmethod
    def _began(self) -> None: ...
    @abstractmethod
    def _step(self) -> After: ...
    @abstractmethod
    def _over(self, failed: Exception | None) -> None: ...
