"""Messages taken off a queue by a test, worked on by a function as `omq worker` does it."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from omq.base.errors import BadRequest, LeaseLost
from omq.format.property_values import Value
from omq.ipc.client.connection import Connection
from omq.ipc.client.message import Message
from omq.ipc.wire import arguments
from omq.tasks import task_end
from omq.tasks.task import Task, at_work, task_of

JSON, BYTES, MESSAGE = "json", "bytes", "message"
MESSAGES_MAX: Final = 100_000
"""A function that puts on its own queue for ever ends here, not never."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A message as it was when it was handed out. `error`: what the function raised, "" if it
    returned. `attempts`: failed ones before this."""

    message_id: str
    body: bytes
    properties: Mapping[str, Value]
    priority: int
    attempts: int
    redelivered: bool
    error: str = ""

    @property
    def json(self) -> object:
        """The body, decoded. ValueError."""
        return json.loads(self.body)


def drain(connection: Connection, queue: str, call: Callable[..., object] | None, give: str
          ) -> list[Taken]:
    """See LiveInstance.drain. BadRequest after MESSAGES_MAX."""
    if give not in (JSON, BYTES, MESSAGE):
        raise arguments.wrong("give", give, f"it is {JSON}, {BYTES} or {MESSAGE}")
    out: list[Taken] = []
    with connection.reader(queue) as reader:
        while some := reader.next(timeout_s=0):
            for message in some:
                out.append(_taken(message, _work(message, call, give)))
            if len(out) > MESSAGES_MAX:
                raise BadRequest(reason=f"{queue} still has messages after {MESSAGES_MAX} of them")
    return out


def _taken(message: Message, error: str) -> Taken:
    return Taken(message.message_id, message.body, dict(message.properties), message.priority,
                 message.attempts, message.redelivered, error)


def _work(message: Message, call: Callable[..., object] | None, give: str) -> str:
    """Settle it; the error."""
    following, task = None, Task() if call is None else task_of(call)
    try:
        if call is not None:
            given = (message if give == MESSAGE else message.body if give == BYTES
                     else json.loads(message.body))
            task.before(message)
            with at_work(message):
                result = call(given)
            task.after(message, result)
            following = task.following(message, result)
    except Exception as error:
        task.failed(message, error)
        said = "".join(traceback.format_exception_only(error)).strip()
        with suppress(LeaseLost):
            task_end.failed(message, task, error, said[:task_end.REASON_CHARACTERS])
        return said
    with suppress(LeaseLost):  # the function has settled it
        refused = task_end.succeeded(message, task, following)
        return "" if refused is None else str(refused)
    return ""
