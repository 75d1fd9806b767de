"""Put, get, done: how many messages per second go all the way, and how long each takes.

A figure is measured in rounds; the figures take turns and the disk is probed before each round, so
that what else the machine does falls on all alike. The rate of a round is the smaller of the puts
and the dones acknowledged inside the window.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from omq.format.index import Counter
from tests.bench.clients import Load, getter, putter, unit_getter
from tests.bench.crowd import Crowd, Done, Ledger, Vector, crowd, timed
from tests.bench.instance import BenchError, Instance
from tests.bench.primitives import SyncProbe

KIB = 1024
# Requests of each reader that may wait: enough that none is ever idle, few enough that latencies
# tell how long the work takes and not how long a queue grew.
BACKLOG_REQUESTS = 16
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; `aim` is a multiple of fdatasync per second, 0 = none is set."""

    name: str
    title: str
    putters: int
    getters: int
    load: Load
    aim: float = 0.0

    @property
    def backlog_max(self) -> int:
        return BACKLOG_REQUESTS * self.getters * self.load.batch


MAIN_FIGURES = (
    Figure("single", "8+8 clients, single", 8, 8, Load(KIB), 1.2),
    Figure("batch", "4+4 clients, batch 100", 4, 4, Load(KIB, batch=100), 9.0),
    Figure("lone", "1+1 clients, single", 1, 1, Load(KIB), 0.4),
)
OTHER_FIGURES = (
    Figure("unit1", "4+4 clients, units of 1", 4, 4, Load(KIB, unit=True)),
    Figure("unit10", "4+4 clients, units of 10", 4, 4, Load(KIB, batch=10, unit=True)),
    Figure("unit100", "4+4 clients, units of 100", 4, 4, Load(KIB, batch=100, unit=True)),
    Figure("volatile", "8+8 single, non-persistent", 8, 8, Load(KIB, persistent=False)),
    Figure("small", "8+8 single, 64 B", 8, 8, Load(64)),
    Figure("large", "8+8 single, 64 KiB", 8, 8, Load(64 * KIB)),
)


@dataclass(frozen=True, slots=True)
class Timing:
    """How long each part of a round takes, in seconds."""

    warm_up_s: float
    window_s: float
    probe_s: float
    rounds: int


def measure(instance: Instance, ledger: Ledger, probe: SyncProbe, figures: list[Figure],
            timing: Timing) -> list[dict[str, Any]]:
    """All rounds of these figures, by turns; one record each."""
    rounds: dict[str, list[dict[str, Any]]] = {figure.name: [] for figure in figures}
    for _ in range(timing.rounds):
        for figure in figures:
            fdatasync = probe.rate(timing.probe_s)
            found = _round(instance, ledger, figure, timing)
            rounds[figure.name].append(found | {"fdatasync": fdatasync})
    return [_summary(figure, rounds[figure.name]) for figure in figures]


def _round(instance: Instance, ledger: Ledger, figure: Figure, timing: Timing) -> dict[str, Any]:
    before = instance.counters()
    with crowd(instance, figure.putters + figure.getters, figure.backlog_max) as made:
        marks = [ledger.mark() for _ in range(figure.putters)]
        putters = [_add_putter(instance, made, figure, number, mark)
                   for number, mark in enumerate(marks)]
        getters = [_add_getter(instance, made, figure, number) for number in range(figure.getters)]
        began, ended, cpu = timed(made, timing.warm_up_s, timing.window_s)
        made.control.stop()
        put = made.results(putters)
        made.control.drain()
        got = made.results(getters)
    for mark, client in zip(marks, put, strict=True):
        ledger.put(mark, int(client.puts[:, 2].sum()))
    for client in got:
        ledger.got(client.heads)
    after = instance.counters()
    if after[Counter.MESSAGES]:
        raise BenchError(f"{figure.title}: {after[Counter.MESSAGES]} messages are left")
    return _figures(put, got, began, ended, cpu) | _costs(before, after, put)


