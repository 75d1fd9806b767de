"""amqp.server and clients of AMQP 0-9-1 that do harm, by mistake or not: what each may take is
bounded, and the others go on."""

from __future__ import annotations

import os
import random
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from omq.format.index import EntryState
from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world, needs_proton
from tests.process.instance import MANAGER
from tests.waiting import until

needs_proton()
pytest.importorskip("pamqp", reason="the extra `amqp`: pamqp")
from pamqp import commands, header  # noqa: E402

from tests.process.pika_clients import closed, connected, got, pika, refused  # noqa: E402
from tests.process.raw_amqp091 import HEADER, WAIT_S, frame, opening, published, raw  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

UNSETTLED, OUTGOING = 20, 65536
BEAT = b"\x08\0\0\0\0\0\0\xce"
MUTANTS = int(os.environ.get("OMQ_AMQP091_FRAMES", "150"))
SEED = int(os.environ.get("OMQ_AMQP_SEED", "1"))


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp091")) as made:
        made.stop(SERVER)
        made.amqp(amqp_users=made.users("daemon", "bin"), amqp_close_timeout_s=1,
                  amqp_handshake_timeout_s=2, amqp_unsettled_max=UNSETTLED,
                  amqp_outgoing_bytes_max=OUTGOING, amqp_client_logins_max=1000,
                  amqp_user_memory_bytes_max=16 << 20)
        yield made


@pytest.fixture
def world(instance: AmqpWorld) -> Iterator[AmqpWorld]:
    """The same for all; its queues are empty, and the server has made no mistake."""
    yield instance
    closed()
    instance.clear("A", "B")
    assert [event for event in instance.events() if event.get("event") == "BUG"] == []


def active(world: AmqpWorld) -> int:
    """Messages of A that readers have."""
    with world.connect() as native:
        return sum(row.state is EntryState.ACTIVE for row in native.browse("A"))


def broke(world: AmqpWorld, reason: str) -> bool:
    return any(reason in event["reason"] for event in world.events(1590))


def test_so_many_are_not_acknowledged(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"x"] * 50)
    with raw(world) as client:
        client.says(commands.Basic.Consume(queue="A"), commands.Basic.Consume(queue="A"))
        for _ in range(UNSETTLED):
            client.awaits(commands.Basic.Deliver)
        client.says(commands.Queue.Declare(queue="A", passive=True))
        while not isinstance(found := client.hears(), commands.Queue.DeclareOk):
            assert not isinstance(found, commands.Basic.Deliver)


