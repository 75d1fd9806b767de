"""The sending side's connection: when it is silent, and when only its thread was elsewhere."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

from proton import Collector, Connection, Event, Transport

from omq.base.errors import ChannelBroken
from omq.services.amqp.endpoints import TICK_S, tick_s
from omq.services.channel import line as line_module
from omq.services.channel.definition import made
from omq.services.channel.greeting import Hello
from omq.services.channel.line import Line
from omq.services.channel.security import Credentials


class Clock:
    """Stands until it is moved."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Peer:
    """Any AMQP server, by the library's engine; what it says is on the line at once."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.collector = Collector()
        self.transport = Transport(Transport.SERVER)
        sasl = self.transport.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        sasl.done(sasl.OK)
        self.connection = Connection()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.open = False
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(0.0)

    def turn(self, now: float) -> None:
        with suppress(BlockingIOError):
            self.transport.push(self.socket.recv(self.transport.capacity()))
        while (event := self.collector.peek()) is not None:
            if event.type == Event.CONNECTION_REMOTE_OPEN:
                self.connection.open()
                self.open = True
            self.collector.pop()
        self.transport.tick(now)
        while (size := self.transport.pending()) > 0:
            sent = self.socket.send(self.transport.peek(size))
            self.transport.pop(sent)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(line_module, "time", found)
    return found


@pytest.fixture
def pair(clock: Clock) -> Iterator[tuple[Line, Peer]]:
    """Connected, open on both sides, heart-beat of 1 s."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        channel = made("AWAY", {"host": "127.0.0.1", "port": str(port), "tls": "no",
                                "peer": "foreign", "heartbeat": "1"})
        line = Line(channel, Credentials("ANONYMOUS", "", "", None),
                    Hello("HERE", "0" * 32), 10)
        peer = Peer(server.accept()[0])
        while not peer.open or peer.transport.remote_idle_timeout == 0:
            line.pump(0.0)
            peer.turn(clock.now)
        line.pump(0.0)
        yield line, peer
        line.close(politely=False)
        peer.socket.close()


def test_a_line_whose_thread_was_elsewhere_is_not_silent(
        pair: tuple[Line, Peer], clock: Clock) -> None:
    """A commit took ten heart-beats; the other side was heard of meanwhile."""
    line, peer = pair
    for _ in range(3):
        line.pump(0.0)  # it has looked at the clock with all that came before
        for _ in range(5):
            clock.now += 2.0
            peer.turn(clock.now)
        assert select.select([line.socket], [], [], 60)[0]
        line.pump(0.0)


def test_a_line_that_is_silent_is_broken(pair: tuple[Line, Peer], clock: Clock) -> None:
    line, _ = pair
    line.pump(0.0)
    clock.now += 2.5
    with pytest.raises(ChannelBroken):
        line.pump(0.0)


@pytest.mark.parametrize("idle_s", [0.1, 0.5, 1.0, 3.0, 30.0])
def test_a_client_hears_of_us_in_time(idle_s: float) -> None:
    """At the worst something is sent just behind a look: that look's next one finds it, and the
    next one behind half of the time beats."""
    pause_s = tick_s(idle_s)
    assert pause_s <= TICK_S
    if idle_s >= 0.5:  # less than that nobody keeps
        looks = [number * pause_s for number in range(1, 1000)]
        beat = next(look for look in looks if look >= looks[0] + idle_s / 2)
        assert beat <= max(idle_s, 0.5) and tick_s(0.0) == TICK_S
