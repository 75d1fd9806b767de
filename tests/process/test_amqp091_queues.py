"""amqp.server with pika: queues that clients of AMQP 0-9-1 declare, exchanges, bindings,
transactions; what survives a death of the manager and of the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from omq.tasks.names import queue_name
from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world, needs_proton
from tests.process.instance import MANAGER
from tests.waiting import until

needs_proton()
pytest.importorskip("pamqp", reason="the extra `amqp`: pamqp")
from omq.services.amqp091 import exchanges  # noqa: E402
from omq.services.amqp091.binding_index import Binding  # noqa: E402
from tests.process.pika_clients import (  # noqa: E402
    WAIT_S,
    all_of,
    closed,
    connected,
    got,
    pika,
    refused,
)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

QUEUES = "[*]\ndeath_delay_s = 0\nattempts_max = 200\n\n[A]\n\n[B]\n\n[C]\nmax_depth = 2\n"
AUTHORITY = """
[*]
user:daemon = put get browse admin
[A]
user:bin = put get
[B]
user:games = put
[TEMPORARY]
user:bin = put get
"""


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp091"), queues=QUEUES) as made:
        (made.conf / "authority.conf").write_text(AUTHORITY)
        made.stop(SERVER, MANAGER)
        made.start(MANAGER)
        made.ready()
        made.amqp(amqp_users=made.users("daemon", "bin", "games"), amqp_close_timeout_s=1,
                  amqp_anonymous_user="", amqp_unsettled_max=20)
        yield made


@pytest.fixture
def world(instance: AmqpWorld) -> Iterator[AmqpWorld]:
    """The same for all; its queues are empty."""
    yield instance
    closed()
    instance.clear("A", "B", "C")


def restarted(world: AmqpWorld) -> None:
    """Both have been killed."""
    world.kill(MANAGER, SERVER)
    closed()
    world.start(MANAGER)
    world.ready()
    world.start(SERVER)
    world.await_port()


def keys_of(world: AmqpWorld, queue: str) -> dict[str, str]:
    with world.connect() as native:
        return dict(native.queues.show(queue_name(queue)).keys)


# queues

def test_a_queue_is_defined_by_its_declaration(world: AmqpWorld) -> None:
    """With its arguments; it is there behind a death of all."""
    arguments = {"x-message-ttl": 60_500, "x-max-length": 5, "x-overflow": "reject-publish",
                 "x-max-priority": 10, "x-queue-type": "quorum", "x-delivery-limit": 2,
                 "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "B"}
    channel = connected(world).channel()
    made = channel.queue_declare("orders-eu", durable=True, arguments=arguments)
    assert (made.method.queue, made.method.message_count) == ("orders-eu", 0)
    channel.confirm_delivery()
    channel.basic_publish("", "orders-eu", b"x", pika.BasicProperties(delivery_mode=2))
    restarted(world)
    keys = keys_of(world, "orders-eu")
    assert {key: keys[key] for key in ("expiry_max_s", "max_depth", "attempts_max", "dead_letter",
                                       "description")} == {
        "expiry_max_s": "61", "max_depth": "5", "attempts_max": "3", "dead_letter": "B",
        "description": "orders-eu"}
    connection = connected(world)
    channel = connection.channel()
    assert channel.queue_declare("orders-eu", durable=True, arguments=arguments
                                 ).method.message_count == 1
    assert refused(connection, lambda other: other.queue_declare(
        "orders-eu", durable=True, arguments={"x-message-ttl": 1000})) == 406
    assert refused(connection, lambda other: other.queue_declare(
        "orders-eu", exclusive=True)) == 406
    assert got(channel, "orders-eu", auto_ack=True)[0].routing_key == "orders-eu"
    channel.queue_delete("orders-eu")
    assert refused(connection, lambda other: other.queue_declare(
        "orders-eu", passive=True)) == 404


REFUSALS: dict[str, tuple[int, dict[str, Any]]] = {
    "x-max-length": (540, {"x-max-length": 5}),
    "x-overflow": (540, {"x-overflow": "drop-head"}),
    "x-max-length-bytes": (540, {"x-max-length-bytes": 5}),
    "x-expires": (540, {"x-expires": 1000}),
    "x-queue-type": (540, {"x-queue-type": "stream"}),
    "x-single-active-consumer": (540, {"x-single-active-consumer": True}),
    "x-dead-letter-exchange": (540, {"x-dead-letter-exchange": "logs"}),
    "x-dead-letter-routing-key": (406, {"x-dead-letter-exchange": "",
                                        "x-dead-letter-routing-key": 7}),
    "x-message-ttl": (406, {"x-message-ttl": "soon"}),
    "x-max-priority": (406, {"x-max-priority": -1}),
    "x-delivery-limit": (406, {"x-delivery-limit": 1 << 40})}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_argument_is_refused_by_its_name(world: AmqpWorld, name: str) -> None:
    code, arguments = REFUSALS[name]
    connection = connected(world)
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=name) as caught:
        channel.queue_declare("new", durable=True, arguments=arguments)
    assert caught.value.reply_code == code
    assert refused(connection, lambda other: other.queue_declare("new", passive=True)) == 404


def test_a_refusal_begins_with_its_name(world: AmqpWorld) -> None:
    """Programs for RabbitMQ look for it there; a text of any length has room."""
    connection = connected(world)
    acts: list[tuple[str, Callable[[Any], Any]]] = [
        ("NOT_FOUND - ", lambda other: other.queue_declare("no" * 60, passive=True)),
        ("PRECONDITION_FAILED - ", lambda other: other.queue_declare(
            "x", durable=True, arguments={"x-message-ttl": "a"})),
        ("NOT_IMPLEMENTED - ", lambda other: other.exchange_declare("x", "headers"))]
    for name, act in acts:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            act(connection.channel())
        assert caught.value.reply_text.startswith(name)


def test_a_new_secret_is_heard(world: AmqpWorld) -> None:
    """And changes nothing: who is connected stays so, as who he was."""
    connection = connected(world)
    connection.update_secret("another", "it is time")
    channel = connection.channel()
    channel.queue_declare("kept", durable=True)
    assert channel.queue_delete("kept") is not None


def test_purged_and_deleted(world: AmqpWorld) -> None:
    connection = connected(world)
    channel = connection.channel()
    channel.queue_declare("heap", durable=True)
    for _ in range(3):
        channel.basic_publish("", "heap", b"x")
    assert channel.queue_declare("heap", passive=True).method.message_count == 3, "behind them"
    assert refused(connection, lambda other: other.queue_delete("heap", if_empty=True)) == 406
    assert channel.queue_purge("heap").method.message_count == 3
    other = connection.channel()
    other.basic_consume("heap", lambda *given: None)
    assert channel.queue_declare("heap", passive=True).method.consumer_count == 1
    assert refused(connection, lambda third: third.queue_delete("heap", if_unused=True)) == 406
    cancelled: list[Any] = []
    other.add_on_cancel_callback(cancelled.append)
    channel.queue_delete("heap")
    until(lambda: connection.process_data_events(0.1) or cancelled, world.said)
    assert channel.queue_delete("heap").method.message_count == 0, "it is not there: deleted"


def test_a_queue_is_deleted_with_what_a_consumer_holds(world: AmqpWorld) -> None:
    """It hears of it, what it says of these then is heard, in a transaction, too; what a program of
    omq holds is nobody's to delete. So is the message on its way to who gets."""
    sends, holds, gets = (connected(world).channel() for _ in range(3))
    told: list[str] = []
    for name, more in (("held", {"durable": True}), ("brief", {"exclusive": True})):
        own = sends if name == "held" else holds
        own.queue_declare(name, **more)
        for body in (b"1", b"2", b"3"):
            own.basic_publish("", name, body, pika.BasicProperties(delivery_mode=2))
        holds.add_on_cancel_callback(lambda frame: told.append(frame.method.consumer_tag))
        taken: list[Any] = []
        holds.basic_qos(prefetch_count=2)
        tag = holds.basic_consume(name, lambda *found: taken.append(found))  # noqa: B023
        until(lambda: holds.connection.process_data_events(0.01) or len(taken) == 2,  # noqa: B023
              world.said)
        if name == "held":
            gets.tx_select()
            method, _, body = got(gets, name)
            assert body == b"3"
            gets.basic_ack(method.delivery_tag)
        own.queue_delete(name)
        until(lambda: holds.connection.process_data_events(0.01) or tag in told,  # noqa: B023
              world.said)
        holds.basic_ack(taken[0][1].delivery_tag)
        holds.basic_nack(taken[1][1].delivery_tag)
        assert refused(sends.connection, lambda other: other.queue_declare(
            name, passive=True)) == 404  # noqa: B023
    gets.tx_commit()
    holds.queue_declare("held", durable=True)
    assert all_of(holds, "held") == [], "nothing of it came back"
    holds.basic_publish("", "held", b"x", pika.BasicProperties(delivery_mode=2))
    with world.connect() as native, native.reader("HELD") as reader:
        found = next(iter(reader.next(timeout_s=WAIT_S)))
        assert refused(sends.connection, lambda other: other.queue_delete("held")) == 406
        found.done()
    holds.queue_delete("held")


