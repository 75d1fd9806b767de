"""MOVE_MANY: what a reader of batches says of several messages at once, and the new messages that
take their place. All of it is looked at before anything is carried out.

Errors: BadRequest, those of a move (core.engine.move_many).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from omq.base.errors import BadRequest, OmqError
from omq.core.engine.move_many import move_many
from omq.core.engine.settle import Verdict
from omq.format.journal import FRAME
from omq.format.wire import SETTLE, Settlement

if TYPE_CHECKING:
    from omq.ipc.server.request_record import Request
    from omq.ipc.server.server_parts import ServerParts
    from omq.ipc.server.sessions import Session


class MovingMany:
    """Called with a request. `answer` notes a reply that waits for the commit."""

    def __init__(self, server: ServerParts,
                 answer: Callable[[Session, int, int, int], None]) -> None:
        self._server, self._answer = server, answer

    def __call__(self, session: Session, r: Request) -> None:
        known = dict(session.containers)  # each is named once, also within a request
        try:
            first = self._move(session, r)
        except OmqError:
            session.containers = known
            raise
        self._answer(session, r.sequence, r.count, first)

    def _move(self, session: Session, r: Request) -> int:
        """The first new QPoolId, 0: there is none."""
        server, area = self._server, session.request
        heads = r.parts * SETTLE.size
        frames = heads + r.count * FRAME.size
        if frames + r.length > len(area):
            raise BadRequest(reason="the dispositions do not fit the request")
        if not session.queue or r.parts > server.batch_max or r.count > server.batch_max:
            raise BadRequest(reason=f"a reader moves {server.batch_max} messages at once at most")
        ends = []
        for at in range(0, heads, SETTLE.size):
            kind, _, _, entry, qpool, lease, count, _, _ = SETTLE.unpack_from(area, at)
            if kind != Settlement.DONE:
                raise BadRequest(reason="what moves is finished here")
            ends.append(Verdict(kind, entry, qpool, lease, count))
        payloads = area[frames : frames + r.length]
        new = [server.new_message(session, area, heads + i * FRAME.size, payloads)
               for i in range(r.count)]
        return move_many(server.engine, session.party, ends, new, r.sequence)
