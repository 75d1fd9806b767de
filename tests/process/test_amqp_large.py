"""Large messages over AMQP: they come and go in pieces, and no whole body is in memory."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world, needs_proton

needs_proton()

from proton import Message  # noqa: E402
from proton.utils import BlockingConnection  # noqa: E402

from omq.services.amqp import sections  # noqa: E402
from omq.services.amqp.untranslatable import Untranslatable  # noqa: E402
from tests.process.amqp_frames import (  # noqa: E402
    FALSE,
    OPENED,
    TRUE,
    ZERO,
    attach,
    frame,
)
from tests.process.test_amqp_hostile import taker  # noqa: E402
from tests.waiting import until  # noqa: E402

WAIT_S = 120
MIB = 1 << 20


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp"), amqp_message_bytes_max=64 * MIB) as made:
        yield made


@pytest.fixture
def world(instance: AmqpWorld) -> Iterator[AmqpWorld]:
    instance.drain("A")
    yield instance
    instance.drain("A")
    assert not instance.events(1007), instance.events(1007)


def resident(world: AmqpWorld) -> int:
    """Bytes that the server has ever had in memory at once, since `forget_peak`."""
    status = Path(f"/proc/{world.children[SERVER].pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def forget_peak(world: AmqpWorld) -> int:
    Path(f"/proc/{world.children[SERVER].pid}/clear_refs").write_text("5")
    return resident(world)


def files_without_names(world: AmqpWorld) -> int:
    """In temp/ of the spool, that the server has open."""
    found = 0
    for each in Path(f"/proc/{world.children[SERVER].pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            name = os.readlink(each)
            found += name.startswith(f"{world.paths.temp}/") and name.endswith("(deleted)")
    return found


def test_no_whole_body_is_in_memory(world: AmqpWorld) -> None:
    """What is there of it is the engine's window, what it buffers, and pieces. (This client needs
    time by the square of what it sends.)"""
    with closing(BlockingConnection(world.url, timeout=WAIT_S)) as client:
        sender = client.create_sender("A")
        assert sender.link.remote_max_message_size == 64 * MIB
        sender.send(Message(body=bytes(MIB), inferred=True))
        assert len(world.left("A")) == 1
        body = os.urandom(8 * MIB)
        before = forget_peak(world)
        sender.send(Message(body=body, inferred=True, id="large", properties={"k": "v"}))
        assert resident(world) - before < 7 * MIB
        receiver = client.create_receiver("A", credit=1)
        message = receiver.receive(timeout=WAIT_S)
        assert bytes(message.body) == body and message.inferred
        assert (message.id, message.properties, message.durable) == ("large", {"k": "v"}, True)
        receiver.accept()
        with world.connect() as native:
            native.put("A", bytes(60 * MIB))
        before = forget_peak(world)
        message = receiver.receive(timeout=WAIT_S)
        assert bytes(message.body) == bytes(60 * MIB)
        receiver.accept()
        # amqp_outgoing_bytes_max, which the library's buffers have several times: 27 to 52 MiB
        # seen. A body that were there whole would be so twice, with what is encoded of it.
        assert resident(world) - before < 58 * MIB


@pytest.mark.parametrize("body", ["ä" * 400_000, b"\0\xff" * 300_000, {"k": "v" * 600_000},
                                  "x" * 262_130])
def test_other_large_bodies_come_back_as_they_were(world: AmqpWorld, body: Any) -> None:
    with closing(BlockingConnection(world.url, timeout=WAIT_S)) as client:
        client.create_sender("A").send(Message(body=body))
        receiver = client.create_receiver("A", credit=1)
        message = receiver.receive(timeout=WAIT_S)
        receiver.accept()
        assert message.body == body and not message.inferred


def test_large_ones_are_browsed(world: AmqpWorld) -> None:
    from proton.reactor import Copy

    with world.connect() as native:
        native.put("A", bytes(MIB))
    with closing(BlockingConnection(world.url, timeout=WAIT_S)) as client:
        receiver = client.create_receiver("A", credit=1, options=Copy())
        message = receiver.receive(timeout=WAIT_S)
        assert len(message.body) == MIB


def test_a_line_that_breaks_in_the_middle_leaves_nothing(world: AmqpWorld) -> None:
    """Sending, and taking: which is no attempt, for nobody has worked on it."""
    with world.connect() as native:
        native.put("A", bytes(16 * MIB))
    with socket.create_connection(("127.0.0.1", world.await_port())) as near:
        near.sendall(taker(1))
        assert near.recv(MIB)
    with world.connect() as native, native.reader("A") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        assert message.attempts == 0
        message.done()
    with socket.create_connection(("127.0.0.1", world.await_port())) as near:
        data = bytes(Message(body=bytes(8 * MIB), inferred=True).encode())
        near.sendall(OPENED + attach(0, "A"))
        heard = b""
        while b"\x00S\x13" not in heard:  # a flow, with credit
            heard += near.recv(MIB)
        for at in range(0, 2 * MIB, 60_000):
            near.sendall(frame(0x14, ZERO, ZERO, b"\xa0\x01t", ZERO, FALSE, TRUE,
                               payload=data[at : at + 60_000]))
        until(lambda: files_without_names(world))
    until(lambda: not files_without_names(world))
    assert world.left("A") == []
    assert not list(world.paths.temp.iterdir())


# where a body is


def chunked(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("message", [
    Message(body=b"x" * 300, inferred=True, id="i", properties={"a": 1}),
    Message(body="s" * 300), Message(body=b"b" * 300), Message(body=b"x", inferred=True)])
def test_the_body_is_found_in_any_first_bytes(message: Message) -> None:
    data = bytes(message.encode())
    for cut in range(len(data)):
        place = sections.body_place(data[:cut])
        if place is not None:
            break
    assert place is not None and data[place.begins:] == bytes(
        message.body.encode() if isinstance(message.body, str) else message.body)
    assert place.size == len(message.body)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_several_sections_are_one_body(size: int) -> None:
    first, second = b"a" * 300, b"b" * 20
    data = (sections.opening("data", 300) + first + b"\0\x53\x75\xa0\x14" + second
            + b"\0\x53\x78\xc1\x01\x00")
    place = sections.body_place(data)
    assert place is not None
    rest = sections.Rest(place)
    assert b"".join(map(rest.take, chunked(data[place.begins:], size))) == first + second
    rest.end()


def test_a_chunk_has_very_many_sections() -> None:
    """It is gone through once: each copied the rest of it."""
    rest = sections.Rest(sections.Place(0, 0, 1, "data"))
    assert rest.take(b"a" + b"\0\x53\x75\xa0\x01b" * 300_000) == b"a" + b"b" * 300_000
    rest.end()


@pytest.mark.parametrize("behind", [b"x" * 9, b"\0\x53\x77\x40", b"", bytes(70_000)])
def test_what_stands_behind_a_body_is_checked(behind: bytes) -> None:
    place = sections.Place(0, 0, 10, "data")
    rest = sections.Rest(place)
    with pytest.raises(Untranslatable):
        rest.take(bytes(10 if behind else 9) + behind)
        rest.end()


def test_a_string_is_checked_as_it_comes() -> None:
    rest = sections.Rest(sections.Place(0, 0, 10, "string"))
    rest.take("ä".encode()[:1])
    with pytest.raises(Untranslatable):
        rest.take(b"x")