def test_a_delete_that_is_refused_has_done_nothing(world: AmqpWorld) -> None:
    """Be it for what a program of omq holds, for a queue that names it, or because it is defined in
    queues.conf: no message is gone, and no consumer of this protocol is cancelled."""
    sends, takes = connected(world).channel(), connected(world).channel()
    told: list[Any] = []
    takes.add_on_cancel_callback(told.append)
    takes.basic_qos(prefetch_count=1)
    sends.confirm_delivery()

    def put(name: str, body: bytes) -> None:
        sends.basic_publish("", name, body, pika.BasicProperties(delivery_mode=2))

    def there(name: str) -> int:
        with world.connect() as native:
            return native.queues.show(name.upper()).messages

    sends.queue_declare("held", durable=True)
    sends.queue_declare("named", durable=True)
    sends.queue_declare("names", durable=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "named"})
    with world.connect() as native, native.reader("HELD") as reader:
        put("held", b"1")
        found = next(iter(reader.next(timeout_s=WAIT_S)))
        taken: list[bytes] = []
        for name in ("held", "named", "A"):
            takes.basic_consume(name, lambda *given: taken.append(given[3]))
            put(name, b"2")
            put(name, b"3")
        until(lambda: takes.connection.process_data_events(0.01) or len(taken) == 3, world.said)
        for name, count, code in (("held", 3, 406), ("named", 2, 406), ("A", 2, 403)):
            assert refused(sends.connection, lambda other: other.queue_delete(
                name)) == code  # noqa: B023
            assert there(name) == count
        found.done()
    put("B", b"4")  # who is no more cancelled hears of what came behind the refusals
    takes.basic_consume("B", lambda *given: taken.append(given[3]))
    until(lambda: takes.connection.process_data_events(0.01) or taken[3:], world.said)
    assert not told and taken == [b"2", b"2", b"2", b"4"]
    for name in ("held", "names", "named"):
        takes.queue_delete(name)


