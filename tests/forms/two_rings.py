"""Groups kept by the engine (core.engine.groups) and by omq.fast.groups, side by side: the same
random members, with numbers and without, after each of which all is the same.
"""

from __future__ import annotations

import random
from itertools import islice
from types import ModuleType
from typing import Any, Final, cast

from omq.core.engine.groups import GROUPED
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import FIRST_QUEUE, PRIORITIES, Core
from omq.core.index.tables import Tables
from omq.format.index import EntryState
from omq.format.message import LAST_IN_GROUP
from omq.storage.slots import SlotAllocator

ROWS: Final = 40
ON: Final = FIRST_QUEUE
READY, ACTIVE = int(EntryState.READY), int(EntryState.ACTIVE)
SEEDS: Final = 4
NUMBERS: Final = (0, 0, 1, 1, 2, 2, 2 | LAST_IN_GROUP, 3 | LAST_IN_GROUP, 1 | LAST_IN_GROUP)


class Way:
    """Members on one queue, by the engine's functions; a message has the row of its entry."""

    def __init__(self) -> None:
        t = Tables.private(ROWS, ROWS, 100, 10)
        self.core = Core(t, SlotAllocator(), cast(Any, None), bytes(16))
        self.core.define_queue(QueueRules(ON, "Q", 1000, 1000))
        self.core.groups.begin()
        self.core.watched[ON] = []
        self.t, self.sequence = t, 0
        t.entries.high = t.messages.high = ROWS

    def come(self, entry: int, key: int, number: int, attempts: int) -> None:
        """`attempts`: of one that waits, as if it had failed while another was in work."""
        t = self.t
        self.sequence += 1
        t.e_message[entry], t.e_queue[entry], t.e_priority[entry] = entry, ON, 4
        t.e_sequence[entry], t.e_state[entry], t.m_flags[entry] = self.sequence, READY, 0
        t.e_prev[entry] = t.e_next[entry] = t.e_attempts[entry] = 0
        t.q_ready[ON] += 1
        if self.joined(entry, key, number):
            t.link(entry, ON * PRIORITIES + 4)
        else:
            t.e_attempts[entry] = attempts

    def joined(self, entry: int, key: int, number: int) -> bool:
        groups = self.core.groups
        groups.born(entry, key, number)
        self.t.m_flags[entry] |= GROUPED
        if turn := groups.arrive(entry):
            return turn
        groups.waits(ON, 1)
        return False

    def hand(self, entries: list[int]) -> None:
        for entry in entries:
            self.detached(entry)
            self.t.e_state[entry] = ACTIVE
            self.t.q_ready[ON] -= 1

    def detached(self, entry: int) -> None:
        self.core.detach(entry)

    def end(self, entry: int) -> None:
        self.t.e_state[entry] = self.t.e_sequence[entry] = 0
        self.left(entry)

    def left(self, entry: int) -> None:
        following, whole = self.core.groups.leave(entry)
        if following >= 0 and self.t.e_state[following] == READY:
            self.core._take_turn(following, ON)
        if whole >= 0:
            self.core.is_ready(ON, whole)

    def whole(self, most: int) -> list[int]:
        return self.core.groups.whole(ON, most, lambda entry: False)

    def look(self) -> tuple[object, ...]:
        core, groups, runnable = self.core, self.core.groups, self.core.runnable
        came, self.core.runnable, core.watched[ON] = core.watched[ON], set(), []
        there = [entry for entry in range(ROWS) if self.t.e_state[entry]]
        return (groups.fronts, groups.waiting, runnable, came, bytes(self.t.buffer),
                [(queue, sorted(lane.items())) for queue, lane in core.lanes.items()],
                [(group, each.members, each.lasts) for group, each in groups.numbered.items()],
                [(queue, each.sizes, each._lines) for queue, each in groups.candidates.items()],
                [(e, groups.keys[e], groups.numbers[e], groups.after[e], groups.before[e])
                 for e in there])


class FlatWay(Way):
    """The same by omq.fast.groups."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self.rings = module.Rings(self.core, self.t, None)

    def joined(self, entry: int, key: int, number: int) -> bool:
        found: bool = self.rings.join(entry, entry, ON, key, number)
        return found

    def detached(self, entry: int) -> None:
        if not self.rings.detach(entry, ON):
            self.core.detach(entry)

    def left(self, entry: int) -> None:
        self.rings.follow(self.rings.leave(entry, entry, ON), ON)


def work(module: ModuleType, seed: int) -> int:
    """AssertionError: the ways part. How many groups were had whole."""
    r, ways, wholes = random.Random(seed), (Way(), FlatWay(module)), 0
    there: dict[int, int] = {}  # entries and their states
    bucket = ways[0].t.bucket
    many = (each << 20 for each in range(1, 1 << 20))
    groups = [*islice((key for key in many if bucket(key) < 8), (8, 14, 24, 39)[seed])]
    for _ in range(2500):
        what, given = r.random(), list[int]()
        fronts = [entry for entry in ways[0].core.groups.fronts.values() if there[entry] == READY]
        if what < 0.45 and len(there) < ROWS:
            entry = r.choice([each for each in range(ROWS) if each not in there])
            key, number, attempts = r.choice(groups), r.choice(NUMBERS), int(r.random() < 0.2)
            for way in ways:
                way.come(entry, key, number, attempts)
            there[entry] = READY
        elif what < 0.52 and fronts:
            given = [r.choice(fronts)]
        elif what < 0.75:
            most = r.choice((1, 2, 3, 10))
            given, other = (way.whole(most) for way in ways)
            assert given == other
            wholes += len(given) > 1
        elif held := [entry for entry, state in there.items() if state == ACTIVE]:
            entry = r.choice(held)
            for way in ways:
                way.end(entry)
            del there[entry]
        for way in ways:
            way.hand(given)
        there |= dict.fromkeys(given, ACTIVE)
        one, other_look = (way.look() for way in ways)
        assert one == other_look
    return wholes


def parting(module: ModuleType) -> str:
    """What tells this module from the engine's way; "": nothing."""
    for seed in range(SEEDS):
        try:
            work(module, seed)
        except (AssertionError, ArithmeticError, LookupError) as error:
            return f"rings, seed {seed}: {type(error).__name__}"
    return ""