def own_kib(world: AmqpWorld) -> int:
    """Of the server's memory, without what it shares."""
    status = Path(f"/proc/{world.children[SERVER].pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0])


def test_who_does_not_read_its_line(world: AmqpWorld) -> None:
    """Is given so many bytes; of what is taken for it the rest is not in memory."""
    with world.connect() as native:
        for _ in range(UNSETTLED):
            native.put("A", bytes(3_000_000))
    before = own_kib(world)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        line.connect(("127.0.0.1", world.await_port()))
        line.sendall(opening() + frame.marshal(commands.Basic.Consume(queue="A", nowait=True), 1))
        until(lambda: active(world), world.said)
        channel = connected(world).channel()
        for _ in range(20):
            channel.queue_declare("A", passive=True)
        assert own_kib(world) - before < 30_000


@pytest.mark.parametrize("asks", ["published", "asked"])
def test_who_does_not_read_what_it_has_asked_for(world: AmqpWorld, asks: str) -> None:
    """Its line is read no further: it cannot send without end."""
    data = (published("NONE", b"x" * 4000, mandatory=True) if asks == "published" else
            frame.marshal(commands.Queue.Declare(queue="A", passive=True), 1)) * 100
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        line.connect(("127.0.0.1", world.await_port()))
        line.sendall(opening())
        line.settimeout(1)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 64 << 20:
                sent += line.send(data[sent % len(data) :])
        assert sent < 32 << 20
    connected(world).channel().queue_declare("A", passive=True)


def test_who_ends_half_of_its_line_and_does_not_read(world: AmqpWorld) -> None:
    """It wants no heart-beats either: what it holds comes back all the same."""
    with world.connect() as native:
        for _ in range(UNSETTLED):
            native.put("A", bytes(3_000_000))
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        line.connect(("127.0.0.1", world.await_port()))
        line.sendall(opening() + frame.marshal(commands.Basic.Consume(queue="A", nowait=True), 1))
        until(lambda: active(world), world.said)
        line.shutdown(socket.SHUT_WR)
        until(lambda: not active(world), world.said)


def test_frames_of_a_body_without_bytes_are_not_kept(world: AmqpWorld) -> None:
    before = own_kib(world)
    with raw(world) as client:
        client.says(commands.Basic.Publish(routing_key="A"),
                    header.ContentHeader(0, 2, commands.Basic.Properties()))
        empty = b"\x03\x00\x01\0\0\0\0\xce" * 10_000
        for _ in range(100):
            client.line.sendall(empty)
        client.says(commands.Channel.Open(), channel=2)
        client.awaits(commands.Channel.OpenOk)
        assert own_kib(world) - before < 4_000
        client.line.sendall(b"\x03\x00\x01\0\0\0\1a\xce" + b"\x03\x00\x01\0\0\0\1b\xce")
        client.says(commands.Queue.Declare(queue="A", passive=True))
        client.awaits(commands.Queue.DeclareOk)
    assert [message.body for message in world.left("A")] == [b"ab"]


def test_a_header_on_each_channel_is_memory_too(world: AmqpWorld) -> None:
    """And their contents never come."""
    properties = commands.Basic.Properties(headers={"x": "y" * 60_000})
    with raw(world) as client:
        with suppress(ConnectionError):
            for number in range(2, 200):
                client.says(commands.Channel.Open(), commands.Basic.Publish(routing_key="A"),
                            header.ContentHeader(0, 1, properties), channel=number)
        closed = client.awaits(commands.Connection.Close)
        assert closed.reply_code == 506 and "amqp_memory_bytes_max" in closed.reply_text


def test_questions_of_all_channels_that_wait_are_bounded(world: AmqpWorld) -> None:
    """A manager that does not answer, and large tables in what it is asked for: the line is read
    no further."""
    asked = commands.Queue.Declare(queue="A", passive=True)
    large = commands.Queue.Declare(queue="A", arguments={f"{n:05}": None for n in range(7000)})
    with raw(world) as client:
        client.line.sendall(b"".join(
            frame.marshal(commands.Channel.Open(), number) for number in range(2, 256)))
        for _ in range(2, 256):
            client.awaits(commands.Channel.OpenOk)
        manager = world.children[MANAGER]
        os.kill(manager.pid, signal.SIGSTOP)
        try:
            client.line.settimeout(2)
            sent = 0
            with pytest.raises(TimeoutError):
                for number in range(1, 256):
                    client.says(asked, large, channel=number)
                    sent += 1
            assert sent < 200
        finally:
            os.kill(manager.pid, signal.SIGCONT)
    world.ready()


@pytest.mark.parametrize("head", [60_000, 0])
def test_messages_without_bodies_are_memory_too(world: AmqpWorld, head: int) -> None:
    """Their properties are reckoned, and what each one costs, in transactions as well."""
    properties = commands.Basic.Properties(headers={"x": "y" * head})
    one = b"".join((frame.marshal(commands.Basic.Publish(routing_key="A"), 1),
                    frame.marshal(header.ContentHeader(0, 0, properties), 1)))
    with raw(world) as client:
        client.says(commands.Tx.Select())
        client.awaits(commands.Tx.SelectOk)
        with suppress(ConnectionError):
            for _ in range(400 if head else 90):
                client.line.sendall(one * (1 if head else 100))
        closed = client.awaits(commands.Connection.Close)
        assert closed.reply_code == 506 and "amqp_memory_bytes_max" in closed.reply_text


def test_who_says_nothing(world: AmqpWorld) -> None:
    """Before it has opened, in half of a frame, and when it has promised heart-beats."""
    for said in (b"", HEADER, HEADER[:5]):
        with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
            line.sendall(said)
            while line.recv(65536):
                pass
    with raw(world, heartbeat=1) as client:
        client.line.sendall(b"\x01\x00\x01\x00\x00\xff")
        while client.hears() is not None:
            pass
    assert broke(world, "amqp_handshake_timeout_s") and broke(world, "no heart-beat came")


def test_heart_beats_keep_a_line(world: AmqpWorld) -> None:
    """Both ways: more than two of them pass, and nothing else does."""
    with raw(world, heartbeat=1) as client:
        beats = 0
        while beats < 4:
            beats += client.line.recv(65536).count(BEAT)
            client.line.sendall(BEAT)
        client.says(commands.Queue.Declare(queue="A", passive=True))
        client.awaits(commands.Queue.DeclareOk)


def test_so_many_channels(world: AmqpWorld) -> None:
    with raw(world) as client:
        client.says(commands.Channel.Open(), channel=256)
        assert client.awaits(commands.Connection.Close).reply_code == 504


def test_frames_over_what_was_agreed(world: AmqpWorld) -> None:
    with raw(world, frame_max=4096) as client:
        client.line.sendall(b"\x03\x00\x01" + (4089).to_bytes(4, "big"))
        assert client.awaits(commands.Connection.Close).reply_code == 501
    with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
        line.sendall(opening(frame_max=100))
        data = b""
        while more := line.recv(65536):
            data += more
    assert b"frame-max is 4096 at least" in data


def test_a_header_over_what_was_agreed(world: AmqpWorld) -> None:
    """It cannot be split. Who publishes it is refused; what was put before is there."""
    properties = commands.Basic.Properties(headers={"x": "y" * 5000})
    with raw(world, frame_max=4096) as client:
        client.says(commands.Confirm.Select())
        client.line.sendall(published("A", b"before", mode=2))
        client.awaits(commands.Basic.Ack)
        client.says(commands.Basic.Publish(routing_key="A"), header.ContentHeader(0, 0, properties))
        closed = client.awaits(commands.Connection.Close)
        assert closed.reply_code == 501 and "a frame of" in closed.reply_text
    assert [message.body for message in world.left("A")] == [b"before"]


@pytest.mark.parametrize("how", ["consumed", "got"])
def test_a_message_whose_header_is_over_what_was_agreed(world: AmqpWorld, how: str) -> None:
    """A consumer that takes small frames is not given it: each try is a failed attempt, and it ends
    on POISON with the reason. The others come; a client with larger frames has it."""
    large = {f"p{i}": "y" * 1000 for i in range(5)}
    with world.connect() as native:
        native.put("A", b"large", properties=large)
        native.put("A", b"small", properties={"x": "y"})
    large_frames = connected(world).channel()
    properties, body = got(large_frames)[1:]
    assert (body, properties.headers) == (b"large", large)
    large_frames.close()
    with raw(world, frame_max=4096) as client:
        if how == "consumed":
            client.says(commands.Basic.Consume(queue="A"))
            delivered = client.awaits(commands.Basic.Deliver)
        else:
            found: Any = None
            while not isinstance(found, commands.Basic.GetOk):
                client.says(commands.Basic.Get(queue="A"))
                found = client.hears()
                assert isinstance(found, commands.Basic.GetOk | commands.Basic.GetEmpty)
            delivered = found
        assert isinstance(client.hears(), header.ContentHeader)
        assert client.hears().value == b"small"
        client.says(commands.Basic.Ack(delivered.delivery_tag))
        with world.connect() as native, native.reader("POISON") as reader:
            if how == "got":  # nobody takes it meanwhile
                client.says(commands.Basic.Consume(queue="A"))
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.body == b"large" and message.failure is not None
            assert message.failure.attempts == 200, "the queue's attempts_max"
            assert "4096" in message.failure.reason and "header" in message.failure.reason
            message.done()


def test_what_came_before_a_mistake_is_put(world: AmqpWorld) -> None:
    """In the same write, of a client that then is cut off: nobody said that it is not wanted."""
    with raw(world) as client:
        client.says(commands.Confirm.Select())
        client.awaits(commands.Confirm.SelectOk)
        for number in range(2):  # after these its puts need no thread
            client.line.sendall(published("A", b"%d" % number, mode=2))
            client.awaits(commands.Basic.Ack)
        for number in range(2, 200):  # they come while those before are under way
            client.line.sendall(published("A", b"%d" % number, mode=2))
        client.line.sendall(b"".join(
            published("A", b"%d" % number, mode=2) for number in range(200, 209))
            + published("A", b"x")[:-1] + b"!")
        client.awaits(commands.Connection.Close)
    assert [message.body for message in world.left("A")] == [
        b"%d" % number for number in range(209)]


def test_a_body_in_small_frames(world: AmqpWorld) -> None:
    body = bytes(range(256)) * 100
    connection = connected(world, frame_max=4096)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "A", body)
    assert got(channel, auto_ack=True)[2] == body


