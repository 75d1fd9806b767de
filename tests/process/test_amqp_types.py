"""Types, annotations and footers over amqp.server; links without an address; what a server says of
itself. Frames are made by hand where the library is too well-behaved to send them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

import omq
from omq.fast.amqp_message import Sections, data_section
from omq.fast.amqp_message import head as section_head
from omq.format.amqp_types import Symbol, Timestamp, Uint
from tests.process.amqp_world import PASSWORD, SERVER, AmqpWorld, amqp_world, needs_proton

needs_proton()

from proton import (  # noqa: E402
    Data,
    Delivery,
    Message,
    ProtonException,
    byte,
    char,
    decimal64,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)
from proton.reactor import Selector  # noqa: E402
from proton.utils import BlockingConnection, BlockingSender, SendException  # noqa: E402

from tests.process.amqp_frames import (  # noqa: E402
    HEADER,
    NULL,
    OPENED,
    ZERO,
    attach,
    frame,
    many,
    text,
    transfer,
    u32,
)
from tests.process.amqp_transactions import Coordinator  # noqa: E402

WAIT_S = 120
BUG = 1007
LARGE = 600_000
VALUES: dict[str, Any] = {
    "int": 3, "int32": int32(3), "uint": uint(3), "ulong": ulong(3), "ubyte": ubyte(3),
    "ushort": ushort(3), "byte": byte(3), "short": short(3), "double": 3.0, "float": float32(3.0),
    "decimal": decimal64(0x31C0000000000003)}
OTHERS: dict[str, Any] = {
    "yes": True, "symbol": symbol("s"), "char": char("c"), "bytes": b"\x00\xff", "text": "3",
    "id": UUID(int=5), "moment": timestamp(1_764_096_508_123)}


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp"), amqp_links_max=100) as made:
        made.stop(SERVER)
        made.amqp(amqp_users=made.users("daemon"), amqp_links_max=100,
                  amqp_message_bytes_max=1_000_000)
        yield made


@pytest.fixture
def world(instance: AmqpWorld) -> Iterator[AmqpWorld]:
    yield instance
    while OPEN:
        with suppress(ProtonException, OSError):
            each = OPEN.pop()
            each.timeout = 0.1
            each.close()
    instance.clear("A", "B")
    assert not instance.events(BUG), instance.events(BUG)


OPEN: list[BlockingConnection] = []


def connected(world: AmqpWorld, **more: Any) -> BlockingConnection:
    made = BlockingConnection(world.url, timeout=WAIT_S, allow_insecure_mechs=True, **more)
    OPEN.append(made)
    return made


def encoded(value: Any) -> bytes:
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


def received(connection: BlockingConnection, queue: str, count: int, **options: Any
             ) -> list[Message]:
    receiver = connection.create_receiver(queue, credit=count, **options)
    found = [receiver.receive(timeout=WAIT_S) for _ in range(count)]
    for _ in found:
        receiver.accept()
    receiver.close()
    return found


# types of properties


def test_a_number_of_any_type_is_compared_as_a_number(world: AmqpWorld) -> None:
    connection = connected(world)
    sender = connection.create_sender("A")
    for name, value in VALUES.items():
        sender.send(Message(id=name, durable=True, body=b"x", properties={"n": value}))
    with world.connect() as native:
        assert [*native.browse("A", where="n > 10")] == []
        assert len([*native.browse("A", where="n = 3 AND n < 4 AND n BETWEEN 2 AND 3")]) == len(
            VALUES)
    found = received(connection, "A", len(VALUES), options=Selector("n = 3"))
    assert {each.id: encoded(each.properties["n"]) for each in found} == {
        name: encoded(value) for name, value in VALUES.items()}


def test_each_type_comes_back_as_it_was_and_python_reads_it(world: AmqpWorld) -> None:
    connection = connected(world)
    given = {**VALUES, **OTHERS, "nothing": None}
    connection.create_sender("A").send(Message(
        durable=True, body=b"x", inferred=True, properties=given))
    with world.connect() as native:
        (row,) = native.browse("A")
        assert row.properties == {
            **dict.fromkeys(VALUES, 3), "decimal": "3", "yes": True, "symbol": "s", "char": "c",
            "bytes": b"\x00\xff", "text": "3", "id": str(UUID(int=5)),
            "moment": datetime(2025, 11, 25, 18, 48, 28, 123000, tzinfo=UTC)}
        with native.reader("A") as reader:  # a program in between loses no type
            (message,) = reader.next(timeout_s=WAIT_S)
            message.move((), [omq.Outgoing(b"y", ("B",), properties=message.properties)])
    (back,) = received(connection, "B", 1)
    del given["nothing"]
    assert {name: encoded(value) for name, value in back.properties.items()} == {
        name: encoded(value) for name, value in given.items()}


def test_values_of_python_are_those_of_amqp(world: AmqpWorld) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    given: dict[str, Any] = {"n": 3, "half": 0.5, "yes": True, "due": moment, "raw": b"\0",
                             "t": "x"}
    with world.connect() as native:
        native.put("A", b"x", properties=given)
    (found,) = received(connected(world), "A", 1, options=Selector("n = 3 AND yes = TRUE"))
    assert {name: type(value) for name, value in found.properties.items()} == {
        "n": int, "half": float, "yes": bool, "due": timestamp,
        "raw": memoryview, "t": str}
    assert found.properties["due"] == int(moment.timestamp() * 1000)  # AMQP has milliseconds


def test_the_remote_api_keeps_them_too(world: AmqpWorld) -> None:
    pytest.importorskip("proton")
    moment = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    given: dict[str, Any] = {"n": 3, "half": 0.5, "yes": True, "due": moment, "raw": b"\0",
                             "t": "x"}
    with omq.connect(f"amqp://{world.url}/") as far:
        far.put("A", b"x", properties=given)
        with far.reader("A", where="n = 3") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.properties == given
            message.move((), [omq.Outgoing(b"y", ("B",), properties=message.properties)])
    with world.connect() as native:
        (row,) = native.browse("B")
        assert row.properties == given


def test_names_that_no_property_has_come_back(world: AmqpWorld) -> None:
    given = {"a b": uint(3), "ü": "x", "cloudEvents:id": "1", "__TypeId__": "T", "k\n": True}
    connection = connected(world)
    connection.create_sender("A").send(Message(
        body=b"x", inferred=True, durable=True, properties=given))
    with world.connect() as native:
        (row,) = native.browse("A", where="__TypeId__ = 'T' AND \"cloudEvents:id\" = 1")
        assert set(row.properties) == {"cloudEvents:id", "__TypeId__", "amqp.named"}
        with native.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            message.move((), [omq.Outgoing(b"y", ("B",), properties=message.properties)])
    (back,) = received(connection, "B", 1)
    assert back.properties == given and type(back.properties["a b"]) is uint


# annotations and footers


def footed(body: bytes, **said: Any) -> bytes:
    """A message with a footer, which the library cannot make."""
    return (bytes(Message(durable=True, body=body, inferred=True, **said).encode())
            + b"\x00\x53\x78" + encoded({symbol("x-crc"): uint(7)}))


@pytest.mark.parametrize("size", [10, LARGE])
def test_annotations_and_footer_come_back(world: AmqpWorld, size: int) -> None:
    notes = {symbol("x-opt-jms-msg-type"): byte(5), symbol("x-list"): [1, "a"], ulong(9): "n"}
    connection = connected(world)
    data = footed(bytes(size), annotations=notes, properties={"a": 1})
    sender = connection.create_sender("A")
    delivery = sender.link.delivery("1")
    sender.link.send(data)
    sender.link.advance()
    connection.wait(lambda: delivery.remote_state == Delivery.ACCEPTED)
    receiver = connection.create_receiver("A", credit=1)
    (got,) = [receiver.receive(timeout=WAIT_S)]
    assert {type(key): encoded(value) for key, value in got.annotations.items()} == {
        type(key): encoded(value) for key, value in notes.items()} or (
        {key: encoded(value) for key, value in got.annotations.items()}
        == {key: encoded(value) for key, value in notes.items()})
    assert len(got.body) == size and got.properties == {"a": 1}
    receiver.release()
    receiver.close()
    assert raw(world, "A").endswith(data[data.rindex(b"\x00\x53\x78"):])


def laid_out(fields: list[Any]) -> bytes:
    """A message with these properties, which the library would change."""
    durable = first = True
    return section_head(durable, 4, 0, first, 0, {}, fields, {}) + data_section(b"x")


def test_fields_that_say_nothing_or_nought_come_back(world: AmqpWorld) -> None:
    """Empty texts, a time before 1970 and the moment 1970 begins, a sequence without a group."""
    for created in (0, -5000, -1):
        fields = [None, None, "", "", None, None, Symbol(""), Symbol(""), None,
                  Timestamp(created), None, Uint(5), ""]
        data = laid_out(fields) + b"\x00\x53\x78" + encoded({symbol("f"): 1})
        connection = connected(world)
        sender = connection.create_sender("A")
        delivery = sender.link.delivery("1")
        sender.link.send(data)
        sender.link.advance()
        connection.wait(lambda: delivery.remote_state == Delivery.ACCEPTED)  # noqa: B023
        sections = Sections()
        sections.read(raw(world, "A"), 1 << 16)
        assert sections.properties is not None
        id_, *others = sections.properties
        assert id_ is not None and others == fields[1:]
        assert [type(each) for each in others] == [type(each) for each in fields[1:]]
        world.clear("A")


@pytest.mark.parametrize("created", [(1 << 63) - 1, (1 << 53) + 1])
def test_a_time_that_no_clock_has_is_refused_by_its_name(world: AmqpWorld, created: int) -> None:
    connection = connected(world)
    sender = connection.create_sender("A")
    delivery = sender.link.delivery("1")
    sender.link.send(laid_out([*[None] * 9, Timestamp(created)]))
    sender.link.advance()
    connection.wait(lambda: delivery.remote_state == Delivery.REJECTED)
    assert "creation-time" in delivery.remote.condition.description


def raw(world: AmqpWorld, queue: str) -> bytes:
    """The bytes of the first message of a queue, as they come over the line."""
    flow = frame(0x13, ZERO, b"\x70" + u32(1 << 20), ZERO, b"\x70" + u32(1 << 20), ZERO, ZERO,
                 b"\x70" + u32(1))
    with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
        line.sendall(OPENED)
        reader, found = line.makefile("rb"), b""
        assert reader.read(8) == HEADER
        line.sendall(attach(0, queue, takes=True) + flow)
        while True:
            size = int.from_bytes(head := reader.read(4), "big")
            body = reader.read(size - len(head))[4:]
            if body[:3] == b"\x00\x53\x14":
                fields = 5 + body[4] if body[3] == 0xC0 else 8 + int.from_bytes(body[4:8], "big")
                found += body[fields:]
                if b"\x00\x53\x78" in found:
                    return found


def test_a_delay_is_not_said_again(world: AmqpWorld) -> None:
    connection = connected(world)
    connection.create_sender("A").send(Message(
        body=b"x", durable=True, annotations={symbol("x-opt-delivery-delay"): 1,
                                              symbol("x-opt-kept"): "y"}))
    (got,) = received(connection, "A", 1)
    assert got.annotations == {symbol("x-opt-kept"): "y"}


# links without an address


def anonymous(connection: BlockingConnection) -> BlockingSender:
    return connection.create_sender(None)


def test_each_message_says_where_it_goes(world: AmqpWorld) -> None:
    connection = connected(world)
    sender = anonymous(connection)
    for n, queue in enumerate("ABBA"):
        sender.send(Message(address=queue, body=b"%d" % n, inferred=True, durable=True))
    with world.connect() as native:
        assert {queue: [row.body for row in native.browse(queue)] for queue in "AB"} == {
            "A": [b"0", b"3"], "B": [b"1", b"2"]}
    for address, why in ((None, "precondition-failed"), ("NONE", "not-found"),
                         ("no queue", "not-found")):
        delivery = sender.link.send(Message(address=address, body=b"x", durable=True))
        connection.wait(lambda delivery=delivery: delivery.settled)
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == f"amqp:{why}"
        delivery.settle()
    sender.send(Message(address="A", body=b"x", durable=True))  # the link is as it was


def test_the_right_is_asked_for_each_message(world: AmqpWorld) -> None:
    connection = connected(world, user="daemon", password=PASSWORD, allowed_mechs="PLAIN")
    sender = anonymous(connection)
    sender.send(Message(address="A", body=b"x", durable=True))
    with pytest.raises(SendException):
        sender.send(Message(address="B", body=b"x", durable=True))
    with pytest.raises(SendException):
        sender.send(Message(address="SYSTEM.CHANNELS", body=b"x", durable=True))
    assert any(event["user"] == "daemon" for event in world.events(1589))
    with world.connect() as native:
        assert [*native.browse("B")] == []


def test_messages_of_a_transaction_say_where_they_go(world: AmqpWorld) -> None:
    connection = connected(world)
    coordinator, sender = Coordinator(connection), anonymous(connection)
    unit = coordinator.declare()
    for n, queue in enumerate("AB"):
        unit.send(sender, Message(address=queue, body=b"%d" % n, durable=True))
    assert unit.discharge() == ""
    with world.connect() as native:
        assert [len([*native.browse(queue)]) for queue in "AB"] == [1, 1]
    unit = coordinator.declare()
    for queue in ("A", "NONE"):
        unit.send(sender, Message(address=queue, body=b"x", durable=True))
    assert "not-found" in unit.discharge()
    with world.connect() as native:
        assert len([*native.browse("A")]) == 1


# what the server says of itself


def test_open_says_product_version_and_capabilities(world: AmqpWorld) -> None:
    connection = connected(world)
    said = connection.conn.remote_properties
    assert (said["product"], said["version"]) == ("omq", omq.__version__)
    assert {"ANONYMOUS-RELAY", "DELAYED_DELIVERY"} <= set(
        connection.conn.remote_offered_capabilities)


def test_begin_says_how_many_links_there_may_be(world: AmqpWorld) -> None:
    with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
        line.sendall(OPENED)
        heard = b""
        begin = b""
        while len(begin) < 5 or len(begin) < 5 + begin[4]:  # a list of less than 256 bytes
            heard += line.recv(4096)
            begin = b"".join(heard.partition(b"\x00\x53\x11")[1:])
        assert begin[: 5 + begin[4]].endswith((b"\x70" + u32(99), b"\x52\x63"))


def test_so_many_links_work(world: AmqpWorld) -> None:
    connection = connected(world)
    senders = [connection.create_sender("A", name=f"s{n}") for n in range(100)]
    senders[99].send(Message(body=b"x", durable=True))
    connection.close()
    with world.connect() as native:
        assert [row.body for row in native.browse("A")] == [b"x"]


def test_a_link_says_how_large_a_message_may_be(world: AmqpWorld) -> None:
    assert connected(world).create_sender("A").link.remote_max_message_size == 1_000_000


# types that make no sense


def symbolic(value: str) -> bytes:
    return text(value, b"\xa3")


def mapped(*pairs: bytes) -> bytes:
    content = b"".join(pairs)
    return b"\xd1" + u32(len(content) + 4) + u32(len(pairs)) + content


DESCRIBED = b"\x00\xa3\x01d\xa1\x01x"
ODD = {
    "a list": many(text("x")), "a list as a key": mapped(many(text("k")), text("x")),
    "a map as a key": mapped(mapped(text("a"), text("b")), text("x")),
    "something described as a key": mapped(DESCRIBED, text("x")),
    "something described": DESCRIBED, "a number": b"\x55\x05",
    "an array": b"\xe0\x03\x01\x55\x05",
    "a map in a map": mapped(symbolic("a"), mapped(symbolic("b"), symbolic("c"))),
    "no UTF-8": mapped(symbolic("a"), b"\xa1\x02\xb2\xb2"),
    "half a pair": b"\xd1" + u32(7) + u32(1) + text("k")}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("place", ["filter", "properties", "target properties", "outcome",
                                   "application", "annotations"])
def test_what_makes_no_sense_is_refused_by_its_name(world: AmqpWorld, place: str, value: bytes
                                                    ) -> None:
    """Or taken, or the end of its connection by the book; never a mistake of ours (the fixture)."""
    with world.connect() as native:
        native.put("A", b"there")
    first, then = {
        "filter": (attach(0, "A", takes=True, more=(NULL,) * 6 + (value,)), b""),
        "properties": (attach(0, "A", properties=value), b""),
        "target properties": (attach(0, "A", more=(ZERO, symbolic("never"), ZERO, NULL, value)),
                              b""),
        "outcome": (attach(0, "A", takes=True) + frame(
            0x13, ZERO, b"\x70" + u32(9), ZERO, b"\x70" + u32(9), ZERO, ZERO, b"\x70" + u32(1)),
            frame(0x15, b"\x41", ZERO, ZERO, b"\x41", b"\x00\x53\x25" + many(
                b"\x00\x53\x1d" + many(symbolic("x"), text("y"), value)))),
        "application": (attach(0, "A"), transfer(0, b"\x00\x53\x74" + value + b"\x00\x53\x75\xa0\0")
                        ),
        "annotations": (attach(0, "A"), transfer(0, b"\x00\x53\x72" + value + b"\x00\x53\x75\xa0\0")
                        )}[place]
    with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
        line.sendall(OPENED + first)
        heard = b""
        answers = {b"\x00\x53\x12", b"\x00\x53\x18"}  # attach, close
        while not any(each in heard for each in answers):
            chunk = line.recv(65536)
            if not chunk:
                break
            heard += chunk
        with suppress(ConnectionError):
            line.sendall(then)
            line.shutdown(socket.SHUT_WR)
            while chunk := line.recv(65536):
                heard += chunk
    assert heard.startswith(HEADER)
    if place == "filter":
        assert b"amqp:" in heard
