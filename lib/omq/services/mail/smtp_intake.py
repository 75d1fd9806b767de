"""From an accepted text to a durable message on ROUTER: workers of smtp.server, and its replies.

A connection to the queue manager belongs to one thread, so a small pool of threads has one each.
What arrives while a put is under way goes together in the next one: many sessions cost few requests
and few wake-ups. The client library itself reaches over a restart of the manager and repeats what
is in doubt under the same sequence number, once only.

Invariants: 1. `put` returns after the durable put was acknowledged, never before; 2. every error
has a reply (`reply_to`), temporary unless the message itself is at fault: then the client keeps
the message; 3. a message that is refused takes no other with it: a batch that is refused (nothing
of it was put, it is one request) is put one by one; 4. a connection whose put failed for other
reasons than the message is closed and opened again at the next one.

Crash argument: killed before the put is acknowledged, the client has no 250 and sends again; the
first may be on the queue (an answer that is lost after "durable" cannot be told from one before:
RFC 1047).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from omq import Outgoing
from omq.base import errors, fault, limits, names
from omq.base.errors import OmqError
from omq.services.mail import mail_message as mail

BATCH_MESSAGE_BYTES_MAX: Final = 64 * limits.KIB
"""A larger message goes alone: its copy takes longer than the requests that it would save."""
BARE_NEWLINE: Final = "550 5.6.0 the message has a CR or LF alone (RFC 5321 section 2.3.8)"
LONG_HEADER: Final = "552 5.3.4 the header is too long"
_MESSAGE_ID: Final = frozenset((b"message-id",))


@dataclass(frozen=True, slots=True)
class Submission:
    """One message for the router, and how it is to be looked at."""

    body: bytes  # the Received field and the text
    mail_id: str  # 48 hex digits
    properties: Mapping[str, str]
    ranked: bool = True  # its own fields say how urgent it is
    scan_bytes: int = limits.MIB
    bare_newlines: bool = True  # are allowed


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a submission; `refusal` is the reply to a text that is not taken."""

    refusal: str = ""
    size: int = 0
    message_id: str = ""  # the field


class Connection(Protocol):
    """What is used of Client."""

    def put_many(self, queue: str, messages: Sequence[Outgoing]) -> list[str]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    submission: Submission
    answer: Future[Stored]


class Intake:
    """The pool; `put` may be awaited by any number of sessions at once. At most `batch_messages`
    and `batch_bytes` of text go in one request."""

    def __init__(self, connect: Callable[[], Connection], workers: int, batch_messages: int = 1,
                 batch_bytes: int = 0) -> None:
        self._connect = connect
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="intake")
        self._batch_messages, self._batch_bytes = batch_messages, batch_bytes
        self._own = threading.local()
        self._open: set[Connection] = set()
        self._guard = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._idle = workers  # workers that nobody has called for

    async def put(self, submission: Submission) -> Stored:
        """Once the message is durable, or refused. OmqError as the client library raises it."""
        waiting = _Waiting(submission, Future())
        with self._guard:
            self._waiting.append(waiting)
            call = self._idle > 0
            self._idle -= call
        if call:
            self._pool.submit(self._work)
        return await asyncio.shield(asyncio.wrap_future(waiting.answer))

    def check(self) -> None:
        """Open the first connection: a wrong configuration shows at the start. OmqError."""
        self._pool.submit(self._connection).result()

    def close(self) -> None:
        """Wait for the puts that run, then close the connections."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        while self._open:
            _close(self._open.pop())

    def _work(self) -> None:
        """A worker's turn: until nothing waits."""
        while batch := self._take():
            ready = [(each, prepared) for each in batch
                     if isinstance(prepared := _prepared(each), _Prepared)]
            if ready:
                self._put_all(ready)

    def _take(self) -> list[_Waiting]:
        """What waits and fits into one request; an empty list lets the worker rest."""
        batch: list[_Waiting] = []
        room = self._batch_bytes
        with self._guard:
            while self._waiting and len(batch) < self._batch_messages:
                need = _size(self._waiting[0].submission)
                if batch and (need > room or need > BATCH_MESSAGE_BYTES_MAX):
                    break
                batch.append(self._waiting.popleft())
                room -= need
                if need > BATCH_MESSAGE_BYTES_MAX:
                    break
            if not batch:
                self._idle += 1
        return batch

    def _put_all(self, ready: Sequence[tuple[_Waiting, _Prepared]]) -> None:
        try:
            self._put([prepared.message for _, prepared in ready])
        except BaseException as error:
            if len(ready) > 1 and isinstance(error, _REFUSALS):
                for each in ready:
                    self._put_all([each])
                return
            for waiting, _ in ready:
                waiting.answer.set_exception(error)
            return
        for waiting, prepared in ready:
            waiting.answer.set_result(prepared.stored)

    def _put(self, messages: Sequence[Outgoing]) -> None:
        connection = self._connection()
        try:
            fault.point("smtp.before_put")
            connection.put_many(names.ROUTER, messages)
            fault.point("smtp.after_put")
        except _REFUSALS:
            raise  # the manager answered: the connection is good
        except BaseException:
            self._drop(connection)
            raise

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


@dataclass(frozen=True, slots=True)
class _Prepared:
    message: Outgoing
    stored: Stored


def _prepared(waiting: _Waiting) -> _Prepared | None:
    """The message to put; None when it was refused, or could not be made, which is answered."""
    try:
        return _outgoing(waiting.submission, waiting.answer)
    except BaseException as error:
        waiting.answer.set_exception(error)
        return None


def _outgoing(submission: Submission, answer: Future[Stored]) -> _Prepared | None:
    body, scan_bytes = submission.body, submission.scan_bytes
    if not submission.bare_newlines and not _whole_lines(body):
        answer.set_result(Stored(BARE_NEWLINE))
        return None
    if not mail.header_ends(body, scan_bytes):
        answer.set_result(Stored(LONG_HEADER))
        return None
    priority = (mail.priority_of(body, scan_bytes) if submission.ranked
                else limits.PRIORITY_NORMAL)
    found = mail.field_values(body, _MESSAGE_ID, scan_bytes)
    message = Outgoing(body, queues=(names.ROUTER,), priority=priority,
                       properties=submission.properties, persistent=True,
                       message_id=bytes.fromhex(submission.mail_id))
    return _Prepared(message, Stored("", len(body), found[0][1] if found else ""))


def _size(submission: Submission) -> int:
    """About as much as it takes in a request."""
    properties = sum(len(each) for each in submission.properties.values())
    return len(submission.body) + 4 * properties + limits.KIB


def _whole_lines(text: bytes) -> bool:
    return text.count(b"\r\n") == text.count(b"\r") == text.count(b"\n")


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
