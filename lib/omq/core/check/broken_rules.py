"""What core.check.invariants says of an index that is not as it must be: findings, never
exceptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from omq.base.arrays import Vector

LISTED_MAX: Final = 10
"""Rows named one by one for each thing found; the rest is counted."""


class Rule(Enum):
    """What is broken."""

    COUNTER = "counter"  # published counters differ from the tables, or leave them
    ENTRY = "entry"  # fields of an entry that cannot be: state, priority, queue, message
    MESSAGE = "message"  # the same of a message
    PARTS = "parts"  # a message's number of queues differs from its entries
    SIBLING = "sibling"  # the list of a message's entries misses one, or holds a foreign one
    TWICE = "twice"  # a message is on one queue twice
    IDEL = "idel"  # on IDEL and on another queue; IDEL and POISON without their flags
    QUEUE = "queue"  # depth or state counters, names, flags of a queue
    CHAIN = "chain"  # a READY entry on no chain or on a wrong one; links; order
    ID_INDEX = "id-index"  # the index by message id misses a message or finds another
    CORRELATION = "correlation"  # the same by correlation id
    NUMBER = "number"  # QPoolId or LSN twice, or not given yet
    SLOT = "slot"  # pool slots: two messages in one, or one that counts as free
    READER = "reader"  # handed out to nobody that is there; a reader's count is wrong
    FREE = "free"  # a row is free and in use, or neither
    DUE = "due"  # a deferred entry that nothing wakes, or that wakes twice
    TIME = "time"  # a message has a time, and nothing ends it then
    LANE = "lane"  # a returned entry that nothing hands out
    GROUP = "group"  # rings of groups, and who waits for a turn
    HEAP = "heap"  # a heap is not in heap order
    LIMBO = "limbo"  # handed out by an earlier manager, and not waiting for its reader
    RUNNABLE = "runnable"  # messages and readers wait for each other
    VOLATILE = "volatile"  # bodies of non-persistent messages are counted wrong


@dataclass(frozen=True, slots=True)
class Broken:
    """One thing found: the rule, the row or queue, and what is wrong there."""

    rule: Rule
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule.value}: {self.where}: {self.what}"


class Report:
    """Collects findings; long lists are cut."""

    def __init__(self) -> None:
        self.found: list[Broken] = []

    def add(self, rule: Rule, where: str, what: str) -> None:
        self.found.append(Broken(rule, where, what))

    def rows(self, rule: Rule, wrong: Vector, what: str,
             name: Callable[[int], str], number: Vector | None = None) -> None:
        """A finding for each row where `wrong` is true; `number` maps positions to rows."""
        hit = np.flatnonzero(wrong)
        if number is not None:
            hit = number[hit]
        for row in hit[:LISTED_MAX].tolist():
            self.add(rule, name(row), what)
        if len(hit) > LISTED_MAX:
            self.add(rule, f"{len(hit) - LISTED_MAX} more", what)

    def twice(self, rule: Rule, keys: Vector, chosen: Vector, what: str,
              name: Callable[[int], str]) -> None:
        """Rows among `chosen` whose key comes up before."""
        numbers = np.flatnonzero(chosen)
        order = numbers[np.argsort(keys[numbers], kind="stable")]
        again = order[1:][keys[order][1:] == keys[order][:-1]]
        wrong = np.zeros(len(keys), dtype=bool)
        wrong[again] = True
        self.rows(rule, wrong, what, name)

    def follow(self, rule: Rule, links: Vector, owners: Vector, following: Vector, good: Vector,
               belongs: Vector | None, name: Callable[[int], str]) -> Vector:
        """Follow lists of rows (links = row + 1, 0 ends) from `links`, each for one of `owners`;
        in whose list each row was met, -1: in none. A row that is not `good`, does not belong to
        the owner (None: that is not known), or was met before, is a finding and ends its list."""
        seen = np.full(len(good), -1, dtype=np.int64)
        while True:
            there = links != 0
            links, owners = links[there], owners[there]
            if not len(links):
                return seen
            outside = links > len(good)
            for link, owner in zip(links[outside][:3].tolist(), owners[outside][:3].tolist(),
                                   strict=True):
                self.add(rule, f"list of {owner}", f"link to row {link - 1}, there is none")
            at, owners = links[~outside] - 1, owners[~outside]
            fits = good[at] if belongs is None else good[at] & (belongs[at] == owners)
            self.rows(rule, ~fits, "is in a list that it does not belong to", name, at)
            at, owners = at[fits], owners[fits]
            first = np.zeros(len(at), dtype=bool)
            first[np.unique(at, return_index=True)[1]] = True
            fresh = first & (seen[at] < 0)
            self.rows(rule, ~fresh, "is listed twice", name, at)
            at, owners = at[fresh], owners[fresh]
            seen[at] = owners
            links = following[at].astype(np.int64)

    def sorted(self) -> list[Broken]:
        order = {rule: i for i, rule in enumerate(Rule)}
        return sorted(self.found, key=lambda broken: order[broken.rule])
