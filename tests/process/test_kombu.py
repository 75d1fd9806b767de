"""The transport of kombu as such: exchanges, prefetch, acknowledgements, wrong uses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("kombu", reason="the extra `celery` is not installed")

import kombu

import omq
import omq.tasks.kombu_plugin
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S
from tests.waiting import until


@contextmanager
def connection(instance: Instance, **options: Any) -> Iterator[Any]:
    with kombu.Connection(f"omq://{instance.root}", transport_options=options) as made:
        yield made


@pytest.fixture
def running(omq_instance: Instance) -> Instance:
    omq_instance.start()
    omq_instance.ready()
    return omq_instance


def test_a_topic_exchange_of_another_program(running: Instance) -> None:
    """Who only publishes finds the bindings that another program declared."""
    exchange = kombu.Exchange("shop", "topic")
    with connection(running) as one, connection(running) as other:
        for name, key in (("mine", "order.*"), ("all", "#"), ("none", "bill.#")):
            kombu.Queue(name, exchange, routing_key=key)(one.channel()).declare()
        with other.Producer() as producer:
            producer.publish({"n": 1}, exchange=exchange, routing_key="order.new",
                             declare=[exchange])
        channel = one.channel()
        counts = {name: channel.queue_declare(name, passive=True).message_count
                  for name in ("mine", "all", "none")}
        assert counts == {"mine": 1, "all": 1, "none": 0}
        channel.queue_unbind("all", "shop", "#")
        with connection(running) as third, third.Producer() as producer:
            producer.publish({"n": 2}, exchange=exchange, routing_key="bill.1", declare=[exchange])
        assert channel.queue_purge("all") == 1 and channel.queue_purge("none") == 1
        assert channel.queue_purge("mine") == 1
        with pytest.raises(kombu.exceptions.ChannelError):
            channel.queue_declare("unknown", passive=True)


def test_fan_out_goes_to_who_is_there(running: Instance) -> None:
    """Their queues are temporary: gone with the connection, and by a name in no other's way."""
    exchange = kombu.Exchange("news", "fanout")
    with connection(running) as publisher:
        with connection(running) as one, connection(running) as two:
            queues = [kombu.Queue(f"reader-of-{n}", exchange, auto_delete=True)(each.channel())
                      for n, each in enumerate((one, two))]
            for queue in queues:
                queue.declare()
            with publisher.Producer() as producer:
                producer.publish("news", exchange=exchange, declare=[exchange])
            assert [queue.get(no_ack=True).payload for queue in queues] == ["news", "news"]
            assert queues[0].get() is None
        with publisher.Producer() as producer:
            producer.publish("for nobody", exchange=exchange, declare=[exchange])
    with running.connect() as native:
        assert [each.name for each in native.queues.list() if each.kind == "temporary"] == []


def test_no_more_than_prefetch_are_with_a_consumer(running: Instance) -> None:
    """An acknowledgement in another thread makes room, also while drain_events waits."""
    with connection(running) as made:
        queue = kombu.Queue("work")
        with made.Producer() as producer:
            for number in range(5):
                producer.publish(number, routing_key="work", declare=[queue])
        got: list[Any] = []
        with made.Consumer([queue], prefetch_count=2, callbacks=[
                lambda _, message: got.append(message)]):
            made.drain_events(timeout=WAIT_S)
            made.drain_events(timeout=WAIT_S)
            with pytest.raises(TimeoutError):
                made.drain_events(timeout=0.1)
            other = threading.Timer(0.1, got[0].ack)
            other.start()
            made.drain_events(timeout=WAIT_S)
            other.join()
            assert sorted(message.payload for message in got) == [0, 1, 2]
            with running.connect() as native:
                assert native.queues.show("WORK").facts["active"] == 2
    with running.connect() as native:  # what was not acknowledged is back, and no attempt counted
        rows = list(native.browse("WORK"))
        assert [(row.state.name, row.attempts) for row in rows] == [("READY", 0)] * 4
    assert len(running.drain("WORK")) == 4


