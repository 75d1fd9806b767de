"""Transactions of AMQP: what was put and taken happens with the discharge, or not at all."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world, needs_proton
from tests.process.instance import MANAGER

needs_proton()

from proton import Delivery, Described, Message, ProtonException, symbol  # noqa: E402
from proton.utils import BlockingConnection, BlockingReceiver  # noqa: E402

from tests.process.amqp_transactions import Coordinator, Transaction  # noqa: E402
from tests.waiting import until  # noqa: E402

WAIT_S = 120


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp"), amqp_transactions_max=3) as made:
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
    assert not instance.events(1007), instance.events(1007)


OPEN: list[BlockingConnection] = []


def connected(world: AmqpWorld) -> BlockingConnection:
    OPEN.append(BlockingConnection(world.url, timeout=WAIT_S))
    return OPEN[-1]


def stored(body: bytes = b"x") -> Message:
    return Message(body=body, inferred=True, durable=True)


def bodies(world: AmqpWorld, queue: str) -> list[bytes]:
    with world.connect() as native:
        return [row.body for row in native.browse(queue)]


def await_bodies(world: AmqpWorld, queue: str, wanted: list[bytes]) -> None:
    until(lambda: bodies(world, queue) == wanted)


def received(receiver: BlockingReceiver) -> bytes:
    message = receiver.receive(timeout=WAIT_S)
    return bytes(message.body)  # it is the library's memory while the message lives


@pytest.mark.parametrize("settle", [True, False])
def test_what_is_taken_and_put_happens_together(world: AmqpWorld, *, settle: bool) -> None:
    with world.connect() as native:
        native.put_many("A", [b"1", b"2", b"3"])
    client = connected(world)
    sender, receiver = client.create_sender("B"), client.create_receiver("A", credit=3)
    unit = Coordinator(client).declare()
    assert received(receiver) == b"1"
    unit.accept(receiver, settle=settle)
    assert unit.send(sender, stored(b"out")).remote_state == 0x34
    assert bodies(world, "B") == [] and len(bodies(world, "A")) == 3
    assert unit.discharge() == ""
    assert bodies(world, "B") == [b"out"] and bodies(world, "A") == [b"2", b"3"]


@pytest.mark.parametrize("settle", [True, False])
def test_rolled_back_nothing_has_happened(world: AmqpWorld, *, settle: bool) -> None:
    with world.connect() as native:
        native.put("A", b"1")
    client = connected(world)
    sender, receiver = client.create_sender("B"), client.create_receiver("A", credit=1)
    unit = Coordinator(client).declare()
    assert received(receiver) == b"1"
    delivery = unit.accept(receiver, settle=settle)
    unit.send(sender, stored(b"out"))
    assert unit.discharge(fails=True) == ""
    assert bodies(world, "B") == []
    if not settle:  # it is the client's still
        delivery.update(Delivery.RELEASED)
        delivery.settle()
    client.close()
    (back,) = world.left("A")
    assert (back.body, back.attempts) == (b"1", int(settle))


def test_puts_alone_and_nothing_at_all(world: AmqpWorld) -> None:
    client = connected(world)
    coordinator, sender = Coordinator(client), client.create_sender("A")
    unit = coordinator.declare()
    for n in range(20):
        unit.send(sender, stored(b"%d" % n))
    assert unit.discharge() == "" and coordinator.declare().discharge() == ""
    assert bodies(world, "A") == [b"%d" % n for n in range(20)]


def two_links(world: AmqpWorld, client: BlockingConnection) -> Transaction:
    """A transaction that takes from A and B, and puts on B."""
    with world.connect() as native:
        native.put("A", b"a")
        native.put("B", b"b")
    unit = Coordinator(client).declare()
    for queue in "AB":
        receiver = client.create_receiver(queue, credit=1)
        assert received(receiver) == queue.lower().encode()
        unit.accept(receiver)
    unit.send(client.create_sender("B"), stored(b"new"))
    return unit


def test_it_takes_from_several_links(world: AmqpWorld) -> None:
    client = connected(world)
    assert two_links(world, client).discharge() == ""
    assert bodies(world, "A") == [] and bodies(world, "B") == [b"new"]
    with world.connect() as native:
        assert native.units_in_doubt() == []


def test_several_links_are_rolled_back_together(world: AmqpWorld) -> None:
    """The second part cannot be prepared: the first one is backed out."""
    client = connected(world)
    with world.connect() as native:
        native.put("A", b"a")
        native.put("B", b"b", persistent=False)
    unit = Coordinator(client).declare()
    for queue in "AB":
        receiver = client.create_receiver(queue, credit=1)
        received(receiver)
        unit.accept(receiver)
    assert "not persistent" in unit.discharge()
    client.close()
    with world.connect() as native:
        assert native.units_in_doubt() == []
    assert [m.body for m in world.left("A")] == [b"a"] and len(world.left("B")) == 1


@pytest.mark.parametrize(("there", "committed"), [([0, 1], False), ([1], True), ([0], False)])
def test_what_a_dead_server_left_in_doubt_is_ended(
        world: AmqpWorld, there: list[int], *, committed: bool) -> None:
    """Its first part says what was decided."""
    world.stop(SERVER)
    with world.connect() as native:
        for at in there:
            with native.unit() as unit:
                unit.put("A", b"%d" % at)
                unit.prepare(f"amqp 1.2 3 {at}")
    world.start(SERVER)
    world.await_port()
    with world.connect() as native:
        assert native.units_in_doubt() == []
    assert len(bodies(world, "A")) == (len(there) if committed else 0)
    assert world.events(1593)


@pytest.mark.parametrize("end", ["link", "connection", "server"])
def test_who_leaves_has_rolled_back(world: AmqpWorld, end: str) -> None:
    with world.connect() as native:
        native.put("A", b"1")
    client = connected(world)
    sender, receiver = client.create_sender("B"), client.create_receiver("A", credit=1)
    coordinator = Coordinator(client)
    unit = coordinator.declare()
    received(receiver)
    unit.accept(receiver)
    unit.send(sender, stored())
    if end == "link":
        coordinator.sender.close()
        receiver.close()
    elif end == "connection":
        client.close()
    else:
        world.kill(SERVER)
        world.start(SERVER)
    with world.connect() as native, native.reader("A") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        assert message.attempts == 1
        message.done()
    assert bodies(world, "B") == []


@pytest.mark.parametrize("end", ["link", "line"])
def test_one_link_declares_and_another_discharges(tmp_path: Path, end: str) -> None:
    """The place of a connection that ends behind it is free, however it ends."""
    with amqp_world(tmp_path, amqp_user_connections_max=1) as world:
        for _ in range(2):
            client = connected(world)
            first, second = Coordinator(client, "first"), Coordinator(client, "second")
            unit = first.declare()
            unit.send(client.create_sender("A"), stored())
            unit.by(second)
            assert unit.discharge() == ""
            if end == "link":
                first.sender.close()
                client.close()
            else:
                client.conn.transport._selectable._delegate.shutdown(socket.SHUT_RDWR)
                client.timeout = 0.1
                with suppress(ProtonException, OSError):
                    client.close()
            OPEN.clear()
        assert not world.events(1007), world.events(1007)


def test_a_receiver_that_closes_before_the_discharge(world: AmqpWorld) -> None:
    """What it took is the transaction's; what it had not looked at is back at once."""
    with world.connect() as native:
        native.put_many("A", [b"1", b"2"])
    client = connected(world)
    receiver = client.create_receiver("A", credit=2)
    unit = Coordinator(client).declare()
    received(receiver)
    unit.accept(receiver)
    receiver.close()
    with world.connect() as native, native.reader("A") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        assert (message.body, message.attempts) == (b"2", 0)
    assert unit.discharge() == ""
    assert bodies(world, "A") == [b"2"]


