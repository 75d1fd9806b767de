"""What a function of `omq worker` says of itself: what an error means, what follows, who looks on.

    @task(on={TimeoutError: Again(30.0), ValueError: Aside("ORDERS.BAD")}, then="SHIPPED")
    def work(order):
        ...

`then`: what the function returns is put on that queue, as JSON, in one move with the end of its
message: a chain of queues loses no step and does none twice. `reply`: it answers the message's
reply_to, for `connection.request`, which waits for it and lets it expire; a message that wants no
answer is done. `around`: objects with `before(message)`, `after(message, result)` and
`failed(message, error)`, each optional, called in their order, `after` and `failed` backwards.

A function that works for long says how far it is: `progress("page 7 of 90")`. By that it learns,
too, whether somebody has cancelled its message: MessageCancelled, which it lets pass. Who asks with
`Connection.state` gets what it said last.

Crash argument: the reader's. A death before the move leaves the message, which returns, flagged
redelivered; after it the message is gone and what follows is there. Errors: BadArgument.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from omq import codec
from omq.base.errors import BadName, BadRequest
from omq.base.names import check_queue_name
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

_ATTRIBUTE: Final = "__omq_task__"
_AT_WORK: Final[ContextVar[Any]] = ContextVar("message at work", default=None)
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Again:
    """A failed attempt; the next one after this time instead of the queue's own pause."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Later:
    """Not now, and no fault of the message: no attempt is counted."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Aside:
    """No attempt will help: the message goes to this queue; the event log has the reason."""

    queue: str


@dataclass(frozen=True, slots=True)
class Drop:
    """The message is done for all that."""


Outcome = Again | Later | Aside | Drop


@dataclass(frozen=True, slots=True)
class Task:
    """See the module; made by `task`."""

    on: tuple[tuple[type[BaseException], Outcome], ...] = ()
    then: str = ""
    reply: bool = False
    around: tuple[Any, ...] = ()

    def outcome(self, error: BaseException) -> Outcome | None:
        """Of the nearest class of this error; None: as the queue has it."""
        classes = dict(self.on)
        return next((classes[each] for each in type(error).__mro__ if each in classes), None)

    def before(self, message: Any) -> None:
        """Tell those around; an exception is the message's failure."""
        self._tell("before", self.around, message)

    def after(self, message: Any, result: object) -> None:
        """The same, when the function has returned and nothing is settled yet."""
        self._tell("after", reversed(self.around), message, result)

    def failed(self, message: Any, error: BaseException) -> None:
        """The same of an error, to which their own are added as notes."""
        for each in reversed(self.around):
            try:
                self._tell("failed", (each,), message, error)
            except Exception as second:
                error.add_note("".join(traceback.format_exception(second)))

    def following(self, message: Any, result: object) -> tuple[str, bytes] | None:
        """("then" or "reply", body) of what the end of the message puts; None: nothing."""
        if self.then:
            return "then", codec.encode(result)
        if self.reply and message.reply_to:
            return "reply", codec.encode(result)
        return None

    def outgoing(self, message: Any, body: bytes) -> Outgoing:
        """The next link of the chain, by the id of the first."""
        first = message.correlation or message.message_id
        return Outgoing(body, queues=(self.then,), correlation_id=first, properties={
            **message.properties, codec.CONTENT_TYPE: codec.JSON})

    def _tell(self, name: str, around: Iterable[Any], *what: object) -> None:
        for each in around:
            if (call := getattr(each, name, None)) is not None:
                call(*what)


def task(*, on: Mapping[type[BaseException], Outcome] | None = None, then: str = "",
         reply: bool = False, around: Iterable[object] = ()) -> Callable[[F], F]:
    """A decorator; the function itself stays as it is. BadArgument."""
    rules = tuple((on or {}).items())
    for kind, outcome in rules:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise arguments.wrong("on", kind, "its keys are classes of exceptions")
        if not isinstance(outcome, Outcome):
            raise arguments.wrong("on", outcome, "its values are Again, Later, Aside or Drop")
        if isinstance(outcome, Again | Later):
            arguments.seconds(outcome.delay_s, "delay_s")
        if isinstance(outcome, Aside):
            _queue(outcome.queue, "on")
    if then:
        _queue(then, "then")
    if then and reply:
        raise arguments.wrong("reply", reply, "what is returned goes on, or back: not both")
    made = Task(rules, then, reply, tuple(around))

    def mark(function: F) -> F:
        setattr(function, _ATTRIBUTE, made)
        return function

    return mark


def progress(words: str = "") -> None:
    """Called by a function at work, in its own thread: it goes on, so the lease of its message
    begins anew, and this is how far it is (Message.touch). MessageCancelled, LeaseLost; BadRequest
    where no message is being processed."""
    message = _AT_WORK.get()
    if message is None:
        raise BadRequest(reason="progress is for a function that omq worker calls, in its thread")
    message.touch(words)


@contextmanager
def at_work(message: Any) -> Iterator[None]:
    """A function works on this message."""
    token = _AT_WORK.set(message)
    try:
        yield
    finally:
        _AT_WORK.reset(token)


def task_of(function: Callable[..., object]) -> Task:
    """What a function says of itself; nothing, if it has no decorator."""
    found = getattr(function, _ATTRIBUTE, None)
    return found if isinstance(found, Task) else Task()


def _queue(name: str, argument: str) -> None:
    try:
        check_queue_name(name)
    except BadName as error:
        raise arguments.wrong(argument, name, str(error)) from error
