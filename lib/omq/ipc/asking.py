"""Requests and their replies: a message that wants an answer, and the wait for just that one.

The reply carries the id of its request as correlation id, and is taken by it (reader.next,
core.engine.wanted): many requesters share one reply queue, none sees another's, none is woken for
another's, and nobody asks twice.

A request may be served for `timeout_s` and no longer: that is its expiry, and what is left of it is
the reply's (Message.reply), so that neither lies for ever when its requester has died or given up.

Crash argument: the request is put as any message, once; the reply is settled after it was read. If
the manager ends in between, the reply is handed out again and taken again, under the same id.

Errors: NoReply, and those of put and of a reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from omq.base.errors import NoReply, OmqError

if TYPE_CHECKING:
    from omq.ipc.message import Message
    from omq.ipc.reader import Reader

REPLIES: Final = "REPLIES"
"""The reply queue unless one is named; queues.conf must have it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request: read, and off its queue. `correlation`: the id of the request."""

    body: bytes
    properties: Mapping[str, Any]
    message_id: str
    correlation: str
    priority: int
    persistent: bool


def await_reply(reader: Reader, asked: str, queue: str, timeout_s: float) -> Reply:
    """Wait for the reply to the request with the id `asked`, which was put on `queue`. NoReply."""
    found = reader.next(1, timeout_s, correlation=asked)
    if not found:
        raise NoReply(request=asked, queue=queue, seconds=timeout_s, reply_to=reader.queue)
    message = found[0]
    try:
        reply = _read(message)
    except OmqError as error:
        message.fail(str(error))
        raise
    message.done()
    return reply


def _read(message: Message) -> Reply:
    return Reply(message.body, message.properties, message.message_id, message.correlation,
                 message.priority, message.persistent)
