"""The time of a function: armed while it works, and not a moment longer."""

from __future__ import annotations

import signal
from typing import Any, cast
from unittest.mock import Mock

import pytest

from omq.base.event_log import EventLog
from omq.cli.queue.task_function import BYTES, TaskFunction
from omq.cli.queue.task_limit import TaskOverdue, TimeLimit
from omq.services.daemon.signals import Signals


def left_s() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


class Held:
    """A message that looks whether a limit runs while it is settled."""

    body, queue, qpool_id, attempts = b"", "A", 1, 0

    def __init__(self) -> None:
        self.said: list[tuple[str, float]] = []

    def done(self) -> None:
        self.said.append(("done", left_s()))

    def fail(self, reason: str) -> None:
        self.said.append((reason, left_s()))


def call(function: Any, limit_s: float) -> list[tuple[str, float]]:
    held = Held()
    before = signal.getsignal(signal.SIGALRM)
    try:
        handler = TaskFunction(function, BYTES, Mock(EventLog), Signals(),
                               TimeLimit(limit_s, 3600.0))
        handler(cast(Any, held))
    finally:
        signal.signal(signal.SIGALRM, before)
    return held.said


def test_it_runs_while_the_function_works() -> None:
    seen: list[float] = []
    assert call(lambda _: seen.append(left_s()), 1000.0) == [("done", 0.0)]
    assert 0 < seen[0] <= 1000


def test_no_limit_arms_nothing() -> None:
    seen: list[float] = []
    assert call(lambda _: seen.append(left_s()), 0.0) == [("done", 0.0)]
    assert seen == [0.0]


def test_what_is_said_of_a_message_has_no_limit() -> None:
    """Also when the alarm comes once more, behind the function's end."""
    def overdue(_: bytes) -> None:
        signal.raise_signal(signal.SIGALRM)
        pytest.fail("it was not interrupted")

    ((reason, running_s),) = call(overdue, 1000.0)
    assert "the function had 17 min" in reason and running_s == 0.0


def test_a_function_that_goes_on_is_not_interrupted_twice() -> None:
    def swallow(_: bytes) -> None:
        with pytest.raises(TaskOverdue):
            signal.raise_signal(signal.SIGALRM)
        signal.raise_signal(signal.SIGALRM)

    assert call(swallow, 1000.0) == [("done", 0.0)]