def test_a_refused_delete_leaves_idle_consumers(world: AmqpWorld) -> None:
    """The queue is empty: the manager has nothing to look for but who reads it."""
    channel = connected(world).channel()
    channel.queue_declare("named", durable=True)
    channel.queue_declare("names", durable=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "named"})
    taken: list[bytes] = []
    channel.basic_consume("named", lambda *given: taken.append(given[3]), auto_ack=True)
    assert refused(connected(world), lambda other: other.queue_delete("named")) == 406
    channel.basic_publish("", "named", b"x", pika.BasicProperties(delivery_mode=2))
    until(lambda: channel.connection.process_data_events(0.01) or taken, world.said)
    for name in ("names", "named"):
        channel.queue_delete(name)


def test_who_may_not_declare(world: AmqpWorld) -> None:
    connection = connected(world, "bin")
    for ask in (lambda channel: channel.queue_declare("new", durable=True),
                lambda channel: channel.queue_purge("A"),
                lambda channel: channel.queue_delete("A"),
                lambda channel: channel.exchange_declare("logs"),
                lambda channel: channel.exchange_delete("logs"),
                lambda channel: channel.queue_bind("A", "amq.fanout"),
                lambda channel: channel.queue_unbind("A", "amq.fanout")):
        assert refused(connection, ask) == 403
    assert connection.channel().queue_declare("A", durable=True).method.queue == "A"


def test_a_file_s_queue_is_its_author_s(world: AmqpWorld) -> None:
    assert refused(connected(world), lambda channel: channel.queue_delete("A")) == 403


