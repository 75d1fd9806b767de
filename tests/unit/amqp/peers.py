"""A connection of ours and one of Proton's, in memory, each with what it was told."""

from __future__ import annotations

from typing import Any

import proton

from omq.amqp.connection import Connection
from omq.amqp.connection_events import Event, Kind
from omq.amqp.delivery import Outgoing
from omq.amqp.links import Receiver, Sender
from omq.amqp.states import Condition
from omq.format.amqp_types import Malformed

FRAME_BYTES = 4096


class Proton:
    """The library's engine."""

    def __init__(self, *, server: bool = False) -> None:
        self.engine = proton.Transport(proton.Transport.SERVER if server else
                                       proton.Transport.CLIENT)
        self.connection, self._events = proton.Connection(), proton.Collector()
        self.connection.collect(self._events)
        self.connection.container = "theirs"
        self.engine.max_frame_size = FRAME_BYTES
        self.engine.bind(self.connection)
        self.told: list[tuple[Any, Any]] = []

    def take(self) -> bytes:
        out = b""
        while (size := self.engine.pending()) > 0:
            out += bytes(self.engine.peek(size))
            self.engine.pop(size)
        return out

    def give(self, data: bytes) -> None:
        while data and (room := self.engine.capacity()) > 0:
            self.engine.push(data[:room])
            data = data[room:]
            self.look()
        self.look()

    def look(self) -> None:
        while (event := self._events.peek()) is not None:
            self.happened(event)
            self._events.pop()

    def happened(self, event: Any) -> None:
        if event.type == proton.Event.SESSION_REMOTE_OPEN and not (
                event.session.state & proton.Endpoint.LOCAL_ACTIVE):
            event.session.open()
        if event.type == proton.Event.CONNECTION_REMOTE_OPEN:
            event.connection.open()
        self.told.append((event.type, event.context))

    def heard(self, kind: Any) -> list[Any]:
        return [about for each, about in self.told if each == kind]


class Ours:
    """Ours, as a server or a client."""

    def __init__(self, *, window_bytes: int = 1 << 20, run_bytes_max: int = 0, **settings: Any
                 ) -> None:
        self.connection = Connection(max_frame_size=FRAME_BYTES, **settings)
        self.connection.container = "ours"
        self.told: list[Event] = []
        self.window_bytes, self.run_bytes_max = window_bytes, run_bytes_max
        self.credit = 10

    def take(self) -> bytes:
        return self.connection.take()

    def give(self, data: bytes) -> None:
        self.connection.receive(data)
        while (event := self.connection.event()) is not None:
            self.told.append(event)
            self.happened(event)

    def happened(self, event: Event) -> None:
        """What every server does."""
        link = event.link
        if event.kind is Kind.OPENED:
            self.connection.open()
        elif event.kind is Kind.BEGUN and event.session is not None:
            event.session.open(self.window_bytes)
        elif event.kind is Kind.ATTACHED and link is not None and not link.opened:
            try:
                link.read()
            except Malformed as wrong:
                link.close(Condition("amqp:invalid-field", str(wrong)))
                return
            link.source, link.target = link.remote_source, link.remote_target
            link.open()
            if isinstance(link, Receiver):
                link.run_bytes_max = self.run_bytes_max
                link.flow(self.credit)
        elif event.kind is Kind.DETACHED and link is not None:
            (link.close if event.closed else link.detach)()
        elif event.kind is Kind.ENDED and event.session is not None:
            event.session.close()
        elif event.kind is Kind.CLOSED:
            self.connection.close()

    def heard(self, kind: Kind) -> list[Event]:
        return [each for each in self.told if each.kind is kind]

    def said(self) -> list[Outgoing]:
        """Deliveries of ours that had something said of them."""
        return [each for event in self.heard(Kind.SAID) for each in event.said]

    def sender(self) -> Sender:
        found = next(each.link for each in self.told if isinstance(each.link, Sender))
        assert isinstance(found, Sender)
        return found


def talk(one: Any, other: Any, *, piece: int = 1 << 16) -> None:
    """Until neither has anything to say, in pieces of so many bytes."""
    while True:
        first, then = one.take(), other.take()
        if not first and not then:
            return
        for side, data in ((other, first), (one, then)):
            for at in range(0, len(data), piece):
                side.give(data[at : at + piece])
