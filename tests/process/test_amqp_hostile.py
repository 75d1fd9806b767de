"""What amqp.server makes of clients that mean no good, or are broken: others do not notice.

The frames are those of a real client, cut, mutated and repeated; `make crash` has more of them."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.process.amqp_world import PASSWORD, SERVER, AmqpWorld, amqp_world, needs_proton

needs_proton()

from proton import ConnectionException, Message, SSLDomain  # noqa: E402
from proton.utils import BlockingConnection  # noqa: E402

from tests.process.amqp_frames import (  # noqa: E402
    NULL,
    OPENED,
    TRUE,
    ZERO,
    frame,
    mutated,
    u32,
)

WAIT_S = 120
FRAMES = int(os.environ.get("OMQ_AMQP_FRAMES", "10000"))
SEED = int(os.environ.get("OMQ_AMQP_SEED", "20"))
LOGIN = b"AMQP\x03\x01\x00\x00"


def nested(depth: int) -> bytes:
    """A frame of SASL with a list in a list in a list."""
    inner = b"\x45"
    for _ in range(depth):
        inner = b"\xd0" + (len(inner) + 4).to_bytes(4, "big") + bytes((0, 0, 0, 1)) + inner
    body = b"\x00\x53\x41" + inner
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp"), amqp_message_bytes_max=100_000,
                    amqp_connections_max=150) as made:
        yield made


@pytest.fixture
def other(world: AmqpWorld) -> Iterator[None]:
    """Another client, which sends and receives before and after."""
    def works() -> None:
        connection = BlockingConnection(world.url, timeout=WAIT_S)
        sender = connection.create_sender("B")
        receiver = connection.create_receiver("B", credit=1)
        sender.send(Message(body=b"x", durable=True))
        assert receiver.receive(timeout=WAIT_S).durable
        receiver.accept()
        connection.close()

    works()
    world.left("A")
    yield
    works()
    world.left("A")
    assert not world.events(1007), world.events(1007)


def reached(world: AmqpWorld, data: bytes, *, ends: bool = True) -> bytes:
    """Send this; what comes back until the server has enough (or `ends`: until we have)."""
    with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
        answers = b""
        with contextlib.suppress(ConnectionError):
            line.sendall(data)
            if ends:
                line.shutdown(socket.SHUT_WR)
            while chunk := line.recv(65536):
                answers += chunk
        return answers


@pytest.mark.parametrize("data", [
    b"", b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x00\x09\x00", b"\x16\x03\x01\x02\x00\x01",
    LOGIN + b"\xff\xff\xff\xff\x02\x01\x00\x00", LOGIN + b"\x00\x00\x00\x08\x02\x01\x00\x00",
    LOGIN + b"\x00\x00\x00\x20\x02\x00\x00\x00" + bytes(24), b"AMQP\x00\x01\x00\x00" + bytes(200),
    b"AMQP\x00\x01\x00\x00" + b"\xff\xff\xff\xff\x02\x00\x00\x00", os.urandom(4096),
    LOGIN + nested(450)])
def test_garbage_is_answered_by_the_book(world: AmqpWorld, other: None, data: bytes) -> None:
    answer = reached(world, data)
    assert answer == b"" or answer.startswith(b"AMQP")


def test_half_open_connections_cost_nobody_else(world: AmqpWorld, other: None) -> None:
    lines = [socket.create_connection(("127.0.0.1", world.await_port())) for _ in range(100)]
    for line in lines[::2]:
        line.send(LOGIN[:5])
    works = BlockingConnection(world.url, timeout=WAIT_S)
    works.create_sender("A")
    works.close()
    for line in lines:
        line.close()


def recorded(world: AmqpWorld) -> bytes:
    """All that a real client says while it sends, receives and browses."""
    said = bytearray()
    listening = socket.create_server(("127.0.0.1", 0))

    def pass_on() -> None:
        near, _ = listening.accept()
        far = socket.create_connection(("127.0.0.1", world.await_port()))

        def back() -> None:
            with contextlib.suppress(OSError):
                while data := far.recv(65536):
                    near.sendall(data)

        backward = threading.Thread(target=back)
        backward.start()
        with near, far:
            with contextlib.suppress(OSError):
                while data := near.recv(65536):
                    said.extend(data)
                    far.sendall(data)
            far.shutdown(socket.SHUT_RDWR)
            backward.join()

    thread = threading.Thread(target=pass_on)
    thread.start()
    with listening:
        client = BlockingConnection(f"127.0.0.1:{listening.getsockname()[1]}", timeout=WAIT_S)
        sender = client.create_sender("A")
        receiver = client.create_receiver("A", credit=5)
        for n in range(5):
            sender.send(Message(body={"n": n}, id=f"m{n}", durable=True, properties={"a": n}))
            receiver.receive(timeout=WAIT_S)
            receiver.accept()
        client.close()
        thread.join()
    return bytes(said)


def frames_of(said: bytes) -> list[bytes]:
    at, out = 8 if said[4] == 0 else 0, []
    if not at:  # SASL first
        at = 8 + int.from_bytes(said[8:12], "big") + 8
    out.append(said[:at])
    while at < len(said):
        size = int.from_bytes(said[at : at + 4], "big")
        out.append(said[at : at + size])
        at += size
    return out


def test_mutated_frames_harm_nobody(world: AmqpWorld, other: None) -> None:
    head, *frames = frames_of(recorded(world))
    chosen = random.Random(SEED)
    sent = 0
    while sent < FRAMES:
        stream = mutated(frames, chosen)
        reached(world, head + b"".join(stream))
        sent += len(stream)


@pytest.mark.parametrize(("credit", "held"), [(b"\x7f\xff\xff\xff", 1000), (b"\xff" * 4, 0)])
def test_credit_without_end_is_bounded(world: AmqpWorld, other: None, credit: bytes, held: int
                                       ) -> None:
    """Above 2^31-1 the library takes it for none; below it amqp_unsettled_max counts."""
    with world.connect() as native:
        native.put_many("A", [b"%d" % n for n in range(1500)])
    with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
        line.sendall(taker(2**31 - 1).replace(b"\x70\x7f\xff\xff\xff", b"\x70" + credit))
        got = b""
        while got.count(b"\x00Su") < held or b"\x00S\x12" not in got:  # data, an attach
            got += line.recv(65536)
        with world.connect() as native, native.reader("A", batch=1000) as reader:
            assert len(reader.next(timeout_s=WAIT_S)) >= 500


def test_a_message_over_the_limit_ends_its_link_alone(world: AmqpWorld, other: None) -> None:
    client = BlockingConnection(world.url, timeout=WAIT_S)
    good = client.create_sender("A", name="good")
    large = client.create_sender("A", name="large")
    with pytest.raises(Exception, match="message-size-exceeded"):
        large.send(Message(body=bytes(8_000_000), inferred=True))
    good.send(Message(body=b"x"))
    client.close()
    assert len(world.left("A")) == 1


def test_who_does_not_read_holds_nobody_up(world: AmqpWorld, other: None) -> None:
    """A client that takes and never reads its line: what waits for it is bounded."""
    body = bytes(90_000)
    with world.connect() as native:
        native.put_many("A", [body] * 200)
    stream = taker(1000)
    with socket.create_connection(("127.0.0.1", world.await_port())) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(stream)
        line.recv(1)
        with world.connect() as native, native.reader("A", batch=50) as reader:
            assert len(reader.next(timeout_s=WAIT_S)) > 0
    world.left("A")


ECHO = frame(0x13, NULL, b"\x70" + u32(9), ZERO, b"\x70" + u32(9), *[NULL] * 5, TRUE)


def test_who_does_not_read_what_it_has_asked_for(world: AmqpWorld, other: None) -> None:
    """Its line is read no further: it cannot ask without end."""
    data = ECHO * 1000
    with socket.socket() as line:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            line.setsockopt(socket.SOL_SOCKET, option, 8192)
        line.connect(("127.0.0.1", world.await_port()))
        line.sendall(OPENED)
        line.settimeout(1)
        sent = stuck = 0
        with contextlib.suppress(ConnectionError):  # cut off, for it is silent then
            while sent < 24 << 20 and stuck < 3:
                try:
                    sent += line.send(data[sent % len(data) :])
                    stuck = 0
                except TimeoutError:  # perhaps it is only late; others have their turns
                    client = BlockingConnection(world.url, timeout=WAIT_S)
                    client.create_sender("A").send(Message(body=b"x"))
                    client.close()
                    stuck += 1
        assert sent < 24 << 20


def taker(credit: int) -> bytes:
    """What a client says that gives much credit, up to there."""
    from proton import Collector, Connection, Transport

    connection, transport = Connection(), Transport()
    connection.collect(Collector())
    transport.bind(connection)
    connection.container = "slow"
    connection.open()
    session = connection.session()
    session.open()
    receiver = session.receiver("slow")
    receiver.source.address = "A"
    receiver.open()
    receiver.flow(credit)
    out = b""
    while (size := transport.pending()) > 0:
        out += bytes(transport.peek(size))
        transport.pop(size)
    return out


def test_wrong_passwords_are_not_checked_without_end(tmp_path: Path) -> None:
    with amqp_world(tmp_path, amqp_client_logins_max=3, amqp_anonymous_user="") as world:
        world.stop(SERVER)
        world.amqp(amqp_users=world.users("daemon"), amqp_anonymous_user="",
                   amqp_client_logins_max=3)
        for _ in range(3):
            with pytest.raises(ConnectionException):
                BlockingConnection(world.url, timeout=WAIT_S, allow_insecure_mechs=True,
                                   user="daemon", password="wrong")
        with pytest.raises(ConnectionException):
            BlockingConnection(world.url, timeout=WAIT_S, allow_insecure_mechs=True,
                               user="daemon", password=PASSWORD)
        if os.geteuid() == 0:
            assert _gets_in(world, uid=1), "another account of this host is not kept out"


def _gets_in(world: AmqpWorld, *, uid: int) -> bool:
    """Whether this account can log in, with the right password."""
    url = world.url  # of a file that it may not read
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setresuid(uid, uid, uid)
            BlockingConnection(url, timeout=WAIT_S, allow_insecure_mechs=True,
                               user="daemon", password=PASSWORD).close()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def test_tls_and_certificates_of_clients(tmp_path: Path) -> None:
    ours, foreign = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = ours.issue_cert("localhost", "127.0.0.1")
    (tmp_path / "own.pem").write_bytes(
        certificate.private_key_pem.bytes() + certificate.cert_chain_pems[0].bytes())
    (tmp_path / "own.pem").chmod(0o600)
    with amqp_world(tmp_path, amqps_listen_port=0, amqp_listen_port=0, amqp_anonymous_user="",
                    amqp_tls_certificate=tmp_path / "own.pem",
                    amqp_tls_ca_file=tmp_path / "ca.pem") as world:
        port = world.await_port("amqps.port")

        def greeted(who: trustme.CA | None, version: ssl.TLSVersion | None = None) -> bytes:
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            if version is not None:
                context.maximum_version = version
            if who is not None:
                who.issue_cert("client", common_name="daemon").configure_cert(context)
            with socket.create_connection(("127.0.0.1", port), WAIT_S) as raw, \
                    context.wrap_socket(raw, server_hostname="localhost") as line:
                found = b""
                with contextlib.suppress(OSError):  # an alert behind the handshake of TLS 1.3
                    line.sendall(LOGIN)
                    while len(found) < 24 and (chunk := line.recv(100)):
                        found += chunk
                return found

        assert b"EXTERNAL" in greeted(ours)
        assert b"EXTERNAL" not in greeted(None)
        assert greeted(foreign) == b""
        with pytest.raises(OSError), pytest.warns(DeprecationWarning):
            greeted(ours, ssl.TLSVersion.TLSv1_1)
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        client = ours.issue_cert("client", common_name="daemon")
        (tmp_path / "client.pem").write_bytes(client.cert_chain_pems[0].bytes())
        (tmp_path / "client.key").write_bytes(client.private_key_pem.bytes())
        domain.set_credentials(str(tmp_path / "client.pem"), str(tmp_path / "client.key"), "")
        domain.set_trusted_ca_db(str(tmp_path / "ca.pem"))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, str(tmp_path / "ca.pem"))
        connection = BlockingConnection(f"amqps://localhost:{port}", timeout=WAIT_S,
                                        ssl_domain=domain, allowed_mechs="EXTERNAL")
        connection.create_sender("A").send(Message(body=b"x", durable=True))
        connection.close()
        assert len(world.left("A")) == 1
        assert [e["user"] for e in world.events(1587)] == ["daemon"]