def test_messages_expire(world: AmqpWorld) -> None:
    """By what they say, and by what their queue says; one that is delayed is not there yet."""
    channel = connected(world).channel()
    channel.confirm_delivery()
    channel.basic_publish("", "B", b"x", pika.BasicProperties(headers={"x-delay": 3_600_000}))
    assert all_of(channel, "B") == []
    with world.connect() as native:
        (row,) = native.browse("B")
        assert row.state.name == "DEFERRED"
        native.cancel(row.message_id)
    channel.queue_declare("short", exclusive=True, arguments={"x-message-ttl": 10})
    channel.basic_publish("", "A", b"x", pika.BasicProperties(expiration="10"))
    channel.basic_publish("", "short", b"x")
    for queue in ("A", "short"):
        until(lambda queue=queue: channel.queue_declare(  # type: ignore[misc]
            queue, passive=True).method.message_count == 0, world.said)
        assert all_of(channel, queue) == []


def test_a_rejected_one_goes_where_its_queue_says(world: AmqpWorld) -> None:
    channel = connected(world).channel()
    channel.queue_declare("tried", durable=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "B"})
    channel.basic_publish("", "tried", b"bad", pika.BasicProperties(delivery_mode=2))
    channel.basic_reject(got(channel, "tried")[0].delivery_tag, requeue=False)
    until(lambda: channel.queue_declare("B", passive=True).method.message_count, world.said)
    assert all_of(channel, "tried") == [] and all_of(channel, "B") == [b"bad"]
    channel.queue_delete("tried")


# queues that go

def test_a_queue_of_one_connection(world: AmqpWorld) -> None:
    one, other = connected(world), connected(world)
    channel = one.channel()
    channel.queue_declare("mine", exclusive=True)
    chosen = channel.queue_declare("", exclusive=True).method.queue
    for ask in (lambda channel: channel.basic_get("mine"),
                lambda channel: channel.queue_declare("mine", exclusive=True),
                lambda channel: channel.queue_declare("mine", passive=True),
                lambda channel: channel.queue_purge("mine")):
        assert refused(other, ask) == 405
    sends = other.channel()
    sends.confirm_delivery()
    for queue in ("mine", chosen):
        sends.basic_publish("", queue, b"x", mandatory=True)
        assert got(channel, queue, auto_ack=True)[0].routing_key == queue
    one.close()
    with pytest.raises(pika.exceptions.UnroutableError):
        for _ in range(1000):  # its end is on its way
            sends.basic_publish("", "mine", b"x", mandatory=True)


def test_a_queue_goes_with_its_last_consumer(world: AmqpWorld) -> None:
    connection, other = connected(world), connected(world)
    channel, second = connection.channel(), other.channel()
    channel.queue_declare("shared", auto_delete=True)
    tags = [each.basic_consume("shared", lambda *given: None) for each in (channel, second)]
    second.basic_cancel(tags[1])
    assert channel.queue_declare("shared", passive=True).method.consumer_count == 1
    channel.basic_cancel(tags[0])
    until(lambda: not temporaries(world), world.said)
    assert refused(connection, lambda third: third.queue_declare("shared", passive=True)) == 404


def temporaries(world: AmqpWorld) -> list[str]:
    with world.connect() as native:
        return [each.name for each in native.queues.list() if each.kind == "temporary"]


def test_a_consumer_gets_the_properties_that_were_given(world: AmqpWorld) -> None:
    """And no others, whatever omq makes of them: on a queue of one connection, too, where nothing
    is persistent, and of a body that always is; one, many at once, moved. By other ways an id, a
    priority and a persistence are known as ever."""
    given: tuple[dict[str, Any], ...] = (
        {}, {"delivery_mode": 1}, {"delivery_mode": 2}, {"priority": 0}, {"message_id": "m"},
        {"delivery_mode": 2, "priority": 4}, {"expiration": "3600000", "content_type": "x"},
        {"headers": {"n": 1}, "correlation_id": "c"})
    channel = connected(world).channel()
    own = channel.queue_declare("", exclusive=True).method.queue

    def publish(queue: str, size: int, count: int = 1) -> None:
        for at, each in enumerate(given):
            for _ in range(count):
                channel.basic_publish("", queue, b"%d" % at + bytes(size),
                                      pika.BasicProperties(**each))

    def check(queue: str, count: int = 1) -> None:
        for _ in range(len(given) * count):
            _, properties, body = got(channel, queue, auto_ack=True)
            assert given[int(body.rstrip(b"\0"))] == {
                name: value for name, value in vars(properties).items() if value is not None}
        assert channel.basic_get(queue) == (None, None, None)

    publish("A", 1, 30)  # no confirms: many wait and go by one request
    check("A", 30)
    channel.confirm_delivery()
    for queue in ("A", own):
        for size in (1, 300_000):
            publish(queue, size)
            check(queue)
    publish("A", 1)
    with world.connect() as native:
        rows = {int(row.body.rstrip(b"\0")): row for row in native.browse("A")}
        assert [rows[at].priority for at in range(len(given))] == [4, 4, 4, 0, 4, 4, 4, 4]
        assert [at for at, row in rows.items() if row.persistent] == [2, 5]
        assert all(row.message_id for row in rows.values())
        with native.reader("A") as reader:
            for message in reader.next(len(given), timeout_s=WAIT_S):
                message.move("B")
    check("B")


