"""What members who flood the manager cost the puts of others: ratios of p99 within one run.

One client of the owner puts persistent messages of 1 KiB one by one. In each round it does so
alone, beside two processes that only burn processor time, and beside two flooders of each kind
(tests.bench.aims.flooders). The aim is judged against the burning processes: that two processes
more share the processors is no weakness of the manager's. It is not judged where the rounds beside
those differ too much.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np

import omq
from omq.base.errors import QueueFull
from tests.bench.aims import flooders
from tests.bench.aims.finding import Finding, Setting, at_most, said, steady
from tests.bench.instance import MANAGER, POOL_WRITER, QUEUE, BenchError, Instance
from tests.bench.throughput import percentiles

RATIO_MAX = 10.0
FLOODERS = 2
MESSAGES_MAX, MESSAGES_QUICK = 1_500_000, 50_000
BODY = bytes(1024)
KINDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "spin": ("burn processor time", flooders.spin),
    "connects": ("connect and say nothing", flooders.connects),
    "lines": ("send empty lines", flooders.lines),
    "garbage": ("send garbage requests", flooders.garbage),
    "requests": ("send valid requests without waiting", flooders.requests),
    "batches": ("put batches of half a MiB", flooders.batches),
}


def bench(setting: Setting) -> list[Finding]:
    """One finding for each kind of flood."""
    instance = _instance(setting)
    root = instance.paths.root
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ("alone", *KINDS)}
    try:
        instance.start(MANAGER)
        instance.start(POOL_WRITER)
        for number in range(setting.timing.rounds):
            found["alone"].append(_puts(root, setting))
            for name, (_, work) in KINDS.items():
                with flooders.crowd(work, root, FLOODERS):
                    found[name].append(_puts(root, setting))
                said(f"floods: round {number + 1}, {name}: p99 {found[name][-1]['p99']:.2f} ms\n")
                instance.check_alive()
        if not setting.quick:
            _check_room(root)
        instance.stop(POOL_WRITER)
        instance.stop(MANAGER)
    finally:
        with contextlib.suppress(BenchError):
            instance.kill_all()
    return [_finding(name, found) for name in KINDS if name != "spin"]


def _instance(setting: Setting) -> Instance:
    messages = MESSAGES_QUICK if setting.quick else MESSAGES_MAX
    # Half of the index is for the puts that are timed, however quick the flood is.
    bounded = f"{flooders.QUEUE}\nmax_depth = {messages // 2}"
    instance = Instance(setting.folder("floods"), messages, (bounded,))
    (instance.conf / "authority.conf").write_text(f"[{flooders.QUEUE}]\nuser:nobody = put\n")
    return instance


def _check_room(root: Path) -> None:
    """BenchError where the flood ended at its bound: what was timed was in part its refusals."""
    with omq.connect(spool=root, name="room") as connection:
        try:
            connection.put(flooders.QUEUE, b"")
        except QueueFull as error:
            raise BenchError(f"the flood was stopped ({error}); raise MESSAGES_MAX") from error


def _puts(root: Path, setting: Setting) -> dict[str, float]:
    """Percentiles of the window in ms, and puts a second."""
    timing, took = setting.timing, array("q")
    with omq.connect(spool=root, name="others") as connection:
        ends = time.monotonic_ns() + int(timing.warm_up_s * 1e9)
        while time.monotonic_ns() < ends:
            connection.put(QUEUE, BODY)
        began = now = time.monotonic_ns()
        ends = began + int(timing.window_s * 1e9)
        while now < ends:
            connection.put(QUEUE, BODY)
            before, now = now, time.monotonic_ns()
            took.append(now - before)
    return percentiles(np.frombuffer(took, dtype="<i8")) | {
        "rate": len(took) / (now - began) * 1e9}


def _finding(name: str, found: dict[str, list[dict[str, float]]]) -> Finding:
    ratios = [flooded["p99"] / beside["p99"] for flooded, beside in zip(
        found[name], found["spin"], strict=True)]
    p99 = {each: statistics.median(row["p99"] for row in found[each])
           for each in ("alone", "spin", name)}
    rate = {each: statistics.median(row["rate"] for row in found[each])
            for each in ("alone", "spin", name)}
    ratio = statistics.median(ratios)
    rates = [row["rate"] for row in found["spin"]]
    spread = (max(rates) - min(rates)) / statistics.median(rates)
    return steady(at_most(
        f"members {KINDS[name][0]}: p99 of others' puts <= {RATIO_MAX:.0f} times", ratio, RATIO_MAX,
        f"{ratio:.1f} times ({min(ratios):.1f} to {max(ratios):.1f}): {p99[name]:.1f} ms, "
        f"{p99['spin']:.1f} beside two busy processes, {p99['alone']:.1f} alone; "
        f"{rate[name]:,.0f}, {rate['spin']:,.0f} and {rate['alone']:,.0f} puts/s",
        ratios=ratios, p99=p99, rate=rate), spread)
