"""What pool.writer and the archive cost the front, and whether pool.writer keeps up.

Two instances under the same load by turns: in one pool.writer works as always and omq-archive runs
again and again; in the other pool.writer is frozen while its round lasts.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

from omq.base.settings import DEFAULTS
from omq.format.index import Counter
from tests.bench.aims.finding import Finding, Setting, at_most, said, steady
from tests.bench.instance import MANAGER
from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.processes import Server, pause, thaw_all, tree
from tests.bench.peers.rounds import WORKS, measure, one_round, running
from tests.bench.throughput import Timing

COST_MAX = 0.15
KEEP = {"journal": {"archive": "keep"}, "archive": {"archive_bytes_max": "1 GiB"}}
CAUGHT_UP_BOUND_S = 120.0
FRAMES_OF_MESSAGE = 3  # PUT, GIVE, DONE
GROWTH_MAX = 1.25
PEAK_S, PEAK_QUICK_S = 20.0, 1.0
_PAUSE_S = 0.2


class InFront(OmqPeer):
    """Only the manager runs while it is measured."""

    name = "front"
    title = "without pool.writer and archive"

    def thaw(self) -> None:
        if self.instance.alive(MANAGER):
            thaw_all(tree(self.instance.pid(MANAGER)))

    def stop(self) -> None:
        super().thaw()
        super().stop()


class Whole(OmqPeer):
    """Everything runs."""

    name = "whole"
    title = "with pool.writer and archive"

    def start(self) -> None:
        super().start()
        paths = self.instance.paths
        archive = Server("omq-archive", self.folder)
        archive.start(
            [sys.executable, "-P", "-m", "tests.bench.aims.archive_again", paths.root,
             self.instance.conf], {})  # fmt: skip
        self.servers = [archive]

    def pids(self) -> list[int]:
        return [*super().pids(), *(pid for each in self.servers for pid in each.pids())]

    def stop(self) -> None:
        for server in self.servers:
            server.stop()
        super().stop()


def bench(setting: Setting) -> list[Finding]:
    whole = Whole(setting.folder("whole"), settings=KEEP)
    front = InFront(setting.folder("front"), settings=KEEP)
    works = WORKS[1:2] if setting.quick else WORKS[:2]
    findings = []
    with running([front, whole]):
        found = measure([front, whole], works, setting.probe, setting.timing, said)
        rates = {(each["peer"], each["work"]): each["rate"] for each in found}
        rounds = {(each["peer"], each["work"]): each["rounds"] for each in found}
        for work in works:
            cost = 1 - statistics.median(
                a["rate"] / max(1.0, b["rate"]) for a, b in zip(
                    rounds["whole", work.name], rounds["front", work.name], strict=True))
            spread = _spread(found, work.name)
            findings.append(steady(at_most(
                f"checkpoint and archive cost the front < 15 % ({work.title})", cost, COST_MAX,
                f"{cost:+.1%}: {rates['whole', work.name]:,.0f} and "
                f"{rates['front', work.name]:,.0f} messages/s; rounds differ by {spread:.0%}"),
                spread))
        findings.append(_keeps_up(whole, setting))
    return findings


def _spread(found: list[dict[str, Any]], work: str) -> float:
    """How far the rounds of the same thing differ, of its median."""
    spreads: list[float] = [(each["highest"] - each["lowest"]) / max(1.0, each["rate"])
                            for each in found if each["work"] == work]
    return max(spreads)


def _keeps_up(peer: Whole, setting: Setting) -> Finding:
    """At the peak rate: the checkpoint is not further behind after twice the time."""
    seconds = PEAK_QUICK_S if setting.quick else PEAK_S
    lags, rates = [], []
    for _ in range(2):
        rates.append(one_round(peer, WORKS[1], Timing(0.5, seconds, 0.0, 1))["rate"])
        peer.thaw()
        lags.append(_lag(peer.instance.counters()))
    began = time.monotonic()
    while _lag(peer.instance.counters()) > 0 and time.monotonic() - began < CAUGHT_UP_BOUND_S:
        pause(_PAUSE_S)
    took = time.monotonic() - began
    peer.freeze()
    one_interval = DEFAULTS.checkpoint_interval_s * rates[0] * FRAMES_OF_MESSAGE
    return at_most(
        "pool.writer keeps up with the peak rate, or its lag is bounded", lags[1],
        max(GROWTH_MAX * lags[0], one_interval),
        f"frames behind the checkpoint at {rates[0]:,.0f} messages/s: {lags[0]:,} after "
        f"{seconds:g} s, {lags[1]:,} after {2 * seconds:g} s; none {took:.1f} s later")


def _lag(counters: dict[Counter, int]) -> int:
    return counters[Counter.DURABLE_LSN] - counters[Counter.CHECKPOINT_LSN]