# exchanges

def test_exchanges_send_to_what_is_bound(world: AmqpWorld) -> None:
    """The same behind a death of all."""
    channel = connected(world).channel()
    for kind in ("direct", "topic", "fanout"):
        channel.exchange_declare(f"by {kind}", kind, durable=True)
    channel.queue_bind("A", "by direct", "k")
    channel.queue_bind("A", "by direct", "other")
    channel.queue_bind("A", "by topic", "order.*.eu")
    channel.queue_bind("B", "by topic", "order.#")
    channel.queue_bind("A", "by topic", "#.eu")
    channel.queue_bind("A", "by fanout")
    channel.queue_bind("B", "by fanout")
    channel.queue_bind("B", "by fanout", "more")
    channel.queue_unbind("A", "by direct", "other")
    for _ in range(2):
        channel = connected(world).channel()
        channel.confirm_delivery()
        for exchange, key in (("by direct", "k"), ("by direct", "other"),
                              ("by topic", "order.new.eu"), ("by topic", "order"),
                              ("by fanout", "")):
            channel.basic_publish(exchange, key, f"{exchange}: {key}".encode(),
                                  pika.BasicProperties(delivery_mode=2))
        method, properties, _ = got(channel, auto_ack=True)
        assert (method.exchange, method.routing_key) == ("by direct", "k")
        assert properties.headers is None
        assert all_of(channel, "A") == [b"by topic: order.new.eu", b"by fanout: "]
        assert all_of(channel, "B") == [b"by topic: order.new.eu", b"by topic: order",
                                        b"by fanout: "]
        restarted(world)
    channel = connected(world).channel()
    channel.exchange_declare("by topic", "topic", passive=True)
    for kind in ("direct", "topic", "fanout"):
        channel.exchange_delete(f"by {kind}")
    with world.connect() as native:
        assert list(native.browse("SYSTEM.EXCHANGES")) == []


def test_what_nobody_is_bound_for(world: AmqpWorld) -> None:
    """It comes back if it is mandatory; else who published did not care."""
    connection = connected(world)
    channel = connection.channel()
    channel.exchange_declare("lonely", "fanout")
    channel.confirm_delivery()
    channel.basic_publish("lonely", "", b"x")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("lonely", "", b"x", mandatory=True)
    channel.exchange_delete("lonely")
    assert refused(connection, lambda other: (
        other.confirm_delivery(), other.basic_publish("lonely", "", b"x"))) == 404
    channel = connection.channel()
    channel.exchange_delete("lonely")


def test_an_exchange_is_what_it_was_declared(world: AmqpWorld) -> None:
    connection = connected(world)
    channel = connection.channel()
    channel.exchange_declare("it", "topic", auto_delete=True)
    channel.exchange_declare("it", "topic", auto_delete=True)
    for code, ask in (
            (406, lambda channel: channel.exchange_declare("it", "fanout", auto_delete=True)),
            (540, lambda channel: channel.exchange_declare("new", "headers")),
            (406, lambda channel: channel.exchange_declare("new", "nobody's")),
            (540, lambda channel: channel.exchange_declare(
                "new", arguments={"alternate-exchange": "it"})),
            (403, lambda channel: channel.exchange_declare("amq.new")),
            (403, lambda channel: channel.exchange_delete("amq.topic")),
            (403, lambda channel: channel.queue_bind("A", "")),
            (404, lambda channel: channel.queue_bind("A", "none")),
            (404, lambda channel: channel.queue_bind("none", "it")),
            (404, lambda channel: channel.exchange_bind("it", "none")),
            (404, lambda channel: channel.exchange_bind("none", "it")),
            (403, lambda channel: channel.exchange_bind("it", "")),
            (403, lambda channel: channel.exchange_unbind("", "it")),
            (540, lambda channel: channel.exchange_bind("it", "amq.topic", arguments={"x": 1}))):
        assert refused(connection, ask) == code
    channel.queue_bind("A", "it", "#")
    assert refused(connection, lambda channel: channel.exchange_delete(
        "it", if_unused=True)) == 406
    channel.queue_unbind("A", "it", "#")
    assert refused(connection, lambda channel: channel.exchange_declare(
        "it", passive=True)) == 404, "it went with its last binding"


