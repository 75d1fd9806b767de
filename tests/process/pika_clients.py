"""Connections of pika, a client of AMQP 0-9-1, to an amqp.server under test."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

import pytest

from tests.process.amqp_world import PASSWORD, AmqpWorld

pika = pytest.importorskip("pika", reason="the extra `dev`: pika")

WAIT_S = 60
OPEN: list[Any] = []


def connected(world: AmqpWorld, user: str = "daemon", password: str = PASSWORD, **more: Any) -> Any:
    """`more`: what pika.ConnectionParameters takes besides."""
    made = pika.BlockingConnection(pika.ConnectionParameters(**{
        "host": "127.0.0.1", "port": world.await_port(), "socket_timeout": WAIT_S,
        "credentials": pika.PlainCredentials(user, password), "connection_attempts": 1,
        "blocked_connection_timeout": WAIT_S, **more}))
    OPEN.append(made)
    return made


def closed() -> None:
    """Connections of a test, also those whose server has gone. pika leaves the descriptors of one
    that was refused to the collector."""
    while OPEN:
        with suppress(pika.exceptions.AMQPError, OSError):
            OPEN.pop().close()
    gc.collect()


def got(channel: Any, queue: str = "A", *, auto_ack: bool = False) -> tuple[Any, Any, bytes]:
    """The next one; basic.get."""
    method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
    assert method is not None
    return method, properties, body


def all_of(channel: Any, queue: str) -> list[bytes]:
    """What is there now, taken."""
    found = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        found.append(body)
    return found


def refused(connection: Any, ask: Any) -> int:
    """The code with which a channel ends that asks for this."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        ask(connection.channel())
    return int(caught.value.reply_code)
