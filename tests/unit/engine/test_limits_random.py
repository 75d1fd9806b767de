"""Random work on limited queues beside a model that knows nothing of lines and turns: after each
step what may be handed out is what the model says, and every invariant of the engine holds."""

from __future__ import annotations

import random
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from omq.base.rates import Rate
from omq.core.check.invariants import check
from omq.core.engine import buckets, limited
from omq.core.engine.key_turns import Turns
from omq.core.engine.limit_rules import LimitRules
from omq.core.engine.limits import QueueLimits
from omq.core.engine.operate import Action, Item, Order
from omq.core.engine.settle import Verdict
from omq.core.engine.state import Party
from omq.format.wire import Settlement
from omq.storage.payloads import PayloadReader
from tests.unit.engine.world import NS, A, make_world

DONE, DEFER, FAIL, RELEASE = (int(kind) for kind in Settlement)
STEPS = 60
RULES = tuple(
    LimitRules(in_work_max=most, rate=rate, by=by, key_in_work_max=key_most if by else 0,
               key_rate=key_rate if by else None, fair=fair and bool(by), keys_max=3 if by else 0)
    for most, rate, by, key_most, key_rate, fair in (
        (0, None, "property:tenant", 1, None, True), (3, None, "property:tenant", 2, None, False),
        (2, Rate(NS // 2, 3), "", 0, None, False), (0, None, "group", 1, Rate(NS, 2), True),
        (5, Rate(NS // 5, 2), "property:tenant", 0, Rate(NS, 1), True),
        (4, None, "property:tenant", 3, Rate(NS, 3), False)))


@dataclass
class Model:
    """What is handed out, by key, and when."""

    rules: LimitRules
    mono: int
    held: dict[int, str] = field(default_factory=dict)
    given: list[tuple[int, str]] = field(default_factory=list)

    def gives(self, qpool: int, key: str, mono: int) -> None:
        self.held[qpool] = key
        self.given.append((mono, key))
        rules, counts = self.rules, Tally(self.held.values())
        assert not rules.in_work_max or len(self.held) <= rules.in_work_max
        assert not rules.key_in_work_max or counts[key] <= rules.key_in_work_max
        self._rated(rules.rate, [at for at, _ in self.given])
        self._rated(rules.key_rate, [at for at, other in self.given if other == key])

    def _rated(self, rate: Rate | None, times: list[int]) -> None:
        """In no time that ends now more than a burst and what came in since."""
        if rate is not None:
            for count, at in enumerate(reversed(times[-50:]), 1):
                assert count <= rate.burst + (times[-1] - at) / rate.interval_ns + 1e-6

    def free(self, key: str) -> bool:
        """Has the queue a place, and the key one? (Tokens are not looked at.)"""
        rules = self.rules
        return not ((rules.in_work_max and len(self.held) >= rules.in_work_max) or (
            rules.key_in_work_max
            and Tally(self.held.values())[key] >= rules.key_in_work_max))


class Run:
    """One engine with one queue, a few keys and two readers."""

    def __init__(self, path: Path, rules: LimitRules, seed: int) -> None:
        self.world, self.random = make_world(path), random.Random(seed)
        self.world.core.limits.payloads = PayloadReader(self.world.info.paths)
        self.world.core.limits.starting = False
        self.model, self.keys = Model(rules, self.world.mono), dict[int, str]()
        self.hands: dict[int, tuple[Party, Verdict]] = {}
        self.readers = (self.world.reader, Party(3, 2, 103, 0, 13))
        self.paused: set[str] = set()
        self.define(rules)

    def define(self, rules: LimitRules | None) -> None:
        self.world.begin()
        core = self.world.core
        core.define_queue(replace(core.rules[A], limits=rules, attempts_max=99, death_delay_ns=0))
        self.world.engine.commit()

    def step(self) -> None:
        act = self.random.choices(
            (self.put, self.take, self.end, self.tick, self.order, self.again),
            (6, 6, 5, 2, 2, 0.3))[0]
        act()
        assert check(self.world.engine) == []

    def put(self) -> None:
        key = self.random.choice("aaaabcde")
        how: dict[str, Any] = {"properties": {"tenant": key}} if (
            not self.model.rules.by_group) else {"group_id": key}
        self.keys[self.world.put(priority=self.random.choice((4, 4, 6)), **how)] = key

    def take(self) -> None:
        reader, before = self.random.choice(self.readers), dict(self.keys)
        want = self.random.choice((1, 3, 20))
        given = self.world.give(want, reader=reader)
        for one in given:
            self.model.gives(one.qpool, before[one.qpool], self.world.mono)
            self.hands[one.qpool] = (reader, one)
        rules = self.model.rules
        if not given and rules.rate is None and rules.key_rate is None and not rules.by_group:
            core, t = self.world.core, self.world.core.t
            ready = {t.m_qpool[t.e_message[entry]] for entry in range(t.entries.high)
                     if t.e_state[entry] == 1 and t.e_queue[entry] == A}
            free = [self.keys[qpool] for qpool in ready if self.model.free(self.keys[qpool])]
            assert not free, (free, core.limits.queues[A].turns)

    def end(self) -> None:
        if not self.hands:
            return
        qpool = self.random.choice(sorted(self.hands))
        reader, one = self.hands.pop(qpool)
        kind = self.random.choice((DONE, DONE, DONE, DEFER, FAIL, RELEASE))
        lost = self.world.settle(kind, one, argument=NS if kind != RELEASE else 0, reader=reader)
        assert not lost
        del self.model.held[qpool]

    def tick(self) -> None:
        self.world.begin(self.random.choice((0.1, 0.7, 3)))
        self.world.engine.tick()
        self.world.engine.commit()

    def order(self) -> None:
        """An operator deletes, or holds, or releases one."""
        waiting = sorted(self.keys.keys() - self.hands.keys())
        if not waiting:
            return
        qpool = self.random.choice(waiting)
        action = self.random.choice((Action.DELETE, Action.HOLD, Action.RELEASE))
        self.world.begin()
        outcome = self.world.engine.operate(
            self.world.putter, Order(action, (Item(qpool, A, 0),), b"test"))
        self.world.engine.commit()
        if action is Action.DELETE and not outcome.refused:
            self.keys.pop(qpool)

    def again(self) -> None:
        """The tables are made of what lies there."""
        self.define(None)
        assert check(self.world.engine) == []
        self.define(self.model.rules)
        self.model.given.clear()

    def finish(self) -> None:
        """Everything comes in the end."""
        while self.hands:
            self.end()
        self.world.begin()
        self.world.engine.operate(self.world.putter, Order(  # a held front holds up its group
            Action.RELEASE, tuple(Item(qpool, A) for qpool in self.keys), b"test"))
        self.world.engine.commit()
        for _ in range(300):
            self.take()
            while self.hands:
                qpool, (reader, one) = self.hands.popitem()
                self.world.settle(DONE, one, reader=reader)
                del self.model.held[qpool], self.keys[qpool]
            if not self.world.core.t.q_ready[A] + self.world.core.t.q_deferred[A]:
                break
            self.world.begin(1)
            self.world.engine.tick()
            self.world.engine.commit()
        else:
            raise AssertionError("messages wait for ever")


def run(path: Path, rules: LimitRules, seed: int) -> None:
    made = Run(path, rules, seed)
    try:
        for _ in range(STEPS):
            made.step()
        made.finish()
    finally:
        made.world.writer.close()


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: f"{RULES.index(rules)}")
def test_random_work_keeps_the_limits(tmp_path: Path, rules: LimitRules) -> None:
    run(tmp_path / "spool", rules, RULES.index(rules))


def _nothing(*_args: Any) -> None:
    """In place of what a mutant leaves out."""


def _full(rate: Rate, full: int, now: int, count: int = 1) -> int:
    return full


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "a key's place is not counted": (Turns, "taken", _nothing),
    "a place does not come back": (limited, "left", _nothing),
    "a token is not spent": (buckets, "taken", _full),
    "a token wakes nobody": (Turns, "wake", _nothing),
    "a place of the queue is not looked at": (
        QueueLimits, "places", lambda self, now, more=0: 1 << 30),
    "who may go is not looked at": (Turns, "may", lambda self, key, now: True),
    "a message that left is still counted": (Turns, "detach", _nothing),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(tmp_path: Path, mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, instead)
    found = 0
    for number, rules in enumerate(RULES):
        try:
            run(tmp_path / f"spool{number}", rules, number)
        except (AssertionError, KeyError, IndexError):
            found += 1
            break
    assert found
