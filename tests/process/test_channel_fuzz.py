"""Mutated frames of channels: their links, batches, bundles, fast messages. OMQ_AMQP_FRAMES: more;
OMQ_AMQP_SEED: others.

A stream waits for its credit and takes the number that its record has, so what is mutated comes to
where a batch is put.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from omq.format import amqp_values as values
from omq.ipc.client.remote_header import REMOTE_QUEUE
from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world, needs_proton
from tests.process.channel_world import QUEUES

needs_proton()

from omq.services.channel.parcel import Spot, bundled, packed, spotted  # noqa: E402
from tests.process.amqp_frames import OPENED, attach, mutated, transfer  # noqa: E402

WAIT_S = 60
FRAMES = int(os.environ.get("OMQ_AMQP_FRAMES", "2000"))
SEED = int(os.environ.get("OMQ_AMQP_SEED", "2020"))
BUNDLE, COUNT, MARK = 3, 20, "0123456789abcdef"
FLOW, DETACH, ACCEPTED = b"\x00\x53\x13", b"\x00\x53\x16", b"\x00\x53\x24"
LAST = b"omq-last"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("fuzz"), queues=QUEUES) as made:
        (made.conf / "authority.conf").write_text("[*]\nuser:nobody = put get browse\n")
        made.stop(SERVER)
        made.amqp()
        yield made


def parcel(number: int) -> bytes:
    message: Any = SimpleNamespace(
        body=b"%d" % number, priority=4, attempts=0, persistent=True, message_id=f"id{number}",
        correlation="", group_id="g" if number % 2 else "", group_sequence=number,
        last_in_group=False, expiry_ns=0, said=0, texts={REMOTE_QUEUE: "A", "customer": "42"})
    return packed(message, "WEST", "")


ATTACH = attach(0, "SYSTEM.CHANNELS", properties=values.annotation_map({
    "omq-channel": values.text("FUZZ"), "omq-spool": values.text("ab" * 16),
    "omq-manager": values.text("WEST"), "omq-ping": values.FALSE}))


def transfers(batch: int) -> list[bytes]:
    """A batch: a bundle, the others by themselves; a bundle of fast ones behind it."""
    some = [parcel(n) for n in range(COUNT)]
    out = [transfer(0, bundled(some[:BUNDLE], Spot(batch, 1, COUNT, MARK)), settled=True)]
    for at, each in enumerate(some[BUNDLE:], BUNDLE + 1):
        out.append(transfer(len(out), spotted(each, Spot(batch, at, COUNT, MARK)),
                            settled=at < COUNT))
    return [*out, transfer(len(out), bundled(some[:2], Spot()), settled=True)]


class Line:
    """One connection."""

    def __init__(self, world: AmqpWorld, first: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S)
        self.heard = b""
        self.say(first)

    def say(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def hear(self, *wanted: bytes, behind: bytes = b"") -> None:
        """Until one of these came (behind something else), or the end."""
        with contextlib.suppress(ConnectionError):
            while not any(each in self.heard.partition(behind)[2] if behind else each in self.heard
                          for each in wanted):
                if not (chunk := self.socket.recv(65536)):
                    return
                self.heard += chunk

    @property
    def last(self) -> int | None:
        """What the record says."""
        at = self.heard.find(LAST)
        return None if at < 0 else int(values.read(self.heard, at + len(LAST))[0])

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        self.hear(b"never said")
        self.socket.close()


def crosses(world: AmqpWorld) -> None:
    """A channel that says what it should."""
    world.drain("A")
    line = Line(world, OPENED + ATTACH)
    line.hear(FLOW, behind=LAST)
    assert line.last is not None, line.heard
    line.say(b"".join(transfers(line.last + 1)))
    line.hear(ACCEPTED)
    line.end()
    assert ACCEPTED in line.heard
    found = [int(each.body) for each in world.drain("A")]
    assert sorted(found) in (sorted([*range(COUNT), *fast]) for fast in ([], [0, 1]))


def test_mutated_frames_of_channels_harm_nobody(world: AmqpWorld) -> None:
    crosses(world)
    chosen, sent, streams, put = random.Random(SEED), 0, 0, 0
    while sent < FRAMES:
        if chosen.random() < 0.1:
            frames = mutated([ATTACH, *transfers(1)], chosen)
            line = Line(world, OPENED + b"".join(frames))
        else:
            line = Line(world, OPENED + ATTACH)
            line.hear(FLOW, DETACH, behind=b"\x00\x53\x12")  # of the link
            frames = mutated(transfers((line.last or 0) + 1), chosen)
            line.say(b"".join(frames))
        line.end()
        sent, streams = sent + len(frames), streams + 1
        if not streams % 50:
            put += len(world.drain("A"))
            world.drain("SYSTEM.DEAD")
    assert put + len(world.drain("A")), "some came to where a batch is put"
    crosses(world)
    assert not world.events(1007), world.events(1007)
