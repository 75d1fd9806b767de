"""Goes through what power cuts leave of a standby's disk, and of the primary's under a standby that
is ahead of it.

    cut of the standby   promoted from every such state it is the primary at one of its commits, and
                         not before what it had acknowledged; of some it goes on receiving instead,
                         and of some the promotion itself is cut at each of its steps
    cut of the primary   the primary starts again, serves, and the standby that has what is void now
                         follows it: promoted then, it is the primary
"""

from __future__ import annotations

import copy
import gc
import traceback
from dataclasses import dataclass, field
from random import Random

from omq.base.settings import Settings
from omq.storage import durable
from tests.crash.sim.choices import selections
from tests.crash.sim.disk import Cut, Event, Mark, SimDisk
from tests.crash.sim.explore import Count, History, Violation, second_life, start, verdict
from tests.crash.sim.life import SETTINGS, Life, fixed
from tests.crash.sim.pair import ALL, Acked, Pair, Standby, boundaries, judged, make_base, promoted
from tests.crash.sim.platter import Image, Platter, image_of
from tests.crash.sim.workloads import WORKLOADS


@dataclass(frozen=True, slots=True)
class How:
    """The stream of a life. `pinned`: the primary keeps all journal files, so that a standby of any
    moment can go on; else bodies are moved and files go, and nothing is begun anew."""

    ahead: bool = False
    breaks: float = 0.2
    delay: float = 0.3
    pinned: bool = True


MOVING = How(breaks=0, pinned=False)


@dataclass(slots=True)
class Lived:
    """A pair that has lived: both logs, and what clients of the primary knew when."""

    life: Life
    pair: Pair
    base: Image
    log: list[Event]
    known: list[History] = field(default_factory=list)


def live(name: str, seed: int, how: How, settings: Settings = SETTINGS) -> Lived:
    """Record a life of both."""
    begin, base, model = make_base(settings)
    life = Life(begin.mount(record=True), settings, model=dict(model))
    standby = Standby(base.mount(record=True), settings)
    pair = Pair(life, standby, Random(seed), how.ahead, how.breaks, how.delay, how.pinned)
    WORKLOADS[name](life, Random(seed))
    pair.settle()
    assert standby.disk.log is not None
    return Lived(life, pair, base, list(standby.disk.log), boundaries(life.disk, model))


class StandbyCuts:
    """Every cut of the standby's disk; `thin`: of the states of a cut every so manieth."""

    def __init__(self, name: str, seed: int, how: How, *, thin: int = 4, goes_on: float = 0.02,
                 nested: float = 0.01) -> None:
        self.name, self.seed, self.how = name, seed, how
        self.count = Count(lives=1)
        self._thin, self._goes_on, self._nested = thin, goes_on, nested
        self._done: set[tuple[int, int]] = set()

    def run(self) -> Count:
        """Up to the first state that breaks the promise."""
        with fixed(self.seed):
            lived = live(self.name, self.seed, self.how)
            platter, acked = Platter(lived.base), 0
            self.count.events = len(lived.log)
            for cut, event in enumerate(lived.log):
                platter.feed(event)
                if isinstance(event, Mark):
                    if isinstance(event.what, Acked):
                        acked = max(0, event.what.lsn)
                    continue
                if cut % 64 == 0:
                    gc.collect()
                self._cut(lived, cut, platter, acked)
                if self.count.violations:
                    break
        return self.count

    def _cut(self, lived: Lived, cut: int, platter: Platter, acked: int) -> None:
        chance = Random(self.seed * 1_000_003 + cut)
        for number, (label, chosen) in enumerate(selections(platter.pending, chance, 2)):
            if number > 1 and (number + cut) % self._thin:
                continue
            image = platter.image(chosen)
            self.count.states += 1
            if (image.key, acked) in self._done:
                continue
            self._done.add((image.key, acked))
            self.count.images += 1
            wrong = judged(promoted(image), lived.known, acked, ALL)
            if not wrong and self.how.pinned and chance.random() < self._goes_on:
                wrong = self._goes_on_from(image, lived)
            if not wrong and chance.random() < self._nested:
                wrong = self._promotion_cut(image, lived, acked)
            if wrong:
                self.count.violations.append(Violation(self.name, self.seed, cut, label,
                                                       tuple(wrong), image))
                return

    def _goes_on_from(self, image: Image, lived: Lived) -> list[str]:
        """The standby starts again and is sent what it lacks."""
        self.count.second += 1
        try:
            standby = Standby(image.mount(record=False))
            pair = Pair(lived.life, standby, Random(1), pinned=True)
            pair.settle()
        except Exception:
            return ["it does not go on: " + traceback.format_exc().strip()[-900:]]
        return judged(promoted(image_of(standby.disk)), lived.known, standby.acked, ALL)

    def _promotion_cut(self, image: Image, lived: Lived, acked: int) -> list[str]:
        """A promotion is cut at each of its steps, and done again."""
        disk = image.mount(record=True)
        promoted(image, disk=disk)
        assert disk.log is not None
        platter, seen = Platter(image), set[int]()
        for cut, event in enumerate(disk.log):
            platter.feed(event)
            for label, chosen in selections(platter.pending, Random(cut), 1):
                made = platter.image(chosen)
                if made.key in seen:
                    continue
                seen.add(made.key)
                self.count.nested += 1
                wrong = judged(promoted(made), lived.known, acked, ALL)
                if wrong:
                    return [f"promotion cut at {cut}, {label}: {text}" for text in wrong]
        return []


