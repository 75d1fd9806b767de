"""What a client of AMQP may not take: memory, places, the time of others; each was tried.

Frames are made by hand where the library is too well-behaved to send them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world, needs_proton
from tests.process.instance import MANAGER
from tests.waiting import until

needs_proton()

from proton import (  # noqa: E402
    Collector,
    Connection,
    Delivery,
    Event,
    Link,
    Message,
    Transport,
)
from proton.reactor import Copy  # noqa: E402
from proton.utils import BlockingConnection  # noqa: E402

from tests.process.amqp_frames import (  # noqa: E402
    MESSAGE,
    NULL,
    OPENED,
    TRUE,
    ZERO,
    attach,
    frame,
    many,
    text,
    transfer,
    u32,
)

WAIT_S = 120
CREDIT = 20
BUG = 1007
GRANTED = b"CCR" + bytes((CREDIT,))  # of a flow: delivery-count, link-credit


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp"), amqp_credit=CREDIT, amqp_links_max=10,
                    amqp_memory_bytes_max=4 << 20, amqp_user_memory_bytes_max=2 << 20,
                    amqp_files_bytes_max=4 << 20, amqp_user_files_bytes_max=2 << 20,
                    amqp_idle_timeout_s=4, amqp_close_timeout_s=1, amqp_user_temporaries_max=3,
                    amqp_user_receivers_max=5) as made:
        yield made


@pytest.fixture
def world(instance: AmqpWorld) -> Iterator[AmqpWorld]:
    yield instance
    instance.clear("A", "B")
    assert not instance.events(BUG), instance.events(BUG)


class Line:
    """A connection of bytes; one that hears nothing for WAIT_S fails its test."""

    def __init__(self, world: AmqpWorld, first: bytes) -> None:
        self.line = socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S)
        self.line.sendall(first)
        self.heard = b""

    def until(self, wanted: bytes) -> None:
        self.until_count(wanted, 1)

    def until_count(self, wanted: bytes, count: int) -> None:
        while self.heard.count(wanted) < count:
            data = self.line.recv(65536)
            assert data, f"{wanted!r} did not come: {self.heard[-300:]!r}"
            self.heard += data


@pytest.fixture
def lined(world: AmqpWorld) -> Iterator[Callable[[bytes], Line]]:
    lines: list[Line] = []

    def begun(first: bytes) -> Line:
        lines.append(Line(world, OPENED + first))
        return lines[-1]

    yield begun
    for each in lines:
        each.line.close()


class Peer:
    """A client by the library's engine, over a blocking line."""

    def __init__(self, world: AmqpWorld) -> None:
        self.line = socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S)
        self.engine, self.connection, self.events = Transport(), Connection(), Collector()
        self.connection.collect(self.events)
        self.engine.bind(self.connection)
        self.connection.container = "peer"
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()
        self.states: list[Any] = []

    def sender(self, queue: str) -> Any:
        made: Link = self.session.sender(f"to {queue}")
        made.target.address = queue
        made.open()
        self.until(lambda: made.credit > 0)
        return made

    def send(self, link: Any, data: bytes, *, settled: bool = False) -> Any:
        made = link.delivery(str(len(self.states)) + os.urandom(4).hex())
        link.stream(data)
        link.advance()
        if settled:
            made.settle()
        return made

    def flush(self) -> None:
        while (size := self.engine.pending()) > 0:
            self.line.sendall(bytes(self.engine.peek(size)))
            self.engine.pop(size)

    def until(self, there: Callable[[], bool]) -> None:
        while True:
            self.flush()
            if there():
                return
            data = self.line.recv(65536)
            assert data, "the server has closed"
            while data:
                room = min(len(data), self.engine.capacity())
                self.engine.push(data[:room])
                data = data[room:]
                while (event := self.events.peek()) is not None:
                    if event.type == Event.DELIVERY and event.delivery.updated:
                        self.states.append(event.delivery.remote_state)
                    self.events.pop()


@pytest.fixture
def peer(world: AmqpWorld) -> Iterator[Peer]:
    made = Peer(world)
    yield made
    made.line.close()


def depth(world: AmqpWorld, queue: str) -> int:
    with world.connect() as native:
        return sum(1 for _ in native.browse(queue))


def await_depth(world: AmqpWorld, queue: str, wanted: int) -> None:
    until(lambda: depth(world, queue) == wanted)


# memory


def test_who_sends_without_credit_loses_its_link(
        world: AmqpWorld, lined: Callable[[bytes], Line]) -> None:
    line = lined(attach(0, "A"))
    line.until(GRANTED)
    line.line.sendall(b"".join(transfer(n) for n in range(2 * CREDIT)))
    line.until(b"amqp:link:transfer-limit-exceeded")
    assert depth(world, "A") <= CREDIT


