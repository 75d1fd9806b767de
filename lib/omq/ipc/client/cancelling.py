"""What a program asks of a message by its id: how it is, and that it be cancelled.

Errors: NoMessage, MessageBusy, NotInState, BadArgument.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from omq.base import limits
from omq.base.clock import local_moment
from omq.format.wire import CancelFlag, Operation
from omq.ipc.wire import arguments

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire


@dataclass(frozen=True, slots=True)
class MessageState:
    """A message on one of its queues. `state`: ready, active (a reader has it: `reader`, as
    name[pid], empty when it is not known since a restart), deferred (until `due`), held (by an
    operator), prepared (in a unit of work in doubt). `attempts`: as Message.attempts counts.
    `progress`: what its reader said of it with `touch`, and when; kept while it is active, and not
    over a restart of the queue manager. `waits_for`: how many messages a barrier waits for."""

    queue: str
    state: str
    due: datetime | None
    attempts: int
    reader: str
    progress: str = ""
    progress_time: datetime | None = None
    waits_for: int = 0


class ActsById:
    """What a connection does with a message that it knows by its id."""

    _wire: Wire

    def cancel(self, message_id: bytes | str, *, in_work: bool = False) -> None:
        """Take a message that waits (ready, delayed, deferred or held) off its queues, for ever.
        `in_work`: also one that a reader has; its next `touch` raises MessageCancelled,
        and what else it says of the message changes nothing.

        By the user that put it, on queues where it may put; by others with the right `admin`. All
        messages with the id, on all queues where you have the right, or none: MessageBusy when a
        reader has it (not `in_work`), NotInState when it is prepared in a unit of work in doubt.
        NoMessage: it has ended, was cancelled before, or is not yours. Exactly once, over the end
        of the manager."""
        raw = _whole(message_id)
        flags = int(CancelFlag.IN_WORK) if arguments.flag(in_work, "in_work") else 0
        self._wire.link.request(Operation.CANCEL, raw, flags=flags, length=len(raw))

    def state(self, message_id: bytes | str) -> list[MessageState]:
        """How a message is on each of its queues: why `next(message_id=)`, `unit.get` or `take`
        give nothing. For who may cancel it, browse its queue or get from it. NoMessage: it has
        ended, or is not yours to see."""
        answer = self._wire.control({"op": "state", "id": _whole(message_id).hex()})
        return [MessageState(
            str(each["queue"]), str(each["state"]), local_moment(each["until_ns"]),
            int(each["attempts"]), str(each["reader"]), str(each.get("progress", "")),
            local_moment(each.get("progress_ns", 0)), int(each.get("waits_for", 0)))
            for each in answer["places"]]

    def said_of(self, qpool: int, queue: str) -> tuple[str, datetime | None]:
        """What the reader of a message on this queue said of it last (MessageState.progress), and
        when; nothing: ("", None). NoMessage."""
        told = self._wire.control({"op": "said", "message": qpool, "queue": queue})
        return str(told["progress"]), local_moment(told["progress_ns"])


def _whole(message_id: bytes | str) -> bytes:
    """All 24 bytes of an id."""
    raw = arguments.own_message_id(message_id)
    if not raw:
        raise arguments.wrong("message_id", message_id, "it is an id, as `put` returned it")
    return raw.ljust(limits.MESSAGE_ID_BYTES, b"\0")
