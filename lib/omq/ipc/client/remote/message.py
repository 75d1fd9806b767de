"""A message that came over AMQP: in hand, or looked at; as omq.Message and omq.Browsed.

Errors: NotRemote for what the protocol has no place for; LeaseLost when it was settled before;
those of the line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from omq.base.clock import NS_PER_S
from omq.base.errors import BadRequest, LeaseLost, NotRemote
from omq.format.property_values import Value
from omq.ipc.client.remote.failure_annotations import CONDITION
from omq.ipc.client.remote.links import ACCEPTED, MODIFIED, REJECTED, RELEASED
from omq.ipc.client.remote.translated import Content
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

if TYPE_CHECKING:
    from proton import Disposition


class Holder(Protocol):
    """Who has a message in hand."""

    def settle(self, message: RemoteMessage, state: int, reason: str = "") -> None: ...
    def replace(self, message: RemoteMessage, new: Sequence[Outgoing]) -> None: ...


class RemoteRow:
    """A message on a queue that was looked at."""

    def __init__(self, queue: str, content: Content) -> None:
        self.queue, self._content = queue, content
        self.priority, self.attempts = content.priority, content.attempts
        self.persistent, self.size = content.persistent, len(content.body)
        self.put_time_ns, self.expiry_ns = content.put_time_ns, content.expiry_ns
        self.message_id, self.correlation = content.message_id, content.correlation
        self.reply_to, self.group_id = content.reply_to, content.group_id
        self.body = content.body
        self.failure = content.failure  # as of omq.Message, times in milliseconds

    @property
    def correlation_id(self) -> bytes:
        return arguments.identifier(self.correlation, "correlation")

    @property
    def properties(self) -> dict[str, Any]:
        """The caller's own."""
        return self._content.properties.copy()

    @property
    def texts(self) -> dict[str, str]:
        """As of omq.Message."""
        return self._content.texts.copy()

    def pieces(self) -> Iterator[bytes]:
        """The body; a client of AMQP has all of it in memory."""
        yield self.body

    @property
    def state(self) -> object:
        raise NotRemote(what="the state of a row", instead="what is browsed is on the queue")


class RemoteMessage(RemoteRow):
    """A message in hand, until it is settled."""

    def __init__(self, holder: Holder, queue: str, tag: str, content: Content) -> None:
        super().__init__(queue, content)
        self._holder, self.tag, self.open = holder, tag, True
        self.qpool_id = 0
        self.defers = 0

    @property
    def redelivered(self) -> bool:
        """An attempt was counted before."""
        return self.attempts > 0

    def _settle(self, state: int, reason: str = "") -> None:
        self._holder.settle(self, state, reason)

    def ended(self) -> None:
        """It is settled now. LeaseLost when it was before."""
        if not self.open:
            raise LeaseLost(qpool_id=self.message_id)
        self.open = False

    def done(self) -> None:
        self._settle(ACCEPTED)

    def release(self) -> None:
        self._settle(RELEASED)

    def fail(self, reason: str = "", delay_s: float | None = None) -> None:
        """The queue's own pause follows."""
        if delay_s is not None:
            raise NotRemote(what="fail with delay_s", instead="the queue has a pause of its own "
                            "(retry_delay_ms)")
        text = arguments.text(reason, "reason")
        self._settle(REJECTED if text else MODIFIED, text)

    def defer(self, seconds: float, reason: str = "") -> None:
        raise NotRemote(what="defer", instead="move((), [a copy with delay_s])")

    def touch(self, progress: str = "") -> None:
        raise NotRemote(what="touch", instead="give the queue a longer lease_s")

    def set_aside(self) -> None:
        """What was fetched and not settled counts as being processed in any case."""

    def move(self, queues: str | Sequence[str], new: Sequence[Outgoing] = ()) -> None:
        """Finish it and put `new`, all or nothing, by a transaction."""
        if queues:
            raise NotRemote(what="move to other queues", instead="put a copy: move((), [...])")
        self._holder.replace(self, new)

    def reply(self, body: bytes = b"", *, properties: Mapping[str, Value] | None = None,
              priority: int | str | None = None, persistent: bool | None = None) -> bool:
        """As omq.Message.reply."""
        if not self.reply_to:
            raise BadRequest(reason=f"message {self.message_id} wants no reply (reply_to)")
        left_s = (self.expiry_ns - time.time_ns()) / NS_PER_S if self.expiry_ns else None
        answer = Outgoing(
            body=body, queues=(self.reply_to,), properties={} if properties is None else properties,
            priority=self.priority if priority is None else arguments.priority(priority),
            persistent=self.persistent if persistent is None else persistent,
            correlation_id=self.message_id,
            expiry_s=None if left_s is None else max(0.0, left_s))
        late = left_s is not None and left_s <= 0
        self._holder.replace(self, () if late else (answer,))
        return not late


def say(reason: str, local: Disposition) -> None:
    """Why it failed, in the words of AMQP; in the thread of the line."""
    from proton import Condition

    if reason:
        local.condition = Condition(CONDITION, reason)
    else:
        local.failed = True
