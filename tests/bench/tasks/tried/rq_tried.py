"""RQ, on a Redis of its own (make setup-peers). What is due is moved and carried out here, as by
its scheduler and its worker."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis
from rq import Queue, RateLimit, Retry, SimpleWorker
from rq.cron import CronScheduler
from rq.exceptions import DuplicateJobError
from rq.scheduler import RQScheduler

from tests.bench.peers import software
from tests.bench.peers.processes import Server, free_port, pause

WAIT_S = 60.0
DONE: list[Any] = []


def note(what: Any = None) -> None:
    DONE.append(time.monotonic() if what is None else what)


def added(x: int, y: int) -> int:
    return x + y


def fails_at_first(times: int) -> int:
    DONE.append(1)
    if len(DONE) < times:
        raise ValueError("again")
    return len(DONE)


@contextmanager
def queue(**how: Any) -> Iterator[Queue]:
    DONE.clear()
    with tempfile.TemporaryDirectory(prefix="omq-tried-") as folder:
        server, port = Server("redis", Path(folder)), free_port()
        server.start([software.program("usr/bin/redis-server"), "--bind", "127.0.0.1", "--port",
                      str(port), "--save", "", "--dir", folder], software.environment())
        try:
            server.wait_port(port)
            with redis.Redis(host="127.0.0.1", port=port) as line:
                yield Queue("tried", connection=line, **how)
        finally:
            server.stop()


def work(tasks: Queue, until: Callable[[], Any] = lambda: True) -> None:
    """As its scheduler and its worker, until nothing is there and `until` says so."""
    deadline = time.monotonic() + WAIT_S
    scheduler = RQScheduler([tasks], connection=tasks.connection)
    assert scheduler.acquire_locks()
    try:
        while True:
            scheduler.enqueue_scheduled_jobs()
            SimpleWorker([tasks], connection=tasks.connection).work(
                burst=True, logging_level="ERROR")
            if until():
                return
            assert time.monotonic() < deadline, "not done in time"
            pause(0.05)
    finally:
        scheduler.release_locks()


def delay() -> None:
    with queue() as tasks:
        begun = time.monotonic()
        tasks.enqueue_in(timedelta(seconds=2), note)  # it counts in whole seconds
        work(tasks, lambda: DONE)
        assert DONE[0] - begun >= 0.9


def planned_times() -> None:
    with queue() as tasks:
        planner = CronScheduler(connection=tasks.connection)
        planner.register(note, "tried", args=("planned",), cron="30 3 * * *")
        planner.register(note, "tried", args=("often",), interval=1)
        planner.enqueue_jobs()
        work(tasks, lambda: "often" in DONE)
        assert "planned" not in DONE


def retries() -> None:
    with queue() as tasks:
        job = tasks.enqueue(fails_at_first, 3, retry=Retry(max=3, interval=[1, 1]))
        work(tasks, lambda: len(DONE) == 3)
        assert job.return_value() == 3


def priority() -> None:
    with queue() as tasks:
        tasks.enqueue(note, "low")
        tasks.enqueue(note, "high", at_front=True)
        work(tasks)
        assert DONE == ["high", "low"]


def once() -> None:
    with queue() as tasks:
        tasks.enqueue(note, "one", job_id="one", unique=True)
        try:
            tasks.enqueue(note, "one", job_id="one", unique=True)
            raise AssertionError("it was put twice")
        except DuplicateJobError:
            pass


def results() -> None:
    with queue() as tasks:
        job = tasks.enqueue(added, 1, 2)
        work(tasks)
        assert job.return_value() == 3


def chains() -> None:
    with queue() as tasks:
        first = tasks.enqueue(note, 1)
        tasks.enqueue(note, 2, depends_on=first)
        work(tasks, lambda: len(DONE) == 2)
        assert DONE == [1, 2]


def groups() -> None:
    with queue() as tasks:
        parts = [tasks.enqueue_in(timedelta(seconds=1), note, each) for each in (1, 2)]
        tasks.enqueue(note, "all", depends_on=parts)
        work(tasks, lambda: len(DONE) == 3)
        assert DONE[-1] == "all"


def at_once() -> None:
    """Of a key, waiting or in work: the third of two waits apart."""
    with queue() as tasks:
        limit = RateLimit("tenant", 2)
        jobs = [tasks.enqueue(note, each, rate_limit=limit) for each in range(3)]
        assert tasks.count == 2
        work(tasks, lambda: len(DONE) == 3)
        assert all(job.is_finished for job in jobs)


def fixtures() -> None:
    """A queue that does at once what is put; it needs a Redis all the same."""
    with queue(is_async=False) as tasks:
        assert tasks.enqueue(added, 3, 4).return_value() == 7
