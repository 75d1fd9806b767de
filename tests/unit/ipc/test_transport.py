"""A session over a stream: another way to a client needs nothing of the engine and the server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.core.engine.rules_of_queue import QueueRules
from omq.format.wire import (
    GIVEN,
    NOTE_BYTES,
    REPLY,
    REQUEST,
    REQUEST_MAGIC,
    SETTLE,
    VERSION,
    Operation,
    PutFlag,
    Settlement,
    halves,
)
from omq.ipc.server.transport import Transport
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from tests.model.instance import Client, Instance

A = 3
ROOM = 64 * 1024


class Stream:
    """A connection, as TCP would be: the area of a request and the reply travel as bytes."""

    semaphore_id = -1

    def __init__(self) -> None:
        self.view = memoryview(bytearray(2 * ROOM + NOTE_BYTES))
        self.ours, self.theirs = socket.socketpair()
        self.ours.settimeout(0)
        self.closed = 0

    @property
    def wake(self) -> Callable[[], None]:
        return self._send

    def _send(self) -> None:
        length = REPLY.unpack_from(self.view, 0)[REPLY.names.index("length")]
        self.ours.sendall(self.view[: REPLY.size + max(length, GIVEN.size)])

    def receive(self) -> bytes:
        """What came: the area goes where the server looks, the 96 bytes to the server."""
        raw = self.ours.recv(ROOM)
        _, request, _ = halves(len(self.view))
        area = raw[REQUEST.size :]
        self.view[request : request + len(area)] = area
        return raw[: REQUEST.size]

    def told(self) -> dict[str, Any]:
        return {"port": 0}

    def close(self) -> None:
        self.closed += 1
        self.ours.close()


@pytest.fixture
def stream() -> Iterator[Stream]:
    made = Stream()
    yield made
    made.ours.close()
    made.theirs.close()


@pytest.fixture
def instance(tmp_path: Path, stream: Stream) -> Iterator[Instance]:
    rules = [QueueRules(number, name, 1000, 1 << 20) for number, name in
             ((1, "IDEL"), (2, "POISON"), (A, "A"))]
    made = Instance(tmp_path / "spool", rules, transport=lambda: stream)
    made.start()
    yield made
    made.stop()


def ask(instance: Instance, client: Client, stream: Stream, operation: Operation,
        area: bytes = b"", **fields: int) -> tuple[dict[str, Any], bytes]:
    """A request as bytes over the wire, and the reply that comes back over it."""
    client.sequence += 1
    said = {"operation": int(operation), "client": client.live.party.client,
            "token": client.token, "sequence": client.sequence, "magic": REQUEST_MAGIC,
            "version": VERSION, **fields}
    raw = REQUEST.pack(*(said.get(name, 0) for name in REQUEST.names))
    stream.theirs.sendall(raw + area)

    def taken() -> None:
        instance.server.handle(stream.receive())
        stream.theirs.settimeout(0)
        with pytest.raises(BlockingIOError):
            stream.theirs.recv(1)  # nothing is answered before the group is on the disk
        stream.theirs.settimeout(None)

    instance.group(taken)
    answer = stream.theirs.recv(ROOM)
    reply = dict(zip(REPLY.names, REPLY.unpack_from(answer, 0), strict=True))
    assert (reply["magic"], reply["status"], reply["sequence"]) == (
        REQUEST_MAGIC, 0, client.sequence)
    return reply, answer[REPLY.size :]


def test_put_next_and_done_over_a_stream(instance: Instance, stream: Stream) -> None:
    checked: Transport = stream
    client = Client(1, A, auxiliary=False)
    instance.register(client)
    encoded = encode_outgoing(Outgoing(body=b"over the wire"), (A,), 0, instance.paths, 1 << 18,
                              "test")
    reply, _ = ask(instance, client, stream, Operation.PUT, encoded.payload, queue=A, priority=4,
                   flags=int(PutFlag.PERSISTENT), length=len(encoded.payload), size=encoded.size,
                   crc=encoded.crc)
    qpool = reply["qpool"]
    reply, rows = ask(instance, client, stream, Operation.NEXT, want=1,
                      argument=-1)
    given = dict(zip(GIVEN.names, GIVEN.unpack_from(rows), strict=True))
    assert (reply["count"], given["qpool"]) == (1, qpool)
    assert instance.body(qpool).endswith(b"over the wire")
    row = SETTLE.pack(Settlement.DONE, 0, 0, given["entry"], qpool, given["lease"], 0, 0, 0)
    reply, _ = ask(instance, client, stream, Operation.SETTLE, row, count=1)
    assert instance.core.t.q_depth[A] == 0
    instance.group(lambda: instance.end(client.live, died=False))
    instance.sessions.close_gone()
    assert stream.closed == 1 and checked.told() == {"port": 0}
