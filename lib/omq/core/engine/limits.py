"""Limits of work: how many messages of a queue are in readers' hands at once, how many are handed
out in a time, and the same for each key, which is the group id or a property (ADR 0160).

They count at the hand-out: a message is *active* from then on until it is settled, comes back, or
leaves the queue, and takes one token whatever happens to it. Nobody polls: what ends a message's
work makes its queue runnable, and so does the moment when a token comes (`due`).

In the middle of a crash: nothing of this is journaled. A start counts the entries that it
finds ACTIVE (their readers may come back), and finds every bucket empty, so neither
limit is ever exceeded over a restart. Who is paused is a definition (core.engine.key_pauses).

Invariants: 1. of a limited queue `in_work_max` entries are ACTIVE at most, unless the limit was
lowered since, or a whole group is larger; 2. the keys of entries are those of their messages when
they came to the queue; a property that cannot be read is not a key; 3. a queue that is not in
`queues` costs one look into an empty dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from omq.base.checksum import crc32c
from omq.base.errors import OmqError
from omq.core.engine import buckets
from omq.core.engine.groups import GROUPED, Groups
from omq.core.engine.key_turns import Turns
from omq.core.engine.limit_key import NEVER, Key
from omq.core.engine.limit_rules import LimitRules
from omq.core.index.tables import Tables
from omq.format.index import EntryState
from omq.format.property_key import key_of_text, key_of_value, property_in
from omq.storage.payloads import PayloadReader

_READY, _ACTIVE = int(EntryState.READY), int(EntryState.ACTIVE)
MANY: Final = 1 << 30
NOTHING: Final = (-1, b"")


class QueueLimits:
    """Those of one queue."""

    def __init__(self, t: Tables, number: int, rules: LimitRules, floor: int = 0,
                 make: Callable[[int, int, Any], Any] = Key) -> None:
        """`floor`: when the manager started, if it did just now: buckets are empty then."""
        self._t, self.number, self.rules = t, number, rules
        self.full = key_floor = 0
        if floor and rules.rate is not None:
            self.full = buckets.empty(rules.rate, floor)
        if floor and rules.key_rate is not None:
            key_floor = buckets.empty(rules.key_rate, floor)
        self.turns = Turns(t, number, rules, key_floor, make) if rules.keyed else None
        self.refused: dict[int, None] = {}  # entries that a reader chose, and that may not go now
        self.dry = False  # somebody asked, and there was no token

    def places(self, now: int, more: int = 0) -> int:
        """How many the queue as a whole may hand out now; `more`: are active, and not counted."""
        rules, most = self.rules, MANY
        if rules.in_work_max:
            most = rules.in_work_max - self._t.q_active[self.number] - more
        if rules.rate is not None:
            tokens = buckets.tokens(rules.rate, self.full, now)
            self.dry = self.dry or tokens <= 0
            most = min(most, tokens)
        return max(0, most)

    def has_again(self, now: int) -> bool:
        """Whether there is a token where somebody found none."""
        rate = self.rules.rate
        if not self.dry or rate is None or buckets.tokens(rate, self.full, now) <= 0:
            return False
        self.dry = False
        return True

    def spent(self, count: int, now: int) -> None:
        """So many were handed out."""
        if self.rules.rate is not None:
            self.full = buckets.taken(self.rules.rate, self.full, now, count)

    def due(self, now: int) -> int:
        """When a token may bring somebody something (monotonic ns)."""
        best = NEVER
        if self.rules.rate is not None and self._t.q_ready[self.number]:
            at = buckets.next_at(self.rules.rate, self.full)
            best = at if at > now else NEVER
        if self.turns is not None and self.turns.due:
            best = min(best, self.turns.due[0][0])
        return best


class Limits:
    """See the module: those of the queues of `t`. `arriving`: slot and payload of the
    message that is being put."""

    def __init__(self, t: Tables, groups: Groups) -> None:
        self._t, self._groups = t, groups
        self.queues: dict[int, QueueLimits] = {}
        self.keys: Any = memoryview(b"")  # by entry; core.format.property_key
        self.payloads: PayloadReader | None = None  # None: tables without a spool
        self.arriving: tuple[int, Any] = NOTHING
        self.starting = True  # the first queues come from the configuration, over a restart
        self.paused: dict[int, list[str]] = {}  # keys by queue, as people say them
        self._make: Callable[[int, int, Any], Any] = Key

    def adopt(self, make: Callable[[int, int, Any], Any]) -> None:
        """As Turns.adopt, of all queues."""
        self._make = make
        for limits in self.queues.values():
            if limits.turns is not None:
                limits.turns.adopt(make)

    # what the configuration says

    def define(self, number: int, rules: LimitRules | None, now: int) -> list[int]:
        """A queue has these limits from now on. READY entries that stood by their keys and must
        find another place."""
        old = self.queues.get(number)
        if old is not None and rules is not None and (
                (old.rules.by, old.rules.fair) == (rules.by, rules.fair)):
            if rules.rate is not None:
                old.full = buckets.fitted(rules.rate, old.full, now)
            old.rules = rules
            if old.turns is not None:
                old.turns.change(rules, now)
            return []
        loose = []
        if old is not None:
            del self.queues[number]
            if old.turns is not None:
                old.turns.close()
                loose = self._standing(number)
        if rules is not None:
            new = QueueLimits(self._t, number, rules, now if self.starting else 0, self._make)
            self.queues[number] = new
            if old is not None and rules.rate is not None and old.rules.rate is not None:
                new.full = buckets.fitted(rules.rate, old.full, now)
            if rules.keyed:
                self._begin(new, now)
                loose = []
        return loose

    def _standing(self, number: int) -> list[int]:
        """READY entries of a queue that are not after the front of their group."""
        v, high = self._t.v, self._t.entries.high
        found = np.flatnonzero((v["e_queue"][:high] == number) & (v["e_state"][:high] == _READY))
        order = np.lexsort((v["e_sequence"][found], -v["e_priority"][found].astype(np.int64)))
        listed: list[int] = found[order].tolist()
        has_turn = self._groups.has_turn
        return [entry for entry in listed if has_turn(entry)] if self._groups.fronts else listed

    def oldest(self, number: int) -> list[int]:
        """The READY entry of a queue that has been there longest; none: there is none."""
        v, high = self._t.v, self._t.entries.high
        found = np.flatnonzero((v["e_queue"][:high] == number) & (v["e_state"][:high] == _READY))
        return [int(found[np.argmin(v["e_submitted"][found])])] if len(found) else []

    def _begin(self, limits: QueueLimits, now: int) -> None:
        """A queue has keys from now on: of all that is on it."""
        t, turns = self._t, limits.turns
        assert turns is not None
        if not len(self.keys):
            self.keys = np.zeros(t.layout.entries, "<u8").data
        high = t.entries.high
        there = np.flatnonzero((t.v["e_queue"][:high] == limits.number)
                               & (t.v["e_state"][:high] != 0))
        for entry in there.tolist():
            self.keys[entry] = self._key(limits, entry)
        self._close()
        turns.pause(self._paused(limits), now)
        for entry in there[t.v["e_state"][there] == _ACTIVE].tolist():
            turns.of(self.keys[entry]).in_work += 1
        for entry in self._standing(limits.number):
            turns.enter(entry, self.keys[entry], now)

    def _key(self, limits: QueueLimits, entry: int) -> int:
        t, slot = self._t, self._t.e_message[entry]
        if limits.rules.by_group:
            return self._groups.keys[slot] if t.m_flags[slot] & GROUPED else 0
        arriving, payload = self.arriving
        if arriving != slot:
            payload = self._read(slot)
        return key_of_value(property_in(payload, limits.rules.property_name.encode()))

    def _read(self, slot: int) -> bytes:
        """Its payload where it lies; nothing, if it cannot be read: its reader will say why."""
        t = self._t
        try:
            payload = self.payloads.read(t.m_location[slot], t.m_offset[slot], t.m_length[slot],
                                         t.m_qpool[slot]) if self.payloads is not None else b""
        except OmqError:
            return b""
        return payload if crc32c(payload) == t.m_crc[slot] else b""  # or it is of this very group

    def _close(self) -> None:
        """A file that is kept open takes space when it is long gone."""
        if self.payloads is not None:
            self.payloads.close()

    # entries of limited queues

    def came(self, entry: int, number: int) -> bool:
        """An entry appears on its queue, in whatever state. Does the queue have keys?"""
        if (limits := self.queues[number]).turns is None:
            return False
        self.keys[entry] = self._key(limits, entry)
        self._close()
        return True

    def pause(self, number: int, texts: list[str], now: int) -> None:
        """Exactly these keys of a queue are paused."""
        self.paused[number] = texts
        limits = self.queues.get(number)
        if limits is not None and limits.turns is not None:
            limits.turns.pause(self._paused(limits), now)

    def _paused(self, limits: QueueLimits) -> set[int]:
        by_group = limits.rules.by_group
        return {key_of_text(text, group=by_group) for text in self.paused.get(limits.number, ())}

    def forgotten(self, now: int) -> list[tuple[int, int, int]]:
        """Queues of which keys were forgotten before their time, and this is to be told: number,
        how many, and how many are kept."""
        return [(number, count, limits.rules.keys_max) for number, limits in self.queues.items()
                if limits.turns is not None and (count := limits.turns.to_tell(now))]

    # time

    def due(self, now: int) -> int:
        """Monotonic ns of when `wake` may have something to do."""
        return min((limits.due(now) for limits in self.queues.values()), default=NEVER)
