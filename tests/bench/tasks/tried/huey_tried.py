"""huey, with its queue in a file of SQLite. What is due is carried out here, as by its consumer."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from huey import RetryTask, SqliteHuey, chord, crontab
from huey.exceptions import TaskLockedException

WAIT_S = 60.0


@contextmanager
def queue(**how: Any) -> Iterator[SqliteHuey]:
    with tempfile.TemporaryDirectory(prefix="omq-tried-") as folder:
        yield SqliteHuey("tried", filename=str(Path(folder) / "tasks"), **how)


def work(tasks: SqliteHuey, until: Any = None) -> None:
    """As a consumer, until nothing is there, or `until` says so."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for task in tasks.read_schedule(datetime.utcnow()):
            tasks.enqueue(task)
        task = tasks.dequeue()
        if task is not None:
            tasks.execute(task)
        elif until is None or until():
            return
    raise AssertionError("not done in time")


def delay() -> None:
    with queue() as tasks:
        done: list[float] = []
        now = tasks.task()(lambda: done.append(time.monotonic()))
        begun = time.monotonic()
        now.schedule(delay=1)
        work(tasks, lambda: bool(done))
        assert done[0] - begun >= 0.9


def planned_times() -> None:
    with queue() as tasks:
        tasks.periodic_task(crontab(minute="30", hour="3"))(lambda: None)
        due = tasks.read_periodic(datetime(2026, 11, 28, 3, 30))
        assert len(due) == 1 and not tasks.read_periodic(datetime(2026, 11, 28, 3, 31))


def retries() -> None:
    with queue() as tasks:
        tries: list[int] = []

        def fails() -> int:
            tries.append(1)
            if len(tries) < 3:
                raise RetryTask
            return len(tries)

        result = tasks.task(retries=3)(fails)()
        work(tasks, lambda: len(tries) == 3)
        assert result.get() == 3


def priority() -> None:
    with queue() as tasks:
        done: list[str] = []
        note = tasks.task()(done.append)
        note("low", priority=1)
        note("high", priority=9)
        work(tasks)
        assert done == ["high", "low"]


def once() -> None:
    with queue() as tasks, tasks.lock_task("one"):
        try:
            with tasks.lock_task("one"):
                raise AssertionError("it was taken twice")
        except TaskLockedException:
            pass


def results() -> None:
    with queue() as tasks:
        found = tasks.task()(lambda x, y: x + y)(1, 2)
        work(tasks)
        assert found.get() == 3


def chains() -> None:
    with queue() as tasks:
        add = tasks.task()(lambda x, y: x + y)
        found = tasks.enqueue(add.s(1, 2).then(add, 4))
        work(tasks)
        assert [each.get() for each in found] == [3, 7]


def groups() -> None:
    with queue() as tasks:
        add = tasks.task()(lambda x, y: x + y)
        total = tasks.task()(sum)
        found = tasks.enqueue(chord([add.s(1, 2), add.s(3, 4)], total.s()))
        work(tasks)
        assert found.get() == 10


def fixtures() -> None:
    with queue(immediate=True) as tasks:
        assert tasks.task()(lambda: 7)().get() == 7
