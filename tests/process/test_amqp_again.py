"""Clients that come again: a server that stops and starts, a link that would be resumed, and one
that an operator has closed."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import LinkUnknown
from omq.cli.operate import connections
from omq.services.daemon.options import Location
from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world, needs_proton
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import Child, start
from tests.waiting import until

needs_proton()

from proton import Message  # noqa: E402
from proton.handlers import MessagingHandler  # noqa: E402
from proton.reactor import Container  # noqa: E402
from proton.utils import BlockingConnection, LinkDetached  # noqa: E402

from tests.process.amqp_frames import (  # noqa: E402
    FALSE,
    NULL,
    OPENED,
    ZERO,
    frame,
    many,
    text,
    transfer,
    u32,
)

WAIT_S = 120
ATTACH, FLOW, DETACH = b"\x00\x53\x12", b"\x00\x53\x13", b"\x00\x53\x16"
ACCEPTED = b"\x00\x53\x24"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path) as made:
        yield made


class Taker(MessagingHandler):  # type: ignore[misc]
    """As its makers' examples have it: nothing in it knows of a line that ends."""

    def __init__(self, url: str, count: int, noted: Path) -> None:
        super().__init__()
        self._url, self._left, self._noted = url, count, noted

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url, heartbeat=2)
        event.container.create_receiver(connection, "A")

    def on_message(self, event: Any) -> None:
        with self._noted.open("a") as file:
            file.write(bytes(event.message.body).decode() + "\n")
        self._left -= 1
        if not self._left:
            event.connection.close()


def taker(world: AmqpWorld, noted: Path, count: int) -> Child:
    url = world.url

    def run() -> int:
        Container(Taker(url, count, noted)).run()
        return 0

    return start("taker", run, output=world.output)


def test_a_client_comes_again_behind_a_stop(world: AmqpWorld, tmp_path: Path) -> None:
    """amqp:connection:forced is what Proton takes as a line that broke: it connects again, and to
    the next server, without a word of the program."""
    noted = tmp_path / "noted"
    noted.touch()
    client = taker(world, noted, 10)
    with world.connect() as native:
        for number in range(5):
            native.put("A", b"%d" % number)
        until(lambda: len(noted.read_text().split()) == 5, world.said)
        until(lambda: not native.queues.show("A").messages, world.said)  # they are accepted
        world.configure(amqp_listen_port=world.await_port())
        world.stop(SERVER)
        for number in range(5, 10):
            native.put("A", b"%d" % number)
        world.start(SERVER)
    assert client.wait() == 0
    assert noted.read_text().split() == [str(number) for number in range(10)]


def waits_at_the_manager(world: AmqpWorld) -> bool:
    """A request of amqp.server is on the request queue."""
    rows = [line.split() for line in Path("/proc/sysvipc/msg").read_text().splitlines()[1:]]
    server = str(world.children[SERVER].pid)
    return any(row[4] != "0" and row[5] == server for row in rows)  # qnum, lspid


def at_the_stop(world: AmqpWorld) -> list[dict[str, Any]]:
    """What was not answered; other lines with this number may come before."""
    return [each for each in world.events(1008) if each["at"] == "stop"]


def test_a_stop_says_what_the_manager_has_not_answered(world: AmqpWorld) -> None:
    """A put of the event loop is waited for no longer than the stop may take; the log says that
    somebody may not know what became of it. The manager carries it out when it moves again."""
    connection = BlockingConnection(world.url, timeout=WAIT_S, allow_insecure_mechs=True)
    sender = connection.create_sender("A")
    for number in range(3):  # the first goes by a thread, and makes its name known
        sender.send(Message(body=b"%d" % number, durable=True, inferred=True))
    manager, writer = world.children[MANAGER], world.children[WRITER]
    writer.signal(signal.SIGSTOP)  # or it is the last that has asked
    manager.signal(signal.SIGSTOP)
    sender.link.send(Message(body=b"3", durable=True, inferred=True))
    connection.wait(lambda: not sender.link.queued and waits_at_the_manager(world))
    connection.close()
    world.children[SERVER].signal(signal.SIGTERM)
    until(lambda: at_the_stop(world), world.said)
    manager.signal(signal.SIGCONT)
    writer.signal(signal.SIGCONT)
    assert world.children[SERVER].wait() == 0
    (told,) = at_the_stop(world)
    assert "not answered for 1 messages" in told["reason"]
    assert [message.body for message in world.left("A")] == [b"%d" % n for n in range(4)]


def test_a_link_that_would_be_resumed_is_a_new_one(world: AmqpWorld) -> None:
    """Its client says what it had not settled; nothing of that is known here (ADR 0091), so it
    sends it again, and it is put."""
    unsettled = b"\xc1\x05\x02\xa0\x01\x07\x40"
    wants = frame(0x12, text("old"), b"\x70" + u32(0), FALSE, NULL, NULL,
                  b"\x00\x53\x28" + many(text("A")), b"\x00\x53\x29" + many(text("A")),
                  unsettled, NULL, ZERO)
    heard = b""
    with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
        line.sendall(OPENED + wants)
        while FLOW not in heard.partition(ATTACH)[2]:  # the link's credit
            heard += line.recv(65536)
        line.sendall(transfer(0))
        while not (ACCEPTED in heard or DETACH in heard):
            heard += line.recv(65536)
    assert ACCEPTED in heard, heard
    assert unsettled not in heard
    assert len(world.left("A")) == 1


def test_an_operator_closes_one_link(world: AmqpWorld) -> None:
    """What it held goes back untouched, the other links of the connection go on, and its client may
    attach one of the same name."""
    location = Location(None, world.paths, world.conf)
    line = BlockingConnection(world.url, timeout=WAIT_S)
    try:
        puts = line.create_sender("A", name="puts")
        takes = line.create_receiver("A", name="takes", credit=2)
        for number in range(3):
            puts.send(Message(str(number)))
        assert takes.receive().body == "0"
        (told,) = connections.listed(location)["told"]
        assert [(each["name"], each["way"]) for each in told["links"]] == [
            ("puts", "puts"), ("takes", "takes")]
        number = told["connection"]
        with pytest.raises(LinkUnknown, match=r"connection .* has no link 'others' any more"):
            connections.close(location, number, "test", "it", by="alice", link="others")
        connections.close(location, number, "test", "too slow", by="alice", link="takes")
        with pytest.raises(LinkDetached, match="an operator closed this link: too slow"):
            while True:
                takes.receive()
        puts.send(Message("3"))
        again = line.create_receiver("A", name="takes", credit=1)
        assert [again.receive().body, again.accept()] == ["0", None]
        (event,) = world.events(1580)
        assert (event["link"], event["by"]) == ("takes", "alice")
    finally:
        line.close()
    left = world.left("A")
    assert len(left) == 3 and not any(each.attempts for each in left)
