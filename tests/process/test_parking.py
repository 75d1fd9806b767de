"""Requests for messages that are parked: one thread waits for the readers of many connections."""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

import omq
from omq.base.errors import ConnectionBusy, LeaseLost, ManagerUnavailable, QueueFull
from omq.ipc.client import parked_puts, parking
from omq.ipc.client.connection import Client
from omq.ipc.client.reader import Reader
from omq.ipc.wire.alike import Alike
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S


@pytest.fixture
def world(omq_instance: Instance) -> Iterator[Instance]:
    omq_instance.settings(reconnect_grace_s=60)
    omq_instance.start()
    omq_instance.ready()
    yield omq_instance


def parked(world: Instance, opened: ExitStack, queue: str = "A") -> Reader:
    connection = opened.enter_context(world.connect("parks"))
    assert parking.wanted(connection)
    return opened.enter_context(connection.reader(queue))


def rung(*descriptors: int) -> list[int]:
    """Those of them that can be read."""
    poll = select.poll()
    for each in descriptors:
        poll.register(each, select.POLLIN)
    return [each for each, _ in poll.poll(WAIT_S * 1000)]


def finished(reader: Reader, descriptor: int) -> list[omq.Message]:
    while True:
        assert descriptor < 0 or rung(descriptor)
        if (found := parking.finish(reader)) is not None:
            return found
        descriptor = parking.descriptor(reader)


def test_one_thread_waits_for_two_queues(world: Instance) -> None:
    with ExitStack() as opened, world.connect() as puts:
        one, other = parked(world, opened), parked(world, opened, "B")
        at = {parking.begin(one, 10): one, parking.begin(other, 10): other}
        for queue in "BABA":
            puts.put(queue, queue.encode())
            given: list[tuple[str, bytes]] = []
            while not given:
                for descriptor in rung(*at):  # of a settlement that went by itself, perhaps
                    reader = at[descriptor]
                    if (found := parking.finish(reader)) is not None:
                        given += [(reader.queue, message.body) for message in found]
                        found[0].done()
                        del at[descriptor]
                        at[parking.begin(reader, 10)] = reader
            assert given == [(queue, queue.encode())]
        for reader in at.values():
            assert parking.finish(reader) is None, "nothing is there"
            assert parking.finish(reader, now=True) == []
        assert world.drain("A") == world.drain("B") == []


def test_what_was_said_goes_with_the_next_request(world: Instance) -> None:
    with ExitStack() as opened, world.connect() as puts:
        reader = parked(world, opened)
        puts.put_many("A", [b"%d" % number for number in range(250)])
        taken = 0
        while taken < 250:
            found = finished(reader, parking.begin(reader, 100))
            for message in found:
                assert message.body == b"%d" % taken
                message.done()
                taken += 1
        parking.begin(reader, 1)
        assert parking.finish(reader, now=True) == [] and reader.lost == 0
    assert world.drain("A") == []


def test_nothing_else_is_asked_meanwhile(world: Instance) -> None:
    with ExitStack() as opened:
        reader = parked(world, opened)
        parking.begin(reader, 1)
        with pytest.raises(ConnectionBusy):
            reader.next(1, timeout_s=0)
        assert parking.finish(reader, now=True) == []
        assert reader.next(1, timeout_s=0) == []


def test_bells_of_requests_that_were_waited_for_are_no_news(world: Instance) -> None:
    """More of them than a socket has room for."""
    with ExitStack() as opened, world.connect() as puts:
        reader = parked(world, opened)
        for _ in range(1000):
            reader.next(1, timeout_s=0)
            parking.hear(reader)
        descriptor = parking.begin(reader, 1)
        while select.select([descriptor], [], [], 0)[0]:  # of the last one, perhaps
            assert parking.finish(reader) is None
        puts.put("A", b"x")
        (message,) = finished(reader, descriptor)
        message.done()


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_the_manager_comes_again(world: Instance, ends: str) -> None:
    """The request is sent again to the next one, with what was said; the wait goes on."""
    with ExitStack() as opened, world.connect() as puts:
        reader = parked(world, opened)
        puts.put_many("A", [b"1", b"2"])
        first, second = finished(reader, parking.begin(reader, 2))
        assert (first.body, second.body) == (b"1", b"2"), "both are being processed"
        first.done()
        descriptor = parking.begin(reader, 1)
        assert parking.finish(reader) is None
        getattr(world, ends)(MANAGER)
        assert rung(descriptor)
        world.start()
        if parking.finish(reader) == []:  # a manager that stops in order may have answered
            parking.begin(reader, 1)
            assert parking.finish(reader) is None
        world.ready()
        puts.put("A", b"3")
        found = finished(reader, parking.descriptor(reader))
        again = [message.body for message in found] == [b"2"]
        assert again == (ends == "stop"), "held for longer than drain_timeout_s it is taken back"
        if again:
            found = finished(reader, parking.begin(reader, 1))
        (third,) = found
        assert third.body == b"3"
        third.done()
        if not again:
            second.done()
    assert {message.body for message in world.drain("A")} <= {b"2"}


