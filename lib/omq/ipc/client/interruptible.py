"""How somebody else ends what a reader waits for: from another thread, or a signal's handler.

Invariant: what came while nobody waited is met by the next call, and only a call that is about to
return forgets it (tests/process/test_lost_wakes.py).

Errors: ReaderClosed; those of `flush`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omq.base.errors import ReaderClosed
from omq.ipc.client.moving import Moving

if TYPE_CHECKING:
    from omq.fast.reader_note import Note
    from omq.ipc.client.connection_parts import Wire


class Interruptible(Moving):
    """See the module. Of one reader."""

    def __init__(self, wire: Wire, queue: str, note: Note | None) -> None:
        super().__init__(wire, queue, note)
        self._ended = False  # interrupted: an iteration ends
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def interrupt(self) -> None:
        """Callable from a signal handler and from another thread: the wait under way ends, and the
        next call of `next` returns at once; an iteration ends. Nothing where it is closed."""
        if not self._closed:
            self._link.interrupt()

    def wake(self) -> None:
        """As `interrupt`, for a program that has other work to look after: the wait under way ends,
        with what is there, an iteration goes on, and a manager that is away is still waited
        for."""
        if not self._closed:
            self._link.wake()

    def _interrupted(self) -> bool:
        """An interrupt ended an earlier wait, or came while nobody waited: this call is the one
        that it ends. ReaderClosed."""
        if self._closed:
            raise ReaderClosed(queue=self.queue)
        link = self._link
        if not link.interrupted:
            return False
        link.interrupted = False
        self._ended = True
        self.flush()
        return True

    def _waited(self) -> None:
        """A call that might wait is about to return: whatever woke it until now has its effect by
        that. Nothing else takes a wake away, however many requests the call made: a step of it
        would take one that came meanwhile, and the next step wait."""
        self._link.woken = False
