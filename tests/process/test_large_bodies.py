"""Large bodies through the manager: what a member may send, and what a hostile one gets for it."""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omq
from omq.base import limits
from omq.base.checksum import crc32c
from omq.base.errors import (
    BadRequest,
    ContainerUnknown,
    MessageTooLong,
    NoAuthority,
    OmqError,
    TooManyContainers,
)
from omq.format.wire import Operation
from omq.ipc.client.connection import Client
from omq.ipc.wire import sealed_body
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import WAIT_S
from tests.process.trust_world import CLIENTS, MEMBER, OTHER, TrustInstance, trust_instance

LARGE = 300_000
BODY = os.urandom(LARGE)


@pytest.fixture
def trusting() -> Iterator[TrustInstance]:
    """A service user's instance that serves."""
    with trust_instance() as made:
        made.start(WRITER, MANAGER)
        made.ready()
        yield made


def containers(made: TrustInstance) -> list[Path]:
    found = [Path(folder, name) for folder, _, names in os.walk(made.paths.data) for name in names]
    return [path for path in found if _bytes(path)]


def _bytes(path: Path) -> int:
    """0: one made ahead, or gone meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def until_gone(made: TrustInstance) -> None:
    """The manager's thread removes what nobody wants."""
    with made.connect() as c:
        while containers(made):
            c.control({"op": "status"})


def contain(c: Client, size: int, descriptor: int, queue: str = "A") -> dict[str, Any]:
    return c._link.control({"op": "contain", "queue": queue, "size": size}, descriptor)


def put(c: Client, reference: str, size: int = LARGE, body: bytes = BODY,
        times: int = 1, crc: int | None = None) -> None:
    """Put a message that names a container, whatever that is."""
    encoded = encode_outgoing(
        Outgoing(body, priority=4, persistent=True), (c.queue_number("A"),), 0, c.paths, 1000,
        "test", lambda body: (reference, size, crc32c(body) if crc is None else crc))
    for _ in range(times):
        c._link.request(
            Operation.PUT, encoded.payload, priority=4, flags=encoded.flags, queue=encoded.queue,
            count=1, length=len(encoded.payload), size=encoded.size, crc=encoded.crc)


def test_a_body_that_can_still_change_is_refused(trusting: TrustInstance) -> None:
    """Files, pipes, memory files that are not sealed, sizes that are not true, and none at all."""
    def work() -> None:
        with omq.connect(trusting.root, timeout_s=WAIT_S) as c:
            c.queue_number("A")
            open_file = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
            os.write(open_file, BODY)
            pipe, _ = os.pipe()
            unsealed = os.memfd_create("x", os.MFD_ALLOW_SEALING)
            os.write(unsealed, BODY)
            sealed = sealed_body.seal_pieces((BODY,))
            for descriptor, size in ((open_file, LARGE), (pipe, LARGE), (unsealed, LARGE),
                                     (sealed, LARGE - 1), (sealed, LARGE + 1), (sealed, 0),
                                     (sealed, -1), (-1, LARGE)):
                with pytest.raises(BadRequest):
                    contain(c, size, descriptor)
            with pytest.raises(MessageTooLong):
                contain(c, 1 << 40, sealed)
            with pytest.raises(NoAuthority):
                contain(c, LARGE, sealed, "B")
            with pytest.raises(PermissionError):
                os.write(sealed, b"after")
            with pytest.raises(PermissionError):
                os.ftruncate(sealed, 0)
            c.put("A", BODY)

    trusting.as_user(MEMBER, work)
    assert [m.body for m in trusting.drain("A")] == [BODY]
    assert len(containers(trusting)) == 1, "its message waits for idel.server"


