"""Whose note is to be looked at next (ipc.server.reader_notes), in the order of time."""

from __future__ import annotations

from collections import deque

from omq.base import shim as cython
from omq.core.engine.waiting import FOREVER
from omq.fast.client_state import ClientState

LOOK_NS = 50_000_000
"""So long after a reader was answered the manager looks at its note."""
_LOOK = LOOK_NS


class LookLine:
    """See the module. `line`: (monotonic ns, session) each."""

    def __init__(self) -> None:
        self.line: deque[tuple[int, ClientState]] = deque()

    @property
    def due(self) -> int:
        """When the next look is (monotonic ns)."""
        return self.line[0][0] if self.line else FOREVER

    def answered(self, session: ClientState, mono_ns: cython.longlong) -> None:
        """It was, in a group that began then."""
        if session.prompt and session.party.active:
            if not session.look_ns:
                self.line.append((mono_ns + _LOOK, session))
            session.look_ns = mono_ns + _LOOK
