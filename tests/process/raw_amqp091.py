"""A client of AMQP 0-9-1 that does what it wants: frames by hand, pamqp's codec."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.process.amqp_world import PASSWORD, AmqpWorld

frame = pytest.importorskip("pamqp.frame", reason="the extra `amqp`: pamqp")
from pamqp import body, commands, header  # noqa: E402

WAIT_S = 60
HEADER = b"AMQP\x00\x00\x09\x01"


class Raw:
    """A connection; `line` is its socket."""

    def __init__(self, line: socket.socket) -> None:
        self.line, self._kept = line, b""

    def says(self, *methods: Any, channel: int = 1) -> None:
        self.line.sendall(b"".join(frame.marshal(each, channel) for each in methods))

    def hears(self) -> Any:
        """The next method, header or body; None: the line has ended."""
        while True:
            if len(self._kept) >= 7:
                size = int.from_bytes(self._kept[3:7], "big") + 8
                if len(self._kept) >= size:
                    raw, self._kept = self._kept[:size], self._kept[size:]
                    if raw[0] != 8:  # a heart-beat
                        return frame.unmarshal(raw)[2]
                    continue
            try:
                data = self.line.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._kept += data

    def awaits(self, kind: type) -> Any:
        """The next one of that kind."""
        while not isinstance(found := self.hears(), kind):
            assert found is not None, f"the line has ended before {kind}"
        return found


def opening(*, heartbeat: int = 0, user: str = "daemon", frame_max: int = 0) -> bytes:
    """Up to an open channel 1."""
    said = f"\0{user}\0{PASSWORD}"
    return HEADER + b"".join((
        frame.marshal(commands.Connection.StartOk({}, "PLAIN", said, "en_US"), 0),
        frame.marshal(commands.Connection.TuneOk(0, frame_max, heartbeat), 0),
        frame.marshal(commands.Connection.Open("/"), 0),
        frame.marshal(commands.Channel.Open(), 1)))


def published(queue: str, data: bytes, *, mode: int | None = None, **said: Any) -> bytes:
    """basic.publish with its content; `mode` 2: it is persistent."""
    return b"".join((
        frame.marshal(commands.Basic.Publish(routing_key=queue, **said), 1),
        frame.marshal(header.ContentHeader(0, len(data), commands.Basic.Properties(
            delivery_mode=mode)), 1),
        *([frame.marshal(body.ContentBody(data), 1)] if data else [])))


@contextmanager
def raw(world: AmqpWorld, **said: Any) -> Iterator[Raw]:
    """With an open channel 1."""
    with socket.create_connection(("127.0.0.1", world.await_port()), WAIT_S) as line:
        made = Raw(line)
        line.sendall(opening(**said))
        made.awaits(commands.Channel.OpenOk)
        yield made