def test_a_put_names_its_own_container_once(trusting: TrustInstance) -> None:
    """Not another session's, not another message's, not with another size, not twice."""
    (trusting.conf / "authority.conf").write_text("[A]\nuser:* = put get browse\n")
    trusting.children[MANAGER].signal(1)
    with trusting.connect("root") as c:
        c.put("A", b"root's" * LARGE)
        (of_message,) = containers(trusting)
        foreign = "~/" + of_message.relative_to(trusting.root).as_posix()

        def work() -> None:
            with omq.connect(trusting.root, timeout_s=WAIT_S) as mine, \
                    omq.connect(trusting.root, timeout_s=WAIT_S) as yours:
                reference = contain(mine, LARGE, sealed_body.seal_pieces((BODY,)))["ref"]
                for who, name, size in (
                        (yours, reference, LARGE), (mine, foreign, 6 * LARGE),
                        (mine, reference, LARGE - 1), (mine, "~/data/../../x", LARGE),
                        (mine, "", LARGE), (mine, "~/data/aaaaaaa/bbbbbbb", LARGE)):
                    with pytest.raises(ContainerUnknown):
                        put(who, name, size)
                with pytest.raises(BadRequest, match="checksum"):
                    put(mine, reference, crc=1)
                put(mine, reference)
                with pytest.raises(ContainerUnknown):
                    put(mine, reference)

        while True:
            try:
                trusting.as_user(MEMBER, work)
                break
            except AssertionError:
                if "NoAuthority" not in trusting.members.read_text():
                    raise
                trusting.members.unlink()  # the reload has not been carried out yet
        assert c.control({"op": "status"})["counters"]["messages"] == 2
    assert len(containers(trusting)) == 2


def test_what_no_put_names_is_removed_with_its_client(trusting: TrustInstance) -> None:
    """A bounded number a user; also of a client that was killed while its body was copied."""
    def work() -> None:
        with omq.connect(trusting.root, timeout_s=WAIT_S) as c, \
                omq.connect(trusting.root, timeout_s=WAIT_S) as d:
            for i in range(limits.CONTAINERS_PENDING_MAX):
                contain((c, d)[i % 2], LARGE, sealed_body.seal_pieces((BODY,)))
            for each in (c, d):
                with pytest.raises(TooManyContainers):
                    contain(each, LARGE, sealed_body.seal_pieces((BODY,)))
            c._link.control({"op": "discard", "ref": "~/data/aaaaaaa/bbbbbbb"})
            big = os.urandom(30_000_000)
            with omq.connect(trusting.root, timeout_s=WAIT_S):
                descriptor = sealed_body.seal_pieces((big,))
                c._link._line._socket.close()  # type: ignore[union-attr]
                d._link._line._socket.close()  # type: ignore[union-attr]
                e = omq.connect(trusting.root, timeout_s=WAIT_S)
                line = {"op": "contain", "queue": "A", "size": len(big)}
                socket.send_fds(e._link._line._socket,  # type: ignore[union-attr]
                                [json.dumps(line).encode() + b"\n"], [descriptor])
                os._exit(0)

    trusting.as_user(MEMBER, work)
    until_gone(trusting)
    with trusting.connect() as c:
        assert c.put("A", b"still served")


def test_a_refused_put_leaves_nothing(trusting: TrustInstance) -> None:
    trusting.queues("[*]\ndeath_delay_s = 0\n[A]\nmax_depth = 1\n[B]\n[C]\n")
    trusting.stop()
    trusting.start(WRITER, MANAGER)
    trusting.ready()

    def work() -> None:
        with omq.connect(trusting.root, timeout_s=WAIT_S) as c:
            c.put("A", b"full")
            with pytest.raises(OmqError, match="maximum of 1"):
                c.put("A", BODY)

    trusting.as_user(MEMBER, work)
    until_gone(trusting)


def test_a_new_manager_gets_the_body_again(trusting: TrustInstance) -> None:
    """The manager dies between the container and the put; the client notices nothing."""
    with trusting.connect("root") as c:
        through = c.bodies.contain
        times = []

        def then_kill(queue: str, body: bytes) -> tuple[str, int, int]:
            made = through(queue, body)
            times.append(made[0])
            if len(times) == 1:
                trusting.kill()
                trusting.start()
            return made

        c.bodies.contain = then_kill  # type: ignore[method-assign]
        c.put("A", BODY)
    assert len(times) == 2
    assert [m.body for m in trusting.drain("A")] == [BODY]


