"""Calls a user's function for one message: `omq worker MODULE:FUNCTION`.

    it returns      done: the message leaves the queue; what it returns goes where its decorator
                    says (omq.tasks.task), else it is not kept
    it raises       what the decorator says of such an error; else a failed attempt with the
                    exception as reason: the queue's retry_delay_ms, its back-off and attempts_max
                    decide what follows, at the end POISON
                    MessageCancelled: somebody cancelled it meanwhile; that is its end
    is not JSON     the same, without a call

The function gets the body as JSON, as bytes, or the omq.Message itself, which it may settle
(`defer`, `move`, `reply`) before it returns.

Invariants: 1. whatever leaves the function is that message's failure and ends nobody, SystemExit
too; 2. it is interrupted in the main thread, once, when its own time is over (TaskOverdue: a failed
attempt; omq.cli.queue.task_limit) or that of a stop (TaskStopped: the message goes back untouched);
3. nothing of a message is executed or unpickled; 4. the message is settled with no limit running:
a manager that is away is not a fault of the function.

The crash argument is the reader's (omq.ipc.client.reader): a process that dies before `done` is
recorded leaves the message to the manager, which hands it out again, flagged `redelivered`. So a
function may be called twice for one message; its message_id tells.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from omq.base import event_log, events
from omq.base.errors import (
    BodyDamaged,
    BodyUnavailable,
    LeaseLost,
    MessageCancelled,
    TaskUnknown,
)
from omq.base.event_log import EventLog
from omq.cli.queue.task_limit import TimeLimit
from omq.services.daemon.signals import Signals
from omq.services.readers.runner import HeldMessage
from omq.tasks import task_end
from omq.tasks.task import Task, at_work, task_of
from omq.tasks.task_end import REASON_CHARACTERS

JSON: Final = "json"
BYTES: Final = "bytes"
MESSAGE: Final = "message"

Function = Callable[[Any], object]


class TaskStopped(BaseException):
    """Raised in a function at work: its worker stops, and does not wait any longer."""


def load(name: str, path: Path) -> Function:
    """The function MODULE:FUNCTION, which may lie below `path`. TaskUnknown; what the module itself
    raises, for that may pass."""
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise TaskUnknown(name=name, reason="there is no ':' between two names", path=path)
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, SyntaxError, AttributeError, TypeError) as error:
        raise TaskUnknown(name=name, reason=told(error), path=path) from error
    if not callable(found):
        raise TaskUnknown(name=name, reason="it cannot be called", path=path)
    if inspect.iscoroutinefunction(found):
        raise TaskUnknown(name=name, reason="it is a coroutine function: see omq.aio", path=path)
    function: Function = found
    return function


def told(error: BaseException) -> str:
    """An exception as a reason: short, and a text that can be written whatever it holds."""
    said = "".join(traceback.format_exception_only(error)).strip()
    return said[:REASON_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


@dataclass(slots=True)
class TaskFunction:
    """The function and how it is called; a handler of omq.cli.queue.read_loop."""

    function: Function
    give: str
    log: EventLog
    signals: Signals
    limit: TimeLimit
    _working: bool = False
    _task: Task = field(default_factory=Task)

    def __post_init__(self) -> None:
        self._task = task_of(self.function)

    def __call__(self, message: HeldMessage) -> None:
        """Call it and settle the message; TaskStopped leaves it unsettled."""
        try:
            given = self._given(message)
        except (BodyUnavailable, BodyDamaged, ValueError, RecursionError) as error:
            self._failed(message, error)
            return
        try:
            self._task.before(message)
            with at_work(message):
                result = self._call(given)
            self._task.after(message, result)
            following = self._task.following(message, result)
        except MessageCancelled as error:  # it is nobody's any more, so there is nothing to say
            self._task.failed(message, error)
            with suppress(LeaseLost):  # only this process has it still
                message.release()
            self._log(events.TASK_CANCELLED, event_log.WARNING, message)
        except TaskStopped:
            self._log(events.TASK_STOPPED, event_log.WARNING, message)
            raise
        except BaseException as error:  # of the task, whatever it is
            self._failed(message, error)
        else:
            with suppress(LeaseLost):  # the function has settled it
                refused = task_end.succeeded(message, self._task, following)
                if refused is not None:
                    self._log(events.DISPOSITION_REFUSED, event_log.WARNING, message,
                              reason=told(refused))
                    return
            self._log(events.TASK_DONE, event_log.TRACE, message)

    def _given(self, message: HeldMessage) -> object:
        if self.give == MESSAGE:
            return message
        return json.loads(message.body) if self.give == JSON else message.body

    def _call(self, given: object) -> object:
        try:
            with self._interruptible():
                self.limit.arm(self._interrupt)
                return self.function(given)
        finally:
            self.limit.disarm()  # nothing interrupts this any more

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        with self.signals.impatience(lambda _times: self._interrupt(TaskStopped())):
            self._working = True
            try:
                yield
            finally:
                self._working = False

    def _interrupt(self, error: BaseException) -> None:
        """In a signal handler. After the function's end nothing is interrupted, nor twice."""
        if self._working:
            self._working = False
            raise error

    def _failed(self, message: HeldMessage, error: BaseException) -> None:
        self._task.failed(message, error)
        reason = told(error)
        with suppress(LeaseLost):
            task_end.failed(message, self._task, error, reason)
        self._log(events.TASK_FAILED, event_log.WARNING, message, reason=reason,
                  traceback=_trace(error))

    def _log(self, event: events.Event, level: event_log.Level, message: HeldMessage,
             **more: str) -> None:
        self.log.event(event, level, queue=message.queue, qpool_id=message.qpool_id,
                       attempts=message.attempts, **more)


def _trace(error: BaseException) -> str:
    """Its end: what an event field holds."""
    return "".join(traceback.format_exception(error))[-event_log.FIELD_CHARACTERS_MAX :]
