"""A message that a get of the REST interface was given, as JSON has it.

Errors: those of a queue manager that is away. What cannot be read is its own failure, and comes to
POISON with the reason.
"""

from __future__ import annotations

import base64
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from omq.base.errors import BodyDamaged, BodyUnavailable, LeaseLost
from omq.cli.web.budget import Budget
from omq.ipc.client.message import Message
from omq.services.readers.service import reply_queue

INLINE_BYTES: Final = 256 * 1024
"""A larger body goes by its link, in pieces."""


@dataclass(slots=True, eq=False)
class Taken:
    """A message given to a get. `record`: as JSON has it, until the answer has been written;
    `cost`: of the budget, until then, too. `message` is for the desk's thread."""

    name: str
    user: str
    message: Message
    record: dict[str, Any]
    cost: int
    reply_to: str

    @property
    def whole(self) -> bool:
        """Whether the record has the body; else it goes by its link."""
        return "body" in self.record or "body_base64" in self.record

    @property
    def url(self) -> str:
        """The link of its body."""
        return f"/api/v1/deliveries/{self.name}/body"


def take(message: Message, queue: str, user: str, budget: Budget) -> Taken | None:
    """In the desk's thread. None: it cannot be read."""
    cost = 0
    try:
        reply_to = reply_queue(message)
        record = {
            "delivery": secrets.token_urlsafe(16), "queue": queue, "qpool_id": message.qpool_id,
            "message_id": message.message_id, "priority": message.priority,
            "attempts": message.attempts, "redelivered": message.redelivered,
            "properties": message.texts, "correlation_id": message.correlation_id.hex(),
            "correlation": message.correlation, "reply_to": reply_to, "size": message.size}
        if message.size <= INLINE_BYTES and budget.take(user, message.size):
            cost = message.size
            record |= encoded(message.body)
        message.let_go()
    except (BodyUnavailable, BodyDamaged) as error:
        if cost:
            budget.give(user, cost)
        with suppress(LeaseLost):  # it was taken back meanwhile
            message.fail(str(error))
        return None
    except BaseException:
        if cost:
            budget.give(user, cost)
        raise
    return Taken(str(record["delivery"]), user, message, record, cost, reply_to)


def encoded(data: bytes) -> dict[str, str]:
    """A body in JSON: as text where it is one."""
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(data).decode("ascii")}