def test_exchanges_send_to_exchanges(world: AmqpWorld) -> None:
    """In a circle and by two ways, each queue gets it once; the same after a death of all, and
    after one of them was deleted."""
    channel = connected(world).channel()
    for name, kind, more in (("in", "topic", {}), ("eu", "topic", {"internal": True}),
                             ("all", "fanout", {}), ("brief", "fanout", {"durable": False})):
        channel.exchange_declare(name, kind, **{"durable": True, **more})
    channel.exchange_bind("eu", "in", "*.eu")
    channel.exchange_bind("brief", "in", "*.eu")  # on no disk, for that exchange is on none
    channel.exchange_bind("amq.topic", "in", "*.eu")
    channel.exchange_unbind("amq.topic", "in", "*.eu")
    channel.exchange_bind("all", "eu", "#")
    channel.exchange_bind("in", "all")
    channel.exchange_bind("all", "in", "new.#")
    channel.exchange_bind("all", "in", "old.#")
    channel.exchange_unbind("all", "in", "old.#")
    channel.exchange_unbind("all", "in", "never")
    channel.exchange_bind("all", "brief")
    channel.queue_bind("A", "all")
    channel.queue_bind("A", "in", "new.*")
    channel.queue_bind("B", "eu", "new.eu")
    for _ in range(2):
        channel = connected(world).channel()
        channel.confirm_delivery()
        for key in ("new.eu", "old.eu", "new.us", "old.us"):
            channel.basic_publish("in", key, key.encode())
        assert all_of(channel, "A") == [b"new.eu", b"old.eu", b"new.us"]
        assert all_of(channel, "B") == [b"new.eu"]
        restarted(world)
    connection = connected(world)
    channel = connection.channel()
    assert refused(connection, lambda other: other.exchange_declare("brief", passive=True)) == 404
    with world.connect() as native:
        kept = [row.body for row in native.browse("SYSTEM.EXCHANGES") if b'"to"' in row.body]
    assert len(kept) == 4 and not [each for each in kept if b'"brief"' in each]
    assert connected(world)._impl.server_capabilities["exchange_exchange_bindings"]
    channel.exchange_delete("eu")
    channel.confirm_delivery()
    channel.basic_publish("in", "old.eu", b"x")
    channel.basic_publish("all", "new.us", b"y")
    assert (all_of(channel, "A"), all_of(channel, "B")) == ([b"y"], [])
    with world.connect() as native:
        assert not [row for row in native.browse("SYSTEM.EXCHANGES") if b'"eu"' in row.body]
    channel.exchange_delete("in")
    channel.exchange_delete("all")
    with world.connect() as native:
        assert list(native.browse("SYSTEM.EXCHANGES")) == []


def test_an_exchange_goes_with_the_last_one_that_it_is_bound_to(world: AmqpWorld) -> None:
    """And with it others; who may not bind queues binds no exchanges either."""
    connection = connected(world)
    channel = connection.channel()
    for name in ("first", "second"):
        channel.exchange_declare(name, "fanout", durable=True, auto_delete=True)
    channel.exchange_declare("third", "fanout", durable=True)
    channel.exchange_bind("second", "first")
    channel.exchange_bind("third", "second")
    assert refused(connected(world, "bin"), lambda other: other.exchange_bind(
        "third", "amq.topic")) == 403
    assert refused(connection, lambda other: other.exchange_delete(
        "second", if_unused=True)) == 406
    channel.exchange_delete("third")
    for name in ("first", "second"):
        assert refused(connection, lambda other: other.exchange_declare(
            name, passive=True)) == 404  # noqa: B023
    with world.connect() as native:
        assert list(native.browse("SYSTEM.EXCHANGES")) == []


def test_a_bound_queue_that_has_gone(world: AmqpWorld) -> None:
    """By whatever way: the others get theirs."""
    channel = connected(world).channel()
    channel.queue_declare("gone", durable=True)
    channel.queue_bind("gone", "amq.fanout")
    channel.queue_bind("B", "amq.fanout")
    with world.connect() as native:
        native.queues.delete("GONE")
    channel = connected(world).channel()
    channel.confirm_delivery()
    channel.basic_publish("amq.fanout", "", b"x")
    assert all_of(channel, "B") == [b"x"]
    with world.connect() as native:
        assert len(list(native.browse("SYSTEM.EXCHANGES"))) == 1, "one binding, of B"
    channel.queue_unbind("B", "amq.fanout")


