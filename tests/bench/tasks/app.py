"""The Celery program of the bench: it is the same with every broker, but for OMQ_BENCH_BROKER.

    python -m tests.bench.tasks.app PATH COUNT RATE    sends COUNT tasks, RATE a second (0: at once)

See sending.py for the files that it writes.
"""

from __future__ import annotations

from celery import Celery

from tests.bench.tasks.sending import BROKER, note_done, send

app = Celery("app", broker=BROKER["url"])
app.conf.update(
    task_acks_late=True, task_ignore_result=True, task_reject_on_worker_lost=True,
    broker_connection_retry_on_startup=True, worker_hijack_root_logger=False,
    broker_transport_options=BROKER["options"])


@app.task(name="noted")
def noted(path: str, number: int, sent: float) -> None:
    note_done(path, number, sent)


if __name__ == "__main__":
    send(lambda *task: noted.apply_async(task, retry=False))
