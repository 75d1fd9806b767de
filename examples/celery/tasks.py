"""The application of Celery's tutorial; only the two URLs are omq's."""

from celery import Celery

app = Celery("tasks", broker="omq:///var/tmp/orders", backend="omq:///var/tmp/orders")


@app.task
def add(x, y):
    return x + y