def test_nobody_publishes_by_an_exchange_what_he_may_not(world: AmqpWorld) -> None:
    """games may put on B alone."""
    channel = connected(world).channel()
    for queue in ("A", "B"):
        channel.queue_bind(queue, "amq.fanout")
    sends = connected(world, "games").channel()
    sends.confirm_delivery()
    sends.basic_publish("amq.fanout", "", b"x", mandatory=True)
    assert all_of(channel, "A") == [] and all_of(channel, "B") == [b"x"]
    channel.queue_unbind("B", "amq.fanout")
    with pytest.raises(pika.exceptions.UnroutableError):
        sends.basic_publish("amq.fanout", "", b"x", mandatory=True)
    channel.queue_unbind("A", "amq.fanout")


def test_subscribers_come_and_go(world: AmqpWorld) -> None:
    """Their bindings are on no disk."""
    channel = connected(world).channel()
    channel.exchange_declare("news", "topic")
    readers = [connected(world) for _ in range(2)]
    queues = []
    for each in readers:
        reads = each.channel()
        queues.append((reads, reads.queue_declare("", exclusive=True).method.queue))
        reads.queue_bind(queues[-1][1], "news", "sport.#")
    channel.confirm_delivery()
    channel.basic_publish("news", "sport.golf", b"x", pika.BasicProperties(delivery_mode=2))
    assert [all_of(*each) for each in queues] == [[b"x"], [b"x"]]
    readers[0].close()
    until(lambda: len(temporaries(world)) == 1, world.said)
    channel.basic_publish("news", "sport.golf", b"y", mandatory=True)
    assert all_of(*queues[1]) == [b"y"]
    with world.connect() as native:
        assert not [row for row in native.browse("SYSTEM.EXCHANGES") if b"queue" in row.body]
    channel.exchange_delete("news")


def test_what_makes_no_sense_among_the_definitions(world: AmqpWorld) -> None:
    """Somebody has put it there. The others count, and an event tells."""
    channel = connected(world).channel()
    channel.exchange_declare("good", "fanout", durable=True)
    with world.connect() as native:
        native.put_many("SYSTEM.EXCHANGES", [
            b"", b"[]", b'{"exchange": 7}', b'{"exchange": "x", "kind": "odd"}',
            b'{"exchange": "good", "key": "", "queue": "no queue"}', b"[" * 100_000,
            b'{"exchange": "good", "key": "", "to": ""}',
            b'{"exchange": "good", "key": "", "to": 1}',
            b'{"exchange": "good", "key": "", "to": "good", "queue": "A"}',
            b'{"exchange": "good", "key": "", "to": "' + b"x" * 256 + b'"}'])
        for exchange, binding in (("none", Binding("", "A")), ("good", Binding("", to="none"))):
            exchanges.keep(native, exchanges.binding_record(exchange, binding))
    restarted(world)
    channel = connected(world).channel()
    channel.exchange_declare("good", "fanout", durable=True)
    assert any("10 messages on SYSTEM.EXCHANGES make no sense" in event.get("reason", "")
               for event in world.events(1591))
    with world.connect() as native:
        assert len(list(native.browse("SYSTEM.EXCHANGES"))) == 11, "what leads nowhere has gone"
    channel.exchange_delete("good")
    world.clear("SYSTEM.EXCHANGES")


# transactions

def test_a_transaction_happens_or_does_not(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"1", b"2"])
    channel, looks = connected(world).channel(), connected(world).channel()
    channel.tx_select()
    first = got(channel)[0]
    channel.basic_ack(first.delivery_tag)
    channel.basic_publish("", "B", b"new")
    channel.queue_declare("B", passive=True)  # behind what was published
    assert all_of(looks, "B") == []
    channel.tx_rollback()
    channel.tx_commit()
    assert all_of(looks, "B") == []
    channel.basic_ack(first.delivery_tag)  # it is unacknowledged again
    channel.basic_publish("", "B", b"new")
    channel.tx_commit()
    assert all_of(looks, "B") == [b"new"]
    second = got(channel)[0]
    channel.basic_ack(second.delivery_tag)
    channel.connection.close()
    assert [message.body for message in world.left("A")] == [b"2"], "it was not committed"


