"""How a message ends when its function has: done with what follows, or as its task has the error.

Used by `omq worker` and by tests that drain a queue through a function (omq.testing.taking).
Errors: LeaseLost, for its caller: the function has settled the message, or its time was over.
"""

from __future__ import annotations

from typing import Any, Final

from omq.base.errors import REFUSALS, OmqError
from omq.tasks.task import Again, Aside, Drop, Later, Task

REFUSED_RETRY_S: Final = 5.0
"""What follows a message cannot be put: it is worked on again then."""
REASON_CHARACTERS: Final = 500
"""As services cut it: an evidence packet holds this much. The event has the traceback."""


def succeeded(message: Any, task: Task, following: tuple[str, bytes] | None) -> OmqError | None:
    """Done, with what follows in the same step. A queue that refuses that is not a fault of the
    function: the message waits, and the refusal is returned."""
    if following is None:
        message.done()
        return None
    how, body = following
    try:
        if how == "reply":
            message.reply(body)
        else:
            message.move((), new=[task.outgoing(message, body)])
    except REFUSALS as error:
        message.defer(REFUSED_RETRY_S, str(error)[:REASON_CHARACTERS])
        return error
    return None


def failed(message: Any, task: Task, error: BaseException, reason: str) -> None:
    """As the task has it for such an error, else as the queue has it."""
    match task.outcome(error):
        case Again(delay_s):
            message.fail(reason, delay_s=delay_s)
        case Later(delay_s):
            message.defer(delay_s, reason)
        case Drop():
            message.done()
        case Aside(queue):
            try:
                message.move((queue,))
            except REFUSALS as refused:
                message.fail(f"{reason}; {refused}"[:REASON_CHARACTERS])
        case None:
            message.fail(reason)
