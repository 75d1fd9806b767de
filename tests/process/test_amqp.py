"""amqp.server with Qpid Proton's own client: what crosses it, who may, what a death costs."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.process.amqp_world import PASSWORD, SERVER, AmqpWorld, amqp_world, needs_proton
from tests.process.instance import MANAGER
from tests.waiting import until

needs_proton()

from proton import (  # noqa: E402
    ConnectionException,
    Disposition,
    Message,
    ProtonException,
    symbol,
    ulong,
)
from proton.reactor import Copy, Selector  # noqa: E402
from proton.utils import (  # noqa: E402
    BlockingConnection,
    BlockingReceiver,
    LinkDetached,
    SendException,
)

WAIT_S = 120


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp")) as made:
        yield made


@pytest.fixture
def world(instance: AmqpWorld) -> Iterator[AmqpWorld]:
    """The same for all; its queues are empty."""
    yield instance
    while OPEN:
        with suppress(ProtonException, OSError):  # its server was killed
            each = OPEN.pop()
            each.timeout = 0.1  # for the answer to the close
            each.close()
    instance.clear("A", "B")


OPEN: list[BlockingConnection] = []


def connected(world: AmqpWorld, **more: Any) -> BlockingConnection:
    made = BlockingConnection(world.url, timeout=WAIT_S, allow_insecure_mechs=True, **more)
    OPEN.append(made)
    return made


def taken(receiver: BlockingReceiver) -> bytes:
    """The body of the next one; it is the library's memory while the message lives."""
    message = receiver.receive(timeout=WAIT_S)
    return bytes(message.body)


def test_a_message_goes_there_and_back(world: AmqpWorld) -> None:
    sent = Message(
        body=b"hello", inferred=True, durable=True, priority=7, id="order-1",
        correlation_id=uuid.UUID(int=5), reply_to="B", subject="greeting",
        content_type="text/plain", ttl=3600, group_id="g", group_sequence=3, properties={
            "text": "x", "number": 5, "true": True, "symbol": symbol("s"), "half": 0.5})
    connection = connected(world)
    connection.create_sender("A").send(sent)
    with world.connect() as native:
        (row,) = native.browse("A")
        assert (row.body, row.priority, row.message_id) == (b"hello", 7, "order-1")
        assert row.persistent and row.reply_to == "B" and row.properties["text"] == "x"
    receiver = connection.create_receiver("A", credit=1)
    got = receiver.receive(timeout=WAIT_S)
    receiver.accept()
    assert bytes(got.body) == b"hello" and got.inferred and got.durable
    assert (got.priority, got.id, got.correlation_id) == (7, "order-1", uuid.UUID(int=5))
    assert (got.reply_to, got.subject, got.content_type) == ("B", "greeting", "text/plain")
    assert (got.group_id, got.group_sequence) == ("g", 3) and 3000 < got.ttl <= 3600
    assert got.properties == sent.properties
    assert type(got.properties["symbol"]) is symbol
    connection.close()
    assert world.left("A") == []


@pytest.mark.parametrize("body", ["text", None, {"a": [1, 2]}, 5, b"\x00\xff"])
def test_other_bodies_come_back_as_they_were(world: AmqpWorld, body: Any) -> None:
    connection = connected(world)
    connection.create_sender("A").send(Message(body=body, id=ulong(7)))
    receiver = connection.create_receiver("A", credit=1)
    got = receiver.receive(timeout=WAIT_S)
    receiver.accept()
    assert got.body == body and got.id == 7 and not got.inferred
    connection.close()


def test_native_messages_reach_clients(world: AmqpWorld) -> None:
    with world.connect() as native:
        given = native.put("A", b"from here", properties={"k": "v"}, correlation_id="c-1")
    connection = connected(world)
    receiver = connection.create_receiver("A", credit=1)
    got = receiver.receive(timeout=WAIT_S)
    receiver.accept()
    assert bytes(got.body) == b"from here" and got.properties == {"k": "v"}
    assert (got.id, got.correlation_id) == (given, "c-1")
    connection.close()


def test_what_a_client_says_of_a_message(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"released", b"failed", b"rejected"])
    connection = connected(world)
    receiver = connection.create_receiver("A", credit=3)
    for ends in (Disposition.RELEASED, Disposition.MODIFIED, Disposition.REJECTED):
        message = receiver.receive(timeout=WAIT_S)
        assert message.delivery_count == 0
        if ends == Disposition.MODIFIED:
            receiver.fetcher.unsettled[0].local.failed = True
            receiver.settle(ends)
        else:
            receiver.settle(ends)
    connection.close()
    world.given_back("A")
    with world.connect() as native:
        found = {row.body: row.attempts for row in native.browse("A")}
    assert found == {b"released": 0, b"failed": 1, b"rejected": 1}


