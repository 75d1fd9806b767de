"""What every transport of kombu must do: the cases of kombu's own integration tests, which run with
Redis, AMQP and others (t/integration/common.py of kombu), for omq."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kombu", reason="the extra `celery` is not installed")

import kombu

import omq.tasks.kombu_plugin  # noqa: F401 (makes the transport known)
from tests.process.instance import Instance, instance
from tests.process.processes import WAIT_S


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with instance(tmp_path_factory.mktemp("kombu")) as made:
        made.start()
        made.ready()
        yield made


@pytest.fixture
def made(running: Instance) -> Iterator[Any]:
    """A connection; the queues that a test has declared go with it."""
    with kombu.Connection(f"omq://{running.root}") as connection:
        yield connection
    with running.connect() as native:
        for queue in native.queues.list():
            if queue.keys.get("note", "").find("kombu") >= 0:
                native.queues.delete(queue.name, force=True)


def taken(connection: Any, queues: list[Any], count: int, **said: Any) -> list[Any]:
    """So many deliveries of these queues, acknowledged."""
    found: list[Any] = []

    def callback(body: Any, message: Any) -> None:
        found.append((message.delivery_info["routing_key"], body))
        message.ack()

    with connection.Consumer(queues, callbacks=[callback], **said):
        while len(found) < count:
            connection.drain_events(timeout=WAIT_S)
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.05)
    return found


def test_connect(made: Any) -> None:
    assert made.connect() and made.connected
    made.close()
    made.ensure_connection(timeout=WAIT_S)
    assert made.connected


def test_publish_and_consume(made: Any) -> None:
    """What is said of a body comes with it: kind, encoding, headers, properties; text, bytes and
    compressed ones."""
    queue = kombu.Queue("work")
    bodies: list[dict[str, Any]] = [
        {"body": {"n": [1, None, "\u00e9\u0000"]}, "serializer": "json"},
        {"body": b"\x00\xff" * 70_000, "content_type": "application/data",
         "content_encoding": "binary"},
        {"body": "text \u20ac", "content_type": "text/plain", "content_encoding": "utf-8"},
        {"body": ["x" * 5000], "serializer": "json", "compression": "zlib"},
    ]
    found: list[Any] = []

    def callback(body: Any, message: Any) -> None:
        found.append((body, message.headers["n"], message.properties["correlation_id"]))
        message.ack()

    with made.Producer() as producer:
        for number, said in enumerate(bodies):
            producer.publish(exchange="", routing_key="work", declare=[queue],
                             headers={"n": number}, correlation_id=f"c{number}", **said)
    with made.Consumer([queue], callbacks=[callback],
                       accept=["json", "application/data", "text/plain"]):
        while len(found) < len(bodies):
            made.drain_events(timeout=WAIT_S)
    assert found == [(said["body"], number, f"c{number}") for number, said in enumerate(bodies)]


def test_consume_with_no_ack_and_with_cancel(made: Any) -> None:
    queue = kombu.Queue("work")
    with made.Producer() as producer:
        for number in range(3):
            producer.publish(number, routing_key="work", declare=[queue])
    found: list[int] = []
    with made.Consumer([queue], no_ack=True, callbacks=[lambda body, _: found.append(body)]):
        while len(found) < 3:
            made.drain_events(timeout=WAIT_S)
    consumer = made.Consumer([queue], callbacks=[lambda body, _: found.append(body)])
    consumer.consume()
    consumer.cancel()
    with made.Producer() as producer:
        producer.publish(3, routing_key="work")
    with pytest.raises(TimeoutError):
        made.drain_events(timeout=0.05)
    assert found == [0, 1, 2]
    assert queue(made.default_channel).get(no_ack=True).payload == 3


@pytest.mark.parametrize("kind", ["SimpleQueue", "SimpleBuffer"])
def test_simple_queue_and_buffer(made: Any, kind: str) -> None:
    simple = getattr(made, kind)("work")
    simple.put(1)
    assert simple.clear() == 1
    for number in range(3):
        simple.put({"n": number}, headers={"k": "v"})
    assert simple.qsize() == len(simple) == 3
    for number in range(3):
        message = simple.get(timeout=WAIT_S)
        assert message.payload == {"n": number} and message.headers == {"k": "v"}
        message.ack()  # as with other transports it is nothing where none is needed
    with pytest.raises(simple.Empty):
        simple.get_nowait()
    simple.close()


def test_direct_exchange(made: Any) -> None:
    """To each queue that is bound by this key, and to no other."""
    exchange = kombu.Exchange("direct", "direct")
    queues = [kombu.Queue("one", exchange, routing_key="a"),
              kombu.Queue("two", exchange, routing_key="a"),
              kombu.Queue("three", exchange, routing_key="b")]
    for queue in queues:
        queue(made.default_channel).declare()
    with made.Producer(exchange=exchange) as producer:
        for key in ("a", "b", "c"):
            producer.publish(key, routing_key=key)
    assert sorted(taken(made, queues, 3)) == [("a", "a"), ("a", "a"), ("b", "b")]
    for queue in queues:
        queue(made.default_channel).delete()


def test_several_exchanges_of_one_queue(made: Any) -> None:
    """A queue bound to two, one of them by two patterns, has a message once."""
    topic, direct = kombu.Exchange("t", "topic"), kombu.Exchange("d", "direct")
    queue = kombu.Queue("work", [kombu.binding(topic, "a.#"), kombu.binding(topic, "*.b"),
                                 kombu.binding(direct, "x")])(made.default_channel)
    queue.declare()
    with made.Producer() as producer:
        producer.publish(1, exchange=topic, routing_key="a.b")
        producer.publish(2, exchange=direct, routing_key="x")
        producer.publish(3, exchange=topic, routing_key="c.c")
    assert [body for _, body in taken(made, [queue], 2)] == [1, 2]


def test_priorities(made: Any) -> None:
    """Higher ones first, those alike in their order; so in a simple queue."""
    queue = kombu.Queue("work", max_priority=9)
    with made.Producer() as producer:
        for body, priority in (("low", 0), ("high", 9), ("middle", 5), ("high too", 9)):
            producer.publish(body, routing_key="work", declare=[queue], priority=priority)
    wanted = ["high", "high too", "middle", "low"]
    assert [body for _, body in taken(made, [queue], 4)] == wanted


def test_a_message_that_expires(made: Any) -> None:
    queue = kombu.Queue("work")
    with made.Producer() as producer:
        producer.publish("stays", routing_key="work", declare=[queue])
        producer.publish("goes", routing_key="work", expiration=0)
    assert [body for _, body in taken(made, [queue], 1)] == ["stays"]


def test_requeue_and_reject_by_a_consumer(made: Any) -> None:
    """Requeued it comes again, flagged; rejected it does not."""
    queue = kombu.Queue("work")
    found: list[tuple[int, bool]] = []

    def callback(body: int, message: Any) -> None:
        again = message.delivery_info["redelivered"]
        found.append((body, again))
        if body == 1:
            message.reject()
        elif again:
            message.ack()
        else:
            message.requeue()

    with made.Producer() as producer:
        for number in range(2):
            producer.publish(number, routing_key="work", declare=[queue])
    with made.Consumer([queue], callbacks=[callback], prefetch_count=1):
        while len(found) < 3:
            made.drain_events(timeout=WAIT_S)
        with pytest.raises(TimeoutError):
            made.drain_events(timeout=0.05)
    assert sorted(found) == [(0, False), (0, True), (1, False)]


def test_a_kind_of_body_that_is_not_accepted(made: Any, running: Instance) -> None:
    """Who cannot read it has not done it, even if he acknowledges it: it is set aside."""
    queue = kombu.Queue("work")
    with made.Producer() as producer:
        producer.publish({"a": 1}, routing_key="work", declare=[queue], serializer="pickle")
    message = queue(made.default_channel).get()
    with pytest.raises(kombu.exceptions.ContentDisallowed):
        message.decode()
    message.ack()
    assert queue(made.default_channel).get() is None
    assert [b"python-serialize" in each.body
            for each in running.drain("CELERY.REJECTED")][-1]