def test_a_right_is_taken_away(world: AmqpWorld) -> None:
    """At a reload: of who consumes, and of who publishes."""
    authority = world.conf / "authority.conf"
    before = authority.read_text()
    connection = connected(world)
    consumes, publishes = connection.channel(), connection.channel()
    consumes.basic_consume("A", lambda *given: None)
    publishes.confirm_delivery()
    publishes.basic_publish("", "A", b"x")
    authority.write_text(before.replace("user:daemon = put get", "user:daemon = browse"))
    world.children[SERVER].signal(signal.SIGHUP)
    try:
        until(lambda: connection.process_data_events(0.1) or consumes.is_closed, world.said)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            publishes.basic_publish("", "A", b"x")
        assert caught.value.reply_code == 403
    finally:
        authority.write_text(before)
        world.children[SERVER].signal(signal.SIGHUP)


def test_a_stop_tells_clients_to_come_again(world: AmqpWorld) -> None:
    with world.connect() as native:
        native.put_many("A", [b"1", b"2"])
    connection = connected(world)
    channel = connection.channel()
    got(channel)
    world.children[SERVER].signal(signal.SIGTERM)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        while True:
            connection.process_data_events(1)
    assert caught.value.reply_code == 320
    world.children[SERVER].wait()
    assert [(each.body, each.attempts) for each in world.left("A")] == [(b"1", 0), (b"2", 0)]
    world.start(SERVER)
    connected(world).channel().queue_declare("A", passive=True)


