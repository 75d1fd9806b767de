"""L1: record a short life, then judge a recovery from every state that a power cut could leave.

For each event of the log and each choice of what survives there is an image. The real recovery runs
on it once (images with the same names and bytes are the same), and what it made is judged by what
had been acknowledged and asked for at that cut. Of the images some go further:

    second life   the instance serves, puts, hands out and settles, is cut, and recovers again
    nested cut    recovery itself is cut at every one of its own events, and must come to the same
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from omq.base.settings import Settings
from omq.core.engine.state import Core
from omq.format.wire import Settlement
from tests.crash.sim.choices import selections
from tests.crash.sim.disk import Event, Mark, SimDisk
from tests.crash.sim.life import (
    SETTINGS,
    START_NS,
    Ack,
    Ask,
    Define,
    Found,
    Life,
    Refuse,
    damage,
    fixed,
    make_spool,
    queues_of,
    recover_into,
)
from tests.crash.sim.model import Effect, Known, judge
from tests.crash.sim.platter import Image, Platter, image_of

Workload = Callable[[Life, Random], None]
NS: Final = 1_000_000_000
_ALWAYS: Final = 2
"""States of a cut that are judged always: nothing and everything."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A state from which the promise was broken, and how to come there again."""

    workload: str
    seed: int
    cut: int
    label: str
    wrong: tuple[str, ...]
    image: Image | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return (f"{self.workload} seed={self.seed} cut={self.cut} state={self.label}: "
                + "; ".join(self.wrong))


@dataclass(slots=True)
class Count:
    """What was done. `states`: images judged; `images`: different ones among them."""

    lives: int = 0
    events: int = 0
    states: int = 0
    images: int = 0
    second: int = 0
    nested: int = 0
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: Count) -> None:
        self.lives += other.lives
        self.events += other.events
        self.states += other.states
        self.images += other.images
        self.second += other.second
        self.nested += other.nested
        self.violations += other.violations

    @property
    def runs(self) -> int:
        """Recoveries carried out."""
        return self.images + self.second + self.nested


@dataclass(frozen=True, slots=True)
class Recording:
    """A life: the disk it began on, what it did, its settings."""

    name: str
    seed: int
    settings: Settings
    begin: Image
    log: Sequence[Event]


def record(name: str, workload: Workload, seed: int, settings: Settings = SETTINGS) -> Recording:
    """Live it once, whole."""
    with fixed(seed):
        disk = SimDisk()
        make_spool(disk)
        begin = image_of(disk)
        assert disk.log is not None
        disk.log.clear()
        life = Life(disk, settings)
        workload(life, Random(seed))
        return Recording(name, seed, settings, begin, list(disk.log))


@dataclass(slots=True)
class History:
    """What clients know at a cut."""

    acked: dict[int, Known] = field(default_factory=dict)
    flight: list[Effect] = field(default_factory=list)
    asked: list[Ask] = field(default_factory=list)
    answered: dict[int, int] = field(default_factory=dict)  # token -> last request answered
    lsn: int = 0
    next_id: int = 1
    sure_id: int = 1  # the same without what is asked for
    turn: int = 0
    queues: list[Mapping[str, tuple[int, str]]] = field(default_factory=list)  # empty: none yet

    def feed(self, what: object) -> None:
        self.turn += 1
        if isinstance(what, Ask):
            self.flight.append(what.effect)
            self.asked.append(what)
            self.next_id = max([self.next_id, *(q + 1 for q in what.effect)])
        elif isinstance(what, Refuse):
            del self.flight[len(self.flight) - what.count :]
            del self.asked[len(self.asked) - what.count :]
            # What was refused got no number.
            self.next_id = max([self.sure_id, *(q + 1 for e in self.flight for q in e)])
        elif isinstance(what, Define):
            self.queues += [*([] if self.queues else [{}]), what.queues]
        elif isinstance(what, Ack):
            del self.queues[:-1]
            for effect in self.flight:
                for qpool, after in effect.items():
                    if after is None:
                        self.acked.pop(qpool, None)
                    else:
                        self.acked[qpool] = after
            for ask in self.asked:
                if ask.token and any(
                        known is None or known.persistent for known in ask.effect.values()):
                    self.answered[ask.token] = ask.sequence
            self.flight.clear()
            self.asked.clear()
            self.sure_id = self.next_id
            self.lsn = max(self.lsn, what.lsn)


@dataclass(slots=True)
class Outcome:
    """What a start made of an image; `error`: it did not start."""

    found: Found | None
    error: str = ""


