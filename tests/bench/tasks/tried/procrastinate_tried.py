"""procrastinate, with its own store in memory in place of PostgreSQL. What is there is carried out
by its worker, until nothing is due."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from procrastinate import App, RetryStrategy
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Status
from procrastinate.testing import InMemoryConnector

from tests.bench.peers.processes import pause

WAIT_S = 60.0


def app() -> App:
    made = App(connector=InMemoryConnector())
    made.open()
    return made


def jobs(tasks: App) -> list[dict[str, Any]]:
    assert isinstance(tasks.connector, InMemoryConnector)
    return list(tasks.connector.jobs.values())


def work(tasks: App, until: Callable[[], Any] = lambda: True) -> None:
    """As its worker, again until `until` says so."""
    deadline = time.monotonic() + WAIT_S
    while True:
        tasks.run_worker(wait=False, install_signal_handlers=False, listen_notify=False)
        if until():
            return
        assert time.monotonic() < deadline, "not done in time"
        pause(0.05)


def delay() -> None:
    tasks, done = app(), list[float]()
    note = tasks.task(name="note")(lambda: done.append(time.monotonic()))
    begun = time.monotonic()
    note.configure(schedule_in={"seconds": 1}).defer()
    work(tasks, lambda: done)
    assert done[0] - begun >= 0.9


def planned_times() -> None:
    tasks = app()

    @tasks.periodic(cron="30 3 * * *")
    @tasks.task(name="nightly")
    def nightly(timestamp: int) -> None:
        """At planned times."""

    (found,) = tasks.periodic_registry.periodic_tasks.values()
    assert found.cron == "30 3 * * *"


def retries() -> None:
    tasks, tries = app(), list[int]()

    @tasks.task(name="fails", retry=RetryStrategy(max_attempts=3, wait=1))
    def fails() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("again")

    fails.defer()
    work(tasks, lambda: len(tries) == 3)
    (job,) = jobs(tasks)
    assert job["status"] == Status.SUCCEEDED.value


def priority() -> None:
    tasks, done = app(), list[str]()

    @tasks.task(name="note")
    def note(what: str) -> None:
        done.append(what)

    note.configure(priority=1).defer(what="low")
    note.configure(priority=9).defer(what="high")
    work(tasks)
    assert done == ["high", "low"]


def once() -> None:
    tasks = app()
    note = tasks.task(name="note", queueing_lock="one")(lambda: None)
    note.defer()
    try:
        note.defer()
        raise AssertionError("it was put twice")
    except AlreadyEnqueued:
        pass


def fixtures() -> None:
    """The store in memory is shipped for tests."""
    tasks, done = app(), list[int]()
    tasks.task(name="seven")(lambda: done.append(7)).defer()
    work(tasks)
    assert done == [7]
