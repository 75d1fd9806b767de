"""The one look of the console at its instance, for all pages: a thread that looks, and remembers.

It looks each web_period_ms while a page follows, else each web_ring_period_s for the sparklines. So
ten open pages cost what one does, and none costs the queue manager anything (omq.cli.watch.facts).
Invariants: 1. one look at a time; 2. a look that fails is shown as such, and the next one is made.

The last hour of some figures is kept for the sparklines (Ring): 3. all series have their points at
the same times; one that was not there has gaps; 4. a series whose figure is not told any more goes
when its last point has left the hour; 5. memory is bounded by the number of series, four bytes a
point.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omq.base import clock
from omq.base.arrays import Vector
from omq.base.errors import OmqError
from omq.base.settings import Settings
from omq.cli.watch import alarm_file
from omq.cli.watch.conditions import Condition, raised
from omq.cli.watch.facts import ABSENT, Facts, gather
from omq.services.daemon.options import Location

RATED: Final = ("puts", "gives", "dones", "expired", "journal_bytes", "groups", "paused_ms")
"""Counters whose rates are shown."""
HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True)
class Moment:
    """What was seen. `rates`: of counters, a second; `moving`: messages a second on and off each
    queue. `problem`: why nothing was seen."""

    seen_s: float  # monotonic
    facts: Facts | None
    rates: dict[str, float] = field(default_factory=dict)
    moving: dict[str, tuple[float, float]] = field(default_factory=dict)
    alarms: tuple[Condition, ...] = ()
    watched: bool = False  # somebody looks for alarms
    problem: str = ""

    @property
    def state(self) -> str:
        """Of watch.facts.STATES."""
        return ABSENT if self.facts is None else self.facts.state


class Ring:
    """The last hour of some figures. One thread adds; what `series` gives is a copy."""

    def __init__(self, period_s: int) -> None:
        self.period_s = period_s
        self.points = HOUR_S // period_s
        self._at = 0
        self._kept: dict[str, Vector] = {}

    def add(self, figures: Mapping[str, float]) -> None:
        """The next point of each series."""
        for name in figures.keys() - self._kept.keys():
            self._kept[name] = np.full(self.points, math.nan, dtype="<f4")
        for name, values in tuple(self._kept.items()):
            values[self._at] = figures.get(name, math.nan)
            if name not in figures and np.isnan(values).all():
                del self._kept[name]
        self._at = (self._at + 1) % self.points

    def series(self, name: str) -> list[float]:
        """Its points, the oldest first; NaN where there is none; empty: no such series."""
        values = self._kept.get(name)
        if values is None:
            return []
        at = self._at
        found: list[float] = np.concatenate((values[at:], values[:at])).tolist()
        return found


class Snapshots:
    """See the module. `told` is called in its thread with each new moment."""

    def __init__(self, location: Location, settings: Settings,
                 told: Callable[[Moment], None] = lambda moment: None) -> None:
        self.ring = Ring(settings.web_ring_period_s)
        self.followers = 0  # set by the event loop
        self._location, self._settings, self._told = location, settings, told
        self._lock = threading.Lock()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._spoilt = False
        self._latest: Moment | None = None
        self._pointed: Moment | None = None  # the one of the last point of the ring
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def wake(self) -> None:
        """Somebody follows now."""
        self._wake.set()

    def spoil(self) -> None:
        """Something was done: whoever asks next sees it."""
        with self._lock:
            self._spoilt = True

    def now(self) -> Moment:
        """A moment that is not older than web_period_ms. It may take a look: not for the event
        loop."""
        with self._lock:
            latest = self._latest
            if self._spoilt or latest is None or (
                    time.monotonic() - latest.seen_s > self._settings.web_period_ms / 1000):
                latest = self._latest = self._look(latest)
                self._spoilt = False
            return latest

    def _run(self) -> None:
        point_s = time.monotonic()
        while not self._stop.is_set():
            moment = self.now()
            if time.monotonic() >= point_s:
                point_s = time.monotonic() + self.ring.period_s
                self.ring.add(figures(moment, self._pointed))
                self._pointed = moment
            self._told(moment)
            left = max(0.0, point_s - time.monotonic())
            self._wake.wait(min(left, self._settings.web_period_ms / 1000) if self.followers
                            else left)
            self._wake.clear()

    def _look(self, before: Moment | None) -> Moment:
        seen_s = time.monotonic()
        try:
            facts = gather(self._location)
        except OmqError as error:
            return Moment(seen_s, None, problem=str(error))
        kept = alarm_file.read(self._location.paths)
        alarms = tuple(raised(kept.conditions.values())) if kept.living else ()
        found = Moment(seen_s, facts, alarms=alarms, watched=kept.living)
        rates(found, before)
        return found


def rates(moment: Moment, before: Moment | None) -> None:
    """Fill in what moved since the moment before; nothing, when the manager is another one."""
    facts, old = moment.facts, None if before is None else before.facts
    if facts is None or old is None or not facts.counters or not old.counters:
        return
    elapsed_s = (facts.time_ns - old.time_ns) / clock.NS_PER_S
    if elapsed_s <= 0:
        return
    moment.rates.update({name: _rate(facts.counters[name], old.counters[name], elapsed_s)
                         for name in RATED})
    known = {each.row.number: each.row for each in old.queues}
    for each in facts.queues:
        row = known.get(each.row.number)
        if row is not None and row.name == each.row.name:
            moment.moving[row.name] = (_rate(each.row.ever, row.ever, elapsed_s),
                                       _rate(each.row.processed, row.processed, elapsed_s))


def _rate(now: int, before: int, elapsed_s: float) -> float:
    return max(0.0, (now - before) / elapsed_s)


def figures(moment: Moment, before: Moment | None) -> dict[str, float]:
    """What the ring remembers of a moment; rates since the point before."""
    facts = moment.facts
    if facts is None or not facts.counters:
        return {}
    since = Moment(moment.seen_s, facts)
    rates(since, before)
    found = {f":{name}": value for name, value in since.rates.items()}
    found |= {":messages": float(facts.counters["messages"]),
              ":clients": float(facts.counters["clients"]),
              ":lag": float(facts.checkpoint_lag),
              ":oldest": max((each.oldest_s(facts.time_ns) for each in facts.queues), default=0.0)}
    if facts.space.free_bytes is not None:
        found[":free"] = float(facts.space.free_bytes)
    for each in facts.queues:
        name = each.row.name
        found[f"{name}:messages"] = float(each.row.messages)
        found[f"{name}:oldest"] = each.oldest_s(facts.time_ns)
        with suppress(KeyError):
            found[f"{name}:in"], found[f"{name}:out"] = since.moving[name]
    return found
