"""Tasks for the workers of test_celery; OMQ_TEST_URL says where the queues are."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery import Celery, chain, chord, group

import omq
from omq.tasks.natives import place_of

__all__ = ["add", "again", "app", "blocked", "chain", "chord", "collected", "group", "noted",
           "refused", "sends", "suicide", "total", "trace", "unwritable"]
URL = os.environ.get("OMQ_TEST_URL", "omq://")
app = Celery("celery_app", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=2,
    broker_connection_retry_on_startup=True, broker_transport_options={"timeout_s": 30},
    result_chord_retry_interval=0.2, worker_lost_wait=0.5, worker_hijack_root_logger=False)


def line(path: str, text: object) -> None:
    """One write, so that lines of several processes do not mix."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task(bind=True)
def trace(self: Any) -> str:
    """The context that the program which sent it put into its headers."""
    return str((self.request.headers or {}).get("traceparent"))


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def again(self: Any, path: str) -> int:
    """Done with the third attempt."""
    line(path, self.request.retries)
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


@app.task
def noted(path: str, number: int) -> None:
    line(path, number)


@app.task
def collected(parts: list[None], path: str, number: int) -> None:
    """The end of a chord."""
    line(path, number)


@app.task
def unwritable() -> object:
    return object()


@app.task
def refused() -> None:
    """Its error is omq's, which the pool's processes hand over."""
    with omq.connect(**place_of(URL)) as connection:
        connection.put("NO.SUCH.QUEUE", b"")


@app.task
def suicide(path: str) -> str:
    """Kills its process, the first time."""
    if not Path(path).exists():
        line(path, os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@app.task
def sends(number: int) -> tuple[int, str]:
    """From a process of the pool."""
    return os.getpid(), str(add.delay(number, number).id)


@app.task
def blocked(path: str, number: int) -> None:
    """Over when `path`.go, a pipe at first, can be read."""
    line(path, number)
    Path(path + ".go").read_bytes()
    line(path + ".ended", number)