def primary_cut(name: str, seed: int, calls: int, *, restart: bool) -> tuple[bool, list[str]]:
    """The primary's power fails at this call of its disk, with a standby that is sent blocks before
    they are synced; `restart`: the standby's fails, too. Was there such a call; what is wrong."""
    with fixed(seed):
        begin, base, model = make_base()
        disk = begin.mount(record=True)
        life = Life(disk, model=dict(model))
        standby = Standby(base.mount(record=True))
        Pair(life, standby, Random(seed), ahead=True, breaks=0.1, pinned=True, calls_left=calls)
        try:
            WORKLOADS[name](life, Random(seed))
            return False, []
        except Cut:
            durable.use(disk)
        assert disk.log is not None
        history, platter = History(acked=dict(model), next_id=1 + max(model)), Platter(begin)
        for event in disk.log:
            platter.feed(event)
            if isinstance(event, Mark):
                history.feed(event.what)
        chance = Random(seed * 1_000_003 + calls)
        options = list(selections(platter.pending, chance, 4))
        for label, chosen in options[:2] + chance.sample(options, min(2, len(options))):
            wrong = _again(platter.image(chosen), history, image_of(standby.disk),
                           _cut_image(standby, base, chance) if restart else None)
            if wrong:
                return True, [f"{name} seed={seed} call={calls} state={label}: {text}"
                              for text in wrong]
    return True, []


def _cut_image(standby: Standby, base: Image, chance: Random) -> Image:
    """One of the states of the standby's disk."""
    platter = Platter(base)
    for event in standby.disk.log or ():
        platter.feed(event)
    return platter.image(chance.choice(list(selections(platter.pending, chance, 4)))[1])


def _again(image: Image, history: History, live_image: Image, cut_image: Image | None
           ) -> list[str]:
    """The primary starts from `image`; the standby follows it."""
    wrong, now = verdict(start(image, SETTINGS), copy.deepcopy(history))
    if wrong:
        return [f"the primary itself: {text}" for text in wrong]
    life = Life(image.mount(record=True), model=dict(now))
    known_from = dict(life.model)
    try:
        standby = Standby((cut_image or live_image).mount(record=False))
        pair = Pair(life, standby, Random(2), pinned=True)
        second_life(life)
        pair.settle()
    except Exception:
        return ["it does not follow: " + traceback.format_exc().strip()[-900:]]
    known = boundaries(life.disk, known_from)
    return judged(promoted(image_of(standby.disk)), known, standby.acked, ALL)


__all__ = ["MOVING", "How", "SimDisk", "StandbyCuts", "live", "primary_cut"]
