"""From an accepted text to a durable message: workers of smtp.server, and its replies.

With `routes` (smtp_straight) a mail that comes out as one message goes straight to who delivers it;
all else, and what that queue refuses, goes to ROUTER (mail.routing), or to the `queue` it names.

A connection to the queue manager belongs to one thread, so a small pool of threads has one each.
What one turn of the loop brings goes together, and so does what arrives while puts are under way:
many sessions cost few requests and few wake-ups. The client library itself reaches over a restart
of the manager and repeats what is in doubt under the same sequence number, once only.

Invariants: 1. `put` returns after the durable put was acknowledged, never before; 2. every error
has a reply (smtp_refusals), temporary unless the message itself is at fault: then the client keeps
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
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from omq import Outgoing
from omq.base import fault, limits, names
from omq.base.errors import OmqError
from omq.services.daemon.thread_pool import ThreadPool
from omq.services.mail import mail_message as mail
from omq.services.mail.routes import Routes
from omq.services.mail.routing import straight
from omq.services.mail.smtp_policy import Resolved
from omq.services.mail.smtp_refusals import REFUSALS

BATCH_MESSAGE_BYTES_MAX: Final = 64 * limits.KIB
"""A larger message goes alone: its copy takes longer than the requests that it would save."""
STRAIGHT_RECIPIENTS_MAX: Final = 100
"""With more a mail goes by ROUTER: what comes of them is not worked out twice."""
BARE_NEWLINE: Final = "550 5.6.0 the message has a CR or LF alone (RFC 5321 section 2.3.8)"
LONG_HEADER: Final = "552 5.3.4 the header is too long"
_MESSAGE_ID: Final = frozenset((b"message-id",))


@dataclass(frozen=True, slots=True)
class Submission:
    """One message for the router, and how it is to be looked at."""

    body: bytes  # the Received field and the text
    mail_id: str  # hex
    properties: Mapping[str, str]
    ranked: bool = True  # its own fields say how urgent it is
    scan_bytes: int = limits.MIB
    bare_newlines: bool = True  # are allowed
    routes: Routes | None = None  # None: by ROUTER
    resolved: Mapping[str, Resolved] = field(default_factory=dict)  # every recipient by `routes`
    queue: str = names.ROUTER  # where it goes without them


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
    answer: asyncio.Future[Stored]


_Outcome = Stored | BaseException
_NOTHING: Final = Outgoing(b"")


class Intake:
    """The pool; `put` may be awaited by any number of sessions at once. At most `batch_messages`
    and `batch_bytes` of text go in one request."""

    def __init__(self, connect: Callable[[], Connection], workers: int, batch_messages: int = 1,
                 batch_bytes: int = 0) -> None:
        self._connect = connect
        self._pool = ThreadPool(workers, "intake")
        self._batch_messages, self._batch_bytes = batch_messages, batch_bytes
        self._own = threading.local()
        self._open: set[Connection] = set()
        self._guard = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._idle = workers  # workers that nobody has called for
        self._calling = False  # one is called for at the end of this turn of the loop
        self._closed = False

    async def put(self, submission: Submission) -> Stored:
        """Once the message is durable, or refused. OmqError as the client library raises it."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(submission, loop.create_future())
        with self._guard:
            self._waiting.append(waiting)
        if not self._calling:
            self._calling = True
            loop.call_soon(self._turn_over, loop)
        return await waiting.answer

    def _turn_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """All that came with the first that waits is there. A worker that had begun with that one
        alone would want the interpreter, too, and make a request of its own for it."""
        self._calling = False
        self._call(loop)

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have a worker that rests take what waits."""
        with self._guard:
            if self._waiting and self._idle and not self._closed:
                self._idle -= 1
                self._pool.give(partial(self._work, loop))

    def check(self) -> None:
        """Open the first connection: a wrong configuration shows at the start. OmqError."""
        opened: Future[Connection] = Future()

        def first() -> None:
            try:
                opened.set_result(self._connection())
            except BaseException as error:
                opened.set_exception(error)

        self._pool.give(first)
        opened.result()

    def close(self, wait_s: float) -> bool:
        """Wait so long for the puts that run, then close the connections. False: some run still.
        They end with this process, and nobody was told that they are done."""
        with self._guard:
            self._closed = True
        if not self._pool.close(wait_s):
            return False
        while self._open:
            _close(self._open.pop())
        return True

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """A worker's turn: until nothing waits. The loop is woken once for a batch."""
        while batch := self._take():
            self._call(loop)  # for what does not fit into this request
            outcomes: list[_Outcome] = [_prepared(each.submission) for each in batch]
            ready = [(number, each) for number, each in enumerate(outcomes)
                     if isinstance(each, _Prepared)]
            if ready:
                self._put_all(ready, outcomes)
            with suppress(RuntimeError):  # the loop is closed: nobody is there to hear it
                loop.call_soon_threadsafe(_tell, batch, outcomes)

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

    def _put_all(self, ready: Sequence[tuple[int, _Prepared]], outcomes: list[_Outcome]) -> None:
        """What became of each goes where it stood in the batch."""
        queues: dict[tuple[str, ...], list[tuple[int, _Prepared]]] = {}
        for each in ready:
            queues.setdefault(each[1].message.queues, []).append(each)
        for some in queues.values():
            self._put_some(some, outcomes)

    def _put_some(self, some: Sequence[tuple[int, _Prepared]], outcomes: list[_Outcome]) -> None:
        """Those of one queue."""
        try:
            self._put([prepared.message for _, prepared in some])
        except BaseException as error:
            if not isinstance(error, REFUSALS):
                for number, _ in some:
                    outcomes[number] = error
            elif len(some) > 1:
                for each in some:
                    self._put_some([each], outcomes)
            else:
                self._put_by_router(*some[0], outcomes, error)

    def _put_by_router(self, number: int, prepared: _Prepared, outcomes: list[_Outcome],
                       error: BaseException) -> None:
        """What was refused where it was to go waits on ROUTER, which tells its sender in time."""
        if prepared.by_router is None:
            outcomes[number] = error
            return
        self._put_some([(number, replace(prepared, message=prepared.by_router(),
                                         by_router=None))], outcomes)

    def _put(self, messages: Sequence[Outgoing]) -> None:
        connection = self._connection()
        try:
            fault.point("smtp.before_put")
            connection.put_many(messages[0].queues[0], messages)
            fault.point("smtp.after_put")
        except REFUSALS:
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
class _Prepared(Stored):
    """A submission that may be put, as `message`; `by_router` makes the one for ROUTER."""

    message: Outgoing = _NOTHING
    by_router: Callable[[], Outgoing] | None = None


