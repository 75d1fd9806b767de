"""A message in a reader's hands: its body, its properties, and the ways to end the work on it.

The payload is read and checked against the submitter's CRC on first use: what was put is what is
read, or BodyDamaged says where. A large body lies in a container file with a CRC of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from omq.base import clock, limits
from omq.base.clock import NS_PER_S as NS
from omq.base.errors import BadRequest
from omq.format.location import number_of
from omq.format.property_values import Value
from omq.format.wire import GivenFlag, Settlement
from omq.ipc.client.payload_facts import PayloadFacts
from omq.ipc.client.remote_header import reply_header
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing
from omq.storage import containers

_REDELIVERED: Final = int(GivenFlag.REDELIVERED)
_PERSISTENT: Final = int(GivenFlag.PERSISTENT)
_NOTED: Final = int(GivenFlag.NOTED)


class Holder(Protocol):
    """Who has a message in hand: a reader, or a unit of work."""

    @property
    def queue(self) -> str: ...
    def looked_into(self, message: Message) -> None: ...
    def _set_aside(self, message: Message) -> None: ...
    def _record(self, kind: Settlement, message: Message, argument: int = 0, reason: str = "",
                *, later: bool = False) -> None: ...
    def _move(self, message: Message, queues: tuple[str, ...], new: tuple[Outgoing, ...]
              ) -> None: ...
    def _touch(self, message: Message, progress: bytes, /) -> None: ...


class Message(PayloadFacts):
    """A message in hand. The body is read and checked against the submitter's CRC on first use.

    `qpool_id`: its number in this instance. `priority`: 0 to 9. `size`: bytes of the body.
    `attempts`: hand-outs before this one that failed. `defers`: how often it was deferred.
    `put_time_ns`: when it came on this queue, wall clock.

    `done`, `defer`, `fail`, `release`, `move` and `reply` end the work on it, once: LeaseLost after
    that, and when the manager has taken it back. They must be called by the process that has
    it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return (f"<omq.Message {self.qpool_id} of {self.queue}: priority {self.priority}, "
                f"{self.size} bytes, {self.attempts} failed attempts>")

    @property
    def queue(self) -> str:
        """The queue that it was taken from."""
        holder: Holder = self._reader
        return holder.queue

    @property
    def redelivered(self) -> bool:
        """It was handed out before, and that reader did not finish with it."""
        return bool(self._flags & _REDELIVERED) or self.defers > 0

    @property
    def noted(self) -> bool:
        """Whether `failure` has more than the queue to say."""
        return bool(self._flags & _NOTED)

    @property
    def persistent(self) -> bool:
        """Whether it survives a restart of the manager."""
        return bool(self._flags & _PERSISTENT)

    def _read(self) -> bytes:
        return self._wire.bodies.payload(self._word, self._offset, self._length, self.qpool_id)

    def _where(self) -> str:
        return f"file {number_of(self._word)} offset {self._offset}"

    @property
    def path(self) -> Path | None:
        """The container file of a large body, which only the spool's owner and root may open; None
        when the body travels with the message. As anything may be done with it, the file is not
        used again for another body. AccessDenied for others."""
        path = self.container
        if path is not None:
            self._wire.bodies.give_out(self._load()[self._body_at :].decode("ascii", "replace"))
        return path

    @property
    def container(self) -> Path | None:
        """The same to look at: it may be another body's file once the message has ended."""
        if not self._flags & GivenFlag.CONTAINER:
            return None
        reference = self._load()[self._body_at :].decode("ascii", "replace")
        return self._wire.paths.root / containers.relative_path(reference)

    def set_aside(self) -> None:
        """It was looked into, and the work on it begins later: until then it is not a failure of
        this message if the process dies. What was read of it is forgotten, and read again when it
        is wanted."""
        self._reader._set_aside(self)
        self.let_go()

    def let_go(self) -> None:
        """The work goes on, and what was read of it is forgotten: for who has many in hand. It is
        read again when it is wanted."""
        self._raw = None
        if not self._flags & GivenFlag.INLINE:  # else it is nowhere else
            self._extent = None

    # dispositions

    def done(self) -> None:
        """Finished: the message leaves this queue."""
        self._reader._record(Settlement.DONE, self)

    def defer(self, seconds: float, reason: str = "") -> None:
        """Hand it out again after `seconds`; no failed attempt is counted."""
        delay = arguments.seconds(seconds, "seconds")
        arguments.text(reason, "reason")
        self._reader._record(Settlement.DEFER, self, int(delay * NS), reason)

    def fail(self, reason: str = "", delay_s: float | None = None) -> None:
        """A failed attempt: handed out again after `delay_s` (else as queues.conf has it for the
        queue: retry_delay_ms and its back-off); at attempts_max POISON, or the queue's dead_letter.
        From then on it is handed out alone."""
        argument = 0
        if delay_s is not None:
            argument = 1 + int(arguments.seconds(delay_s, "delay_s") * NS)
        self._reader._record(Settlement.FAIL, self, argument, arguments.text(reason, "reason"))

    def touch(self, progress: str = "") -> None:
        """The work goes on: the lease (lease_s of the queue) begins anew, now. `progress`: how far
        it is, up to 512 bytes, for who asks (`Connection.state`); it is kept while the message is
        active, and not over a restart of the queue manager. LeaseLost when the message is not this
        reader's any more, MessageCancelled when somebody took it away."""
        words = arguments.text(progress, "progress").encode("utf-8", "replace")
        self._reader._touch(self, words[: limits.REASON_BYTES_MAX])

    def release(self) -> None:
        """Give it back untouched, to its old place; no attempt is counted."""
        self._reader._record(Settlement.RELEASE, self)

    def move(self, queues: str | Sequence[str], new: Sequence[Outgoing] = ()) -> None:
        """Off this queue, onto `queues` (none = finished), and put `new`: all or nothing, now."""
        if isinstance(queues, str):
            listed: tuple[str, ...] = (arguments.queue(queues, "queues"),)
        else:
            listed = arguments.queues(queues)
        if isinstance(new, Outgoing | str | bytes) or not isinstance(new, Iterable):
            raise arguments.wrong("new", new, "it is a list of omq.Outgoing")
        messages = tuple(new)
        for each in messages:
            if not isinstance(each, Outgoing):
                raise arguments.wrong("new", each, "it is a list of omq.Outgoing")
        self._reader._move(self, listed, messages)

    def reply(self, body: bytes = b"", *, properties: Mapping[str, Value] | None = None,
              priority: int | str | None = None, persistent: bool | None = None) -> bool:
        """Answer a request, and finish with it: both or neither. The reply goes to its `reply_to`
        with its id as correlation id, with its priority, persistence and remaining time unless
        said. False: its time is over, so it was finished without a reply. One that came over a
        channel is answered over channels. BadRequest if it wants none; the errors of `put`."""
        answer = self.answer(body, properties=properties, priority=priority, persistent=persistent)
        self._reader._move(self, (), () if answer is None else (answer,))
        return answer is not None

    def answer(self, body: bytes = b"", *, properties: Mapping[str, Value] | None = None,
               priority: int | str | None = None, persistent: bool | None = None
               ) -> Outgoing | None:
        """What `reply` would put, and nothing is done; None: its time is over. For `move`, with
        other messages in the same step. BadRequest if it wants no reply."""
        queue, expiry = self.reply_to, self.expiry_ns
        if not queue:
            raise BadRequest(reason=f"message {self.message_id} wants no reply (reply_to)")
        left_s = (expiry - clock.wall_ns()) / NS if expiry else None
        answer = Outgoing(
            body=body, queues=(queue,), properties={
                **({} if properties is None else arguments.properties(properties)),
                **reply_header(self.texts)},
            priority=self.priority if priority is None else arguments.priority(priority),
            persistent=self.persistent if persistent is None else persistent,
            correlation_id=self.message_id,
            expiry_s=None if left_s is None else max(0.0, left_s))
        return None if left_s is not None and left_s <= 0 else answer
