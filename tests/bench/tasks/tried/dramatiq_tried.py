"""dramatiq, with its stub broker and backends, and a worker of threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
from dramatiq.brokers.stub import StubBroker
from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter
from dramatiq.rate_limits.backends import StubBackend as Limits
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend

WAIT_MS = 60_000


@contextmanager
def broker() -> Iterator[StubBroker]:
    made = StubBroker()
    made.add_middleware(Results(backend=StubBackend(), store_results=True))
    made.emit_after("process_boot")
    yield made
    made.flush_all()
    made.close()


@contextmanager
def worker(stub: StubBroker) -> Iterator[None]:
    made = dramatiq.Worker(stub, worker_timeout=100, worker_threads=1)
    made.start()
    yield
    made.stop()


def got(message: Any, stub: StubBroker) -> Any:
    return message.get_result(backend=stub.get_results_backend(), block=True, timeout=WAIT_MS)


def delay() -> None:
    with broker() as stub:
        task = dramatiq.actor(time.monotonic, broker=stub, actor_name="now")
        with worker(stub):
            begun = time.monotonic()
            assert got(task.send_with_options(delay=200), stub) - begun >= 0.2


def retries() -> None:
    with broker() as stub:
        tries: list[int] = []

        @dramatiq.actor(broker=stub, max_retries=3, min_backoff=1)
        def fails() -> int:
            tries.append(1)
            if len(tries) < 3:
                raise ValueError
            return len(tries)

        with worker(stub):
            message = fails.send()
            stub.join(fails.queue_name, timeout=WAIT_MS, fail_fast=False)
            assert got(message, stub) == 3


def results() -> None:
    with broker() as stub:
        add = dramatiq.actor(lambda x, y: x + y, broker=stub, actor_name="add")
        with worker(stub):
            assert got(add.send(1, 2), stub) == 3


def chains() -> None:
    with broker() as stub:
        add = dramatiq.actor(lambda x, y: x + y, broker=stub, actor_name="add")
        with worker(stub):
            pipe = dramatiq.pipeline([add.message(2, 1), add.message(4)], broker=stub).run()
            assert pipe.get_result(block=True, timeout=WAIT_MS) == 7


def groups() -> None:
    with broker() as stub:
        add = dramatiq.actor(lambda x, y: x + y, broker=stub, actor_name="add")
        with worker(stub):
            found = dramatiq.group([add.message(1, 2), add.message(3, 4)], broker=stub).run()
            assert sum(found.get_results(block=True, timeout=WAIT_MS)) == 10


def rate() -> None:
    limiter = WindowRateLimiter(Limits(), "key", limit=1, window=60)
    with limiter.acquire(raise_on_failure=False) as first:
        assert first
    with limiter.acquire(raise_on_failure=False) as second:
        assert not second


def at_once() -> None:
    limiter = ConcurrentRateLimiter(Limits(), "key", limit=1)
    with limiter.acquire() as first, limiter.acquire(raise_on_failure=False) as second:
        assert first and not second


def fixtures() -> None:
    """The broker of all these."""
    with broker() as stub:
        dramatiq.actor(lambda: None, broker=stub, actor_name="none").send()
        assert stub.queues["default"].qsize() == 1