@pytest.mark.parametrize(("what", "size"), [
    ("body", 5000), ("body", 3_000_000), ("properties", 5000)])  # whole, in pieces, whole
def test_a_receiver_is_given_nothing_over_its_max_message_size(
        world: AmqpWorld, peer: Peer, what: str, size: int) -> None:
    """It would end its link, attach anew, and be given the same. What is too large has failed, with
    the reason; the others come; a browser does not see it."""
    queue = f"{what[:4].upper()}.{size}"
    with world.connect() as native:
        native.queues.define(queue, attempts_max=2, retry_delay_ms=0)
        native.put(queue, bytes(size if what == "body" else 1), properties={
            f"p{i}": "v" * 1000 for i in range(5 if what == "properties" else 0)})
        native.put(queue, b"small")
    for copies in (True, False):
        link = peer.session.receiver(f"takes {copies}")
        link.source.address = queue
        if copies:
            link.source.distribution_mode = link.source.DIST_MODE_COPY
        link.max_message_size = 1000
        link.flow(10)
        link.open()
        peer.until(lambda: link.current is not None and not link.current.partial)  # noqa: B023
        message = Message()
        message.decode(link.recv(1 << 20))
        assert message.body == b"small", copies
        link.current.update(Delivery.ACCEPTED)
        link.current.settle()
        link.advance()
        if copies:
            link.close()
    with world.connect() as native, native.reader("POISON") as reader:
        peer.flush()
        (failed,) = reader.next(timeout_s=WAIT_S)
        assert failed.failure is not None and failed.failure.attempts == 2
        assert "max-message-size" in failed.failure.reason and "1000" in failed.failure.reason
        failed.done()
    assert not link.remote_condition


@pytest.mark.parametrize("size", [200_000, 500_000])  # in memory, and in a file
def test_what_finds_no_room_is_released(world: AmqpWorld, peer: Peer, size: int) -> None:
    """A full queue, and a sender with much credit and large messages: others have theirs."""
    with world.connect() as native:
        native.queues.define(f"FULL.{size}", max_depth=1)
        native.put(f"FULL.{size}", b"")
    sender = peer.sender(f"FULL.{size}")
    large = bytes(Message(body=bytes(size), inferred=True, durable=True).encode())
    for _ in range(CREDIT):
        peer.send(sender, large)
    peer.until(lambda: len(peer.states) >= 5)
    assert set(peer.states) == {Delivery.RELEASED}


def test_one_slow_client_has_few_large_messages_in_memory(tmp_path: Path) -> None:
    with amqp_world(tmp_path) as world:
        with world.connect() as native:
            for _ in range(80):
                native.put("B", bytes(1 << 20))
        status = Path(f"/proc/{world.children[SERVER].pid}/statm")

        def resident() -> int:
            return int(status.read_text().split()[1]) * 4096

        before = resident()
        credit = frame(0x13, ZERO, b"\x70" + u32(1 << 20), ZERO, b"\x70" + u32(1 << 20), ZERO, ZERO,
                       b"\x70" + u32(1000))
        line = Line(world, OPENED + attach(0, "B", takes=True) + credit)
        line.until(b"\x00Su")
        with world.connect() as native, native.reader("B", batch=100) as reader:
            reader.next(timeout_s=0.5)  # it has taken what it wants; idle clients are gone soon
            assert resident() - before < 40 << 20
        line.line.close()
        await_depth(world, "B", 80)


def test_what_links_say_of_themselves_is_memory_of_their_user(
        world: AmqpWorld, lined: Callable[[bytes], Line]) -> None:
    """A few of them would hold more than all messages may. What is refused is not read; a link that
    has ended gives back what it had."""
    small, large = (b"\xd1" + u32(16 + count) + u32(2) + b"\xa3\x01x\xd0" + u32(4 + count)
                    + u32(count) + b"\x45" * count for count in (10_000, 40_000))
    line = lined(attach(0, "A", properties=large))
    line.until(b"no room for what it says of itself")
    line = lined(b"".join(attach(n, "A", properties=small) for n in range(4)))
    line.until(b"no room for what it says of itself")
    assert line.heard.count(b"amqp:resource-limit-exceeded") == 1
    line.line.sendall(b"".join(frame(0x16, b"\x52" + bytes((n,)), TRUE) for n in range(3))
                      + attach(9, "A", properties=small))
    line.until(b"link9")
    granted = GRANTED[1:]  # whatever its handle is
    line.until_count(granted, 1 + line.heard.partition(b"link9")[0].count(granted))
    assert line.heard.count(b"amqp:resource-limit-exceeded") == 1


