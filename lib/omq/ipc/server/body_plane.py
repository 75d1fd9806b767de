"""Questions about bodies over the control connection: reading (ipc.server.fetching), large ones to
put (ipc.server.large_bodies). A part of the control plane; the main loop carries them out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from omq.base.errors import OmqError
from omq.ipc.server.doorkeeper import Doorkeeper
from omq.ipc.server.doors import Door
from omq.ipc.server.fetching import Fetching
from omq.ipc.server.large_bodies import LargeBodies, Made, Question
from omq.ipc.server.request_server import RequestServer
from omq.ipc.server.sessions import Session, say


class BodyPlane:
    """`operations` have an answer, `later` answer by themselves."""

    def __init__(self, server: RequestServer, doorkeeper: Doorkeeper, number: Callable[[str], int],
                 refuse: Callable[[Door, OmqError], None]) -> None:
        fetching = Fetching(server.engine, server.sessions, server.bodies)
        self.large = LargeBodies(
            server.bodies.paths, server.engine, server.sessions, server.may_put, self._made)
        self.finished: deque[Made] = deque()  # filled by the copying thread
        self._wake = doorkeeper.wake
        self._number, self._refuse = number, refuse
        self.operations = {"locate": fetching.locate, "fetch": fetching.fetch,
                           "discard": self._discard, "see": fetching.seeing.see}
        self.later = {"container": fetching.container, "contain": self._contain}

    def _contain(self, session: Session, question: Question) -> None:
        number = self._number(str(question["queue"]))
        self.large.contain(session, number, int(question["size"]), session.descriptor)

    def _made(self, body: Made) -> None:
        """Called by the copying thread."""
        self.finished.append(body)
        self._wake()

    def tell_made(self) -> bool:
        """The answers of `contain` that are due; False: none is."""
        if not self.finished:
            return False
        while self.finished:
            self._answer(self.finished.popleft())
        return True

    def stop(self) -> None:
        """All sessions have ended: what is being copied is for nobody, and removed."""
        self.large.stop()
        self.tell_made()
        self.large.stop()

    def _answer(self, body: Made) -> None:
        door = body.session.door
        try:
            answer = self.large.made(body)
        except OmqError as error:
            self._refuse(door, error)
            return
        if answer is not None:
            say(door, {"status": 0, **answer})

    def _discard(self, session: Session, question: Question) -> Question:
        self.large.discard(session, str(question["ref"]))
        return {}
