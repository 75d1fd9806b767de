"""From an accepted text to a durable message on ROUTER: workers of smtp.server, and its replies.

A connection to the queue manager belongs to one thread, so a small pool of threads has one each;
puts that wait at the same time are synced together by the manager. The client library itself
reaches over a restart of the manager and repeats what is in doubt under the same sequence number,
once only.

Invariants: 1. `put` returns after the durable put was acknowledged, never before; 2. every error
has a reply (`reply_to`), temporary unless the message itself is at fault: then the client keeps
the message; 3. a connection whose put failed for other reasons than the message is closed and
opened again at the next one.

Crash argument: killed before the put is acknowledged, the client has no 250 and sends again; the
first may be on the queue (an answer that is lost after "durable" cannot be told from one before:
RFC 1047).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from omq.base import errors, fault, names
from omq.base.errors import OmqError


@dataclass(frozen=True, slots=True)
class Submission:
    """One message for the router."""

    body: bytes
    priority: int
    properties: Mapping[str, str]


class Connection(Protocol):
    """What is used of omq.Connection."""

    def put(self, queues: str, body: bytes, *, priority: int, properties: Mapping[str, str],
            persistent: bool) -> str: ...
    def close(self) -> None: ...


class Intake:
    """The pool; `put` may be awaited by any number of sessions at once."""

    def __init__(self, connect: Callable[[], Connection], workers: int) -> None:
        self._connect = connect
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="intake")
        self._own = threading.local()
        self._open: set[Connection] = set()
        self._guard = threading.Lock()

    async def put(self, submission: Submission) -> str:
        """The message id, once the message is durable. OmqError as the client library raises it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._put, submission)

    def check(self) -> None:
        """Open the first connection: a wrong configuration shows at the start. OmqError."""
        self._pool.submit(self._connection).result()

    def close(self) -> None:
        """Wait for the puts that run, then close the connections."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        while self._open:
            _close(self._open.pop())

    def _put(self, submission: Submission) -> str:
        connection = self._connection()
        try:
            fault.point("smtp.before_put")
            message_id = connection.put(names.ROUTER, submission.body, priority=submission.priority,
                                        properties=submission.properties, persistent=True)
            fault.point("smtp.after_put")
        except _REFUSALS:
            raise  # the manager answered: the connection is good
        except BaseException:
            self._drop(connection)
            raise
        return message_id

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._connect()
            self._own.connection = connection
            with self._guard:
                self._open.add(connection)
        return connection

    def _drop(self, connection: Connection) -> None:
        self._own.connection = None
        with self._guard:
            self._open.discard(connection)
        _close(connection)


def _close(connection: Connection) -> None:
    with suppress(OmqError, OSError):  # it is given up because it does not work
        connection.close()


_REFUSALS = (errors.QueueFull, errors.IndexFull, errors.SpoolFull, errors.PutInhibited,
             errors.MessageTooLong, errors.NoAuthority, errors.UnknownQueue, errors.BadProperty)

# RFC 3463: x.3.1 system full, x.3.2 not accepting, x.3.5 incorrectly configured, x.3.4 too big.
_REPLIES: tuple[tuple[tuple[type[OmqError], ...], str], ...] = (
    ((errors.QueueFull, errors.IndexFull, errors.SpoolFull),
     "452 4.3.1 insufficient system storage, try again later"),
    ((errors.PutInhibited, errors.ShuttingDown),
     "451 4.3.2 not accepting messages at present, try again later"),
    ((errors.MessageTooLong,), "552 5.3.4 the message is too long"),
    ((errors.BadProperty,), "554 5.6.0 the envelope cannot be stored"),
    ((errors.NoAuthority, errors.UnknownQueue, errors.ConfigError),
     "451 4.3.5 the system is not configured to accept messages, try again later"),
)
_UNKNOWN = "451 4.3.0 the message could not be stored, try again later"


def reply_to(error: BaseException) -> str:
    """The SMTP reply for a failed put."""
    return next((reply for kinds, reply in _REPLIES if isinstance(error, kinds)), _UNKNOWN)