# ends


def test_what_was_sent_settled_is_put_though_its_client_leaves(
        world: AmqpWorld, peer: Peer) -> None:
    sender = peer.sender("A")
    for _ in range(CREDIT):
        peer.send(sender, MESSAGE, settled=True)
        peer.flush()
    sender.close()
    peer.connection.close()
    peer.flush()
    await_depth(world, "A", CREDIT)


def test_aborted_ones_cost_no_credit(peer: Peer) -> None:
    sender = peer.sender("A")
    for n in range(3 * CREDIT):
        peer.until(lambda: sender.credit > 0)
        made = sender.delivery(f"a{n}")
        sender.stream(MESSAGE[:5])
        peer.flush()
        made.abort()
    peer.until(lambda: sender.credit > 0)
    peer.send(sender, MESSAGE)
    peer.until(lambda: Delivery.ACCEPTED in peer.states)


def test_who_reads_nothing_and_says_nothing_gives_back(world: AmqpWorld) -> None:
    """Its line is full, so it cannot be told that its time is over."""
    with world.connect() as native:
        for _ in range(100):
            native.put("A", bytes(90_000))
    credit = frame(0x13, ZERO, b"\x70" + u32(1 << 20), ZERO, b"\x70" + u32(1 << 20), ZERO, ZERO,
                   b"\x70" + u32(1000))
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", world.await_port()))
        line.sendall(OPENED + attach(0, "A", takes=True) + credit)
        assert line.recv(1)
        taken = 0
        with world.connect() as native, native.reader("A", batch=100) as reader:
            while taken < 100:
                for message in reader.next(timeout_s=WAIT_S):
                    message.done()
                    taken += 1


def test_links_that_only_the_server_ends_are_bounded(lined: Callable[[bytes], Line]) -> None:
    line = lined(b"".join(attach(n, "NOSUCH") for n in range(100)))
    line.until(b"and not by the client")


# words that make no sense


def test_a_body_that_nests_without_end_is_rejected(lined: Callable[[bytes], Line]) -> None:
    inner = b"\x45"
    for _ in range(3000):
        inner = many(inner)
    line = lined(attach(0, "A"))
    line.until(GRANTED)
    line.line.sendall(transfer(0, b"\x00\x53\x77" + inner))
    line.until(b"amqp:decode-error")
    line.line.sendall(transfer(1, b"\x00\x53\x74" + many(b"\x45")))  # properties are no list
    line.until(b"has no")


def test_a_transaction_that_was_not_declared(lined: Callable[[bytes], Line]) -> None:
    line = lined(attach(0, "A"))
    line.until(GRANTED)
    line.line.sendall(transfer(0, state=b"\x00\x53\x34" + many(b"\xa0\x01t")))
    line.until(b"amqp:transaction:unknown-id")


def test_a_filter_of_another_type(lined: Callable[[bytes], Line]) -> None:
    line = lined(attach(0, "A", takes=True, more=(NULL,) * 6 + (many(text("x")),)))
    line.until(b"amqp:")
    assert b"invalid-field" in line.heard or b"amqp:decode-error" in line.heard


@pytest.mark.parametrize("takes", [True, False])
def test_an_address_that_is_no_text(lined: Callable[[bytes], Line], *, takes: bool) -> None:
    """It is the mistake of who sent it (found by mutated frames)."""
    line = lined(attach(0, "AB", takes=takes).replace(b"\xa1\x02AB", b"\xa1\x02\xb2\xb2"))
    line.until(b"amqp:invalid-field")


def test_a_message_that_makes_no_sense_holds_up_no_other(world: AmqpWorld) -> None:
    """Native programs may name a property as they like."""
    with world.connect() as native:
        native.queues.define("FEW", attempts_max=2, retry_delay_ms=0)
        for name, value in (("amqp.types", "[["), ("amqp.group-sequence", "9" * 30),
                            ("amqp.body", "value"), ("amqp.creation-time", "inf")):
            native.put("FEW", b"\xff", properties={name: value})
        native.put("FEW", b"good")
    connection = BlockingConnection(world.url, timeout=WAIT_S, heartbeat=1)
    for options in (Copy(), None):
        receiver = connection.create_receiver("FEW", name=str(options), credit=1, options=options)
        message = receiver.receive(timeout=WAIT_S)
        assert bytes(message.body) == b"good"
    receiver.accept()
    connection.close()
    world.left("FEW")
    with world.connect() as native:
        native.queues.delete("FEW")