def test_who_leaves_gives_back(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"1", b"2", b"3"])
    connection = connected(world)
    receiver = connection.create_receiver("A", credit=3)
    assert taken(receiver) == b"1"
    connection.close()
    assert [message.attempts for message in world.left("A")] == [0, 0, 0]


def test_credit_is_read_ahead(world: AmqpWorld) -> None:
    """A client that wants two holds two: others get the rest."""
    with world.connect() as native:
        native.put_many("A", [b"%d" % n for n in range(10)])
    connection = connected(world)
    receiver = connection.create_receiver("A", credit=2)
    assert taken(receiver) == b"0"
    with world.connect() as native, native.reader("A", batch=10) as reader:
        assert len(reader.next(timeout_s=0)) >= 6  # its client has asked for two more since
    connection.close()


def test_browsing_takes_nothing_and_selectors_choose(world: AmqpWorld) -> None:
    with world.connect() as native:
        for n in range(4):
            native.put("A", b"%d" % n, properties={"colour": "red" if n % 2 else "blue"})
    connection = connected(world)
    browser = connection.create_receiver("A", credit=10, options=Copy())
    assert [taken(browser) for _ in range(4)] == [
        b"0", b"1", b"2", b"3"]
    browser.close()
    chosen = connection.create_receiver("A", credit=10, options=Selector("colour = 'red'"))
    for wanted in (b"1", b"3"):
        assert taken(chosen) == wanted
        chosen.accept()
    connection.close()
    assert [message.body for message in world.left("A")] == [b"0", b"2"]


def test_request_and_reply_over_a_temporary_queue(world: AmqpWorld) -> None:
    connection = connected(world)
    replies = connection.create_receiver(None, dynamic=True, credit=1)
    address = replies.link.remote_source.address
    connection.create_sender("A").send(Message(body="what?", reply_to=address, id="q"))
    with world.connect() as native, native.reader("A") as reader:
        (request,) = reader.next(timeout_s=WAIT_S)
        request.reply(b"that")
    reply = replies.receive(timeout=WAIT_S)
    assert bytes(reply.body) == b"that" and reply.correlation_id == "q"
    with world.connect() as native:  # others have the rights that they have on its model
        assert native.queues.show(address).keys["model"] == "TEMPORARY"
    connected(world).create_sender(address).send(Message(body=b"more", inferred=True))
    assert taken(replies) == b"more"
    connection.close()
    with world.connect() as native:
        while address in [info.name for info in native.queues.list()]:
            pass  # it goes with its connection, whose end the server hears of


def test_settled_ones_are_not_persistent(world: AmqpWorld) -> None:
    from proton.reactor import AtMostOnce

    connection = connected(world)
    sender = connection.create_sender("A", options=AtMostOnce())
    sender.send(Message(body=b"x", durable=True))
    receiver = connection.create_receiver("A", credit=1)
    assert not receiver.receive(timeout=WAIT_S).durable
    receiver.accept()
    connection.close()


def test_what_is_refused(world: AmqpWorld) -> None:
    connection = connected(world)
    with pytest.raises(LinkDetached, match="not-found"):
        connection.create_sender("NOSUCH")
    with pytest.raises(LinkDetached, match="not-found"):
        connection.create_receiver("NOSUCH")
    with pytest.raises(LinkDetached, match="invalid-field"):
        connection.create_receiver("A", options=Selector("colour = = 1"))
    sender = connection.create_sender("A")
    with pytest.raises(SendException):
        sender.send(Message(body="x", properties={"omq.remote.queue": "A"}))
    sender.send(Message(body="y"))  # the connection is as good as before
    connection.close()
    assert [message.body for message in world.left("A")] == [b"y"]
    assert world.events(1591)