def _tell(batch: Sequence[_Waiting], outcomes: Sequence[_Outcome]) -> None:
    """In the loop: what became of each, to those that still wait."""
    for waiting, outcome in zip(batch, outcomes, strict=True):
        if waiting.answer.done():
            continue  # its session was cut off
        if isinstance(outcome, BaseException):
            waiting.answer.set_exception(outcome)
        else:
            waiting.answer.set_result(outcome)


def _prepared(submission: Submission) -> _Outcome:
    """The message to put (_Prepared), its refusal, or the error of making it."""
    try:
        return _outgoing(submission)
    except BaseException as error:
        return error


def _outgoing(submission: Submission) -> Stored:
    body, scan_bytes = submission.body, submission.scan_bytes
    if not submission.bare_newlines and not whole_lines(body):
        return Stored(BARE_NEWLINE)
    if not mail.header_ends(body, scan_bytes):
        return Stored(LONG_HEADER)
    fields = list(mail.header_fields(body, scan_bytes))
    priority = mail.priority_of(body, fields) if submission.ranked else limits.PRIORITY_NORMAL
    message_id = next((text for _, text in mail.field_values(body, _MESSAGE_ID, fields)), "")
    by_router = partial(_for_router, submission, priority)
    recipients = mail.lines(submission.properties.get(mail.TO, ""))
    if submission.routes is not None and 0 < len(recipients) <= STRAIGHT_RECIPIENTS_MAX and all(
            each in submission.resolved for each in recipients):
        message = straight(
            body, fields, recipients, submission.properties, priority,
            bytes.fromhex(submission.mail_id), submission.routes,
            submission.resolved.__getitem__)
        if message is not None:
            return _Prepared("", len(body), message_id, message, by_router)
    return _Prepared("", len(body), message_id, by_router())


def _for_router(submission: Submission, priority: int) -> Outgoing:
    return Outgoing(submission.body, queues=(submission.queue,), priority=priority,
                    properties=submission.properties, persistent=True,
                    message_id=bytes.fromhex(submission.mail_id))


def _size(submission: Submission) -> int:
    """About as much as it takes in a request."""
    properties = sum(len(each) for each in submission.properties.values())
    return len(submission.body) + 4 * properties + limits.KIB


def whole_lines(text: bytes) -> bool:
    """Whether no CR and no LF stands alone."""
    return text.count(b"\r\n") == text.count(b"\r") == text.count(b"\n")


def _close(connection: Connection) -> None:
    with suppress(OmqError, OSError):  # it is given up because it does not work
        connection.close()
