"""Tasks for the workers of test_amqp091_celery; OMQ_TEST_AMQP is the URL of the broker, as a client
of RabbitMQ has it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery import Celery

app = Celery("amqp091_celery_app", broker=os.environ.get("OMQ_TEST_AMQP", "amqp://"), backend="rpc://")
app.conf.update(
    task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=2,
    broker_connection_retry_on_startup=True, broker_transport_options={"confirm_publish": True},
    worker_lost_wait=0.5, worker_hijack_root_logger=False)


def _line(path: str, text: object) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task(bind=True, max_retries=3)
def again(self: Any, path: str) -> int:
    """Done with the third attempt."""
    _line(path, self.request.retries)
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


@app.task
def suicide(path: str) -> str:
    """Kills its process, the first time."""
    if not Path(path).exists():
        _line(path, os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"
