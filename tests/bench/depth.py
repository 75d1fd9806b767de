"""A queue a million deep: what it costs to fill, hold, restart, work on and empty.

    1. rates at depth 1,000            5. empty it: all of the 200-byte messages
    2. fill to N with 200-byte bodies  6. N messages of random sizes, put and deleted
    3. rates at depth N                7. rates at depth 1,000 again
    4. restart, ordered and killed     8. empty it; what is left on the disk

"Rates" are those of clients that put and take in turn, so that the depth stays what it is: eight
with single messages and four with batches of 100. A restart is cold: the manager itself drops the
page cache of what it reads; one in order includes the last checkpoint of pool.writer, for which the
manager waits. Each rate stands beside fdatasync per second of the same minute.
"""

from __future__ import annotations

import select
import signal
import statistics
import time
from functools import partial
from typing import Any

import numpy as np

from omq.format.index import Counter
from tests.bench.clients import BATCH_MAX, Load, filler, getter, pair
from tests.bench.crowd import Ledger, crowd, timed
from tests.bench.instance import MANAGER, POOL_WRITER, BenchError, Instance, memory
from tests.bench.leavings import checkpoints, spool_bytes
from tests.bench.primitives import SyncProbe
from tests.bench.throughput import Timing

SHALLOW = 1000
SIZE_BYTES = 200
RANDOM_BYTES = (16, 2000)
FILLERS, DRAINERS = 2, 2
STYLES = (("single", 8, 1), ("batch", 4, 100))  # name, clients, batch
CHECKPOINT_BOUND_S = 300.0
POLL_S = 0.1
_NS_PER_S = 1_000_000_000


