"""A bell besides the semaphore: a client that looks after many readers in one thread hears over
its control connection, too, that a reply is there.

A wait in semop(2) is the cheapest, and a thread can wait so for one connection alone. A line that
can be read is what one thread waits for with thousands of others. So a reader that asks for it has
after each reply a line {"bell": sequence}, after the release of the semaphore: whoever has read it
finds the semaphore raised.

Invariants: 1. nothing here blocks; 2. a client that does not read its bells loses bells, which is
its own loss: of a session without one nothing here is called, and its replies cost what they cost.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from omq.format.wire import BELL, REPLY, bell_line

if TYPE_CHECKING:
    from omq.ipc.server.sessions import Session

_SEQUENCE = REPLY.names.index("sequence")
_AT_ONCE = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class Bell:
    """Announces the replies of one session."""

    def __init__(self, session: Session) -> None:
        self._session, self._release = session, session.release

    def __call__(self) -> None:
        """Release the semaphore, then ring. The errors of the former."""
        session = self._session
        release: Callable[[], None] = self._release
        try:
            release()
        finally:  # its client may have removed it: it hears what it can
            line = bell_line(REPLY.unpack_from(session.reply)[_SEQUENCE])
            try:
                session.door.connection.send(line, _AT_ONCE)
            except OSError:  # it has gone, or does not read
                session.deaf += 1


def give_bell(session: Session, question: dict[str, Any]) -> None:
    """If the client asks for it: from now on its replies are announced by both ways. The compiled
    path, which knows the semaphore alone, leaves them to the session."""
    if question.get(BELL) and not isinstance(session.release, Bell):
        session.semaphore, session.release = -1, Bell(session)
