"""Celery, with its broker and results in memory and a worker in a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

from celery import Celery, chain, chord
from celery.beat import Scheduler
from celery.contrib.testing.worker import start_worker

WAIT_S = 60.0
_numbers = count()


@contextmanager
def application(**conf: Any) -> Iterator[Celery]:
    """One of its own; its worker runs in the block."""
    name = f"tried{next(_numbers)}"
    app = Celery(name, broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(task_default_queue=name, worker_hijack_root_logger=False,
                    result_chord_retry_interval=0.1, **conf)
    yield app


def plus(x: int, y: int) -> int:
    return x + y


def now(_: int = 0) -> float:
    return time.monotonic()


def summed(numbers: list[int]) -> int:
    return sum(numbers)


def seven() -> int:
    return 7


@contextmanager
def worker(app: Celery) -> Iterator[None]:
    with start_worker(app, pool="threads", concurrency=1, perform_ping_check=False,
                      shutdown_timeout=WAIT_S):
        yield


def delay() -> None:
    with application() as app:
        add = app.task(now, name="now")
        with worker(app):
            begun = time.monotonic()
            assert add.apply_async((1,), countdown=0.2).get(timeout=WAIT_S) - begun >= 0.2


def planned_times() -> None:
    with application(beat_schedule={"often": {
            "task": "add", "schedule": timedelta(seconds=1)}}) as app:
        sent: list[str] = []

        class Sends(Scheduler):  # type: ignore[misc]
            schedule = property(lambda self: self.data)

            def setup_schedule(self) -> None:
                self.merge_inplace(app.conf.beat_schedule)

            def apply_async(self, entry: Any, **_: Any) -> None:
                sent.append(entry.task)
                self.reserve(entry)

        scheduler = Sends(app)
        deadline = time.monotonic() + WAIT_S
        while not sent and time.monotonic() < deadline:
            scheduler.tick()
        assert sent == ["add"]


def retries() -> None:
    with application() as app:
        tries: list[int] = []

        def fails(self: Any) -> int:
            tries.append(1)
            if len(tries) < 3:
                raise self.retry(countdown=0.01)
            return len(tries)

        task = app.task(fails, name="fails", bind=True, max_retries=3)
        with worker(app):
            assert task.delay().get(timeout=WAIT_S) == 3


def results() -> None:
    with application() as app:
        add = app.task(plus, name="add")
        with worker(app):
            assert add.delay(1, 2).get(timeout=WAIT_S) == 3


def chains() -> None:
    with application() as app:
        add = app.task(plus, name="add")
        with worker(app):
            assert chain(add.s(1, 2), add.s(4)).apply_async().get(timeout=WAIT_S) == 7


def groups() -> None:
    with application() as app:
        add = app.task(plus, name="add")
        total = app.task(summed, name="total")
        with worker(app):
            found = chord([add.s(1, 2), add.s(3, 4)])(total.s())
            assert found.get(timeout=WAIT_S) == 10


def rate() -> None:
    """Three of one a second take two seconds; under load Celery let the third go early, so that one
    waits is enough here."""
    with application() as app:
        task = app.task(now, name="now", rate_limit="1/s")
        with worker(app):
            began = time.monotonic()
            for each in [task.delay() for _ in range(3)]:
                each.get(timeout=WAIT_S)
            assert time.monotonic() - began >= 0.9


def fixtures() -> None:
    """A task without a broker."""
    with application(task_always_eager=True) as app:
        assert app.task(seven, name="seven").delay().get() == 7