class DepthBench:
    """Runs the steps on an instance; `record` has what was found."""

    def __init__(self, instance: Instance, ledger: Ledger, probe: SyncProbe, timing: Timing,
                 depth: int) -> None:
        self._instance = instance
        self._ledger = ledger
        self._probe = probe
        self._timing = timing
        self._depth = depth
        self._waiting = 0
        self.record: dict[str, Any] = {"depth": depth}

    def run(self) -> dict[str, Any]:
        """All steps in order. BenchError when a count is wrong."""
        record = self.record
        self._fill(SHALLOW, Load(SIZE_BYTES, batch=100))
        record["rates_shallow"] = self._rates()
        before = self._instance.counters()
        record["fill"] = self._fill(self._depth - SHALLOW, Load(SIZE_BYTES, batch=BATCH_MAX))
        record["journal_bytes"] = self._journal_bytes(before, self._depth - SHALLOW)
        record["memory"] = self._memory()
        record["rates_deep"] = self._rates()
        record["restart"] = [self._restart(number, settled=settled) for settled in (True, False)
                             for number in (signal.SIGTERM, signal.SIGKILL)]
        record["drain"] = self._drain()
        low, high = RANDOM_BYTES
        record["fill_random"] = self._fill(self._depth, Load(low, high, batch=100))
        record["drain_random"] = self._drain()
        self._fill(SHALLOW, Load(SIZE_BYTES, batch=100))
        record["rates_after"] = self._rates()
        self._drain()
        self._wait_checkpoint()
        record["spool_bytes"] = spool_bytes(self._instance.paths.root)
        record["checkpoints"] = checkpoints(self._instance.paths.event_log)
        return record

    # steps

    def _fill(self, count: int, load: Load) -> dict[str, Any]:
        """`count` messages more; the rate of each tenth shows whether depth slows it down."""
        with crowd(self._instance, FILLERS) as made:
            shares = [count // FILLERS + (n < count % FILLERS) for n in range(FILLERS)]
            marks = [self._ledger.mark() for _ in shares]
            spool = self._instance.paths.root
            for number, (mark, share) in enumerate(zip(marks, shares, strict=True)):
                made.add(partial(filler, spool, number, mark, load, share))
            began = time.monotonic_ns()
            made.begin()
            done = made.results(list(range(FILLERS)))
        for mark, share in zip(marks, shares, strict=True):
            self._ledger.put(mark, share)
        self._waiting += count
        self._check_depth()
        puts = np.concatenate([client.puts for client in done])
        puts = puts[np.argsort(puts[:, 0])]
        return {"rate": count * _NS_PER_S / int(puts[-1, 0] - began),
                "tenths": _tenths(puts[:, 0], puts[:, 2], began)}

    def _drain(self) -> dict[str, Any]:
        """Take and finish everything."""
        count = self._waiting
        with crowd(self._instance, DRAINERS) as made:
            spool = self._instance.paths.root
            for number in range(DRAINERS):
                made.add(partial(getter, spool, number, BATCH_MAX, made.control, main=number == 0))
            made.control.drain()
            began = time.monotonic_ns()
            made.begin()
            done = made.results(list(range(DRAINERS)))
        for client in done:
            self._ledger.got(client.heads)
        self._waiting = 0
        self._check_depth()
        ended = max(int(client.gots[-1, 2]) for client in done if len(client.gots))
        return {"rate": count * _NS_PER_S / (ended - began)}

    def _rates(self) -> dict[str, Any]:
        """Messages put and done per second at the depth that there is, and their ratio."""
        found: dict[str, Any] = {}
        for name, clients, batch in STYLES:
            rounds = []
            for _ in range(self._timing.rounds):
                fdatasync = self._probe.rate(self._timing.probe_s)
                rate, cpu = self._pairs(clients, batch)
                rounds.append({"rate": rate, "fdatasync": fdatasync, "cpu_us": cpu})
            found[name] = {
                "rate": statistics.median(each["rate"] for each in rounds),
                "fdatasync": statistics.median(each["fdatasync"] for each in rounds),
                "ratio": statistics.median(each["rate"] / each["fdatasync"] for each in rounds),
                "manager_us": statistics.median(each["cpu_us"] for each in rounds),
                "rounds": rounds,
            }
        return found

    def _pairs(self, clients: int, batch: int) -> tuple[float, float]:
        load = Load(SIZE_BYTES, batch=batch)
        with crowd(self._instance, clients) as made:
            marks = [self._ledger.mark() for _ in range(clients)]
            spool = self._instance.paths.root
            for number, mark in enumerate(marks):
                made.add(partial(pair, spool, number, mark, load, made.control))
            began, ended, cpu = timed(made, self._timing.warm_up_s, self._timing.window_s)
            made.control.stop()
            done = made.results(list(range(clients)))
        finished = 0
        for mark, client in zip(marks, done, strict=True):
            self._ledger.put(mark, int(client.puts[:, 2].sum()))
            self._ledger.got(client.heads)
            self._waiting += int(client.puts[:, 2].sum()) - len(client.heads)
            inside = (client.gots[:, 2] >= began) & (client.gots[:, 2] < ended)
            finished += int(client.gots[inside, 0].sum())
        self._check_depth()
        if not finished:
            raise BenchError("no message was finished in the window")
        return finished * _NS_PER_S / (ended - began), cpu[MANAGER] / finished * 1e6

    def _restart(self, number: signal.Signals, *, settled: bool) -> dict[str, Any]:
        """End the manager and start it again; READY means that it serves. Settled: the pool has
        everything; else there is a window's work in the journal alone."""
        instance = self._instance
        if settled:
            self._wait_checkpoint()
        else:
            self._pairs(*STYLES[-1][1:])
        stop_s = instance.stop(MANAGER, number)
        ready_s = instance.start(MANAGER)
        if not instance.alive(POOL_WRITER):
            instance.forget_dead(POOL_WRITER)
            instance.start(POOL_WRITER)
        self._check_depth()
        return {"signal": number.name, "settled": settled, "stop_s": stop_s, "ready_s": ready_s,
                "memory": memory(instance.pid(MANAGER))}

    # what is left behind

    def _check_depth(self) -> None:
        found = self._instance.counters()[Counter.MESSAGES]
        if found != self._waiting:
            raise BenchError(f"the index holds {found} messages, {self._waiting} should be there")

    def _journal_bytes(self, before: dict[Counter, int], messages: int) -> float:
        after = self._instance.counters()
        return (after[Counter.JOURNAL_BYTES] - before[Counter.JOURNAL_BYTES]) / messages

    def _memory(self) -> dict[str, Any]:
        size, per_message = self._instance.index_size()
        return {
            "segment_bytes": size,
            "capacity": self._instance.messages_max,
            "index_bytes_per_message": per_message,
            "segment_bytes_per_waiting_message": size / max(1, self._waiting),
            "manager": memory(self._instance.pid(MANAGER)),
            "pool_writer": memory(self._instance.pid(POOL_WRITER)),
        }

    def _wait_checkpoint(self) -> None:
        """Until the pool has everything: the disk then shows what an empty queue leaves."""
        deadline = time.monotonic() + CHECKPOINT_BOUND_S
        target = self._instance.counters()[Counter.DURABLE_LSN]
        while time.monotonic() < deadline:
            self._instance.check_alive()
            if self._instance.counters()[Counter.CHECKPOINT_LSN] >= target:
                return
            select.select([], [], [], POLL_S)
        raise BenchError(f"no checkpoint in {CHECKPOINT_BOUND_S:g} s")


def _tenths(times: Any, counts: Any, began: int) -> list[float]:
    """Messages per second in each tenth of the messages."""
    total = np.cumsum(counts)
    ends = [int(np.searchsorted(total, total[-1] * part / 10)) for part in range(1, 11)]
    rates, before_time, before_count = [], began, 0
    for end in ends:
        at = min(end, len(times) - 1)
        if int(times[at]) > before_time:
            rates.append((int(total[at]) - before_count) * _NS_PER_S
                         / (int(times[at]) - before_time))
        before_time, before_count = int(times[at]), int(total[at])
    return rates
