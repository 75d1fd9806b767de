"""Lines, turns and places of a queue with limits, kept by the engine (core.engine.limited, turns)
and by omq.fast.limited_keys, side by side: the same random work, after each step of which all is
the same."""

from __future__ import annotations

import random
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from omq.core.engine import limited
from omq.core.engine.key_turns import SLACK
from omq.core.engine.limit_key import NEVER
from omq.core.engine.limit_rules import LimitRules
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import FIRST_QUEUE, Core
from omq.core.index.tables import Tables
from omq.format.index import EntryState
from omq.storage.slots import SlotAllocator
from tests.forms.running import ROOT
from tests.forms.workload import limits_known

ROWS: Final = 60
ON: Final = FIRST_QUEUE
READY, ACTIVE, HELD = int(EntryState.READY), int(EntryState.ACTIVE), int(EntryState.HELD)


def source(library: Path = ROOT / "lib", name: str = "limited_keys") -> ModuleType:
    """A module of omq.fast as it is written: compiled, its functions are for C alone."""
    spec = spec_from_file_location(name, library / "omq" / "fast" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Way:
    """Entries of one queue, handed out and ended by the engine's functions."""

    def __init__(self, rules: LimitRules) -> None:
        t = Tables.private(ROWS, ROWS, 100, 10)
        self.core = Core(t, SlotAllocator(), cast(Any, None), bytes(16))
        self.core.mono_ns = 10**12
        self.rules = QueueRules(ON, "Q", 1000, 1000, limits=rules)
        self.core.define_queue(self.rules)
        self.t, self.sequence = t, 0
        self.ready = 0  # messages that could go at the last hand-out
        t.entries.high = ROWS

    @property
    def limits(self) -> Any:
        return self.core.limited[ON]

    def change(self, rules: LimitRules) -> None:
        self.rules = replace(self.rules, limits=rules)
        self.core.define_queue(self.rules)

    def pause(self, names: set[int]) -> None:
        self.limits.turns.pause(names, self.core.mono_ns)

    def come(self, entry: int, key: int, priority: int) -> None:
        t = self.t
        self.sequence += 1
        t.e_queue[entry], t.e_priority[entry], t.e_sequence[entry] = ON, priority, self.sequence
        t.e_state[entry] = READY
        t.q_ready[ON] += 1
        self.came(entry, key)
        self.enter(entry)

    def came(self, entry: int, key: int) -> None:
        self.core.limits.keys[entry] = key

    def enter(self, entry: int) -> None:
        self.core.into_lane(entry, ON)

    def give(self, want: int) -> list[int]:
        t, turns, given = self.t, self.limits.turns, list[int]()
        self.ready = limited.ready(self.core, self.limits, t.q_ready[ON])
        for _ in range(min(want, self.ready)):
            if (entry := turns.next(self.core.mono_ns)) < 0:
                break
            self.core.detach(entry)
            t.e_state[entry] = ACTIVE
            limited.taken(self.core, self.limits, entry)
            given.append(entry)
        t.q_ready[ON] -= len(given)
        t.q_active[ON] += len(given)
        return given

    def hold(self, entry: int) -> None:
        """By an operator, wherever it stands in its line."""
        self.core.detach(entry)
        self.t.e_state[entry] = HELD
        self.t.q_ready[ON] -= 1

    def release(self, entry: int) -> None:
        self.t.e_state[entry] = READY
        self.t.q_ready[ON] += 1
        self.core.into_lane(entry, ON)

    def refuse(self, entry: int) -> None:
        """A reader has chosen it, and waits until there is a place."""
        self.limits.refused[entry] = None
        self.core.watched.setdefault(ON, [])

    def end(self, entry: int) -> None:
        state, self.t.e_state[entry] = self.t.e_state[entry], 0
        self.t.q_active[ON] -= state == ACTIVE
        self.ended(entry, state)

    def ended(self, entry: int, state: int) -> None:
        limited.dropped(self.core, entry, ON, state)

    def end_before(self, entry: int, other: int) -> None:
        """An ACTIVE one ends, behind which this one of its group has the turn."""
        self.t.e_state[other] = READY
        self.t.q_ready[ON] += 1
        self.t.e_state[entry] = 0
        self.t.q_active[ON] -= 1
        self.followed(entry, other)

    def followed(self, entry: int, other: int) -> None:
        self.ended(entry, ACTIVE)
        self.enter(other)

    def choose(self, entry: int) -> None:
        """A reader that chooses has it, wherever its key stands."""
        self.core.detach(entry)
        self.t.e_state[entry] = ACTIVE
        self.t.q_ready[ON] -= 1
        self.t.q_active[ON] += 1
        limited.taken(self.core, self.limits, entry)

    def had_a_rate(self, entry: int, full: int, wakes: int) -> None:
        """What is left of a rate at a key."""
        key = self.limits.turns.keys[self.core.limits.keys[entry]]
        key.full, key.wakes = full, wakes

    def look(self) -> tuple[object, ...]:
        runnable, self.core.runnable = self.core.runnable, set()
        return (self.ready, *limits_known(self.core), bytes(self.t.buffer), runnable,
                self.core.watched)


class FlatWay(Way):
    """The same by omq.fast.limited_keys."""

    def __init__(self, rules: LimitRules, module: ModuleType) -> None:
        super().__init__(rules)
        self.keys = module.Keys(self.core, self.t, 1024)

    def came(self, entry: int, key: int) -> None:
        self.keys.forget()
        assert self.keys.flat(ON)
        if entry % 3 == 0:  # the engine has put it
            super().came(entry, key)
            return
        self.keys._marks[0], self.keys._held[0], self.keys._fresh[0] = key, None, b"%d" % key
        self.keys.came(entry, ON, key, 0)

    def enter(self, entry: int) -> None:
        if entry % 3:
            self.keys.enter(entry, ON)
        else:
            super().enter(entry)

    def give(self, want: int) -> list[int]:
        t, keys, given = self.t, self.keys, list[int]()
        keys.forget()
        self.ready = keys.ready(ON, t.q_ready[ON])
        for _ in range(min(want, self.ready)):
            if (entry := keys.next()) < 0:
                break
            keys.take(entry)
            t.e_state[entry] = ACTIVE
            keys.taken()
            given.append(entry)
        t.q_ready[ON] -= len(given)
        t.q_active[ON] += len(given)
        return given

    def ended(self, entry: int, state: int) -> None:
        self.keys.forget()
        if state == ACTIVE:
            self.core.runnable.add(ON)
            self.keys.left(entry, ON, -1)
        else:
            self.keys.gone(entry, ON)

    def followed(self, entry: int, other: int) -> None:
        self.keys.forget()
        self.core.runnable.add(ON)
        self.keys.left(entry, ON, other)
        self.keys.enter(other, ON)


ONE: Final = LimitRules(by="property:tenant", key_in_work_max=1, fair=True)
RULES: Final = {
    "one": ONE, "queue": replace(ONE, in_work_max=3),
    "three": replace(ONE, key_in_work_max=3, in_work_max=20),
    "turns": replace(ONE, key_in_work_max=0),
    "heap": replace(ONE, fair=False, key_in_work_max=2),
    "group": replace(ONE, by="group"), "groups": replace(ONE, by="group", key_in_work_max=2)}
SEEDS: Final = 3


def work(module: ModuleType, rules: LimitRules, seed: int) -> None:
    """AssertionError: the ways part. Few keys, whose lines grow long and stale, and holds wherever
    a message stands."""
    r, ways = random.Random(seed), (Way(rules), FlatWay(rules, module))
    there: dict[int, int] = {}  # entries and their states
    names = range((1, 5, 30)[seed])

    def some(state: int) -> list[int]:
        return [entry for entry, each in there.items() if each == state]

    def both(name: str, *said: Any) -> Any:
        one, other = (getattr(way, name)(*said) for way in ways)
        assert one == other
        return one

    for _ in range(800):
        what = r.random()
        if what < 0.55 and len(there) < ROWS:
            entry = r.choice([each for each in range(ROWS) if each not in there])
            key, priority = r.choice(names), r.choice((4, 4, 4, 9))
            both("come", entry, key, priority)
            there[entry] = READY
        elif what < 0.65:
            want = r.choice((1, 2, 5))
            there |= dict.fromkeys(both("give", want), ACTIVE)
        elif what < 0.72 and (pairs := [
                (entry, other) for entry in some(ACTIVE) for other in some(HELD)
                if not rules.by_group
                or len({ways[0].core.limits.keys[each] for each in (entry, other)}) == 1]):
            entry, other = r.choice(pairs)
            if r.random() < 0.2:
                both("had_a_rate", entry, *r.choice(((7, NEVER), (0, 10**13))))
            both("end_before", entry, other)
            del there[entry]
            there[other] = READY
        elif what < 0.74 and (ready := some(READY)):
            entry = r.choice(ready)
            both("choose", entry)
            there[entry] = ACTIVE
        elif what < 0.8 and (held := some(ACTIVE) + some(HELD)):
            entry = r.choice(held)
            both("end", entry)
            del there[entry]
        elif what < 0.9 and (ready := some(READY)):
            for entry in r.sample(ready, min(len(ready), r.choice((1, 1, 30)))):
                both("hold", entry)
                there[entry] = HELD
        elif what < 0.97 and (waits := some(HELD)):
            entry = r.choice(waits)
            both("release", entry)
            there[entry] = READY
        elif what < 0.975 and (ready := some(READY)):
            both("refuse", r.choice(ready))
        elif what < 0.985:
            paused = set(r.sample(names, r.choice((0, 1))))
            both("pause", paused)
        else:
            changed = replace(rules, in_work_max=r.choice((0, 1, rules.in_work_max)))
            both("change", changed)
        both("look")


def tidied(module: ModuleType) -> None:
    """A line gets shorter, with what is stale behind what goes: only the hand-out can see it."""
    rules = RULES["turns"]
    ways: tuple[Way, ...] = (Way(rules), FlatWay(rules, module))
    for way in ways:
        for entry in range(40):
            way.come(entry, 7, 4)
        for entry in range(18, 40):
            way.hold(entry)
        assert way.give(12) == [*range(12)]
        assert len(way.limits.turns.keys[7].line) == 28
        assert way.give(1) == [12]
        assert len(way.limits.turns.keys[7].line) == 5
    assert ways[0].look() == ways[1].look()


def bounded(module: ModuleType) -> None:
    """A key is forgotten and known again at once, in a ring that is tidied then."""
    ways: tuple[Way, ...] = (Way(RULES["group"]), FlatWay(RULES["group"], module))
    for way in ways:
        way.come(0, 50, 4)
        assert way.give(1) == [0]
        for entry in range(1, SLACK + 3):  # each leaves its key in the ring
            way.come(entry, entry, 4)
            way.hold(entry)
            way.end(entry)
        way.come(ROWS - 1, 50, 4)
        way.hold(ROWS - 1)
        assert len(way.limits.turns.ring) == SLACK + 2
        way.end_before(0, ROWS - 1)
        assert len(way.limits.turns.ring) == 1
    assert ways[0].look() == ways[1].look()


def parting(module: ModuleType) -> str:
    """What tells this module from the engine's way; "": nothing."""
    for name, rules in RULES.items():
        for seed in range(SEEDS):
            try:
                work(module, rules, seed)
            except (AssertionError, ArithmeticError, LookupError) as error:
                return f"{name}, seed {seed}: {type(error).__name__}"
    for name, directed in (("a line", tidied), ("a ring", bounded)):
        try:
            directed(module)
        except AssertionError:
            return name
    return ""