def test_a_manager_without_bells(world: Instance) -> None:
    """One that was started before it had any: it is known before the reader is made; and one that
    takes the place of another is met at the end of the request."""
    with ExitStack() as opened:
        reader = parked(world, opened)
        parking.begin(reader, 1)
        world.kill(MANAGER)
        world.start()
        real = reader._link._resume

        def older(*given: object) -> None:
            real(*given)  # type: ignore[arg-type]
            reader._link.bells = False

        reader._link._resume = older  # type: ignore[method-assign, assignment]
        with pytest.raises(ManagerUnavailable):
            parking.finish(reader)


def test_a_message_that_was_taken_back(world: Instance) -> None:
    with ExitStack() as opened, world.connect() as puts:
        reader = parked(world, opened)
        puts.put("A", b"x")
        (message,) = finished(reader, parking.begin(reader, 1))
        message.release()
        with pytest.raises(LeaseLost):
            message.done()
        (again,) = finished(reader, parking.begin(reader, 1))
        again.done()


def test_the_bell_of_another_request_is_no_bell(world: Instance) -> None:
    with ExitStack() as opened:
        reader = parked(world, opened)
        assert reader.next(1, timeout_s=0) == []
        link = reader._link
        assert rung(link.descriptor), "its bell"
        sequence = link._sequence
        parking.begin(reader, 1)
        line = link._line
        assert line is not None and not line.rang(link._sequence) and line.rang(sequence)
        assert parking.finish(reader) is None
        assert parking.finish(reader, now=True) == []


def test_who_does_not_hear_its_bells(world: Instance) -> None:
    """It loses bells, or its connection, which it makes anew; nobody else notices."""
    with ExitStack() as opened, world.connect() as puts:
        reader = parked(world, opened)
        for _ in range(2000):
            assert reader.next(1, timeout_s=0) == []
        puts.put("A", b"x")
        found = list[omq.Message]()
        while not found:  # the end of the wait may be there before the message is
            parking.begin(reader, 1)
            found = parking.finish(reader, now=True) or []
        (message,) = found
        assert message.body == b"x"
        message.done()


# puts

WORDS = {"kind": "plain", "number": "4"}
KINDS: dict[str, Sequence[omq.Outgoing]] = {
    "one body": [omq.Outgoing(body=b"1")],
    "bodies": [omq.Outgoing(body=b"%d" % number) for number in range(100)],
    "not persistent": [omq.Outgoing(body=b"n", persistent=False, priority=7)],
    "alike": [omq.Outgoing(body=b"%d" % number, properties=WORDS) for number in range(20)],
    "unlike": [omq.Outgoing(body=b"a", properties=WORDS, correlation_id=b"c", expiry_s=9999.0),
               omq.Outgoing(body=b"b", message_id="its id", priority=9), omq.Outgoing(body=b"")],
    "groups": [omq.Outgoing(body=b"%d" % number, group_id=b"g%d" % (number % 2))
               for number in range(9)],
    "one pattern": Alike(omq.Outgoing(properties=WORDS, priority=2), [b"1", b"", b"3" * 900]),
    "one pattern that says nothing": Alike(omq.Outgoing(), [b"%d" % each for each in range(30)]),
    "one body of a pattern": Alike(omq.Outgoing(properties=WORDS), [b"1"])}
NOT_SO = {
    "a queue for replies": omq.Outgoing(body=b"x", reply_to="B"),
    "a delay": omq.Outgoing(body=b"x", delay_s=3600.0),
    "queues of its own": omq.Outgoing(body=b"x", queues=("A", "B")),
    "a container": omq.Outgoing(body=bytes(1 << 20))}


def putting(world: Instance, opened: ExitStack) -> Client:
    connection = opened.enter_context(world.connect("puts"))
    assert parked_puts.wanted(connection)
    connection.put("A", b"knows the name")
    assert [message.body for message in world.drain("A")] == [b"knows the name"]
    return connection


def put_now(connection: Client) -> None:
    while not parked_puts.are_put(connection) and not parked_puts.finish(connection):
        assert rung(parked_puts.descriptor(connection))