def test_a_transaction_over_several_queues(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put("A", b"1")
        native.put("B", b"2")
        native.put("A", b"3")
    channel = connected(world).channel()
    channel.tx_select()
    tags = [got(channel, queue)[0].delivery_tag for queue in "ABA"]
    channel.basic_ack(tags[1], multiple=True)
    channel.basic_nack(tags[2], requeue=True)
    channel.basic_publish("", "C", b"sum", pika.BasicProperties(delivery_mode=2))
    channel.tx_commit()
    channel.connection.close()
    assert [message.body for message in world.left("A")] == [b"3"]
    assert world.left("B") == []
    assert [message.body for message in world.left("C")] == [b"sum"]


def test_a_transaction_that_cannot_be(world: AmqpWorld) -> None:
    """Nothing of it is done: its queue takes two."""
    with world.connect() as native:
        native.put("A", b"1")
    connection = connected(world)
    channel = connection.channel()
    channel.tx_select()
    channel.basic_ack(got(channel)[0].delivery_tag)
    for _ in range(3):
        channel.basic_publish("", "C", b"x")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.tx_commit()
    assert [message.body for message in world.left("A")] == [b"1"] and world.left("C") == []
    for ask in (lambda channel: (channel.tx_select(), channel.confirm_delivery()),
                lambda channel: (channel.confirm_delivery(), channel.tx_select())):
        assert refused(connection, ask) == 406


def test_a_subscriber_does_not_stop_a_transaction(world: AmqpWorld) -> None:
    """What an exchange has for temporary queues is offered to them after the commit: one that takes
    nothing loses it, and one whose messages expire is not given what stays for ever."""
    channel = connected(world).channel()
    stopped, short, other = (channel.queue_declare("", exclusive=True, arguments=each).method.queue
                             for each in ({}, {"x-message-ttl": 1}, {}))
    channel.exchange_declare("news", "fanout", durable=True)
    for queue in (stopped, short, other, "B"):
        channel.queue_bind(queue, "news")
    with world.connect() as native:
        native.queues.alter(stopped, put="inhibited")
    publisher = connected(world).channel()
    publisher.tx_select()
    bodies = [b"%d" % number for number in range(150)]
    for body in bodies:
        publisher.basic_publish("news", "k", body, pika.BasicProperties(delivery_mode=2))
    publisher.basic_publish("", short, b"a reply")
    publisher.tx_commit()
    assert all_of(channel, "B") == bodies == all_of(channel, other)
    assert all_of(channel, stopped) == []
    with world.connect() as native:  # what is late is not handed out, so this ends
        until(lambda: not list(native.browse(short)), world.said)
    assert any(stopped in event.get("reason", "") for event in world.events(1591))
    channel.exchange_delete("news")


# prefetch

def test_a_prefetch_of_all_consumers_of_a_channel(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"1", b"2", b"3"])
        native.put_many("B", [b"4", b"5", b"6"])
    connection = connected(world)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=3, global_qos=True)
    came: list[tuple[int, bytes]] = []

    def take(_: Any, method: Any, __: Any, body: bytes) -> None:
        came.append((method.delivery_tag, body))

    for queue in "AB":
        channel.basic_consume(queue, take)
    until(lambda: connection.process_data_events(0.1) or len(came) == 3, world.said)
    connection.process_data_events(0.1)
    assert len(came) == 3
    for tag, _ in tuple(came):
        channel.basic_ack(tag)
    until(lambda: connection.process_data_events(0.1) or len(came) == 6, world.said)
    assert sorted(body for _, body in came) == [b"%d" % n for n in range(1, 7)]


def test_gets_without_acknowledgement_are_bounded(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"x"] * 21)
    connection = connected(world)
    channel = connection.channel()
    for _ in range(20):
        got(channel)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="amqp_unsettled_max"):
        channel.basic_get("A")
    assert len(world.left("A")) == 21


def test_a_full_queue_keeps_who_publishes_waiting(world: AmqpWorld) -> None:
    """Its own consumer, on the same channel, makes room."""
    connection = connected(world)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    for number in range(6):
        channel.basic_publish("", "C", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    taken: list[bytes] = []
    for method, _, body in channel.consume("C", inactivity_timeout=WAIT_S):
        taken.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(taken) == 6:
            break
    assert taken == [b"%d" % number for number in range(6)]