def test_a_full_queue_makes_senders_wait(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.queues.define("SMALL", max_depth=2)
        connection = connected(world)
        sender = connection.create_sender("SMALL")
        sender.send(Message(body="1"))
        sender.send(Message(body="2"))
        with pytest.raises(Exception, match="timed out"):
            sender.send(Message(body="3"), timeout=0.5)
        with native.reader("SMALL") as reader:
            (first,) = reader.next(timeout_s=WAIT_S)
            first.done()
            bodies: list[bytes] = []
            while len(bodies) < 2:
                for message in reader.next(timeout_s=WAIT_S):
                    bodies.append(message.body)
                    message.done()
        assert bodies == [b"2", b"3"]
        connection.close()
        native.queues.delete("SMALL")


def test_puts_that_come_while_others_are_under_way(world: AmqpWorld) -> None:
    """By the event loop: each once, and in the order of its link. A queue that is full is tried
    again at the pace of amqp_retry_ms, with an event."""
    with world.connect() as native:
        native.queues.define("SMALL", max_depth=2)
        connection = connected(world)
        sender, small = connection.create_sender("A"), connection.create_sender("SMALL")
        for each in (sender, small):
            for number in range(2):  # the first goes by a thread, and makes its name known
                each.send(Message(body=b"%d" % number, durable=True, inferred=True))
        link = sender.link
        for number in range(2, 600):
            link.send(Message(body=b"%d" % number, durable=True, inferred=True))
            if not number % 10:  # ten in a write, which comes while those before are under way
                connection.wait(lambda link=link: link.credit > 10 and not link.queued)
        connection.wait(lambda: not link.queued)
        with pytest.raises(Exception, match="timed out"):
            small.send(Message(body=b"2", durable=True, inferred=True), timeout=0.5)
        until(lambda: [each for each in world.events(1592) if each["queue"] == "SMALL"])
        found = [message.body for message in world.drain("SMALL")]  # the next may be put meanwhile
        small.send(Message(body=b"3", durable=True, inferred=True))
        found += [message.body for message in world.drain("SMALL")]
        assert found == [b"0", b"1", b"2", b"3"]
        connection.close()
        assert [message.body for message in world.left("A")] == [b"%d" % n for n in range(600)]
        native.queues.delete("SMALL")


def test_users_have_the_rights_of_their_accounts(world: AmqpWorld) -> None:
    world.stop(SERVER)
    world.amqp(amqp_users=world.users("daemon", "bin", "root"), amqp_anonymous_user="")
    alice = connected(world, user="daemon", password=PASSWORD)
    alice.create_sender("A").send(Message(body="x", user_id=b"daemon"))
    with pytest.raises(LinkDetached, match="unauthorized"):
        alice.create_sender("B")
    with pytest.raises(LinkDetached, match="unauthorized"):
        alice.create_receiver("A", name="looks", options=Copy())
    with pytest.raises(SendException):
        alice.create_sender("A", name="again").send(Message(body="x", user_id=b"bin"))
    alice.close()
    bob = connected(world, user="bin", password=PASSWORD)
    with pytest.raises(LinkDetached, match="unauthorized"):
        bob.create_receiver("B")
    bob.create_receiver("B", name="looks", options=Copy()).close()
    bob.close()
    for user, password in (("daemon", "wrong"), ("nobody", PASSWORD), ("root", PASSWORD)):
        with pytest.raises(ConnectionException):
            connected(world, user=user, password=password)
    with pytest.raises(ConnectionException):
        connected(world)
    assert len(world.events(1588)) == 3  # the last one did not even try
    world.stop(SERVER)
    world.amqp()


@pytest.mark.parametrize("victims", [[SERVER], [MANAGER], [MANAGER, SERVER]])
def test_nothing_accepted_is_lost(world: AmqpWorld, victims: list[str]) -> None:
    """kill -9 between two sends: what was accepted is there, in order."""
    connection = connected(world)
    sender = connection.create_sender("A")
    for n in range(20):
        sender.send(Message(body=b"%d" % n, durable=True, inferred=True))
    world.kill(*victims)
    world.start(*victims)
    if SERVER in victims:
        connection = connected(world)
        sender = connection.create_sender("A")
    for n in range(20, 40):
        sender.send(Message(body=b"%d" % n, durable=True, inferred=True))
    receiver = connection.create_receiver("A", credit=10)
    for n in range(40):
        assert taken(receiver) == b"%d" % n
        receiver.accept()
    connection.close()
    assert world.left("A") == []


def test_a_broken_line_charges_the_first_message(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"1", b"2", b"3"])
    with subprocess.Popen([sys.executable, "-c", HOLDS, world.url], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"has them\n"
        holder.kill()
    found: dict[bytes, int] = {}
    with world.connect() as native, native.reader("A", batch=10) as reader:
        while len(found) < 3:
            for message in reader.next(timeout_s=WAIT_S):
                found[message.body] = message.attempts
                message.done()
    assert found == {b"1": 1, b"2": 0, b"3": 0}


HOLDS = """
import sys
from proton.utils import BlockingConnection
receiver = BlockingConnection(sys.argv[1], timeout=120).create_receiver("A", credit=3)
for body in (b"1", b"2", b"3"):
    message = receiver.receive(timeout=120)
    assert bytes(message.body) == body
print("has them", flush=True)
sys.stdin.read()
"""


def test_a_stop_tells_clients(world: AmqpWorld) -> None:
    connection = connected(world)
    sender = connection.create_sender("A")
    sender.send(Message(body=b"x", durable=True))
    world.stop(SERVER)
    with pytest.raises(Exception, match=r"forced|closed|disconnect"):
        sender.send(Message(body=b"y", durable=True))
    assert len(world.left("A")) == 1
    world.start(SERVER)
