"""Large bodies of clients that do not own the spool, the manager's side (ADR 0021).

    contain   a sealed memory file comes as a descriptor; a thread copies it into a container, which
              belongs to the spool's owner, and syncs it; the answer names it
    discard   the client does not want a container after all

A put may name a container that was made for its own session, with its true size, once. What no put
has named when the client goes is removed.

Invariants: 1. the main loop checks and books, the thread copies: bulk I/O never keeps a group
waiting; 2. nobody but the owner ever has a descriptor that can write to the spool; 3. a uid has at
most CONTAINERS_PENDING_MAX bodies here: under way, or made and not yet named by a put; 4. one body
of a session is under way at a time.

In the middle of a crash: the container is whole and durable before its name is sent, so a put never
names one that a crash can take away; a manager that dies before the put leaves an orphan, which
omscan finds, and the client, whose put is refused by the next manager (ContainerUnknown), sends the
body again. A removal that a crash undoes leaves an orphan as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final

from omq.base import limits
from omq.base.errors import (
    BadRequest,
    ContainerUnknown,
    ManagerShort,
    MessageTooLong,
    OmqError,
    SpoolFull,
    TooManyContainers,
)
from omq.base.paths import SpoolPaths
from omq.core.engine.engine import Engine
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.ipc.server.sessions import Session, Sessions
from omq.ipc.wire import sealed_body
from omq.storage import containers
from omq.storage.spare_containers import SpareContainers

Question = dict[str, Any]
REFERENCE_BYTES_MAX: Final = 64  # twice as long as one is


@dataclass(slots=True)
class Made:
    """A body that the thread is done with: its container, or why there is none."""

    session: Session
    descriptor: int
    size: int
    reference: str = ""
    crc: int = 0
    error: OmqError | None = None


class LargeBodies:
    """See the module. `tell` is called by the thread, for each body that it is done with."""

    def __init__(self, paths: SpoolPaths, engine: Engine, sessions: Sessions,
                 may_put: Callable[[Session, int], None], tell: Callable[[Made], None]) -> None:
        self._paths, self._engine, self._sessions = paths, engine, sessions
        self._may_put, self._tell = may_put, tell
        self._spares = SpareContainers(paths)
        self._work: SimpleQueue[Made | str | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    # the main loop

    def contain(self, session: Session, number: int, size: int, descriptor: int) -> None:
        """Copy a body of `size` bytes for queue `number` into a container; `tell` says when. The
        descriptor stays the caller's."""
        self._may_put(session, number)
        rules = self._engine.rules[number]
        if size > rules.max_length:
            raise MessageTooLong(size=size, queue=rules.name, limit=rules.max_length)
        if not self._engine.space_left:
            raise SpoolFull(path="the spool", detail=self._engine.room.refusal)
        if session.containing:
            raise BadRequest(reason="one large body at a time")
        if descriptor < 0:
            raise BadRequest(reason="a large body comes with a descriptor")
        uid = session.party.uid
        pending = sum(len(each.containers) + each.containing
                      for each in self._sessions.by_id.values() if each.party.uid == uid)
        if pending >= limits.CONTAINERS_PENDING_MAX:
            raise TooManyContainers(uid=uid, count=pending, limit=limits.CONTAINERS_PENDING_MAX)
        sealed_body.check(descriptor, size)
        try:
            kept = os.dup(descriptor)
        except OSError as error:
            raise ManagerShort(what="descriptor", reason=error.strerror) from error
        self._later(Made(session, kept, size))
        session.containing = True

    def made(self, body: Made) -> Question | None:
        """The thread is done with it: the answer. None: the client is gone. The error of a
        failure."""
        body.session.containing = False
        if body.session.gone:
            self._remove([body.reference])
            return None
        if body.error is not None:
            raise body.error
        body.session.containers[body.reference] = (body.size, body.crc)
        return {"ref": body.reference, "crc": body.crc}

    def discard(self, session: Session, reference: str) -> None:
        """Remove a container that no put has named."""
        if session.containers.pop(reference, None) is not None:
            self._remove([reference])

    def forget(self, session: Session) -> None:
        """The client is gone."""
        self._remove(list(session.containers))
        session.containers.clear()

    def _remove(self, references: list[str]) -> None:
        for reference in filter(None, references):
            self._later(reference)

    # the thread

    def _later(self, job: Made | str) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="large bodies", daemon=True)
            self._thread.start()
        self._work.put(job)

    def stop(self) -> None:
        """What was begun is finished: then no copy is half made and no orphan stays."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
            self._spares.close()

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            try:
                if isinstance(job, str):
                    containers.remove(self._paths, job, sync=False)
                else:
                    self._copy(job)
            except OmqError:  # of a removal: an orphan stays, which omscan finds
                continue

    def _copy(self, body: Made) -> None:
        try:
            if not body.session.gone:
                body.reference, _, body.crc = containers.create(
                    self._paths, sealed_body.chunks(body.descriptor, body.size), self._spares,
                    body.size)
        except OmqError as error:
            body.error = error
        except (OSError, MemoryError) as error:  # of reading the memory file
            body.error = ManagerShort(what="memory", reason=str(error))
        finally:
            os.close(body.descriptor)
        self._tell(body)


def named(session: Session, payload: bytes | memoryview, size: int) -> str:
    """The container made for this session that a put names; "" where the owner names one that it
    made itself. `payload` must be a copy that the client cannot change any more. ContainerUnknown
    when it is not the session's to name, BadRequest when the message says another CRC of it."""
    if session.party.owns:
        return ""
    found = message_format.decode(payload)
    if isinstance(found, Finding):
        raise BadRequest(reason=f"not a message: {found.reason}")
    reference = bytes(payload[found.body_at :][:REFERENCE_BYTES_MAX]).decode("ascii", "replace")
    known = session.containers.get(reference)
    if known is None or known[0] != size:
        reason = "it is not this client's" if known is None else f"it has {known[0]}"
        raise ContainerUnknown(ref=reference, size=size, reason=reason)
    if known[1] != found.descriptor.body_crc:
        raise BadRequest(reason="the large body does not have the checksum that it came with")
    return reference
