"""What a group costs the queue manager's processor, without its clients, its disk and its kernel:
engine and server alone, raw requests in, replies out, by OMQ_FAST's form.

    OMQ_FAST=off python -m tests.bench.group_cost [GROUPS]

One line a size: N puts and N hand-outs with the settlement of the one before, in one group; `100`
is one batch of puts and one of hand-outs. Processor microseconds a message: median and quartile,
with warm caches and with 4 MiB touched between two groups.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from omq.base.authority import Authority
from omq.base.paths import SpoolPaths
from omq.core.engine.block import Block
from omq.core.engine.engine import Engine
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import SPECIAL_QUEUES, Core, Party
from omq.core.engine.statistics import Statistics
from omq.core.index.tables import Tables
from omq.format.index import Counter, ReaderFlag
from omq.format.journal import BLOCK, FRAME
from omq.format.wire import GIVEN, REPLY, REQUEST, REQUEST_MAGIC, SETTLE, VERSION, Operation
from omq.ipc.server.make_server import make_server
from omq.ipc.server.request_server import RequestServer
from omq.ipc.server.sessions import Session, Sessions, split_channel
from omq.ipc.server.units import UnitLimits
from omq.ipc.wire.outgoing import encode_plain
from omq.storage import durable
from omq.storage.disk import Buffer, Disk
from omq.storage.files import File
from omq.storage.journal import Epoch, JournalWriter
from omq.storage.slots import SlotAllocator

UUID = b"u" * 16
QUEUE = 3
MESSAGES = 100_000


class _Nowhere(Disk):
    """Takes all bytes and keeps none."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        return sum(map(len, buffers))

    def fdatasync(self, fd: int) -> None:
        return None


class _Bodies:
    """Bodies of messages that are not persistent, in one file that never ends."""

    number = 1

    def append(self, payloads: Sequence[bytes | memoryview]) -> tuple[int, list[int]]:
        return 1, [0] * len(payloads)

    @property
    def is_full(self) -> bool:
        return False

    def release(self, number: int, count: int = 1) -> None:
        assert number == 1


