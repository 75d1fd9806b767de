"""Actors for the workers of test_dramatiq; OMQ_TEST_URL says where the queues are."""

from __future__ import annotations

import os
from pathlib import Path

import dramatiq
from dramatiq.middleware import CurrentMessage
from dramatiq.results import Results

from omq.tasks.dramatiq_broker import OmqBroker, OmqResults

URL = os.environ.get("OMQ_TEST_URL", "omq://")
broker = OmqBroker(URL, timeout_s=30)
broker.add_middleware(Results(backend=OmqResults(URL)))
broker.add_middleware(CurrentMessage())
dramatiq.set_broker(broker)


def line(path: str, text: object) -> None:
    """One write, so that lines of several processes do not mix."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@dramatiq.actor(store_results=True)
def add(x: int, y: int) -> int:
    return x + y


@dramatiq.actor(max_retries=3, min_backoff=50, max_backoff=60)
def again(path: str) -> None:
    """Done with the third attempt."""
    message = CurrentMessage.get_current_message()
    assert message is not None
    retries = message.options.get("retries", 0)
    line(path, retries)
    if retries < 2:
        raise ValueError("not yet")


@dramatiq.actor(max_retries=0)
def never() -> None:
    raise ValueError("never")


@dramatiq.actor
def noted(path: str, number: int) -> None:
    line(path, number)


@dramatiq.actor
def blocked(path: str, number: int) -> None:
    """Over when `path`.go, a pipe at first, can be read."""
    line(path, number)
    Path(path + ".go").read_bytes()
    line(path + ".ended", number)
