"""What the planes of the request server need of it."""

from __future__ import annotations

from typing import Protocol

from omq.core.engine.engine import Engine
from omq.core.engine.puts import NewMessage
from omq.ipc.server.sessions import Session, Sessions
from omq.storage.payloads import PayloadReader


class ServerParts(Protocol):
    """Of RequestServer. `stopping`: nothing new is taken; `batch_max`: messages of a request."""

    engine: Engine
    sessions: Sessions
    bodies: PayloadReader
    stopping: bool
    batch_max: int

    def new_message(self, session: Session, area: memoryview, at: int, payloads: memoryview
                    ) -> NewMessage:
        """The message whose FRAME lies at `at` of a request's area, looked at."""