def test_a_full_queue_rolls_back(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.queues.define("ONE", max_depth=1)
        native.put("A", b"1")
    client = connected(world)
    receiver = client.create_receiver("A", credit=1)
    unit = Coordinator(client).declare()
    received(receiver)
    unit.accept(receiver)
    sender = client.create_sender("ONE")
    for _ in range(2):
        unit.send(sender, stored())
    assert unit.discharge().startswith("amqp:transaction:rollback")
    assert bodies(world, "ONE") == []
    client.close()
    assert [m.attempts for m in world.left("A")] == [1]
    with world.connect() as native:
        native.queues.delete("ONE")


def test_a_manager_that_is_killed_in_between(world: AmqpWorld) -> None:
    """Readers keep what they hold: the transaction goes on."""
    with world.connect() as native:
        native.put("A", b"1")
    client = connected(world)
    sender, receiver = client.create_sender("B"), client.create_receiver("A", credit=1)
    unit = Coordinator(client).declare()
    received(receiver)
    unit.accept(receiver)
    unit.send(sender, stored(b"out"))
    world.kill(MANAGER)
    world.start(MANAGER)
    world.ready()
    assert unit.discharge() == ""
    assert bodies(world, "A") == [] and bodies(world, "B") == [b"out"]


def test_other_outcomes_count_with_the_transaction(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"1", b"2"])
    client = connected(world)
    receiver = client.create_receiver("A", credit=2)
    unit = Coordinator(client).declare()
    for outcome in (Delivery.RELEASED, Delivery.REJECTED):
        received(receiver)
        unit.accept(receiver, outcome=outcome)
    assert unit.discharge() == ""
    receiver.close()
    client.close()
    with world.connect() as native:
        assert [(row.body, row.attempts) for row in native.browse("A")] == [
            (b"1", 0), (b"2", 1)]


