"""What a reader service is: one method that takes a message and says what happens to it.

    class Counter(Service):
        def handle(self, message: Message) -> Disposition:
            return Done()

Everything around it (processes, restarts, batches, signals) is the same for all services and lives
in omq.services.readers.parent and omq.services.readers.runner.

Invariants: 1. `open` runs once in each reader process, after the fork and before the first message;
2. `handle` is never called again before it returned; an exception counts as Fail; 3. one
disposition is one atomic operation of the queue manager. A message may come twice (a reader that
dies after its work and before its disposition): a service makes its work idempotent by
`message_id`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from omq.base.errors import QueueGone, UnknownQueue

if TYPE_CHECKING:
    from omq import Outgoing
    from omq.base.errors import OmqError
    from omq.base.event_log import EventLog
    from omq.base.paths import SpoolPaths
    from omq.base.services_conf import ServiceConf
    from omq.base.settings import Settings


@dataclass(frozen=True, slots=True)
class Done:
    """Finished: the message leaves this queue."""


@dataclass(frozen=True, slots=True)
class Move:
    """The message goes on to `queues` (none = finished) and `new` ones are put, all or nothing."""

    queues: tuple[str, ...]
    new: tuple[Outgoing, ...] = ()


@dataclass(frozen=True, slots=True)
class Defer:
    """Not now: hand it out again after `seconds`. No attempt is counted."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """A failed attempt; at the queue's limit the message goes to POISON."""

    reason: str


Disposition = Done | Move | Defer | Fail


class Message(Protocol):
    """What a service sees of a message; omq.Message fulfils it."""

    @property
    def body(self) -> bytes:
        """Read and checked against its CRC on first use. BodyUnavailable, BodyDamaged."""
        ...

    @property
    def properties(self) -> Mapping[str, Any]:
        """Those that omq itself reads (format.property_values, TEXTS_ONLY) are texts."""
        ...

    @property
    def texts(self) -> Mapping[str, str]: ...
    @property
    def message_id(self) -> str: ...
    @property
    def qpool_id(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def attempts(self) -> int:
        """Failed attempts before this hand-out."""
        ...

    @property
    def defers(self) -> int: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def put_time_ns(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def correlation_id(self) -> bytes: ...
    @property
    def reply_to(self) -> str: ...
    @property
    def group_id(self) -> str: ...
    @property
    def container(self) -> Path | None:
        """The file of a large body, to look at."""
        ...


def reply_queue(message: Message) -> str:
    """The queue that wants the reply; "": none does, or it is gone, and nobody waits for one."""
    try:
        return message.reply_to
    except (UnknownQueue, QueueGone):
        return ""


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What a service may use. A reload replaces it whole."""

    settings: Settings
    paths: SpoolPaths
    conf: ServiceConf
    conf_dir: Path
    log: EventLog
    is_main: bool


class Service:
    """Base of every reader service. Only `handle` must be written."""

    title: ClassVar[str] = ""  # for messages when services.conf has none

    def __init__(self, context: ServiceContext) -> None:
        self.context = context

    @property
    def queue(self) -> str:
        """The queue that this service reads."""
        return self.context.conf.queue

    def open(self) -> None:
        """Get ready (connections, files). An OmqError here ends the reader with its exit code."""

    def handle(self, message: Message) -> Disposition:
        """Work on one message."""
        raise NotImplementedError

    def handle_many(self, messages: Sequence[Message]) -> Sequence[Disposition] | None:
        """Work on a batch at once: a disposition for each, in order. None: one by one. After an
        exception `handle` is called for each of them, so work that is done twice must show."""

    def refused(self, message: Message, error: OmqError) -> Disposition | None:
        """The manager refused what `handle` decided: what happens to the message instead. None: it
        is deferred for `reader_refused_retry_s` and handled again."""

    def idle(self) -> None:
        """No message waits: give back what is costly to hold. Called once per pause."""

    def reload(self) -> None:
        """SIGHUP: `self.context` is new; called between two messages."""

    def close(self) -> None:
        """The reader ends."""