class Client:
    """Requests and replies of one client."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.sequence = 0
        self.held: list[tuple[int, int, int]] = []

    def packed(self, operation: Operation, **fields: int) -> bytes:
        self.sequence += 1
        said = {"operation": int(operation), "client": self.session.party.client,
                "token": self.session.token, "sequence": self.sequence, "magic": REQUEST_MAGIC,
                "version": VERSION, **fields}
        return REQUEST.pack(*(said.get(name, 0) for name in REQUEST.names))

    def put(self, body: bytes, count: int) -> bytes:
        said = encode_plain(QUEUE, body)
        if count == 1:
            self.session.request[: len(said.payload)] = said.payload
            return self.packed(Operation.PUT, queue=QUEUE, priority=4, flags=1, size=said.size,
                               length=len(said.payload), crc=said.crc)
        area = said.head() * count + said.payload * count
        self.session.request[: len(area)] = area
        return self.packed(Operation.PUT_MANY, queue=QUEUE, count=count,
                           length=count * len(said.payload))

    def next(self, want: int) -> bytes:
        rows = b"".join(SETTLE.pack(1, 0, 0, entry, qpool, lease, 0, 0, 0)
                        for entry, qpool, lease in self.held)
        self.session.request[: len(rows)] = rows
        return self.packed(Operation.NEXT, count=len(self.held), want=want, argument=-1)

    def got(self) -> None:
        found = REPLY.unpack_from(self.session.reply)
        assert (found[1], found[3]) == (0, self.sequence), found
        rows = [GIVEN.unpack_from(self.session.reply, REPLY.size + i * GIVEN.size)
                for i in range(found[4])]
        self.held = [(row[0], row[4], row[5]) for row in rows]


    def look(self) -> None:
        """What it holds, whatever it asked: rows that the tables could have written."""
        found = REPLY.unpack_from(self.session.reply)
        if found[1] == 0 and found[3] == self.sequence:
            self.held = [(row[0], row[4], row[5]) for row in (
                GIVEN.unpack_from(self.session.reply, REPLY.size + i * GIVEN.size)
                for i in range(min(found[4], 100)))]


class World:
    """An engine, its server and clients, a putter and a reader by turns."""

    def __init__(self, clients: int, messages: int = MESSAGES) -> None:
        durable.use(_Nowhere())
        tables = Tables.private(messages, messages, 1000, 300)
        core = Core(tables, SlotAllocator(), _Bodies(), UUID)
        core.messages_total_max = messages
        epoch = Epoch(cast(SpoolPaths, None), UUID, 1, 1 << 40, 4096)
        self.writer = JournalWriter(epoch, bytearray(BLOCK.size + FRAME.size * 8192), 0)
        self.writer.file = File(-1, cast(Any, "nowhere"), "journal")
        self.writer.file_number, self.writer.offset = 7, 4096
        core.block = Block(self.writer, 1, 8192, 1 << 26, 100_000)
        core.now_ns, core.mono_ns = time.time_ns(), time.monotonic_ns()
        self.engine = Engine(core, Statistics(tables, 5, core.mono_ns))
        self.engine.books.define_queues([
            QueueRules(queue, name, 10**7, 10**6)
            for queue, name in (*SPECIAL_QUEUES.items(), (QUEUE, "BENCH"))])
        self.engine.commit(sync=True)
        sessions = Sessions(1000, Authority(0, {}), core.rules)
        self.server, _ = make_server(self.engine, sessions, cast(Any, None), 1, lambda rows: 0,
                                     1000, UnitLimits(1000, 1 << 20, 1 << 20))
        self.clients: list[Client] = []
        tables.counters[Counter.READERS_HIGH] = clients
        for n in range(clients):
            channel = SimpleNamespace(semaphore_id=-1, wake=lambda: None,
                                      view=memoryview(bytearray(1 << 20)))
            halves = split_channel(channel.view)
            session = Session(Party(n + 1, n, 1000 + n, 0, 77 + n), bytes([n]) * 16, f"c{n}",
                              frozenset(), cast(Any, object()), cast(Any, channel), *halves,
                              trusted=True)
            session.queue, session.epoch = QUEUE * (n % 2), 1
            sessions.add(session)
            tables.r_flags[n] = int(ReaderFlag.IN_USE | ReaderFlag.READS)
            tables.r_queue[n], tables.r_client[n] = session.queue, n + 1
            self.clients.append(Client(session))

    def group(self, batch: list[bytes]) -> None:
        """As QueueManager._group."""
        self.writer.offset = 4096
        turn(self.server, batch)


def turn(server: RequestServer, batch: list[bytes]) -> None:
    """The manager's loop once."""
    server.due()
    server.group(batch, time.time_ns(), time.monotonic_ns(), lambda: False)


def measure(size: int, groups: int, *, cold: bool) -> list[float]:
    """Processor microseconds a message, one number a group."""
    count = 100 if size == 100 else 1
    world = World(2 if size == 100 else 2 * size)
    putters, readers = world.clients[::2], world.clients[1::2]
    body, trash, out = os.urandom(1024), np.zeros(4 << 20, np.uint8), []
    gc.collect()
    gc.freeze()
    for _ in range(groups):
        batch = [each.put(body, count) for each in putters]
        batch += [each.next(count) for each in readers]
        if cold:
            trash += 1
        begun = time.thread_time_ns()
        world.group(batch)
        out.append((time.thread_time_ns() - begun) / 1000 / size)
        for reader in readers:
            reader.got()
    return out


def main(arguments: list[str]) -> int:
    """Print the table."""
    groups = int(arguments[0]) if arguments else 1000
    form = World(2).server.form
    for size in (1, 4, 100):
        cells = []
        for cold in (False, True):
            found = sorted(measure(size, groups if size < 100 else groups // 8, cold=cold))
            cells.append(f"{statistics.median(found):7.2f} {found[len(found) // 4]:7.2f}")
        print(f"{form:12} {size:4}  warm {cells[0]}  cold {cells[1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
