"""How what a link's native reader has to do is done: in turns, one at a time.

Turns are done by a few threads that all links share (thread_pool). A link that waits for messages
has its request parked (ipc.client.parking), the event loop listens for the bell, and there is no
thread. A link with a selector looks for itself at what arrives, so its turns have a thread of their
own (`apart`), and so have all where the manager has no bells.

A turn that cannot have to wait for anything is done in the event loop itself (`_step_here`): for
who takes one message at a time two changes of threads cost more than the turn.

Invariants: 1. one turn at a time, and it alone uses the native connection, but for wake; 2. the
event loop listens only while no thread has a turn: that may register anew, and the descriptor be
another one's then; 3. the end comes once, and no turn after it; 4. in the event loop nothing
waits, be it for the manager, for the disk or for a lock that somebody keeps; 5. what a thread has
told the event loop is heard there before a turn that follows its own.
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
from omq.services.daemon.thread_pool import ThreadPool


class After(Enum):
    """What comes after a step of a turn."""

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
        self._loop, self._home = asyncio.get_running_loop(), threading.get_ident()
        self._guard: Final = threading.RLock()
        self._changed: Final = threading.Condition(self._guard)  # entered by that, which is quicker
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

    def _stir(self, *, recalls: bool = True, soon: bool = True) -> None:
        """There is something for a turn; `recalls`: a wait for messages ends for it; `soon`: more
        may be said at once."""
        self._recalled = self._recalled or (recalls and self._parked)
        if recalls and self._taking and self._native is not None:
            self._native.wake()
        if self._apart:
            self._changed.notify()
        elif recalls or not self._parked:
            self._go(soon=soon)

    def _deafen(self) -> None:
        if self._listening >= 0:
            self._loop.remove_reader(self._listening)
            self._listening = -1

    def _go(self, *, soon: bool = True) -> None:
        if self._running or self._ended:
            return
        self._running = True
        if not self._quick:
            self._hand_on(None)
        elif soon:
            self._loop.call_soon(self._serve_here)
        else:
            self._serve_here()

    def _hand_on(self, failed: Exception | None) -> None:
        """A thread does it."""
        self._deafen()
        self._hands.give(lambda: self._serve(failed))

    def _listen(self, parked: int, descriptor: int) -> None:
        """For the bell of that one, unless a turn is under way again. (`_changed` is not held.)"""
        with self._guard:
            if self._running or not self._parked or parked != self._parks or self._listening >= 0:
                return
            if descriptor >= 0:
                self._listening = descriptor
                self._loop.add_reader(descriptor, self._hear)
                return
        self._hear()

    def _hear(self) -> None:
        with self._guard:
            self._rung = True
            self._go(soon=False)

    @property
    def _quick(self) -> bool:
        """`_changed` is held: what there is to do may be for a turn in the event loop."""
        return False

    def _serve_here(self) -> None:
        """Behind all that came together: a turn, if it waits for nothing; else a thread's."""
        failed: Exception | None = None
        try:
            if self._step_here():
                return
        except Exception as error:
            failed = error
        self._hand_on(failed)

    def _step_here(self) -> bool:
        """Whether the turn was done; if not, a thread goes on with what is left."""
        return False

    def _park_here(self, descriptor: int) -> None:
        """`_changed` is held: the turn is over, its request under way. From turn to turn in the
        event loop it listens to the same one."""
        self._running = False
        if self._listening != descriptor:
            self._deafen()
            self._listening = descriptor
            self._loop.add_reader(descriptor, self._hear)

    # turns

    def _go_apart(self) -> None:
        self._apart = True
        threading.Thread(target=self._serve, name=f"omq amqp {self.queue}", daemon=True).start()

    def _serve(self, failed: Exception | None = None) -> None:
        """Steps, until there is nothing to do; or, apart, until the end. `failed`: it has come."""
        try:
            if failed is None:
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
        with self._guard:
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
        if threading.get_ident() == self._home:
            self._loop.call_soon(what)
        else:
            self._loop.call_soon_threadsafe(what)

    @abstractmethod
    def _began(self) -> None: ...
    @abstractmethod
    def _step(self) -> After: ...
    @abstractmethod
    def _over(self, failed: Exception | None) -> None: ...
