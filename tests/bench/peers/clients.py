"""The client programs of the comparison: the same for every system, each in its own process.

As in tests/bench/clients.py a body begins with a mark and the time of its put, and a client notes
one row a request, from which what lies in the timed window is chosen later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.bench.clients import HEAD, IDLE_S, Control, Load, Rows, Source
from tests.bench.peers.peer import Wire
from tests.bench.peers.processes import pause

Connect = Callable[[], Wire]
_NS_PER_S = 1_000_000_000


def putter(connect: Connect, number: int, mark: int, load: Load, control: Control, start: Any
           ) -> Rows:
    """Put until told to stop."""
    rows, source, wire = Rows.none(), Source(mark, load), connect()
    start.wait()
    while not control.stopped:
        _put(wire, source, rows, load.batch)
        control.put(number, load.batch)
        control.wait_for_readers()
    wire.close()
    return rows


def paced_putter(connect: Connect, number: int, mark: int, load: Load, per_s: float,
                 control: Control, start: Any) -> Rows:
    """Put at a steady rate until told to stop; a put that comes late is not made up for."""
    rows, source, wire = Rows.none(), Source(mark, load), connect()
    start.wait()
    step = int(_NS_PER_S / per_s)
    due = time.monotonic_ns() + step * (number + 1) // (number + 2)  # not all at once
    while not control.stopped:
        pause(max(0, due - time.monotonic_ns()) / _NS_PER_S)
        _put(wire, source, rows, load.batch)
        control.put(number, load.batch)
        due = max(due + step, time.monotonic_ns())
    wire.close()
    return rows


def getter(connect: Connect, client: int, batch: int, control: Control, start: Any) -> Rows:
    """Get, look at and finish messages until there are no more."""
    rows, wire = Rows.none(), connect()
    count = got_at = 0
    start.wait()
    while True:
        last = control.drains  # looked at before: what comes later is still seen then
        bodies = wire.take(batch, IDLE_S)
        now = time.monotonic_ns()
        if count:
            rows.gots.extend((count, got_at, now))
        count, got_at = len(bodies), now
        if not bodies and last:
            wire.close()
            return rows
        for body in bodies:
            rows.heads += body[: HEAD.size]
        control.got(client, count)


def filler(connect: Connect, mark: int, load: Load, count: int, start: Any) -> Rows:
    """Put this many messages and end."""
    rows, source, wire = Rows.none(), Source(mark, load), connect()
    start.wait()
    while count:
        step = min(count, load.batch)
        _put(wire, source, rows, step)
        count -= step
    wire.close()
    return rows


def _put(wire: Wire, source: Source, rows: Rows, count: int) -> None:
    bodies = [source.body() for _ in range(count)]
    began = time.monotonic_ns()
    wire.put(bodies)
    now = time.monotonic_ns()
    rows.puts.extend((now, now - began, count))
