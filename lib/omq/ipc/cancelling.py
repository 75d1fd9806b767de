"""What a program asks of a message by its id: how it is, and that it be cancelled.

Errors: NoMessage, MessageBusy, NotInState, BadArgument.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from omq.base import limits
from omq.base.clock import NS_PER_S
from omq.format.wire import Operation
from omq.ipc import arguments

if TYPE_CHECKING:
    from omq.ipc.client_wire import Wire


@dataclass(frozen=True, slots=True)
class MessageState:
    """A message on one of its queues. `state`: ready, active (a reader has it: `reader`, as
    name[pid], empty when it is not known since a restart), deferred (until `due`), held (by an
    operator), prepared (in a unit of work in doubt). `attempts`: as Message.attempts counts."""

    queue: str
    state: str
    due: datetime | None
    attempts: int
    reader: str


class ActsById:
    """What a connection does with a message that it knows by its id."""

    _wire: Wire

    def cancel(self, message_id: bytes | str) -> None:
        """Take a message that waits (ready, delayed, deferred or held) off its queues, for ever.

        By the user that put it, on queues where it may put; by others with the right `admin`. All
        messages with the id, on all queues where you have the right, or none: MessageBusy when a
        reader has it, NotInState when it is prepared in a unit of work in doubt. NoMessage: it has
        ended, was cancelled before, or is not yours. Exactly once, over the end of the manager."""
        raw = _whole(message_id)
        self._wire.link.request(Operation.CANCEL, raw, length=len(raw))

    def state(self, message_id: bytes | str) -> list[MessageState]:
        """How a message is on each of its queues: why `next(message_id=)`, `unit.get` or `take`
        give nothing. For who may cancel it, browse its queue or get from it. NoMessage: it has
        ended, or is not yours to see."""
        answer = self._wire.control({"op": "state", "id": _whole(message_id).hex()})
        return [MessageState(
            str(each["queue"]), str(each["state"]),
            datetime.fromtimestamp(each["until_ns"] / NS_PER_S, UTC).astimezone()
            if each["until_ns"] else None,
            int(each["attempts"]), str(each["reader"])) for each in answer["places"]]


def _whole(message_id: bytes | str) -> bytes:
    """All 24 bytes of an id."""
    raw = arguments.own_message_id(message_id)
    if not raw:
        raise arguments.wrong("message_id", message_id, "it is an id, as `put` returned it")
    return raw.ljust(limits.MESSAGE_ID_BYTES, b"\0")
