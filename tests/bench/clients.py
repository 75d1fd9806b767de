"""The client programs of the bench: small functions over the public API, each in its own process.

Every body begins with a mark (which client put it, and its number there) and the time of its put,
so that whoever gets it can tell that nothing is missing or double, and how long it took.

A client notes one row per request and returns all rows at its end; what lies inside the timed
window is chosen later, from the times in the rows.
"""

from __future__ import annotations

import os
import random
import select
import struct
import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omq
from omq.ipc.client.connection import Client
from tests.bench.instance import QUEUE

HEAD = struct.Struct("<qq")  # mark, time of the put in monotonic ns
NUMBER_BITS = 40
IDLE_S = 0.2  # a reader without messages looks this often whether it may end
LOOK_EVERY = 4  # puts between two looks at how far ahead the putters are
PAUSE_S = 0.001  # a putter that is too far ahead of the readers
SIZES = 4096  # different random sizes, used in turn
BATCH_MAX = 1000


@dataclass(frozen=True, slots=True)
class Load:
    """What a client puts and how; `size_max` above `size`: sizes between them, by chance. `unit`:
    its batches are units of work."""

    size: int = 1024
    size_max: int = 0
    batch: int = 1
    persistent: bool = True
    unit: bool = False


@dataclass(slots=True)
class Rows:
    """What a client did: for each request (acknowledged at, took ns, messages); for each answer
    with messages (messages, got at, done acknowledged at) and the heads of all bodies in order."""

    puts: array[int]
    gots: array[int]
    heads: bytearray

    @classmethod
    def none(cls) -> Rows:
        return cls(array("q"), array("q"), bytearray())


class Control:
    """Shared between parent and clients: when to end, and how many each has put and got."""

    STOP, DRAIN, PUT, GOT = 0, 1, 2, 3

    def __init__(self, cells: Any, backlog_max: int) -> None:
        self._cells = memoryview(cells).cast("B").cast("q")  # RawArray("q"), 2 + 2 a client
        self._backlog_max = backlog_max
        self._turn = 0

    @property
    def stopped(self) -> bool:
        """Putters end now."""
        return bool(self._cells[self.STOP])

    @property
    def drains(self) -> bool:
        """Readers end when there is nothing more."""
        return bool(self._cells[self.DRAIN])

    def stop(self) -> None:
        self._cells[self.STOP] = 1

    def drain(self) -> None:
        self._cells[self.DRAIN] = 1

    def put(self, client: int, count: int) -> None:
        self._cells[self.PUT + 2 * client] += count

    def got(self, client: int, count: int) -> None:
        self._cells[self.GOT + 2 * client] += count

    def wait_for_readers(self) -> None:
        """Keep the backlog bounded: the figures are those of messages that go all the way. Looked
        at seldom, for looking costs as much as a good part of a put."""
        self._turn += 1
        if self._turn % LOOK_EVERY:
            return
        while self._ahead() > self._backlog_max and not self.stopped:
            select.select([], [], [], PAUSE_S)

    def _ahead(self) -> int:
        return sum(self._cells[self.PUT :: 2]) - sum(self._cells[self.GOT :: 2])


class Source:
    """The messages of one client, numbered."""

    def __init__(self, client_mark: int, load: Load) -> None:
        self._load = load
        self._next = client_mark << NUMBER_BITS
        self._filler = os.urandom(max(load.size, load.size_max) - HEAD.size)
        self._sizes = self._lengths(client_mark)

    def _lengths(self, seed: int) -> list[int]:
        load = self._load
        if not load.size_max:
            return [load.size - HEAD.size]
        chosen = random.Random(seed)
        return [chosen.randint(load.size, load.size_max) - HEAD.size for _ in range(SIZES)]

    def body(self) -> bytes:
        mark = self._next
        self._next = mark + 1
        length = self._sizes[mark % len(self._sizes)]
        filler = self._filler if length == len(self._filler) else self._filler[:length]
        return HEAD.pack(mark, time.monotonic_ns()) + filler

    def put(self, connection: Client, rows: Rows, count: int) -> None:
        """Put `count` messages in one request and note it."""
        persistent = self._load.persistent
        if self._load.unit:
            bodies = [self.body() for _ in range(count)]
            began = time.monotonic_ns()
            with connection.unit() as unit:
                for body in bodies:
                    unit.put(QUEUE, body, persistent=persistent)
        elif count == 1:
            body = self.body()
            began = time.monotonic_ns()
            connection.put(QUEUE, body, persistent=persistent)
        else:
            bodies = [self.body() for _ in range(count)]
            began = time.monotonic_ns()
            connection.put_many(
                QUEUE, [omq.Outgoing(body=body, persistent=persistent) for body in bodies])
        now = time.monotonic_ns()
        rows.puts.extend((now, now - began, count))