def test_other_outcomes_are_there_when_the_discharge_is_told(world: AmqpWorld) -> None:
    count = 60
    with world.connect() as native:
        native.put_many("A", [b"x"] * count)
        client = connected(world)
        receiver = client.create_receiver("A", credit=count)
        unit = Coordinator(client).declare()
        for _ in range(count):
            received(receiver)
            unit.accept(receiver, outcome=Delivery.REJECTED)
        assert unit.discharge() == ""
        assert [row.attempts for row in native.browse("A")] == [1] * count


def test_one_that_lasts_too_long(tmp_path: Path) -> None:
    with amqp_world(tmp_path, amqp_transaction_timeout_s=1) as world:
        with world.connect() as native:
            native.put("A", b"1")
        client = connected(world)
        receiver = client.create_receiver("A", credit=1)
        unit = Coordinator(client).declare()
        received(receiver)
        unit.accept(receiver)
        with world.connect() as native, native.reader("A") as reader:
            receiver.close()
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.attempts == 1
        assert unit.discharge().startswith("amqp:transaction:timeout")
        client.close()
        OPEN.clear()


def test_what_is_in_a_transaction_counts_as_unsettled(tmp_path: Path) -> None:
    with amqp_world(tmp_path, amqp_unsettled_max=2) as world:
        with world.connect() as native:
            native.put_many("A", [b"1", b"2", b"3", b"4"])
        client = connected(world)
        receiver = client.create_receiver("A", credit=4)
        unit = Coordinator(client).declare()
        for body in (b"1", b"2"):
            assert received(receiver) == body
            unit.accept(receiver)
        with world.connect() as native, native.reader("A") as reader:
            assert [m.body for m in reader.next(2, timeout_s=WAIT_S)] == [b"3", b"4"]
            assert unit.discharge() == ""
        assert received(receiver) == b"3", "there is room again"
        client.close()
        OPEN.clear()


def unknown(unit: Transaction) -> Transaction:
    unit.name = b"none"
    return unit


@pytest.mark.parametrize("ask", [
    lambda c: unknown(c.declare()).discharge(),
    lambda c: [c.declare() for _ in range(9)],
    lambda c: c.asked(Described(symbol("amqp:declare:list"), [b"global"])),
    lambda c: c.asked("no such thing"),
    lambda c: c.asked(Described(symbol("amqp:discharge:list"), ["text"]))])
def test_what_makes_no_sense_is_rejected(
        world: AmqpWorld, ask: Callable[[Coordinator], object]) -> None:
    client = connected(world)
    with suppress(AssertionError):  # it was not declared
        said = ask(Coordinator(client))
        assert "unknown-id" in str(said) or said.remote_state == Delivery.REJECTED  # type: ignore[attr-defined]
    Coordinator(connected(world)).declare()


def test_large_ones_are_put_by_a_transaction(world: AmqpWorld) -> None:
    client = connected(world)
    unit, sender = Coordinator(client).declare(), client.create_sender("A")
    body = os.urandom(3 << 20)
    for _ in range(2):
        unit.send(sender, stored(body))
    assert bodies(world, "A") == []
    assert unit.discharge() == ""
    assert bodies(world, "A") == [body, body]