def test_descriptors_do_not_pile_up_in_the_manager(trusting: TrustInstance) -> None:
    """A thousand are sent, with and without a question, by one that is registered and one that is
    not; a thousand are asked for and not taken."""
    (trusting.conf / "authority.conf").write_text("")
    with trusting.connect("root") as c:
        (qpool,) = (int(c.put("A", BODY)[32:], 16),)
    manager = trusting.children[MANAGER].pid

    def work() -> None:
        descriptor = sealed_body.seal_pieces((BODY,))
        stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stranger.connect(str(trusting.paths.socket))
        c = omq.connect(trusting.root, timeout_s=WAIT_S)
        registered = c._link._line._socket  # type: ignore[union-attr]
        registered.settimeout(0)
        stranger.settimeout(0)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor] * 3))]
        line = json.dumps({"op": "container", "qpool": qpool}).encode() + b"\n"
        for each in (stranger, registered):
            for piece in [b" ", line] * 500:
                try:
                    each.sendmsg([piece], rights)
                except OSError:  # full, or closed: enough
                    break
        os.write(1, b"sent\n")
        os.read(hold, 1)

    before = len(os.listdir(f"/proc/{manager}/fd"))
    hold, release = os.pipe()
    child = trusting.begin(MEMBER, work)
    with trusting.connect() as c:
        while "sent" not in (trusting.members.read_text() if trusting.members.exists() else ""):
            assert child.running, trusting.members.read_text()
        for _ in range(200):
            c.control({"op": "status"})
            count = len(os.listdir(f"/proc/{manager}/fd"))
            assert count < before + 20, count
        assert c.put("A", BODY)
    os.write(release, b"x")
    trusting.join(child)
    os.close(hold)
    os.close(release)


def test_others_are_served_while_large_bodies_come(trusting: TrustInstance) -> None:
    """Bulk is copied beside the loop: a small put of somebody else never waits for all of it."""
    def flood(stop: int) -> Callable[[], None]:
        def work() -> None:
            big = os.urandom(20_000_000)
            with omq.connect(trusting.root, timeout_s=WAIT_S) as c:
                while not select.select([stop], [], [], 0)[0]:
                    c.put("A", big)
                    with c.reader("A") as reader:
                        (message,) = reader.next(timeout_s=WAIT_S)
                        assert message.size == len(big)
                        message.done()
        return work

    def small() -> None:
        with omq.connect(trusting.root, timeout_s=WAIT_S) as c:
            for i in range(100):
                c.put("B", b"%d" % i)

    end, stop = os.pipe()
    child = trusting.begin(MEMBER, flood(end))
    trusting.as_user(OTHER, small)
    os.write(stop, b"x")
    trusting.join(child)
    os.close(end)
    os.close(stop)
    assert len(trusting.drain("B")) == 100


def test_a_payload_larger_than_a_channel_comes_in_pieces(trusting: TrustInstance) -> None:
    """Channels were made smaller since it was put; it is handed out and read all the same."""
    body = os.urandom(200_000)
    with trusting.connect("root") as c:
        c.put_many("A", [b"small", body, b"last"])
    trusting.stop()
    trusting.settings(clients_group=CLIENTS, channel_bytes=128 << 10,
                      container_threshold_bytes=4 << 10)
    trusting.start(WRITER, MANAGER)
    trusting.ready()

    def work() -> None:
        with omq.connect(trusting.root, timeout_s=WAIT_S) as c, c.reader("A", batch=3) as reader:
            messages = reader.next(timeout_s=WAIT_S)
            assert len(c._link.reply) < len(body)
            assert [m.body for m in messages] == [b"small", body, b"last"]
            for message in messages:
                message.done()

    trusting.as_user(MEMBER, work)
