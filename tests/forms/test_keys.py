"""omq.fast.keys beside what it stands for: keys of payloads (format.property_key), whole, broken or
changed by a client meanwhile; lines, turns and places (core.engine.limited, core.engine.turns)."""

from __future__ import annotations

import importlib.util
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omq.core.engine import limited
from omq.core.engine.limit_rules import LimitRules
from omq.core.engine.rules import QueueRules
from omq.core.engine.state import FIRST_QUEUE, Core
from omq.core.index.tables import Tables
from omq.format.index import EntryState, QueueFlag
from omq.format.message import Descriptor, Part, encode, encode_properties
from omq.format.property_key import key_of_value, property_in
from omq.storage.slots import SlotAllocator
from tests.forms.running import ROOT
from tests.forms.workload import limits_known

QUEUE = 0
NAME = "tenant"


def source() -> Any:
    """Compiled, its functions are for C alone."""
    spec = importlib.util.spec_from_file_location(
        "keys", ROOT / "lib" / "omq" / "fast" / "keys.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def keys() -> Any:
    """For one queue with keys."""
    limits = SimpleNamespace(rules=LimitRules(by=f"property:{NAME}"), turns=None, number=QUEUE)
    flags = int(QueueFlag.LIMITED | QueueFlag.KEYED)
    return source().Keys(SimpleNamespace(limited={QUEUE: limits}), SimpleNamespace(q_flags=[flags]))


def payload(r: random.Random) -> bytes:
    """With properties of all lengths, parts, and the wanted one or not."""
    texts = {f"p{number}": "x" * r.choice((0, 1, 30, 700)) for number in range(r.randrange(4))}
    if r.random() < 0.8:
        texts[r.choice((NAME, NAME, NAME[:-1], NAME + "s"))] = r.choice(("", "a", "ä" * 400))
    parts = [Part(3, 4)] * r.choice((0, 0, 2))
    return encode(Descriptor(), parts, encode_properties(texts) if texts else b"",
                  r.randbytes(r.choice((0, 1, 600))))


@pytest.mark.parametrize("seed", range(4))
def test_both_find_the_same_key(keys: Any, seed: int) -> None:
    """Also of what is no payload: some bytes are others, or the end is missing."""
    r, found = random.Random(seed), 0
    for _ in range(3000):
        made = bytearray(payload(r))
        for _ in range(r.choice((0, 0, 1, 3))):
            made[r.randrange(r.choice((12, len(made))))] = r.choice((0, 1, 255, r.randrange(256)))
        whole = bytes(made[: len(made) - r.choice((0, 0, 0, 1, r.randrange(len(made))))])
        before = r.randbytes(r.choice((0, 5)))
        area = memoryview(before + whole + r.randbytes(9))
        expected = key_of_value(property_in(whole, NAME.encode()))
        assert keys.mark(QUEUE, area, len(before), len(whole)) == expected
        found += expected != 0
    assert found > 300


class _Changing:
    """An area in which the lengths grow once they were read."""

    def __init__(self, first: bytes, then: bytes) -> None:
        self._first, self._then, self.reads = first, then, 0

    def __getitem__(self, where: slice) -> bytes:
        self.reads += 1
        return (self._first if self.reads == 1 else self._then)[where]


def test_what_changes_meanwhile_is_bounded_by_what_was_read(keys: Any) -> None:
    """A second look, where properties are long, is not believed beyond what it brought."""
    texts = {"long": "x" * 700, NAME: "a"}
    first = encode(Descriptor(), [], encode_properties(texts), b"")
    begin = first.index(b"long") - 6
    then = bytearray(first)
    then[begin + 2 : begin + 6] = b"\xff" * 4  # the value has 4 GiB now
    area = _Changing(first, bytes(then))
    assert keys.mark(QUEUE, area, 0, len(first)) == 0
    assert area.reads == 2
    then = bytearray(first)
    then[8:12] = b"\xff" * 4  # all properties have
    area = _Changing(first, bytes(then))
    assert keys.mark(QUEUE, area, 0, len(first)) == key_of_value(b"a")


# lines, turns, places

ROWS = 60
ON = FIRST_QUEUE
READY, ACTIVE, HELD = int(EntryState.READY), int(EntryState.ACTIVE), int(EntryState.HELD)


class Way:
    """Entries of one queue, handed out and ended by the engine's functions."""

    def __init__(self, rules: LimitRules) -> None:
        t = Tables.private(ROWS, ROWS, 100, 10)
        self.core = Core(t, SlotAllocator(), cast(Any, None), bytes(16))
        self.core.mono_ns = 10**12
        self.rules = QueueRules(ON, "Q", 1000, 1000, limits=rules)
        self.core.define_queue(self.rules)
        self.t, self.sequence, self.begun = t, 0, False
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
        for _ in range(min(want, limited.ready(self.core, self.limits, t.q_ready[ON]))):
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

    def look(self) -> tuple[object, ...]:
        runnable, self.core.runnable = self.core.runnable, set()
        return *limits_known(self.core), bytes(self.t.buffer), runnable, self.core.watched


class FlatWay(Way):
    """The same by omq.fast.keys."""

    def __init__(self, rules: LimitRules) -> None:
        super().__init__(rules)
        self.keys = source().Keys(self.core, self.t)

    def came(self, entry: int, key: int) -> None:
        self.keys.forget()
        assert self.keys.flat(ON)
        self.keys.came(entry, ON, 0, key)

    def enter(self, entry: int) -> None:
        self.keys.enter(entry, ON)

    def give(self, want: int) -> list[int]:
        t, keys, given = self.t, self.keys, list[int]()
        keys.forget()
        for _ in range(min(want, keys.ready(ON, t.q_ready[ON]))):
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
            self.keys.left(entry, ON)
        else:
            self.keys.gone(entry, ON)


RULES = LimitRules(by="property:tenant", key_in_work_max=1, fair=True)


@pytest.mark.parametrize("rules", [
    RULES, replace(RULES, in_work_max=3), replace(RULES, key_in_work_max=3, in_work_max=20),
    replace(RULES, key_in_work_max=0), replace(RULES, fair=False, key_in_work_max=2)],
    ids=["one", "queue", "three", "turns", "heap"])
@pytest.mark.parametrize("seed", range(3))
def test_both_ways_keep_the_same(rules: LimitRules, seed: int) -> None:
    """Random work, after each step of which lines, ring, counts, flags and counters are the same;
    few keys, whose lines grow long and stale, and a hold wherever a message stands."""
    r, ways = random.Random(seed), (Way(rules), FlatWay(rules))
    there: dict[int, int] = {}  # entries and their states
    names = range((1, 5, 30)[seed])

    def some(state: int) -> list[int]:
        return [entry for entry, each in there.items() if each == state]

    def both(name: str, *said: Any) -> Any:
        one, other = (getattr(way, name)(*said) for way in ways)
        assert one == other
        return one

    for _ in range(1500):
        what = r.random()
        if what < 0.55 and len(there) < ROWS:
            entry = r.choice([each for each in range(ROWS) if each not in there])
            key, priority = r.choice(names), r.choice((4, 4, 4, 9))
            both("come", entry, key, priority)
            there[entry] = READY
        elif what < 0.65:
            want = r.choice((1, 2, 5))
            there |= dict.fromkeys(both("give", want), ACTIVE)
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
            other = replace(rules, in_work_max=r.choice((0, 1, rules.in_work_max)))
            both("change", other)
        both("look")


def test_a_line_is_tidied_as_it_gets_shorter() -> None:
    """What is stale stands behind what goes, so that only the hand-out can see it."""
    ways = (Way(replace(RULES, key_in_work_max=0)), FlatWay(replace(RULES, key_in_work_max=0)))
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