def start(image: Image, settings: Settings, now_ns: int = START_NS) -> Outcome:
    """Recover a copy of the image."""
    try:
        found, core, _ = recover_into(image.mount(), settings, now_ns)
        wrong = index_errors(core)
        return Outcome(found, "; ".join(wrong))
    except Exception:
        return Outcome(None, "the start fails: " + traceback.format_exc().strip()[-700:])


def index_errors(core: Core) -> list[str]:
    """Does the index agree with itself? Counters, states and chains of every queue."""
    t = core.t
    entries = [e for e in range(t.entries.high) if t.e_state[e]]
    out = []
    for queue in range(t.layout.queues):
        mine = [t.e_state[e] for e in entries if t.e_queue[e] == queue]
        counted = (t.q_depth[queue], t.q_ready[queue], t.q_active[queue], t.q_deferred[queue],
                   t.q_held[queue])
        if counted != (len(mine), *(mine.count(state) for state in (1, 2, 3, 4))):
            out.append(f"counters of queue {queue} are {counted}, its entries {mine}")
    return out


@contextmanager
def _no_collector() -> Iterator[None]:
    """Nearly all that a recovery makes is freed by reference counts; looking costs a tenth. What is
    there before is not looked at again when the rest is collected now and then."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class Explorer:
    """Goes through one recording. `thin`: nothing and everything are judged at each cut, and of
    the other states every so manieth, others at the next cut. `part` of `parts`: of the cuts only
    every so manieth."""

    def __init__(self, recording: Recording, *, second: float = 0.05, nested: float = 0.005,
                 extra: int = 8, thin: int = 1, part: int = 0, parts: int = 1,
                 until: Callable[[Violation], bool] = lambda found: True) -> None:
        self.recording = recording
        self.count = Count(lives=1, events=len(recording.log))
        self._second, self._nested, self._extra, self._thin = second, nested, extra, thin
        self._part, self._parts = part, parts
        self._until = until
        self._outcomes: dict[int, Outcome] = {}
        self._judged: dict[tuple[int, int], bool] = {}

    def run(self, only: tuple[int, str] | None = None) -> Count:
        """All states, or `only` one: (cut, label)."""
        recording = self.recording
        platter, history = Platter(recording.begin), History()
        with fixed(recording.seed), _no_collector():
            for cut, event in enumerate(recording.log):
                platter.feed(event)
                if isinstance(event, Mark):
                    history.feed(event.what)
                    if not isinstance(event.what, Ack):
                        continue
                if cut % 16 == 0:
                    gc.collect()
                if only[0] == cut if only else cut % self._parts == self._part:
                    self._cut(cut, platter, history, only[1] if only else None)
                if self._ended():
                    break
        return self.count

    def _cut(self, cut: int, platter: Platter, history: History, only: str | None) -> None:
        random = Random(self.recording.seed * 1_000_003 + cut)
        for number, (label, selection) in enumerate(
                selections(platter.pending, random, self._extra)):
            if only is not None and label != only:
                continue
            if only is None and number >= _ALWAYS and (number + cut) % self._thin:
                continue
            image = platter.image(selection)
            self.count.states += 1
            if (image.key, history.turn) in self._judged and only is None:
                continue
            self._judged[image.key, history.turn] = True
            wrong = self._judge(image, history, random, always=only is not None)
            if wrong:
                self.count.violations.append(Violation(
                    self.recording.name, self.recording.seed, cut, label, tuple(wrong), image))
                if self._ended():
                    return

    def _ended(self) -> bool:
        """Found what is looked for; normally the first violation is enough."""
        return bool(self.count.violations) and self._until(self.count.violations[-1])

    def _judge(self, image: Image, history: History, random: Random, *, always: bool) -> list[str]:
        outcome = self._outcomes.get(image.key)
        fresh = outcome is None
        if outcome is None:
            self.count.images += 1
            outcome = self._outcomes[image.key] = start(image, self.recording.settings)
        wrong, now = verdict(outcome, history)
        if wrong or outcome.found is None:
            return wrong
        if fresh and (always or random.random() < self._second):
            wrong += self._live_on(image, now, history, random)
        if fresh and not wrong and (always or random.random() < self._nested):
            wrong += self._cut_recovery(image, history)
        return wrong

    def _live_on(self, image: Image, now: dict[int, Known], history: History, random: Random
                 ) -> list[str]:
        """A second life from this image, cut in its turn."""
        disk = image.mount(record=True)
        try:
            life = Life(disk, self.recording.settings, model=dict(now))
            second_life(life)
        except Exception:
            return ["the second life fails: " + traceback.format_exc().strip()[-700:]]
        assert disk.log is not None
        platter = Platter(image)
        later = History(acked=dict(now), answered=dict(history.answered), lsn=history.lsn,
                        next_id=history.next_id, sure_id=history.next_id)
        marks = [i for i, e in enumerate(disk.log) if isinstance(e, Mark)]
        chosen = {len(disk.log) - 1, *random.sample(range(marks[0], len(disk.log)), 2)}
        for cut, event in enumerate(disk.log):
            platter.feed(event)
            if isinstance(event, Mark):
                later.feed(event.what)
            if cut not in chosen:
                continue
            options = list(selections(platter.pending, random, 2))
            for label, selection in options[:2] + random.sample(options, min(2, len(options))):
                self.count.second += 1
                wrong, _ = verdict(start(platter.image(selection), self.recording.settings), later)
                if wrong:
                    return [f"second life, cut {cut}, {label}: {text}" for text in wrong]
        return []

    def _cut_recovery(self, image: Image, history: History) -> list[str]:
        """Recovery, cut at every one of its events, comes to what it comes to uncut (I8)."""
        disk = image.mount(record=True)
        recover_into(disk, self.recording.settings, START_NS)
        assert disk.log is not None
        platter = Platter(image)
        seen: set[int] = set()
        for cut, event in enumerate(disk.log):
            platter.feed(event)
            random = Random(cut)
            for label, selection in selections(platter.pending, random, 2):
                made = platter.image(selection)
                if made.key in seen:
                    continue
                seen.add(made.key)
                self.count.nested += 1
                wrong, _ = verdict(start(made, self.recording.settings), history)
                if wrong:
                    return [f"recovery cut at {cut}, {label}: {text}" for text in wrong]
        return []


def second_life(life: Life) -> None:
    """A little of everything that the first life may have left in the way."""
    life.put(3, size=700)
    life.commit()
    for queue, kind in ((3, Settlement.DONE), (4, Settlement.RELEASE)):
        given = life.give(queue, 1)
        life.commit()
        if given:
            life.settle(kind, given)
            life.commit()
    life.checkpoint()
    life.put(4, 3, putter=1)
    life.commit()
    life.checkpoint()


def verdict(outcome: Outcome, history: History, now_ns: int = START_NS
            ) -> tuple[list[str], dict[int, Known]]:
    """What breaks the promise, and the state that counts from here."""
    found = outcome.found
    if found is None or outcome.error:
        return [outcome.error], {}
    judgement = judge(found.view, history.acked, history.flight, now_ns // NS, history.next_id)
    wrong = judgement.wrong
    recovered = found.recovered
    told = damage([*recovered.findings, *found.loaded.findings])
    wrong += [f"damage is reported after a mere crash: {finding}" for finding in told[:2]]
    if recovered.first_lsn <= history.lsn:
        wrong.append(f"LSN {recovered.first_lsn} is given again, {history.lsn} was")
    if recovered.next_qpool < history.next_id:
        wrong.append(f"QPoolId {recovered.next_qpool} is given again, {history.next_id - 1} was")
    for token, sequence in history.answered.items():
        known = recovered.clients.get(token)
        if known is None or known.sequence < sequence:
            wrong.append(f"request {sequence} of client {token} is forgotten: {known}")
    wrong += _told(found, history)
    queues = queues_of({name: number for number, name in recovered.queues.items()},
                       recovered.definitions)
    if history.queues and queues not in history.queues:
        wrong.append(f"queues: {queues}, asked for were {history.queues}")
    return wrong, judgement.now


def _told(found: Found, history: History) -> list[str]:
    """The request that the next manager would answer as carried out must have been. (Here a client
    asks for several things in a group; a real one waits for each answer, so only its last counts.)
    """
    out = []
    for number, ask in enumerate(history.asked):
        known = found.recovered.clients.get(ask.token)
        if known is None or known.sequence != ask.sequence:
            continue
        later = {qpool for effect in history.flight[number + 1 :] for qpool in effect}
        out += [f"told: request {ask.sequence} of client {ask.token} counts as done, message "
                f"{qpool} is not there" for qpool, after in ask.effect.items()
                if after and after.persistent and qpool not in later and qpool not in found.view]
    return out


def explore(name: str, workload: Workload, seeds: Iterable[int], settings: Settings = SETTINGS,
            *, second: float = 0.05, nested: float = 0.005) -> Count:
    """Record and go through one life for each seed."""
    total = Count()
    for seed in seeds:
        total.add(Explorer(record(name, workload, seed, settings), second=second,
                           nested=nested).run())
        if total.violations:
            break
    return total