CONVERSATION = opening() + b"".join((
    published("A", b"hello"),
    *(frame.marshal(each, 1) for each in (
        commands.Confirm.Select(), commands.Basic.Qos(prefetch_count=3),
        commands.Queue.Declare(queue="q", exclusive=True, arguments={"x-message-ttl": 7}),
        commands.Exchange.Declare(exchange="e", exchange_type="topic"),
        commands.Queue.Bind(queue="q", exchange="e", routing_key="a.#"),
        commands.Basic.Consume(queue="A", consumer_tag="t"), commands.Basic.Ack(1, multiple=True),
        commands.Basic.Get(queue="A"), commands.Basic.Cancel("t"), commands.Tx.Select(),
        commands.Queue.Purge(queue="q"), commands.Queue.Delete(queue="q"),
        commands.Channel.Close(200, "", 0, 0)))))


def test_what_comes_after_a_close_is_read_and_means_nothing(world: AmqpWorld) -> None:
    """A client whose channels have something to write yet: the answer is heard all the same, and
    the line is not reset."""
    with raw(world) as client:
        client.says(commands.Connection.Close(200, "", 0, 0), channel=0)
        client.line.sendall(published("A", b"late" * 1000) * 5000)
        client.awaits(commands.Connection.CloseOk)
        assert client.line.recv(1) == b""
    assert world.left("A") == []


def test_mutated_frames(world: AmqpWorld) -> None:
    """They end their own connection at most; `OMQ_AMQP091_FRAMES` are more of them."""
    chance = random.Random(SEED)
    for _ in range(MUTANTS):
        data = bytearray(CONVERSATION)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(8, len(data))
            what = chance.randrange(3)
            if what == 0:
                data[at] = chance.randrange(256)
            elif what == 1:
                del data[at : at + chance.randint(1, 8)]
            else:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
        with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            try:
                while line.recv(65536):
                    pass
            except ConnectionResetError:
                pass
    connected(world).channel().queue_declare("A", passive=True)


def test_tls_and_a_certificate_for_a_password(tmp_path: Path) -> None:
    ours = trustme.CA()
    own, client = ours.issue_cert("localhost"), ours.issue_cert("x", common_name="daemon")
    for made, name in ((own, "own"), (client, "client")):
        path = tmp_path / f"{name}.pem"
        path.write_bytes(made.private_key_pem.bytes() + made.cert_chain_pems[0].bytes())
        path.chmod(0o600)
    ours.cert_pem.write_to_path(tmp_path / "ca.pem")
    with amqp_world(tmp_path, amqp_anonymous_user="", amqps_listen_port=0,
                    amqp_tls_certificate=tmp_path / "own.pem",
                    amqp_tls_ca_file=tmp_path / "ca.pem") as world:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        context.load_cert_chain(tmp_path / "client.pem")
        said: dict[str, Any] = {
            "port": world.await_port("amqps.port"),
            "ssl_options": pika.SSLOptions(context, "localhost")}
        channel = connected(world, credentials=pika.credentials.ExternalCredentials(),
                            **said).channel()
        channel.confirm_delivery()
        channel.basic_publish("", "A", b"x")
        assert got(channel, auto_ack=True)[2] == b"x"
        assert refused(channel.connection, lambda other: other.basic_get("B")) == 403
        for user in ("daemon", "nobody"):
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                connected(world, user, **said)
        closed()
