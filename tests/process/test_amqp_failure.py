"""How a message came to its dead-letter queue, for clients of AMQP: those of others, and the Python
API from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

import omq
from tests.process.amqp_world import AmqpWorld, amqp_world, needs_proton
from tests.process.instance import QUEUES

needs_proton()

from proton import Message, symbol  # noqa: E402
from proton.reactor import Copy  # noqa: E402
from proton.utils import BlockingConnection  # noqa: E402

from omq.ipc.client.connection import Client  # noqa: E402

WAIT_S = 120
BROKEN = "\n[IN]\nattempts_max = 2\nretry_delay_ms = 0\ndead_letter = BROKEN\n\n[BROKEN]\n"
LARGE = b"x" * 3_000_000


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp"), queues=QUEUES + BROKEN) as made:
        yield made


@pytest.fixture
def world(instance: AmqpWorld) -> Iterator[AmqpWorld]:
    yield instance
    instance.clear("A", "IN", "BROKEN")


@pytest.fixture
def far(world: AmqpWorld) -> Iterator[Client]:
    with omq.connect(f"amqp://{world.url}/", name="far", timeout_s=WAIT_S) as made:
        yield made


def fails(connection: omq.Connection, *reasons: str) -> None:
    with connection.reader("IN") as reader:
        for reason in reasons:
            (message,) = reader.next(1, WAIT_S)
            message.fail(reason)


def annotated(world: AmqpWorld, queue: str, *, browse: bool) -> dict[str, Any]:
    """Of the next message of a queue, as Proton's client sees it; what it takes it leaves there."""
    connection = BlockingConnection(world.url, timeout=WAIT_S, allow_insecure_mechs=True)
    try:
        receiver = connection.create_receiver(queue, credit=1, options=Copy() if browse else None)
        message = receiver.receive(timeout=WAIT_S)
        found = {str(name): value for name, value in (message.annotations or {}).items()}
        if not browse:
            receiver.release(delivered=False)
    finally:
        connection.close()
    return found


@pytest.mark.parametrize("body", [b"order", LARGE], ids=["small", "large"])
def test_a_client_of_another_finds_it_in_the_annotations(world: AmqpWorld, body: bytes) -> None:
    with world.connect() as native:
        native.put("IN", body)
        assert annotated(world, "IN", browse=True) == {}
        fails(native, "no price", "größe is missing")
        (row,) = native.browse("BROKEN")
        told = row.failure
        assert told is not None and told.first is not None and told.last is not None
    for browse in (True, False):
        found = annotated(world, "BROKEN", browse=browse)
        assert found == {
            "x-opt-failed-queue": "IN", "x-opt-failed-cause": "failed",
            "x-opt-failed-reason": "größe is missing", "x-opt-failed-attempts": 2,
            "x-opt-failed-first": int(told.first.timestamp() * 1000),
            "x-opt-failed-last": int(told.last.timestamp() * 1000),
            "x-last-death-queue": "IN", "x-last-death-reason": "rejected"}


def test_a_submitter_cannot_say_it(world: AmqpWorld) -> None:
    """What it says beside that stays; what happened to the message stands over it."""
    connection = BlockingConnection(world.url, timeout=WAIT_S, allow_insecure_mechs=True)
    said = {"x-opt-failed-queue": "B", "x-opt-failed-reason": "a lie", "x-last-death-queue": "B",
            "x-opt-own": "kept"}
    connection.create_sender("IN").send(Message(
        body=b"order", durable=True, annotations={symbol(k): v for k, v in said.items()}))
    connection.close()
    assert annotated(world, "IN", browse=True) == {
        "x-last-death-queue": "B", "x-opt-own": "kept"}
    with world.connect() as native:
        fails(native, "1", "2")
    found = annotated(world, "BROKEN", browse=True)
    assert (found["x-opt-failed-queue"], found["x-last-death-queue"]) == ("IN", "IN")
    assert (found["x-opt-failed-reason"], found["x-opt-own"]) == ("2", "kept")


def test_python_from_elsewhere(world: AmqpWorld, far: Client) -> None:
    far.put("IN", b"order")
    (row,) = far.browse("IN")
    assert row.failure is None
    fails(far, "no price", "no price at all")
    with world.connect() as native:
        (here,) = native.browse("BROKEN")
        told = here.failure
    (row,) = far.browse("BROKEN")
    found = row.failure
    assert told is not None and found is not None
    assert (found.queue, found.cause, found.reason, found.attempts) == (
        told.queue, told.cause, told.reason, told.attempts)
    assert (found.queue, found.reason, found.attempts) == ("IN", "no price at all", 2)
    assert [_milliseconds(found.first), _milliseconds(found.last)] == [
        _milliseconds(told.first), _milliseconds(told.last)]
    with far.reader("BROKEN") as reader:
        (message,) = reader.next(1, WAIT_S)
        assert message.failure == found
        message.done()


def _milliseconds(moment: datetime | None) -> int:
    assert moment is not None
    return int(moment.timestamp() * 1000)