def putter(spool: Path, number: int, mark: int, load: Load, control: Control, start: Any) -> Rows:
    """Put until told to stop."""
    rows, source = Rows.none(), Source(mark, load)
    with omq.connect(spool=spool, name=f"put{number}") as connection:
        start.wait()
        while not control.stopped:
            source.put(connection, rows, load.batch)
            control.put(number, load.batch)
            control.wait_for_readers()
    return rows


def getter(spool: Path, number: int, batch: int, control: Control, start: Any, *, main: bool
           ) -> Rows:
    """Get, look at and finish messages until there are no more; "done" goes with the next "get"."""
    rows, finished = Rows.none(), _Finished()
    with (
        omq.connect(spool=spool, name=f"get{number}") as connection,
        connection.reader(QUEUE, batch=batch, auxiliary=not main) as reader,
    ):
        start.wait()
        while True:
            # Looked at before: what comes after the last putter's end is still seen then.
            last = control.drains
            messages = reader.next(batch, IDLE_S)
            finished.acknowledged(rows)
            if not messages and last:
                return rows
            _take(messages, rows, finished)
            control.got(number, len(messages))


def unit_getter(spool: Path, number: int, batch: int, control: Control, start: Any) -> Rows:
    """The same in units of work: what is taken is finished by the commit."""
    rows, finished = Rows.none(), _Finished()
    with omq.connect(spool=spool, name=f"get{number}") as connection:
        start.wait()
        while True:
            last = control.drains
            with connection.unit() as unit:
                messages = unit.next(QUEUE, batch, IDLE_S)
                for message in messages:
                    rows.heads += message.body[: HEAD.size]
                finished.hold(len(messages), time.monotonic_ns())
            finished.acknowledged(rows)
            if not messages and last:
                return rows
            control.got(number, len(messages))


def pair(spool: Path, number: int, mark: int, load: Load, control: Control, start: Any) -> Rows:
    """Put as many as are then taken, over and over: the depth of the queue stays what it is."""
    rows, source, finished = Rows.none(), Source(mark, load), _Finished()
    with (
        omq.connect(spool=spool, name=f"pair{number}") as connection,
        connection.reader(QUEUE, batch=load.batch) as reader,
    ):
        start.wait()
        while not control.stopped:
            source.put(connection, rows, load.batch)
            messages = reader.next(load.batch, IDLE_S)
            finished.acknowledged(rows)
            _take(messages, rows, finished)
        reader.flush()
        finished.acknowledged(rows)
    return rows


def filler(spool: Path, number: int, mark: int, load: Load, count: int, start: Any) -> Rows:
    """Put this many messages and end."""
    rows, source = Rows.none(), Source(mark, load)
    with omq.connect(spool=spool, name=f"fill{number}") as connection:
        start.wait()
        left = count
        while left:
            step = min(left, load.batch)
            source.put(connection, rows, step)
            left -= step
    return rows


class _Finished:
    """What was recorded as done and is acknowledged with the next answer."""

    def __init__(self) -> None:
        self._count = 0
        self._got_at = 0

    def hold(self, count: int, got_at: int) -> None:
        self._count, self._got_at = count, got_at

    def acknowledged(self, rows: Rows) -> None:
        if self._count:
            rows.gots.extend((self._count, self._got_at, time.monotonic_ns()))
            self._count = 0


def _take(messages: list[omq.Message], rows: Rows, finished: _Finished) -> None:
    heads = rows.heads
    for message in messages:
        heads += message.body[: HEAD.size]
        message.done()
    finished.hold(len(messages), time.monotonic_ns())
