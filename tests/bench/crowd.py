"""Client processes run together: a start barrier, a warm-up, a timed window, an orderly end.

The window is told by times, not by the processes: all clients run before, through and after it, so
nothing in it is the cost of starting or stopping. CPU time is read at its two ends.

BenchError when a client fails; no process is left in any case.
"""

from __future__ import annotations

import time
import traceback
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import multiprocess
import numpy as np
from multiprocess.connection import wait as wait_for

from tests.bench.clients import HEAD, NUMBER_BITS, Control, Rows
from tests.bench.instance import BenchError, cpu_seconds

Vector = np.ndarray[Any, np.dtype[np.int64]]
Client = Callable[[Any], Rows]  # (start barrier) -> rows

START_BOUND_S = 60.0
END_BOUND_S = 600.0
LOST = -1  # sent instead of rows by a client that failed

_fork = multiprocess.get_context("fork")


class Served(Protocol):
    """What the clients work on: omq's instance, or a peer."""

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by daemon."""

    def check_alive(self) -> None:
        """BenchError when one has died."""


@dataclass(slots=True)
class Ledger:
    """All that was ever put and got; in the end they must be the same."""

    next_mark: int = 1
    put_count: int = 0
    _put: dict[int, int] = field(default_factory=dict)
    _got: list[Vector] = field(default_factory=list)

    def mark(self) -> int:
        """A number for one more putting client."""
        self.next_mark += 1
        return self.next_mark - 1

    def put(self, mark: int, count: int) -> None:
        self._put[mark] = count
        self.put_count += count

    def got(self, heads: Vector) -> None:
        self._got.append(heads[:, 0].copy())

    @property
    def got_count(self) -> int:
        return sum(map(len, self._got))

    def check(self, left: int) -> None:
        """BenchError unless each message was got once; `left` is what the index still holds."""
        wanted = [np.arange(count, dtype="<i8") + (mark << NUMBER_BITS)
                  for mark, count in self._put.items()]
        expected = np.sort(np.concatenate(wanted)) if wanted else np.zeros(0, "<i8")
        got = np.sort(np.concatenate(self._got)) if self._got else np.zeros(0, "<i8")
        if left or not np.array_equal(expected, got):
            double = len(got) - len(np.unique(got))
            missing = len(np.setdiff1d(expected, got))
            foreign = len(np.setdiff1d(got, expected))
            raise BenchError(f"wrong counts: {len(expected)} put, {len(got)} got, {missing} "
                             f"missing, {double} double, {foreign} unknown; the index has {left}")


@dataclass(frozen=True, slots=True)
class Done:
    """What one client did, as numbers."""

    puts: Vector  # rows: acknowledged at, took, messages
    gots: Vector  # rows: messages, got at, done acknowledged at
    heads: Vector  # rows: mark, time of the put


class Crowd:
    """Processes that run one client function each."""

    def __init__(self, served: Served, backlog_max: int, clients: int) -> None:
        self._served = served
        self.control = Control(_fork.RawArray("q", 2 + 2 * clients), backlog_max)
        self._barrier = _fork.Barrier(clients + 1)
        self._processes: list[Any] = []
        self._pipes: list[Any] = []

    def add(self, client: Client) -> int:
        """Fork a client; its number."""
        receiving, sending = _fork.Pipe(duplex=False)
        process = _fork.Process(target=_run, args=(client, self._barrier, sending))
        process.start()
        sending.close()
        self._processes.append(process)
        self._pipes.append(receiving)
        return len(self._processes) - 1

    def begin(self) -> None:
        """All are connected; off they go."""
        self._barrier.wait(START_BOUND_S)

    def run_for(self, seconds: float) -> None:
        """Let them work, unless one ends early."""
        ended = wait_for(self._pipes, seconds)
        if ended:
            self.results([self._pipes.index(pipe) for pipe in ended])
            raise BenchError("a client ended too early")

    def results(self, numbers: list[int]) -> list[Done]:
        """What these clients did; waits for them to end."""
        return [self._result(number) for number in numbers]

    def _result(self, number: int) -> Done:
        pipe = self._pipes[number]
        if not pipe.poll(END_BOUND_S):
            raise BenchError(f"client {number} does not end")
        try:
            parts = [pipe.recv_bytes() for _ in range(3)]
        except EOFError:
            raise BenchError(f"client {number} failed; its traceback is above") from None
        puts, gots, heads = (np.frombuffer(part, "<i8") for part in parts)
        return Done(puts.reshape(-1, 3), gots.reshape(-1, 3), heads.reshape(-1, 2))

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of the daemons and of all clients together."""
        clients = sum(cpu_seconds(each.pid) for each in self._processes)
        return self._served.cpu() | {"clients": clients}

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()


@contextmanager
def crowd(served: Served, clients: int, backlog_max: int = 1 << 40) -> Iterator[Crowd]:
    """A crowd for a `with`: no process outlives it."""
    made = Crowd(served, backlog_max, clients)
    try:
        yield made
        served.check_alive()
    finally:
        made.close()


def timed(made: Crowd, warm_up_s: float, window_s: float) -> tuple[int, int, dict[str, float]]:
    """Begin, warm up, run through the window: (its begin, its end, CPU seconds in it)."""
    made.begin()
    made.run_for(warm_up_s)
    before, began = made.cpu(), time.monotonic_ns()
    made.run_for(window_s)
    ended, after = time.monotonic_ns(), made.cpu()
    return began, ended, {name: after[name] - before[name] for name in after if name in before}


def _run(client: Client, barrier: Any, pipe: Any) -> None:
    try:
        rows = client(barrier)
    except BaseException:
        traceback.print_exc()
        barrier.abort()
        pipe.close()
        raise SystemExit(1) from None
    for part in (rows.puts, rows.gots, rows.heads):
        pipe.send_bytes(part.tobytes() if isinstance(part, array) else bytes(part))
    pipe.close()


assert HEAD.size == 16, "heads are read as two numbers a row"
