"""What a connection of AMQP began ends with it: its receivers and browsers, with a thread and a
native connection each, its temporary queues, its transactions, its files.

The frames are of all kinds, some of them mutated. They go in groups, each behind an answer to the
one before: what comes in one piece with its `begin` the library refuses as a whole."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
from itertools import pairwise
from pathlib import Path

from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world, needs_proton
from tests.waiting import until

needs_proton()

from tests.process.amqp_frames import (  # noqa: E402
    FALSE,
    HEADER,
    MESSAGE,
    NULL,
    TRUE,
    ZERO,
    frame,
    many,
    mutated,
    text,
    u32,
)

STREAMS = int(os.environ.get("OMQ_AMQP_STREAMS", "150"))
SEED = int(os.environ.get("OMQ_AMQP_SEED", "31"))
ANSWER_S = 0.02
"""A group is sent without an answer to the one before, if none has come for so long."""
GROUPS = (0, 1, 2, 10, 14)
WORKERS = 2
BUG = 1007
ACCEPTED = b"\x00\x53\x24\x45"
IN_TRANSACTION = b"\x00\x53\x34" + many(b"\xa0\x04" + u32(1))
DECLARE = b"\x00\x53\x77\x00\x53\x31" + many(NULL)
DISCHARGE = b"\x00\x53\x77\x00\x53\x32" + many(b"\xa0\x04" + u32(1), FALSE)


def number(value: int) -> bytes:
    return b"\x70" + u32(value)


def symbolic(value: str) -> bytes:
    return text(value, b"\xa3")


def attached(handle: int, source: bytes, target: bytes, *, takes: bool) -> bytes:
    return frame(0x12, text(f"l{handle}"), number(handle), TRUE if takes else FALSE, NULL, NULL,
                 source, target, NULL, NULL, ZERO)


def source(*fields: bytes) -> bytes:
    return b"\x00\x53\x28" + many(*fields)


def target(*fields: bytes) -> bytes:
    return b"\x00\x53\x29" + many(*fields)


def sent(handle: int, delivery: int, payload: bytes, state: bytes = NULL, *,
         settled: bool = False) -> bytes:
    return frame(0x14, number(handle), number(delivery), b"\xa0\x04" + u32(delivery), ZERO,
                 TRUE if settled else FALSE, FALSE, NULL, state, payload=payload)


def flow(handle: int, credit: int, *, drain: bool = False) -> bytes:
    return frame(0x13, ZERO, number(1 << 16), ZERO, number(1 << 16), number(handle), ZERO,
                 number(credit), ZERO, TRUE if drain else FALSE)


def frames() -> list[bytes]:
    """Puts, takes by a selector, browses, a temporary queue, a transaction, a large body."""
    key = symbolic("apache.org:selector-filter:string")
    pair = symbolic("selector") + b"\x00" + key + text("n > 1")
    chosen = b"\xd1" + u32(len(pair) + 4) + u32(2) + pair
    return [
        frame(0x10, text("x"), NULL, number(65536), b"\x60\x00\x0f"),
        frame(0x11, NULL, ZERO, number(1 << 20), number(1 << 20)),
        attached(0, source(text("A")), target(text("A")), takes=False),
        attached(1, source(text("A"), *[NULL] * 6, chosen), target(text("A")), takes=True),
        flow(1, 10),
        attached(2, source(text("A"), *[NULL] * 5, symbolic("copy")), target(text("A")),
                 takes=True),
        flow(2, 10),
        attached(3, source(NULL, NULL, NULL, NULL, TRUE), target(text("x")), takes=True),
        flow(3, 5),
        attached(4, source(text("x")), b"\x00\x53\x30" + many(NULL), takes=False),
        sent(4, 0, DECLARE), sent(0, 1, MESSAGE), sent(0, 2, MESSAGE, IN_TRANSACTION),
        sent(0, 3, MESSAGE, settled=True), sent(4, 4, DISCHARGE),
        frame(0x15, TRUE, number(0), number(2), TRUE, ACCEPTED), flow(1, 10, drain=True),
        attached(5, source(text("A")), target(), takes=False), sent(5, 5, MESSAGE),
        sent(0, 6, b"\x00\x53\x75\xb0" + u32(60000) + bytes(60000)),
        frame(0x16, number(1), TRUE), frame(0x17), frame(0x18)]


def said(world: AmqpWorld, stream: list[bytes]) -> None:
    """One connection, to its end."""
    cuts = [*GROUPS, len(stream)]
    with socket.create_connection(("127.0.0.1", world.await_port()), 120) as line, \
            contextlib.suppress(ConnectionError):
        line.sendall(HEADER)
        for begins, ends in pairwise(cuts):
            line.sendall(b"".join(stream[begins:ends]))
            while select.select([line], [], [], ANSWER_S)[0]:
                if not line.recv(65536):
                    return
        line.shutdown(socket.SHUT_WR)
        while line.recv(65536):
            pass


def held(world: AmqpWorld) -> tuple[int, int]:
    """(threads, descriptors) of the server."""
    pid = world.children[SERVER].pid
    return len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))


def test_what_a_connection_began_ends_with_it(tmp_path: Path) -> None:
    with amqp_world(tmp_path, amqp_workers=WORKERS, amqp_message_bytes_max=100_000) as world:
        kinds, chosen = frames(), random.Random(SEED)
        before = held(world)
        said(world, kinds)
        for _ in range(STREAMS):
            said(world, mutated(kinds, chosen))
        # What the server keeps for all of them, each opened when it is first wanted: the lines that
        # put and that ask, a native connection (two descriptors at most) and a thread each, and the
        # threads of its event loop.
        lines, pool = WORKERS + 1, min(32, (os.cpu_count() or 1) + 4)
        threads, descriptors = before[0] + lines + pool, before[1] + 2 * lines
        until(lambda: held(world) <= (threads, descriptors) and held(world)[1] <= descriptors,
              lambda: f"{held(world)}, at most {threads, descriptors}")
        with world.connect() as native:
            until(lambda: not any(each.kind == "temporary" for each in native.queues.list()))
        assert not world.events(BUG), world.events(BUG)