# places


def test_a_user_has_so_many_receivers_and_temporary_queues(
        lined: Callable[[bytes], Line]) -> None:
    line = lined(b"".join(attach(n, "A", takes=True) for n in range(6)))
    line.until(b"amqp_user_receivers_max")
    dynamic = b"\x00\x53\x28" + many(NULL, NULL, NULL, NULL, TRUE)
    line = lined(b"".join(frame(
        0x12, text(f"d{n}"), b"\x70" + u32(n), TRUE, NULL, NULL, dynamic, NULL) for n in range(4)))
    line.until(b"temporary queues of a user")


def test_an_address_has_so_many_connections_that_say_nothing(tmp_path: Path) -> None:
    """Over TLS, too, before the handshake."""
    trustme = pytest.importorskip("trustme")
    certificate = trustme.CA().issue_cert("localhost")
    (tmp_path / "own.pem").write_bytes(
        certificate.private_key_pem.bytes() + certificate.cert_chain_pems[0].bytes())
    (tmp_path / "own.pem").chmod(0o600)
    with amqp_world(tmp_path, amqps_listen_port=0, amqp_client_waiting_max=5,
                    amqp_tls_certificate=tmp_path / "own.pem",
                    amqp_handshake_timeout_s=600) as world:
        for file in ("amqp.port", "amqps.port"):
            lines = [socket.create_connection(("127.0.0.1", world.await_port(file)), WAIT_S)
                     for _ in range(6)]
            with contextlib.suppress(ConnectionError):
                assert lines[5].recv(1) == b""
            for line in lines:
                line.close()
            until(lambda: any(e.get("reason") == "amqp_client_waiting_max"
                              for e in world.events(1589)))


# the manager


def test_a_sender_waits_for_a_manager_that_is_away(tmp_path: Path) -> None:
    with amqp_world(tmp_path) as world:
        connection = BlockingConnection(world.url, timeout=WAIT_S)
        sender = connection.create_sender("A")
        world.kill(MANAGER)
        with pytest.raises(Exception, match="timed out"):
            sender.send(Message(body=b"x", durable=True), timeout=1)
        world.start(MANAGER)
        world.ready()
        await_depth(world, "A", 1)
        sender.send(Message(body=b"y", durable=True))
        connection.close()
        assert not world.events(BUG)


def test_a_stop_does_not_wait_for_a_manager_that_is_stopped(tmp_path: Path) -> None:
    """At a shutdown of the host nobody lets the manager go on. What was accepted is there; what
    nobody has answered for may be."""
    with amqp_world(tmp_path) as world:
        conf = world.conf / "omq.conf"
        conf.write_text(conf.read_text().replace(
            "drain_timeout_s = 2", "drain_timeout_s = 3000\nstop_timeout_s = 3600"))
        world.stop(SERVER)
        world.amqp()
        connection = BlockingConnection(world.url, timeout=WAIT_S)
        sender = connection.create_sender("A")
        sender.send(Message(body=b"0", durable=True))
        os.kill(world.children[MANAGER].pid, signal.SIGSTOP)
        try:
            with pytest.raises(Exception, match="timed out"):
                sender.send(Message(body=b"1", durable=True), timeout=1)
            server = world.children[SERVER]
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
        finally:
            os.kill(world.children[MANAGER].pid, signal.SIGCONT)
        (said,) = [event for event in world.events(1008) if event.get("at") == "stop"]
        assert "has not answered for 1 messages" in said["reason"]
        connection.timeout = 1  # its server is gone, and proton waits for an answer
        with contextlib.suppress(Exception):
            connection.close()
        world.ready()
        assert [message.body for message in world.left("A")] in ([b"0"], [b"0", b"1"])


def test_a_manager_that_hangs_leaves_puts_in_doubt_or_waiting(tmp_path: Path) -> None:
    """Nothing is accepted that is not on the disk, and nothing refused that may be."""
    with amqp_world(tmp_path) as world:
        connection = BlockingConnection(world.url, timeout=WAIT_S)
        sender = connection.create_sender("A")
        sender.send(Message(body=b"0", durable=True))
        os.kill(world.children[MANAGER].pid, signal.SIGSTOP)
        try:
            with pytest.raises(Exception, match="timed out"):
                sender.send(Message(body=b"1", durable=True), timeout=1)
        finally:
            os.kill(world.children[MANAGER].pid, signal.SIGCONT)
        await_depth(world, "A", 2)
        sender.send(Message(body=b"2", durable=True))
        connection.close()
        assert [message.body for message in world.left("A")] == [b"0", b"1", b"2"]
        assert not world.events(BUG)
