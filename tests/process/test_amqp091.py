"""amqp.server with pika and py-amqp, clients of AMQP 0-9-1: what crosses it, who may, what is
refused by its name."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from omq.amqp.property_kinds import decimal_text
from tests.process.amqp_world import PASSWORD, SERVER, AmqpWorld, amqp_world, needs_proton
from tests.process.instance import MANAGER
from tests.waiting import until

needs_proton()
pytest.importorskip("pamqp", reason="the extra `amqp`: pamqp")
from pamqp import commands, encode  # noqa: E402

from tests.process.pika_clients import WAIT_S, closed, connected, got, pika  # noqa: E402
from tests.process.raw_amqp091 import Raw  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

HEADER = b"AMQP\x00\x00\x09\x01"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp091")) as made:
        made.stop(SERVER)
        made.amqp(amqp_users=made.users("daemon", "bin"), amqp_message_bytes_max=1 << 20,
                  amqp_handshake_timeout_s=30, amqp_close_timeout_s=1)
        yield made


@pytest.fixture
def world(instance: AmqpWorld) -> Iterator[AmqpWorld]:
    """The same for all; its queues are empty."""
    yield instance
    closed()
    instance.clear("A", "B")


def test_a_message_goes_there_and_back(world: AmqpWorld) -> None:
    sent = pika.BasicProperties(
        content_type="text/plain", content_encoding="utf-8", delivery_mode=2, priority=7,
        correlation_id="c-1", reply_to="B", expiration="3600000", message_id="order-1",
        timestamp=1_700_000_000, type="greeting", app_id="shop", user_id="daemon", headers={
            "text": "x", "number": 5, "true": True, "list": [1, "two"],
            "table": {"a": {"b": 1}}})
    channel = connected(world).channel()
    channel.confirm_delivery()
    channel.basic_publish("", "A", b"hello", sent)
    with world.connect() as native:
        (row,) = native.browse("A")
        assert (row.body, row.priority, row.message_id) == (b"hello", 7, "order-1")
        assert row.persistent and row.reply_to == "B" and row.properties["number"] == 5
    method, properties, body = got(channel)
    assert body == b"hello" and not method.redelivered and method.routing_key == "A"
    for name in ("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id",
                 "reply_to", "message_id", "timestamp", "type", "app_id", "user_id", "headers",
                 "expiration"):
        assert getattr(properties, name) == getattr(sent, name), name
    channel.basic_ack(method.delivery_tag)
    channel.connection.close()
    assert world.left("A") == []


def test_native_messages_reach_clients(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put("A", b"from here", properties={"k": "v", "n": 7, "raw": b"\xff", "t": True,
                                                  "due": datetime(2026, 1, 1, tzinfo=UTC)},
                   correlation_id="c-1")
    channel = connected(world).channel()
    _, properties, body = got(channel, auto_ack=True)
    assert body == b"from here" and properties.headers == {
        "k": "v", "n": 7, "raw": b"\xff", "t": True, "due": 1_767_225_600_000}
    assert properties.correlation_id == "c-1"
    assert (properties.delivery_mode, properties.priority) == (2, 4) and properties.message_id
    assert channel.basic_get("A") == (None, None, None)


def test_the_other_protocol_reads_it(world: AmqpWorld) -> None:
    from proton.utils import BlockingConnection

    channel = connected(world).channel()
    headers: dict[str, Any] = {
        "n": 7, "raw": b"\xff\0", "none": None, "due": datetime(2026, 12, 31, tzinfo=UTC),
        "price": Decimal("1.50")}
    channel.basic_publish("", "A", b"text", pika.BasicProperties(
        content_type="text/plain", timestamp=1_700_000_000, headers=headers))
    channel.connection.close()
    other = BlockingConnection(world.url, timeout=WAIT_S, user="daemon", password=PASSWORD,
                               allow_insecure_mechs=True)
    receiver = other.create_receiver("A", credit=1)
    message = receiver.receive(timeout=WAIT_S)
    assert bytes(message.body) == b"text" and message.content_type == "text/plain"
    assert message.properties.pop("amqp.headers"), "what is nested, or exact, for this protocol"
    price = decimal_text("decimal64", int(message.properties["price"]).to_bytes(8, "big"))
    due_ms = int(headers["due"].timestamp() * 1000)
    assert {**message.properties, "price": Decimal(price)} == {**headers, "due": due_ms}
    assert datetime.fromtimestamp(message.creation_time, UTC).timestamp() == 1_700_000_000
    receiver.accept()
    other.close()


def test_many_are_confirmed_and_consumed(world: AmqpWorld) -> None:
    channel = connected(world).channel()
    channel.confirm_delivery()
    for number in range(50):
        channel.basic_publish("", "A", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    channel.basic_qos(prefetch_count=10)
    taken = []
    for method, _, body in channel.consume("A", inactivity_timeout=WAIT_S):
        taken.append(body)
        if len(taken) % 5 == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if len(taken) == 50:
            break
    channel.cancel()
    assert taken == [b"%d" % number for number in range(50)]
    channel.connection.close()
    assert world.left("A") == []


def test_a_prefetch_is_what_one_holds(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"1", b"2", b"3"])
    one, other = connected(world).channel(), connected(world).channel()
    one.basic_qos(prefetch_count=2)
    held = one.consume("A", inactivity_timeout=WAIT_S)
    first, _, body = next(held)
    assert body == b"1" and next(held)[2] == b"2"
    method, _, body = got(other)
    assert body == b"3"
    other.basic_ack(method.delivery_tag)
    one.basic_ack(first.delivery_tag, multiple=True)
    one.connection.close()
    assert [(message.body, message.attempts) for message in world.left("A")] == [(b"2", 0)]


def test_what_a_client_says_of_a_message(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"acked", b"requeued", b"rejected", b"nacked"])
    channel = connected(world).channel()
    tags = [got(channel)[0].delivery_tag for _ in range(4)]
    channel.basic_ack(tags[0])
    channel.basic_nack(tags[1], requeue=True)
    channel.basic_reject(tags[2], requeue=False)
    channel.basic_nack(tags[3], requeue=False)
    channel.connection.close()
    world.given_back("A")
    with world.connect() as native:
        found = {row.body: row.attempts for row in native.browse("A")}
    assert found == {b"requeued": 0, b"rejected": 1, b"nacked": 1}


def test_a_tag_that_is_none(world: AmqpWorld) -> None:
    channel = connected(world).channel()
    channel.basic_ack(7)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_get("A")
    assert caught.value.reply_code == 406


def test_a_queue_that_is_not_there(world: AmqpWorld) -> None:
    """A mandatory message comes back; another is dropped, and an event says so."""
    connection = connected(world)
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "NONE", b"x", mandatory=True)
    channel.basic_publish("", "NONE", b"x")
    assert "'NONE' is not a queue: the message is dropped" in [
        event["reason"] for event in world.events(1591)]
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare("NONE", passive=True)
    assert caught.value.reply_code == 403, "who has no right there is not told what is"
    channel = connection.channel()
    assert channel.queue_declare("A", durable=True).method.message_count == 0
    assert channel.queue_declare("A", passive=True).method.queue == "A"


def test_a_queue_of_its_own(world: AmqpWorld) -> None:
    connection = connected(world, "bin")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        connection.channel().queue_declare("", exclusive=True)
    assert caught.value.reply_code == 403, "bin has no right to TEMPORARY"


REFUSALS: dict[str, tuple[int, Any]] = {
    "exchange": (404, lambda channel: channel.basic_publish("logs", "A", b"x")),
    "no right to declare": (403, lambda channel: channel.exchange_declare("logs")),
    "no right to bind": (403, lambda channel: channel.queue_bind("A", "amq.topic")),
    "no right to define": (403, lambda channel: channel.queue_declare("new", durable=True)),
    "no right to purge": (403, lambda channel: channel.queue_purge("A")),
    "no right to delete": (403, lambda channel: channel.queue_delete("A")),
    "a type of exchanges": (540, lambda channel: channel.exchange_declare("logs", "headers")),
    "flow": (540, lambda channel: channel.flow(active=False)),
    "commit": (406, lambda channel: channel.tx_commit()),
    "size of a prefetch": (540, lambda channel: channel.basic_qos(prefetch_size=1)),
    "argument": (540, lambda channel: channel.queue_declare(
        "A", durable=True, arguments={"x-single-active-consumer": True})),
    "exclusive": (540, lambda channel: channel.basic_consume("A", print, exclusive=True)),
    "CC": (540, lambda channel: channel.basic_publish(
        "", "A", b"x", pika.BasicProperties(headers={"CC": ["B"]}))),
    "reserved": (406, lambda channel: channel.basic_publish(
        "", "A", b"x", pika.BasicProperties(headers={"omq.x": "y"}))),
    "somebody else": (406, lambda channel: channel.basic_publish(
        "", "A", b"x", pika.BasicProperties(user_id="root"))),
    "expiration": (406, lambda channel: channel.basic_publish(
        "", "A", b"x", pika.BasicProperties(expiration="soon"))),
    "too large": (311, lambda channel: channel.basic_publish("", "A", bytes((1 << 20) + 1))),
    "no right to put": (403, lambda channel: channel.basic_publish("", "B", b"x")),
    "no right to get": (403, lambda channel: channel.basic_get("B"))}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_is_not_there_is_refused_by_its_name(world: AmqpWorld, what: str) -> None:
    """Its channel ends with the code; the connection goes on."""
    code, ask = REFUSALS[what]
    connection = connected(world)
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        ask(channel)
        channel.queue_declare("A", passive=True)  # hears of what was only sent
        channel.queue_declare("A", passive=True)
        until(lambda: connection.process_data_events(0.1) or not channel.is_open, world.said)
        channel.queue_declare("A", passive=True)
    assert caught.value.reply_code == code
    connection.channel().queue_declare("A", passive=True)


def test_flow_that_goes_on_is_confirmed(world: AmqpWorld) -> None:
    """As RabbitMQ has it: there is nothing else to ask for."""
    assert connected(world).channel().flow(active=True)


def test_what_is_said_of_messages_in_one_write(world: AmqpWorld) -> None:
    """Several, alone and together, with a rejection in between; the channel ends after them."""
    with world.connect() as native:
        native.put_many("A", [b"%d" % number for number in range(8)])
    channel = connected(world).channel()
    tags = [got(channel)[0].delivery_tag for _ in range(8)]
    assert tags == [*range(1, 9)]
    channel._impl.basic_ack(2, multiple=True)  # nothing is flushed in between
    channel._impl.basic_ack(5)
    channel._impl.basic_nack(7, requeue=True)
    channel._impl.basic_ack(4, multiple=True)
    channel.connection.close()
    assert sorted(message.body for message in world.left("A")) == [b"5", b"6", b"7"]


def test_who_is_nobody(world: AmqpWorld) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connected(world, password="wrong")


@pytest.mark.parametrize(("said", "code"), [
    ({"LOGIN": "daemon", "PASSWORD": PASSWORD}, 0), ({"LOGIN": "daemon", "PASSWORD": "wrong"}, 403),
    ({"LOGIN": "daemon"}, 502), ({"LOGIN": 1, "PASSWORD": {}}, 502), (b"\xff", 502), (b"", 502),
    ({"LOGIN": f"x\0daemon\0{PASSWORD}", "PASSWORD": ""}, 403)])
def test_name_and_password_in_a_table(world: AmqpWorld, said: Any, code: int) -> None:
    """AMQPLAIN, which php-amqplib has by default."""
    table = said if isinstance(said, bytes) else encode.field_table(said)[4:]
    with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
        line.sendall(HEADER)
        client = Raw(line)
        offered = client.hears().mechanisms
        assert sorted((offered if isinstance(offered, str) else offered.decode()).split()) == [
            "AMQPLAIN", "ANONYMOUS", "PLAIN"]
        payload = commands.Connection.StartOk({}, "AMQPLAIN", "", "en_US").marshal()
        at = payload.index(b"AMQPLAIN") + len(b"AMQPLAIN")
        payload = b"\0\x0a\0\x0b" + payload[:at] + struct.pack(">I", len(table)) + table + (
            payload[at + 4 :])
        line.sendall(frame(1, 0, payload))
        told = client.hears()
        assert getattr(told, "reply_code", 0) == code, told


def test_a_broken_line_has_failed_once(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"1", b"2"])
    connection = connected(world)
    channel = connection.channel()
    assert [got(channel)[2] for _ in range(2)] == [b"1", b"2"]
    connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    assert sorted(message.attempts for message in world.left("A")) == [0, 1]


def test_nothing_confirmed_is_lost(world: AmqpWorld) -> None:
    channel = connected(world).channel()
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish("", "A", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    world.kill(MANAGER, SERVER)
    world.start(MANAGER)
    world.ready()
    world.start(SERVER)
    world.await_port()
    assert [message.body for message in world.left("A")] == [b"%d" % n for n in range(10)]


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


NESTED = b"F" + struct.pack(">I", 1 << 20)
START_OK = frame(1, 0, struct.pack(">HH", 10, 11) + struct.pack(">I", 0) + b"\x09ANONYMOUS"
                 + struct.pack(">I", 0) + b"\x05en_US")
HOSTILE = {
    "another version": b"AMQP\x00\x00\x09\x02",
    "half a header": HEADER[:6] + b"zz",
    "a frame of any size": HEADER + struct.pack(">BHI", 1, 0, 0xFFFFFFFF),
    "no end": HEADER + struct.pack(">BHI", 1, 0, 4) + b"\x00\x0a\x00\x0bX",
    "an unknown method": HEADER + frame(1, 0, b"\xff\xff\xff\xff"),
    "a method out of turn": HEADER + frame(1, 1, struct.pack(">HH", 20, 10) + b"\x00"),
    "a body first": HEADER + frame(3, 0, b"x"),
    "a table without end": HEADER + frame(1, 0, struct.pack(">HHI", 10, 11, 1 << 30)),
    "tables in tables": HEADER + frame(1, 0, struct.pack(">HHI", 10, 11, 60_000) + b"".join(
        b"\x01aF" + struct.pack(">I", 60_000 - 7 * n) for n in range(8_000))),
    "a channel before open": HEADER + START_OK + frame(1, 1, struct.pack(">HH", 20, 10) + b"\x00")}


@pytest.mark.parametrize("what", HOSTILE)
def test_garbage_ends_its_own_connection(world: AmqpWorld, what: str) -> None:
    bugs = len([event for event in world.events() if event.get("event") == "BUG"])
    with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
        line.sendall(HOSTILE[what])
        with_end = b""
        while data := line.recv(65536):
            with_end += data
    channel = connected(world).channel()
    channel.queue_declare("A", passive=True)
    assert len([event for event in world.events() if event.get("event") == "BUG"]) == bugs


def test_py_amqp(world: AmqpWorld) -> None:
    """kombu's and Celery's client."""
    amqp = pytest.importorskip("amqp")
    with amqp.Connection(f"127.0.0.1:{world.await_port()}", userid="daemon", password=PASSWORD,
                         confirm_publish=True, connect_timeout=WAIT_S) as connection:
        channel = connection.channel()
        channel.basic_publish(amqp.Message(b"x", delivery_mode=2, application_headers={"k": 1}),
                              routing_key="A")
        seen: list[Any] = []
        channel.basic_qos(0, 1, a_global=False)
        channel.basic_consume("A", callback=seen.append)
        while not seen:
            connection.drain_events(timeout=WAIT_S)
        assert seen[0].body == b"x" and seen[0].headers == {"k": 1}
        channel.basic_ack(seen[0].delivery_tag)
    assert world.left("A") == []
