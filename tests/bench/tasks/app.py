"""The Celery program of the bench: it is the same with every broker, but for OMQ_BENCH_CELERY.

    python -m tests.bench.tasks.app PATH COUNT RATE    sends COUNT tasks, RATE a second (0: at once)

PATH.sent gets a task's number when `apply_async` has returned, PATH a line when it is done: its
number, when it was sent, when it was done (seconds of the monotonic clock, which all processes of
a machine share).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from celery import Celery

from tests.bench.peers.processes import pause

BROKER = json.loads(os.environ["OMQ_BENCH_CELERY"])
app = Celery("app", broker=BROKER["url"])
app.conf.update(
    task_acks_late=True, task_ignore_result=True, task_reject_on_worker_lost=True,
    broker_connection_retry_on_startup=True, worker_hijack_root_logger=False,
    broker_transport_options=BROKER["options"])


def line(path: Path, text: str) -> None:
    """One write: lines of several processes do not mix."""
    with path.open("a") as file:
        file.write(text + "\n")


@app.task(name="noted")
def noted(path: str, number: int, sent: float) -> None:
    line(Path(path), f"{number} {sent} {time.monotonic()}")


def main() -> None:
    path, count, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    began = time.monotonic()
    for number in range(count):
        if rate:
            pause(max(0.0, began + number / rate - time.monotonic()))
        noted.apply_async((path, number, time.monotonic()), retry=False)
        line(Path(path + ".sent"), str(number))


if __name__ == "__main__":
    main()
