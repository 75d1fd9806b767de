"""Where a client waits for its reply: the semaphore of its channel, and who released it.

The manager releases it once for each reply, when the reply is written. Others release it too, so
that a wait ends without one: the watcher, and whoever interrupts a reader. Each of these leaves a
mark before it releases. A wait takes one release and, if there is one, one mark: however they
overtake each other, there are as many unmarked ends of a wait as replies. So after an unmarked one
the reply is whole, and no half written one is ever looked at.

Errors: sysv_ipc.ExistentialError, sysv_ipc.PermissionsError: the semaphore is gone.
"""

from __future__ import annotations

import sysv_ipc

from omq.fast.client_request import Asking
from omq.ipc.wire.errnos import Outcome, outcome

GONE = (sysv_ipc.ExistentialError, sysv_ipc.PermissionsError)


class Gate(Asking):
    """One per registration: marks never outlive their semaphore. `queue`: the id of the request
    queue, -1 for who asks over the control connection."""

    def __init__(self, semaphore: sysv_ipc.Semaphore, queue: int = -1, client: int = 0,
                 token: bytes = bytes(16), epoch: int = 0) -> None:
        super().__init__(queue, getattr(semaphore, "id", -1), client, token, epoch)
        self._acquire, self._release = semaphore.acquire, semaphore.release

    def wait(self) -> bool:
        """Until the semaphore is released; True when there is a reply, False when somebody else did
        it or a signal has been handled."""
        self.waits = True
        try:
            self._acquire()
        except GONE:
            raise
        except sysv_ipc.Error:  # a signal, and nothing was taken
            return False
        finally:
            self.waits = False
        if self.marks:
            self.marks.popleft()
            return False
        return True

    def open(self) -> None:
        """End the wait under way, or the next one, without a reply. Callable from any thread and
        from a signal handler."""
        self.marks.append(None)
        try:
            self._release()
        except (sysv_ipc.Error, OSError, ValueError, MemoryError) as error:
            # Gone: the wait ends by itself. At its limit: somebody has opened it often enough.
            if outcome("semop", error) is Outcome.BUG:
                raise

    def nudge(self) -> None:
        """The same, if there is a wait."""
        if self.waits:
            self.open()