def told_of(message: omq.Message) -> tuple[object, ...]:
    """All that is said of it but which message it is, and when."""
    known = message.ids
    return (message.body, message.properties, message.priority, message.persistent,
            known.correlation, known.group_id, known.expiry_ns > 0,
            known.message_id.startswith(b"its id".hex()))


def test_a_parked_put_is_as_any_put(world: Instance) -> None:
    """Whatever it says; what may have to wait does not go this way, and nothing is under way."""
    with ExitStack() as opened:
        connection, other = putting(world, opened), opened.enter_context(world.connect())
        for name, messages in KINDS.items():
            assert parked_puts.begin(connection, "A", messages) == len(messages), name
            put_now(connection)
            parked = [told_of(message) for message in world.drain("A")]
            other.put_many("A", messages)
            assert parked == [told_of(message) for message in world.drain("A")], name
        large = Alike(omq.Outgoing(properties=WORDS), [b"small", bytes(1 << 20)])
        assert parked_puts.begin(connection, "A", large) == 1, "the other one needs a container"
        put_now(connection)
        assert [message.body for message in world.drain("A")] == [b"small"]
        for name, message in NOT_SO.items():
            assert parked_puts.begin(connection, "A", [message]) == 0, name
        assert parked_puts.begin(connection, "B", KINDS["one body"]) == 0, "a name not known here"
        connection.put("A", b"waited for")  # its bell is no news
        many = [omq.Outgoing(body=bytes(1000)) for _ in range(900)]
        at = 0
        while at < len(many):
            count = parked_puts.begin(connection, "A", many[at:])
            assert count and parked_puts.sent(connection)
            with pytest.raises(ConnectionBusy):
                connection.put("A", b"meanwhile")
            put_now(connection)
            at += count
        assert count < len(many), "it was more than one request has room for"
        assert len(world.drain("A")) == 901


def test_a_parked_put_that_is_refused(world: Instance) -> None:
    with ExitStack() as opened:
        connection = putting(world, opened)
        connection.queues.define("SMALL", max_depth=1)
        connection.put("SMALL", b"known")
        assert world.drain("SMALL")
        assert parked_puts.begin(connection, "SMALL", [omq.Outgoing(body=b"1")] * 2) == 2
        with pytest.raises(QueueFull):
            put_now(connection)
        assert parked_puts.begin(connection, "SMALL", [omq.Outgoing(body=b"1")]) == 1
        put_now(connection)
        assert [message.body for message in world.drain("SMALL")] == [b"1"], "none of the two"


@pytest.mark.parametrize("when", ["parked", "before it", "older"])
def test_a_manager_comes_again_for_a_parked_put(world: Instance, when: str) -> None:
    """Exactly once, whatever the one that was killed has done; one that knows no bell of puts is
    waited for."""
    with ExitStack() as opened:
        connection = putting(world, opened)
        if when == "before it":
            world.kill(MANAGER)
            assert not parked_puts.hear(connection), "whoever listens sees that it has gone"
        assert parked_puts.begin(connection, "A", [omq.Outgoing(body=b"1")] * 3) == 3
        if when != "before it":
            world.kill(MANAGER)
        world.start()
        link = connection._wire.link
        real = link._resume

        def older(*given: object) -> object:
            answer = real(*given)  # type: ignore[arg-type]
            link.rings = False
            return answer

        if when == "older":
            link._resume = older  # type: ignore[method-assign, assignment]
        assert rung(parked_puts.descriptor(connection))
        assert not parked_puts.are_put(connection)
        while not parked_puts.finish(connection):
            assert rung(parked_puts.descriptor(connection))
        assert [message.body for message in world.drain("A")] == [b"1"] * 3
        again = parked_puts.begin(connection, "A", [omq.Outgoing(body=b"2")])
        assert again == (when != "older"), "an older one is asked and waited for"
        if again:
            put_now(connection)
            assert [message.body for message in world.drain("A")] == [b"2"]


def test_who_may_not_park_puts(world: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older manager does not know the question; a client whose requests go over a line would
    have to wait for that."""
    with ExitStack() as opened:
        connection = opened.enter_context(world.connect("puts"))
        connection._wire.link.trusted = False
        assert not parked_puts.wanted(connection)
        connection._wire.link.trusted = True
        monkeypatch.setattr(parked_puts, "_QUESTION", {"op": "not known"})
        assert not parked_puts.wanted(connection)
        connection.put("A", b"1")
        assert parked_puts.begin(connection, "A", [omq.Outgoing(body=b"2")]) == 0
        assert [message.body for message in world.drain("A")] == [b"1"]
