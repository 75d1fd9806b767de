"""Keys of one limited queue: whose message goes next, how many of a key are being processed, and
its rate.

A READY message that has the turn in its group (core.engine.groups) is in the *line* of its key, by
priority and sequence, and not in a chain or a lane. A key that has a message, a place and a token
is in the queue's *turn*: with fair turns a ring, in which it goes to the end with each message
that is handed out; without, a heap by the first message of each key, so that the order is the one
that the queue would have without keys. A key that may not go now costs nothing: the event that it
waits for puts it into the turn again, a place that comes back (`left`), a token (`wake`), its
release (`resume`), or a message.

Invariants: 1. a key that may go and has a READY message is in the turn; one that is there and may
not go is dropped when it comes up; 2. `in_work` is the number of its ACTIVE entries; 3. a line
has every READY entry of its key once, and stale items, fewer than those and SLACK; 4. a key without
messages is kept while its bucket is not full, at most `keys_max` of them; the least recently
used one goes first, is counted, and told once in TELL_NS (`to_tell`).

Each event is O(1) in the number of keys (O(log n) with rates and without fair turns).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final

from omq.core.engine import buckets
from omq.core.engine.limit_key import NEVER, Item, Key
from omq.core.engine.limit_rules import LimitRules
from omq.core.index.tables import Tables
from omq.format.index import Counter, EntryState

SLACK: Final = 16
TELL_NS: Final = 3600 * 1_000_000_000
"""So often at most an event says that keys of a queue were forgotten before their time."""
_READY = int(EntryState.READY)
_KEYED, _KEYS, _FORGOTTEN = (int(Counter.KEYED_READY), int(Counter.LIMIT_KEYS),
                             int(Counter.LIMIT_KEYS_FORGOTTEN))


class Turns:
    """See the module; the queue `number` of `t`."""

    def __init__(self, t: Tables, number: int, rules: LimitRules, floor: int,
                 make: Callable[[int, int, Any], Any] = Key) -> None:
        self._t, self._number, self._make = t, number, make
        self.floor = floor  # when the bucket of a key that nobody knows is full, at the earliest
        self.rules = rules
        self.keys: dict[int, Key] = {}
        self.ready = 0
        self.ring: deque[Key] = deque()
        self._heap: list[tuple[int, int, Key]] = []
        self._idle: OrderedDict[int, Key] = OrderedDict()  # without messages, bucket not full
        self.paused: set[int] = set()
        self.due: list[tuple[int, Key]] = []  # heap: who waits for a token
        self.forgotten = self._told = 0  # before their time
        self._tell_at = 0

    def of(self, name: int) -> Key:
        """The key of this name, which may be new."""
        key = self.keys.get(name)
        if key is None:
            key = self.keys[name] = self._make(name, self.floor, self)
            key.paused = name in self.paused
            self._t.counters[_KEYS] += 1
        elif self._idle:
            self._idle.pop(name, None)
        return key

    def adopt(self, make: Callable[[int, int, Any], Any]) -> None:
        """Keys are of another kind from now on, which has the same attributes, and those that are
        there are made anew: omq.fast has one that C can look into."""
        self._make = make
        made: dict[int, tuple[Any, Any]] = {}  # the old ones too, so that their ids stay theirs

        def anew(key: Any) -> Any:
            if id(key) not in made:
                other = make(key.name, key.full, self)
                for each in ("at", "count", "in_work", "line", "paused", "turned", "wakes"):
                    setattr(other, each, getattr(key, each))
                made[id(key)] = key, other
            return made[id(key)][1]

        for known in (self.keys, self._idle):
            for name, key in known.items():
                known[name] = anew(key)
        standing = [anew(key) for key in self.ring]
        self.ring.clear()
        self.ring.extend(standing)
        self._heap = [(minus, sequence, anew(key)) for minus, sequence, key in self._heap]
        self.due = [(time, anew(key)) for time, key in self.due]

    # messages

    def enter(self, entry: int, name: int, now: int) -> None:
        """A READY entry, which may be handed out as far as its group goes."""
        t, key = self._t, self.of(name)
        heappush(key.line, (-t.e_priority[entry], t.e_sequence[entry], entry))
        key.count += 1
        self._ready(1)
        self.look(key, now)

    def detach(self, entry: int, name: int) -> None:
        """A READY entry is READY here no more."""
        key = self.keys[name]
        key.count -= 1
        self._ready(-1)
        line = key.line
        if line[0][2] == entry:
            heappop(line)
        if not key.count:
            line.clear()
        elif len(line) > 2 * key.count + SLACK:
            self.tidy(key)

    def tidy(self, key: Key) -> None:
        """Its line without what is stale."""
        key.line = [*{item for item in key.line if self._valid(item)}]
        heapify(key.line)

    def taken(self, name: int, now: int) -> None:
        """An entry of this key, which was detached, is ACTIVE."""
        key = self.of(name)
        key.in_work += 1
        if self.rules.key_rate is not None:
            key.full = buckets.taken(self.rules.key_rate, key.full, now)
        if self.ring and self.ring[0] is key:
            self.ring.popleft()
            key.turned = False
        self.look(key, now)

    def left(self, name: int, now: int) -> None:
        """An entry of this key is ACTIVE no more."""
        key = self.keys[name]
        key.in_work -= 1
        self.look(key, now)
        self.forget(key, now)

    def gone(self, name: int, now: int) -> None:
        """An entry of this key, which was neither READY nor ACTIVE any more, has left the queue."""
        if name in self.keys:
            self.forget(self.keys[name], now)

    # turns

    def next(self, now: int) -> int:
        """The entry that goes next; -1: none may."""
        ring = self.ring
        if not self.rules.fair:
            return self._lowest(now)
        while ring:
            key = ring[0]
            if key.count and self.may(key, now):
                return self._first(key)[2]
            ring.popleft()
            key.turned = False
            self.look(key, now)
            self.forget(key, now)
        return -1

    def several(self) -> int:
        """About how many may go now, if any may: at least what the first one of each key makes."""
        limit = self.rules.key_in_work_max
        keys = len(self.ring if self.rules.fair else self._heap)
        return min(self.ready, keys * limit) if limit else self.ready

    def may(self, key: Key, now: int) -> bool:
        """Has it a place and a token, and is it not paused?"""
        rules = self.rules
        return not (key.paused
                    or (rules.key_in_work_max and key.in_work >= rules.key_in_work_max)
                    or (rules.key_rate is not None
                        and buckets.tokens(rules.key_rate, key.full, now) <= 0))

    def look(self, key: Key, now: int) -> None:
        """Into the turn, if it may go; if a token is what it waits for, until that comes."""
        if not key.count or key.turned:
            return
        if self.may(key, now):
            if self.rules.fair:
                key.turned = True
                self.ring.append(key)
            elif key.at != (place := self._first(key)[:2]):
                key.at = place
                heappush(self._heap, (*place, key))
                if len(self._heap) > 2 * len(self.keys) + SLACK:
                    self._heap = [item for item in self._heap if item[2].at == item[:2]]
                    heapify(self._heap)
        elif self.rules.key_rate is not None and not key.paused:
            at = buckets.next_at(self.rules.key_rate, key.full)
            if at > now:  # else it is a place that it waits for
                self._wake_at(key, at)

    def _lowest(self, now: int) -> int:
        heap = self._heap
        while heap:
            minus, sequence, key = heap[0]
            ours = key.at == (minus, sequence)
            if ours and key.count and self.may(key, now):
                first = self._first(key)
                if first[:2] == key.at:
                    return first[2]
            heappop(heap)
            if ours:
                key.at = None
                self.look(key, now)
        return -1

    def _first(self, key: Key) -> Item:
        """Of a key that has READY entries."""
        line = key.line
        while not self._valid(line[0]):
            heappop(line)
        return line[0]

    def _valid(self, item: Item) -> bool:
        t, entry = self._t, item[2]
        return bool(t.e_state[entry] == _READY and t.e_sequence[entry] == item[1]
                    and t.e_queue[entry] == self._number)

    # time, rules, memory

    def wake(self, now: int) -> bool:
        """Those whose token has come; whether there are any."""
        woken = False
        while self.due and self.due[0][0] <= now:
            time, key = heappop(self.due)
            if key.wakes == time:
                key.wakes, woken = NEVER, True
                self.look(key, now)
                self.forget(key, now)
        return woken

    def _wake_at(self, key: Key, time: int) -> None:
        if time < key.wakes:
            key.wakes = time
            heappush(self.due, (time, key))
            if len(self.due) > 2 * len(self.keys) + SLACK:
                self.due = [item for item in self.due if item[1].wakes == item[0]]
                heapify(self.due)

    def pause(self, names: set[int], now: int) -> None:
        """Exactly these keys are handed out no more, until they are not among `names`."""
        changed, self.paused = self.paused ^ names, names
        for name in changed & self.keys.keys():
            key = self.keys[name]
            key.paused = name in names
            self.look(key, now)

    def change(self, rules: LimitRules, now: int) -> None:
        """Other numbers, with the same keys and the same order."""
        self.rules = rules
        if rules.key_rate is not None:
            self.floor = buckets.fitted(rules.key_rate, self.floor, now)
        for key in list(self.keys.values()):
            if rules.key_rate is not None:
                key.full = buckets.fitted(rules.key_rate, key.full, now)
            self.look(key, now)
            self.forget(key, now)

    def close(self) -> None:
        """The queue has keys no more."""
        self._ready(-self.ready)
        self._t.counters[_KEYS] -= len(self.keys)
        for key in self.keys.values():
            key.owner = None

    def _ready(self, change: int) -> None:
        self.ready += change
        self._t.counters[_KEYED] += change

    def forget(self, key: Key, now: int) -> None:
        """A key that has nothing is remembered for its bucket alone."""
        if key.count or key.in_work or self.keys.get(key.name) is not key:
            return
        if self.rules.key_rate is None or key.full <= now:
            self._drop(key)
            return
        self._idle[key.name] = key
        self._idle.move_to_end(key.name)
        self._wake_at(key, key.full)
        if len(self._idle) > self.rules.keys_max:
            _, oldest = self._idle.popitem(last=False)
            self._drop(oldest)
            self._t.counters[_FORGOTTEN] += 1
            self.forgotten += 1

    def to_tell(self, now: int) -> int:
        """So many were forgotten since this was asked; 0: none, or it was told a while ago."""
        count = self.forgotten - self._told
        if not count or now < self._tell_at:
            return 0
        self._told, self._tell_at = self.forgotten, now + TELL_NS
        return count

    def _drop(self, key: Key) -> None:
        self._idle.pop(key.name, None)
        del self.keys[key.name]
        self._t.counters[_KEYS] -= 1
        key.at, key.wakes = None, NEVER
        if len(self.ring) > 2 * len(self.keys) + SLACK:  # of readers that choose by ids
            standing = [each for each in self.ring if self.keys.get(each.name) is each]
            self.ring.clear()  # omq.fast.limited_keys has it in hand
            self.ring.extend(standing)