def _add_putter(instance: Instance, made: Crowd, figure: Figure, number: int, mark: int) -> int:
    spool = instance.paths.root
    return made.add(partial(putter, spool, number, mark, figure.load, made.control))


def _add_getter(instance: Instance, made: Crowd, figure: Figure, number: int) -> int:
    spool, batch = instance.paths.root, figure.load.batch
    client = figure.putters + number
    if figure.load.unit:
        return made.add(partial(unit_getter, spool, client, batch, made.control))
    return made.add(
        lambda start: getter(spool, client, batch, made.control, start, main=number == 0))


def _figures(put: list[Done], got: list[Done], began: int, ended: int, cpu: dict[str, float]
             ) -> dict[str, Any]:
    """Rates, latencies and CPU time inside the window."""
    seconds = (ended - began) / _NS_PER_S
    puts = np.concatenate([client.puts for client in put])
    puts = puts[_inside(puts[:, 0], began, ended)]
    answers = np.concatenate([_per_message(client) for client in got])
    answers = answers[_inside(answers[:, 2], began, ended)]
    put_rate, done_rate = int(puts[:, 2].sum()) / seconds, len(answers) / seconds
    if not len(answers):
        raise BenchError("no message was finished in the window")
    return {
        "rate": min(put_rate, done_rate),
        "put_rate": put_rate,
        "done_rate": done_rate,
        "put_ms": percentiles(puts[:, 1]),
        "got_ms": percentiles(answers[:, 1] - answers[:, 0]),
        "done_ms": percentiles(answers[:, 2] - answers[:, 0]),
        "cpu_us": {name: spent / len(answers) * 1e6 for name, spent in cpu.items()},
    }


def _inside(times: Vector, began: int, ended: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return (times >= began) & (times < ended)


def _per_message(client: Done) -> Vector:
    """Rows (put at, got at, done acknowledged at), one a message."""
    counts = client.gots[:, 0]
    rows = (client.heads[:, 1], np.repeat(client.gots[:, 1], counts),
            np.repeat(client.gots[:, 2], counts))
    return np.stack(rows, axis=1)


def percentiles(nanoseconds: Vector) -> dict[str, float]:
    """Milliseconds by percentile."""
    values = np.percentile(nanoseconds, PERCENTILES) / _NS_PER_MS
    return {f"p{point:g}": float(value) for point, value in zip(PERCENTILES, values, strict=True)}


def _costs(before: dict[Counter, int], after: dict[Counter, int], put: list[Done]
           ) -> dict[str, float]:
    """What the journal had to do for a message, over the whole round."""
    messages = sum(int(client.puts[:, 2].sum()) for client in put)
    grown = {counter: after[counter] - before[counter] for counter in after}
    return {
        "journal_bytes": grown[Counter.JOURNAL_BYTES] / messages,
        "messages_per_block": messages / max(1, grown[Counter.GROUPS]),
    }


def _summary(figure: Figure, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians; spread is (highest - lowest) / median of the rates."""
    rates = [each["rate"] for each in rounds]
    rate, fdatasync = statistics.median(rates), _median(rounds, "fdatasync")
    middle = min(rounds, key=lambda each: abs(each["rate"] - rate))  # its details belong together
    return {
        "name": figure.name,
        "title": figure.title,
        "rate": rate,
        "spread": (max(rates) - min(rates)) / rate,
        "fdatasync": fdatasync,
        "ratio": statistics.median(each["rate"] / each["fdatasync"] for each in rounds),
        "aim": figure.aim,
        **{key: middle[key] for key in ("put_ms", "got_ms", "done_ms", "cpu_us", "journal_bytes",
                                        "messages_per_block")},
        "rounds": rounds,
    }


def _median(rounds: list[dict[str, Any]], key: str) -> float:
    return float(statistics.median(each[key] for each in rounds))
