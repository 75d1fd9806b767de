"""The rounds of the comparison: the systems take turns, one runs while the others are frozen.

A round's rate is the smaller of what was put and what was done, each acknowledged inside the
window. At its end every message must have been got exactly once and nothing be left.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.bench.clients import Load, Rows
from tests.bench.crowd import Crowd, Done, Ledger, crowd, timed
from tests.bench.instance import BenchError
from tests.bench.peers.clients import getter, paced_putter, putter
from tests.bench.peers.peer import Peer
from tests.bench.peers.processes import pause
from tests.bench.primitives import SyncProbe
from tests.bench.throughput import BACKLOG_REQUESTS, KIB, Timing, percentiles

_NS_PER_S = 1_000_000_000
LEFT_BOUND_S = 20.0
LATENCY_CLIENTS = 8


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of load: so many clients on each side, so many messages a request."""

    name: str
    title: str
    clients: int
    load: Load
    lean: float  # the aim: multiple of the best peer, with its leanest client
    usual: float  # and of the best one with the library that people use
    cpu_us: tuple[int, int]  # processor time of a message, server and clients


WORKS = (
    Work("single", "8+8 clients, single", 8, Load(KIB), 1.5, 3.0, (30, 60)),
    Work("batch", "4+4 clients, batch 100", 4, Load(KIB, batch=100), 2.5, 3.0, (3, 5)),
    Work("lone", "1+1 clients, single", 1, Load(KIB), 1.3, 2.0, (85, 60)),
)


@contextmanager
def running(peers: list[Peer]) -> Iterator[None]:
    """All started, each frozen as soon as it is ready; all ended in any case."""
    try:
        for peer in peers:
            peer.start()
            peer.freeze()
        yield
    finally:
        for peer in peers:
            peer.stop()


def measure(peers: list[Peer], works: Sequence[Work], probe: SyncProbe, timing: Timing,
            said: Callable[[str], None]) -> list[dict[str, Any]]:
    """One record for each kind of work and system, with all its rounds."""
    rounds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(timing.rounds):
        for work in works:
            for peer in _turned(_able(peers, work), number):
                fdatasync = probe.rate(timing.probe_s)
                found = one_round(peer, work, timing)
                rounds.setdefault((work.name, peer.name), []).append(
                    found | {"fdatasync": fdatasync})
                said(f"round {number + 1}, {work.title}, {peer.title}: {found['rate']:,.0f}/s\n")
    return [_summary(work, peer, rounds[work.name, peer.name]) for work in works
            for peer in _able(peers, work)]


def latencies(peers: list[Peer], rates: dict[str, float], timing: Timing,
              said: Callable[[str], None]) -> list[dict[str, Any]]:
    """A durable put at half of each system's own rate, and at half of the best peer's."""
    work = WORKS[0]
    best = max((rate for name, rate in rates.items() if name != "omq"), default=rates["omq"])
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(timing.rounds):
        for peer in _turned(peers, number):
            for load, rate in (("own", rates[peer.name] / 2), ("same", best / 2)):
                if load == "same" and peer.name != "omq":
                    continue  # what the others cannot reach is no half load
                each = one_round(peer, work, timing, rate)
                found.setdefault((peer.name, load), []).append(each)
                said(f"round {number + 1}, half load ({load}), {peer.title}: p99 "
                     f"{each['put_ms']['p99']:.2f} ms at {each['put_rate']:,.0f}/s\n")
    return [{"peer": name, "load": load,
             "rate": statistics.median(each["put_rate"] for each in those),
             **{point: statistics.median(each["put_ms"][point] for each in those)
                for point in ("p50", "p99", "p99.9")}, "rounds": those}
            for (name, load), those in found.items()]  # fmt: skip


def one_round(peer: Peer, work: Work, timing: Timing, per_s: float = 0.0) -> dict[str, Any]:
    """Thaw, work, count, freeze. `per_s`: puts in all, else as fast as it goes."""
    peer.thaw()
    ledger = Ledger()
    backlog = BACKLOG_REQUESTS * work.clients * work.load.batch
    with crowd(peer, 2 * work.clients, backlog) as made:
        marks = [ledger.mark() for _ in range(work.clients)]
        for number, mark in enumerate(marks):
            made.add(_putting(peer, work, number, mark, per_s, made))
        for number in range(work.clients):
            made.add(partial(getter, partial(peer.getter, number, work.load.batch),
                             work.clients + number, work.load.batch, made.control))
        began, ended, cpu = timed(made, timing.warm_up_s, timing.window_s)
        made.control.stop()
        put = made.results(list(range(work.clients)))
        made.control.drain()
        got = made.results(list(range(work.clients, 2 * work.clients)))
    for mark, client in zip(marks, put, strict=True):
        ledger.put(mark, int(client.puts[:, 2].sum()))
    for client in got:
        ledger.got(client.heads)
    _check(peer, ledger)
    peer.freeze()
    return _figures(put, got, began, ended, cpu)


def _putting(peer: Peer, work: Work, number: int, mark: int, per_s: float, made: Crowd
             ) -> Callable[[Any], Rows]:
    if per_s:
        return partial(paced_putter, peer.putter, number, mark, work.load,
                       per_s / work.clients / work.load.batch, made.control)
    return partial(putter, peer.putter, number, mark, work.load, made.control)


def _check(peer: Peer, ledger: Ledger) -> None:
    """An acknowledgement without an answer may take effect a little later."""
    waited = 0.0
    while (left := peer.waiting()) and waited < LEFT_BOUND_S:
        pause(0.05)
        waited += 0.05
    try:
        ledger.check(left)
    except BenchError as error:
        raise BenchError(f"{peer.title}: {error}") from None


def _figures(put: list[Done], got: list[Done], began: int, ended: int, cpu: dict[str, float]
             ) -> dict[str, Any]:
    seconds = (ended - began) / _NS_PER_S
    puts = np.concatenate([client.puts for client in put])
    puts = puts[(puts[:, 0] >= began) & (puts[:, 0] < ended)]
    gots = np.concatenate([client.gots for client in got])
    gots = gots[(gots[:, 2] >= began) & (gots[:, 2] < ended)]
    put_rate, done_rate = int(puts[:, 2].sum()) / seconds, int(gots[:, 0].sum()) / seconds
    took = puts[:, 1] if len(puts) else np.array([ended - began])  # none in time: at least that
    messages = max(1.0, done_rate * seconds)
    return {
        "rate": min(put_rate, done_rate), "put_rate": put_rate, "done_rate": done_rate,
        "put_ms": percentiles(took),
        "cpu_us": {name: spent / messages * 1e6 for name, spent in cpu.items()},
    }  # fmt: skip


def _summary(work: Work, peer: Peer, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [each["rate"] for each in rounds]
    middle = statistics.median(rates)
    return {
        "work": work.name, "peer": peer.name, "rate": middle,
        "lowest": min(rates), "highest": max(rates),
        "fdatasync": statistics.median(each["fdatasync"] for each in rounds),
        "cpu_us": min(rounds, key=lambda each: abs(each["rate"] - middle))["cpu_us"],
        "rounds": rounds,
    }  # fmt: skip


def _able(peers: list[Peer], work: Work) -> list[Peer]:
    return [peer for peer in peers if peer.batches or work.load.batch == 1]


def _turned(peers: list[Peer], number: int) -> list[Peer]:
    """Nobody is always first."""
    at = number % len(peers)
    return [*peers[at:], *peers[:at]]
