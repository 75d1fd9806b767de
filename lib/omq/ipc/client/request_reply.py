"""Requests and their replies: a message that wants an answer, and the wait for just that one.

The reply carries the id of its request as correlation id, and is taken by it (reader.next,
core.engine.waiters_by_id): many requesters share one reply queue, none sees another's, none is
woken for another's, and nobody asks twice.

A request may be served for `timeout_s` and no longer: that is its expiry, and what is left of it is
the reply's (Message.reply), so that neither lies for ever when its requester has died or given up.

Crash argument: the request is put as any message, once; the reply is settled after it was read. If
the manager ends in between, the reply is handed out again and taken again, under the same id. Both
go in one request to the manager (wire.Operation.ASK): one that has put the message and ends before
the reply comes says so to whoever asks, with the number, and only the wait is asked for again.

Errors: NoReply, and those of put and of a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from omq.base.errors import NoReply, OmqError, QueueGone
from omq.format.wire import Operation
from omq.ipc.client.ids_asked import wish

if TYPE_CHECKING:
    from omq.ipc.client.message import Message
    from omq.ipc.client.reader import Reader
    from omq.ipc.wire.outgoing import Outgoing

_ASK: Final = int(Operation.ASK)
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


def ask(replies: Reader, message: Outgoing, queue: str, timeout_s: float,
        put: Callable[[Outgoing, tuple[str, ...]], str]) -> Reply:
    """Put a request on `queue` and wait for its reply: with one request to the manager, or, where
    that cannot be, with `put` and another. NoReply; the errors of put."""
    told = _at_once(replies, message, queue, timeout_s)
    if told is None:
        asked = put(message, (queue,))
        told = asked, replies.next(1, timeout_s, correlation=asked)
    asked, found = told
    return _answer(replies, asked, queue, timeout_s, found)


def _at_once(reader: Reader, message: Outgoing, queue: str, timeout_s: float
             ) -> tuple[str, list[Message]] | None:
    """The request's id, and its reply, active from now on, if it came in time. None: it cannot go
    that way, and nothing was put."""
    link, wire = reader._link, reader._wire
    if not link.asks or link.interrupted or len(message.body) > link.threshold:
        return None
    new = wire.encode(message, (queue,))
    if new.parts or new.key or not reader._room_beside(len(new.payload)):
        return None
    wait_s = 0.0 if link.woken else timeout_s
    try:
        answer = reader._request(_ASK, 1, wait_s, int(wait_s * 1000), new=new)
    except QueueGone:  # the other way opens it again
        wire.forget()
        return None
    asked = wire.id_text(answer.qpool, message)
    found = None if answer.recovered else reader._rows.take(link.reply, answer.count, link.trusted)
    if found is None or not all(_answers(each, asked) for each in found):
        wanted = wish(asked, None, link.id_prefix)
        assert wanted is not None
        found = reader._certain(wanted, 1, timeout_s, found)
    else:
        for each in found:
            reader.looked_into(each)
    reader._waited()
    return asked, found


def _answers(message: Message, asked: str) -> bool:
    """Whether it is the reply to that request. One that cannot be read is: its reader meets the
    error (IdAsked.meant)."""
    try:
        return message.correlation == asked
    except OmqError:
        return True


def _answer(reader: Reader, asked: str, queue: str, timeout_s: float, found: list[Message]
            ) -> Reply:
    """What came for the request with the id `asked`, which was put on `queue`. NoReply."""
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
    ids = message.ids
    return Reply(message.body, message.properties, ids.message_id, ids.correlation,
                 message.priority, message.persistent)
