"""One reader process: takes messages from the queue manager, lets the service work, tells the
result.

The loop is next -> handle each -> next: the dispositions of a batch travel with the request for the
next one. After SIGTERM the message in hand is finished, the rest of the batch is given back
untouched (`release` counts no attempt), what is decided is sent (`flush`) and the reader
unregisters.

Invariants: 1. each message handed out gets exactly one disposition or is released; 2. an exception
in `handle` costs that message one attempt and nothing else; what the manager refuses of a
disposition (a full, inhibited or too short queue) concerns that message alone: it is deferred, or
what the service says (`Service.refused`); after an error of the disk that latched, this process
ends (code 74) and is started again; 3. a wait for messages ends at once on
a signal (`interrupt` of the client, or short waits); 4. at a stop an unreachable manager is not
waited for: it takes the messages back by itself when it sees this process end.

If the process dies between the work and its disposition, the message returns: services are
idempotent. Errors: those of the client (ManagerUnavailable ...) end the process with their exit
code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from omq.base import event_log, events
from omq.base.errors import REFUSALS, LeaseLost, OmqError
from omq.base.fault import point
from omq.services.daemon.daemon import last_trace
from omq.services.daemon.signals import Signals
from omq.services.readers.reload import reload_service
from omq.services.readers.service import (
    Defer,
    Disposition,
    Done,
    Fail,
    Message,
    Move,
    Service,
    ServiceContext,
)
from omq.storage import durable

if TYPE_CHECKING:
    from omq import Outgoing

_BATCH_REFUSALS: tuple[type[OmqError], ...] = (LeaseLost, *REFUSALS)
_POLL_S = 1.0  # how late a client without `interrupt` may notice a signal
_MS = 1000.0
_REASON_CHARACTERS = 500  # an evidence packet holds this much; the traceback is in the event log


class HeldMessage(Message, Protocol):
    """A message and the ways to end the work on it; each only records, `next` or `flush` sends."""

    def done(self) -> None: ...
    def move(self, queues: Sequence[str], new: Sequence[Outgoing] = ()) -> None: ...
    def defer(self, seconds: float, reason: str = "") -> None: ...
    def fail(self, reason: str = "") -> None: ...
    def release(self) -> None: ...


class Reader(Protocol):
    """A registered reader of one queue; may have `interrupt()`, callable from a signal handler."""

    def next(self, n: int, timeout_s: float) -> Sequence[HeldMessage]: ...
    def flush(self) -> None: ...
    def move_many(self, moves: Sequence[tuple[Any, Sequence[Outgoing]]]) -> None: ...
    def holds(self, message: Any) -> bool: ...


class Connection(Protocol):
    """A connection to the queue manager."""

    def reader(
        self, queue: str, *, batch: int, auxiliary: bool
    ) -> AbstractContextManager[Reader]: ...


Connect = Callable[[ServiceContext], AbstractContextManager[Connection]]


class ReaderRunner:
    """Runs one service object in this process."""

    def __init__(self, service: Service, signals: Signals, connect: Connect) -> None:
        self._service = service
        self._signals = signals
        self._connect = connect

    def run(self, ready: Callable[[], None]) -> None:
        """Until a signal to stop. `ready` is called once the queue manager knows the reader."""
        context = self._service.context
        self._service.open()
        try:
            with self._connect(context) as connection:
                registration = connection.reader(
                    context.conf.queue, batch=context.conf.batch, auxiliary=not context.is_main
                )
                with registration as reader:
                    ready()
                    self._serve(reader)
        except OmqError as error:
            if not self._signals.stopping:
                raise
            context.log.event(events.FAILED, event_log.WARNING, at="stop", reason=str(error))
        finally:
            self._service.close()

    def _serve(self, reader: Reader) -> None:
        interrupt: Callable[[], None] | None = getattr(reader, "interrupt", None)
        wait_s = float(self._service.context.settings.reader_wait_s)
        if interrupt is None:
            wait_s = min(wait_s, _POLL_S)
        else:
            self._signals.add_waker(interrupt)
        try:
            self._loop(reader, wait_s)
            reader.flush()
        finally:
            if interrupt is not None:
                self._signals.remove_waker(interrupt)

    def _loop(self, reader: Reader, wait_s: float) -> None:
        rested = False
        while not self._signals.stopping:
            if self._signals.take_reload():
                reload_service(self._service)
            durable.check_latch()
            batch = reader.next(self._service.context.conf.batch, wait_s)
            if batch:
                point("reader.after_next")
                self._work(reader, batch)
                rested = False
                self._rest(len(batch))
            elif not rested and not self._signals.stopping:
                self._service.idle()
                rested = True

    def _rest(self, taken: int) -> None:
        """An auxiliary is for a backlog. What it has settled the manager finds in its note."""
        context = self._service.context
        if not context.is_main and taken < context.conf.batch and not self._signals.stopping:
            self._signals.wait(context.settings.reader_rest_ms / _MS)

    def _work(self, reader: Reader, batch: Sequence[HeldMessage]) -> None:
        together = self._handle_many(batch)
        moved = self._move_many(reader, batch, together)
        for number, message in enumerate(batch):
            if number in moved:
                continue
            if self._signals.stopping and not together:
                message.release()
                continue
            disposition = together[number] if together else self._handle(message)
            point("reader.before_done")
            self._settle(message, disposition)
            point("reader.after_done")

    def _move_many(self, reader: Reader, batch: Sequence[HeldMessage],
                   together: Sequence[Disposition]) -> frozenset[int]:
        """Those that new messages take the place of, with one request: which of them have moved.
        The others, after a refusal, are settled one by one, which then shows whose it is."""
        moves = {number: (batch[number], each.new) for number, each in enumerate(together)
                 if isinstance(each, Move) and not each.queues}
        if len(moves) < 2:
            return frozenset()
        point("reader.before_done")
        try:
            reader.move_many(list(moves.values()))
        except _BATCH_REFUSALS:
            return frozenset(number for number in moves if not reader.holds(batch[number]))
        point("reader.after_done")
        return frozenset(moves)

    def _settle(self, message: HeldMessage, disposition: Disposition) -> None:
        """Tell what was decided. What the manager refuses is this message's matter alone: the
        service says what happens to it instead, and if that is refused too it waits."""
        try:
            settle(message, disposition)
            return
        except LeaseLost as error:  # another reader has it by now: nothing is ours to decide
            self._log_refused(message, error)
            return
        except REFUSALS as error:
            refusal: OmqError = error
        self._log_refused(message, refusal)
        retry_s = float(self._service.context.settings.reader_refused_retry_s)
        try:
            second = self._service.refused(message, refusal)
            if second is not None:
                settle(message, second)
                return
        except REFUSALS as error:
            self._log_refused(message, error)
        message.defer(retry_s, str(refusal)[:_REASON_CHARACTERS])

    def _log_refused(self, message: HeldMessage, error: OmqError) -> None:
        self._service.context.log.event(
            events.DISPOSITION_REFUSED, event_log.WARNING, queue=message.queue,
            message_id=message.message_id, reason=str(error),
        )  # fmt: skip

    def _handle_many(self, batch: Sequence[HeldMessage]) -> Sequence[Disposition]:
        """The dispositions of a service that works on several at once; empty: one by one, also
        after an error, which then shows whose it is."""
        if len(batch) < 2 or self._signals.stopping:
            return ()
        try:
            return self._service.handle_many(batch) or ()
        except Exception as error:
            event = events.FAILED if isinstance(error, OmqError) else events.BUG
            self._service.context.log.event(event, event_log.ERROR, queue=batch[0].queue,
                                            messages=len(batch), traceback=last_trace())
            return ()

    def _handle(self, message: HeldMessage) -> Disposition:
        try:
            return self._service.handle(message)
        except Exception as error:
            event = events.FAILED if isinstance(error, OmqError) else events.BUG
            self._service.context.log.event(
                event, event_log.ERROR, queue=message.queue, message_id=message.message_id,
                attempts=message.attempts, traceback=last_trace(),
            )  # fmt: skip
            return Fail(f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS])


def settle(message: HeldMessage, disposition: Disposition) -> None:
    """Tell the manager, or note, what happens to a message. LeaseLost, REFUSALS."""
    match disposition:
        case Done():
            message.done()
        case Move(queues, new):
            message.move(queues, new)
        case Defer(seconds, reason):
            message.defer(seconds, reason)
        case Fail(reason):
            message.fail(reason)


def connect_manager(context: ServiceContext) -> AbstractContextManager[Connection]:
    """The real connection; imported late, so that the parent stays small."""
    from omq.ipc.client.connection import connect

    return connect(spool=context.paths.root, name=context.conf.name)