def test_rejected_requeued_and_recovered(running: Instance) -> None:
    with connection(running, queue_keys={"attempts_max": 2}) as made:
        simple = made.SimpleQueue("work")
        for text in ("aside", "again"):
            simple.put(text)
        simple.get(timeout=WAIT_S).reject()
        first = simple.get(timeout=WAIT_S)
        assert first.payload == "again" and not first.delivery_info["redelivered"]
        first.requeue()
        second = simple.get(timeout=WAIT_S)
        assert second.delivery_info["redelivered"]
        second.channel.basic_recover(requeue=True)
        third = simple.get(timeout=WAIT_S)
        assert third.payload == "again"
        third.requeue()  # the second failed attempt of two
        with pytest.raises(simple.Empty):
            simple.get(timeout=0.1)
        simple.close()
    assert [b"aside" in each.body for each in running.drain("CELERY.REJECTED")] == [True]
    assert [b"again" in each.body for each in running.drain("POISON")] == [True]


def test_what_is_said_to_a_worker_comes_before_its_tasks(running: Instance) -> None:
    """As of remote control, whatever came first and however many tasks there are."""
    with connection(running) as made:
        work, control = kombu.Queue("work"), kombu.Queue("control", auto_delete=True)
        found: list[str] = []
        channels = [made.channel(), made.channel()]
        consumers = [made.Consumer([queue], channel=channel, no_ack=True,
                                   callbacks=[lambda body, _: found.append(body)])
                     for queue, channel in zip((work, control), channels, strict=True)]
        for consumer in consumers:
            consumer.consume()
        with pytest.raises(TimeoutError):
            made.drain_events(timeout=0)  # they are asked for now
        with made.Producer() as producer:
            for body, key in (("task", "work"), ("task", "work"), ("said", "control")):
                producer.publish(body, routing_key=key)
        pumps = [pump for channel in channels for pump in channel._pumps.values()]
        until(lambda: [len(each._arrived) for each in pumps] == [2, 1])
        for _ in range(3):
            made.drain_events(timeout=WAIT_S)
        assert found == ["said", "task", "task"]


def test_what_nobody_reads_any_more(running: Instance) -> None:
    """Queues are deleted with what is on them; one of queues.conf is emptied."""
    with connection(running) as made, made.channel() as channel:
        for name in ("gone", "a"):
            channel.queue_declare(name)
            with made.Producer() as producer:
                producer.publish(1, routing_key=name)
            channel.queue_delete(name)
        assert not channel._has_queue("gone") and channel._has_queue("a")
        assert channel.queue_declare("a").message_count == 0


def test_limits_of_a_queue_are_the_managers(running: Instance) -> None:
    queue = kombu.Queue("short", max_length=1, message_ttl=0.1)
    with connection(running) as made, made.Producer() as producer:
        producer.publish(1, routing_key="short", declare=[queue])
        with pytest.raises(omq.QueueFull):
            producer.publish(2, routing_key="short")
        with running.connect() as native:
            keys = native.queues.show("SHORT").keys
    assert (keys["max_depth"], keys["expiry_max_s"]) == ("1", "1")
    assert json.loads(keys["note"])["kombu"] == "short"


def test_a_manager_that_is_away_is_a_connection_error(running: Instance) -> None:
    with connection(running, timeout_s=2.0) as made:
        queue = kombu.Queue("work")
        with made.Consumer([queue], callbacks=[lambda _, message: message.ack()]):
            running.kill(MANAGER)
            with pytest.raises(made.connection_errors):
                made.drain_events(timeout=WAIT_S)
        with pytest.raises(made.connection_errors), made.Producer() as producer:
            producer.publish(1, routing_key="work")
    running.start(MANAGER)
    running.ready()


@pytest.mark.parametrize("url", ["omq://host/path", "omq:///no/such/spool"])
def test_a_wrong_url_is_said(url: str) -> None:
    with pytest.raises(omq.OmqError), kombu.Connection(url) as made:
        made.connect()
