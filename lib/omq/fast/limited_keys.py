"""Queues with limits of work (core.engine.limits): how many messages of the queue and of each key
may be processed at once, how many of the queue are handed out in a time, pauses, turns. As
core.engine.limited and core.engine.key_turns.

Keys, their lines and the ring are the engine's own, so it and this module may alternate freely.
Queues with a rate for each key are the engine's: the next token of each is a deadline. That of a
queue is one number, which a turn looks at behind its hand-outs (`soonest`). Without fair turns the
order of keys is a heap of the engine's, asked key by key.

`flat` says whether a queue is of these; `next` and `take` are about what it was asked of last.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from omq.base import shim as cython
from omq.core.engine import limited
from omq.core.engine.key_turns import SLACK
from omq.core.engine.limit_key import NEVER
from omq.core.engine.limits import MANY
from omq.core.engine.state import Core
from omq.fast.columns import Columns
from omq.fast.values import value_in
from omq.format.index import Counter, EntryState, QueueFlag
from omq.format.property_key import key_of_value

_READY, _AT_LIMIT, _KEYED = (int(EntryState.READY), int(QueueFlag.AT_LIMIT),
                             int(QueueFlag.KEYED))
_KEYED_READY, _PLACES, _SLACK, _NEVER = int(Counter.KEYED_READY), MANY, SLACK, NEVER
_VALUES_MAX = 1 << 17
_PUSH, _POP, _KEY_OF, _OPENED = heappush, heappop, key_of_value, limited.opened


class Key:
    """As core.engine.key_turns.Key, in whose place it is made: C can look into it."""

    __slots__ = ("at", "count", "full", "in_work", "line", "name", "owner", "paused", "turned",
                 "wakes")

    def __init__(self, name: cython.ulonglong, full: cython.longlong, owner: Any) -> None:
        self.name, self.owner = name, owner
        self.line: list[Any] = []
        self.count = self.in_work = 0
        self.full, self.wakes = full, NEVER
        self.paused = self.turned = False
        self.at: Any = None

    def __lt__(self, other: Key) -> bool:
        return self.name < other.name


class Keys:
    """See the module."""

    def __init__(self, core: Core, columns: Columns, most: cython.Py_ssize_t) -> None:
        self._core, self._c, self._queues = core, columns, core.limited
        none: Any = None  # of the queue that was asked of last: its limits, what they say, its keys
        self._limits = self._rules = self._turns = self._ring = none
        self._known: dict[int, Any] = {}
        self._names = memoryview(bytearray(8)).cast("Q")  # keys by entry, from when there are some
        self._of: list[Any] = []  # the same as objects, where they may be known
        self._values: dict[bytes, Any] = {}  # keys of values of properties, of any queue
        self._marks = memoryview(bytearray(most * 8)).cast("Q")  # of messages to be put
        self._held: list[Any] = [None] * most
        self._fresh: list[Any] = [None] * most  # their values
        self._value, self._came = none, 0  # of the entry that came last in this request
        core.limits.adopt(Key)
        self._property = b""
        self._key = none  # whose turn it is
        self._kept = none  # that of the entry that enters next, which has left this moment
        self._floor = 0
        self._most, self._key_most, self._number, self._asked = 0, 0, 0, -1
        self._flat = self._fair = self._made = self._by_group = self._rated = False
        self._soonest = NEVER  # when a token may bring something, since somebody asked

    def flat(self, queue: cython.Py_ssize_t) -> cython.bint:
        """Are the limits of this queue, which has some, such as this module knows?"""
        if queue != self._asked:
            limits = self._queues.get(queue)
            if limits is None:
                return False
            rules = limits.rules
            if limits is not self._limits or rules is not self._rules:
                self._open(limits, rules)
            self._asked = queue
        return self._flat

    def forget(self) -> None:
        """Rules may have changed since: after this `flat` looks again."""
        self._asked, self._value = -1, None

    def _open(self, limits: Any, rules: Any) -> None:
        self._asked = -1
        self._limits, self._rules, self._turns = limits, rules, limits.turns
        self._number = limits.number
        self._flat, self._rated = rules.key_rate is None, rules.rate is not None
        self._most, self._key_most = rules.in_work_max, rules.key_in_work_max
        self._fair, self._by_group = rules.fair, rules.by_group
        self._property = rules.property_name.encode()
        if self._turns is not None:
            self._known, self._ring = self._turns.keys, self._turns.ring
            self._floor = self._turns.floor
            if not self._made:
                self._names, self._made = self._core.limits.keys, True
                self._of = [None] * len(self._names)

    # messages that come

    def mark(self, place: cython.Py_ssize_t, queue: cython.Py_ssize_t, payload: Any,
             at: cython.Py_ssize_t, length: cython.Py_ssize_t) -> None:
        """Note the key of a message that is to be put there, whose payload begins at `at`, where
        keys are a property; `came` asks for it by its `place` in its request."""
        if self._c.q_flags[queue] & _KEYED and self.flat(queue):
            self._marks[place], self._held[place], self._fresh[place] = 0, None, None
            value = None if self._by_group else value_in(payload, at, length, self._property)
            if value is not None:
                held = self._values.get(value)
                self._held[place], self._fresh[place] = held, value
                if held is not None:
                    key: Key = held  # of whatever queue: its name is that of the value
                    self._marks[place] = key.name
                else:
                    self._marks[place] = _KEY_OF(value)

    def came(self, entry: cython.Py_ssize_t, queue: cython.Py_ssize_t, group: cython.ulonglong,
             place: cython.Py_ssize_t) -> None:
        """As Limits.came: an entry of a queue with keys; `group`: the hash of its group id,
        `place`: as `mark` was told."""
        self.flat(queue)
        self._names[entry] = group if self._by_group else self._marks[place]
        self._of[entry] = self._held[place]
        self._value, self._came = self._fresh[place], entry

    def enter(self, entry: cython.Py_ssize_t, queue: cython.Py_ssize_t) -> None:
        """As Lanes.into_lane: a READY entry of a queue with keys, which has the turn in its
        group."""
        self.flat(queue)
        c = self._c
        said = self._of[entry]
        if self._kept is not None:
            self._of[entry] = self._kept
            key: Key = self._kept
            self._kept = None
        else:
            key = self._key_of(entry)
        if key is not said and self._value is not None and self._came == entry:
            if len(self._values) >= _VALUES_MAX:
                self._values.clear()
            self._values[self._value], self._value = key, None
        minus: cython.Py_ssize_t = c.e_priority[entry]
        item = (-minus, c.e_sequence[entry], entry)
        line: list[Any] = key.line
        if line:
            _PUSH(line, item)
        else:
            line.append(item)
        key.count += 1
        self._turns.ready += 1
        c.counters[_KEYED_READY] += 1
        self._look(key)

    # hand-outs

    def ready(self, queue: cython.Py_ssize_t, there: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """As limited.ready: how many may go now, of those that are `there`."""
        c = self._c
        may: cython.Py_ssize_t = _PLACES
        several: cython.Py_ssize_t
        keys: cython.Py_ssize_t
        self.flat(queue)
        if self._rated:
            may = self._limits.places(self._core.mono_ns)
        elif self._most:
            may = self._most
            may -= c.q_active[queue]
        may = min(may, there)
        if may > 0 and self._turns is not None:
            if self.next() < 0:
                may = 0
            else:
                several = self._turns.ready if self._fair else self._turns.several()
                if self._fair and self._key_most:
                    keys = len(self._ring)
                    several = min(several, keys * self._key_most)
                may = min(may, max(1, several))
        held: cython.bint = may <= 0 and c.q_ready[queue] > 0
        if held != (c.q_flags[queue] & _AT_LIMIT != 0):
            c.q_flags[queue] ^= _AT_LIMIT
        return max(0, may)

    def spent(self, queue: cython.Py_ssize_t, count: cython.Py_ssize_t) -> None:
        """So many of a queue with limits were handed out."""
        self.flat(queue)
        if self._rated:
            self._limits.spent(count, self._core.mono_ns)

    def await_token(self, queue: cython.Py_ssize_t) -> None:
        """Messages have come to a queue with limits, or were handed out: note when the next token
        comes, if none is there."""
        if self.flat(queue) and self._rated:
            due: cython.longlong = self._limits.due(self._core.mono_ns)
            self._soonest = min(self._soonest, due)

    def soonest(self) -> cython.longlong:
        """When a token may bring somebody something, of what was noted since this was asked."""
        found: cython.longlong = self._soonest
        self._soonest = _NEVER
        return found

    def next(self) -> cython.Py_ssize_t:
        """As Turns.next: the entry that goes next; -1: none may."""
        if not self._fair:
            found: cython.Py_ssize_t = self._turns.next(self._core.mono_ns)
            return found
        ring = self._ring
        while ring:
            key: Key = ring[0]
            if key.count and self._may(key):
                self._key = key
                return self._first(key)
            ring.popleft()
            key.turned = False
            self._look(key)
            self._forget(key)
        return -1

    def take(self, entry: cython.Py_ssize_t) -> None:
        """As Turns.detach, of the entry that goes next."""
        if not self._fair:
            self._key = self._key_of(entry)
        key: Key = self._key
        count: cython.Py_ssize_t = key.count
        self._of[entry] = key
        line: list[Any] = key.line
        count -= 1
        key.count = count
        self._turns.ready -= 1
        self._c.counters[_KEYED_READY] -= 1
        if count and len(line) > 1:
            _POP(line)
            if len(line) > 2 * count + _SLACK:
                self._turns.tidy(key)
        else:
            line.clear()

    def taken(self) -> None:
        """As Turns.taken, of what `take` took, which is ACTIVE now."""
        key: Key = self._key
        key.in_work += 1
        if self._fair:
            self._ring.popleft()
            key.turned = False
        self._look(key)

    # ends

    def left(self, entry: cython.Py_ssize_t, queue: cython.Py_ssize_t,
             following: cython.Py_ssize_t) -> None:
        """As limited.left but for its queue, which is runnable: it was active, and is not.
        `following`: of its group, which enters next; -1: there is none."""
        self.flat(queue)
        if self._turns is not None:
            key: Key = self._key_of(entry)
            key.in_work -= 1
            if following >= 0 and self._by_group and self._is_as_new(key):
                self._kept = key
            else:
                self._look(key)
                self._forget(key)
        if self._limits.refused:
            _OPENED(self._core, self._limits)

    def _is_as_new(self, key: Key) -> cython.bint:
        """If it has nothing it would be forgotten, but the one that would be made for the message
        that enters next would not differ, nor anything else."""
        if (not self._fair or key.turned or key.wakes != _NEVER
                or key.full != self._floor):
            return False
        standing: cython.Py_ssize_t = len(self._ring)
        known: cython.Py_ssize_t = len(self._known)
        return standing <= 2 * (known - 1) + _SLACK

    def gone(self, entry: cython.Py_ssize_t, queue: cython.Py_ssize_t) -> None:
        """As Turns.gone: it was PREPARED there, and has left the queue."""
        self.flat(queue)
        if self._turns is not None:
            self._turns.gone(self._names[entry], self._core.mono_ns)

    # keys

    def _key_of(self, entry: cython.Py_ssize_t) -> Key:
        """As Turns.of, of an entry of the queue that was asked of last. A key of it that has
        messages is the one of its name, so what is remembered of the entry may be it."""
        held = self._of[entry]
        if held is not None:
            key: Key = held
            if (key.owner is self._turns and key.name == self._names[entry]
                    and (key.count or key.in_work)):
                return key
        name: Any = self._names[entry]
        held = self._known.get(name)
        if held is None:
            held = self._turns.of(name)
        self._of[entry] = held
        return held  # type: ignore[no-any-return]

    def _may(self, key: Key) -> cython.bint:
        """As Turns.may."""
        most: cython.Py_ssize_t = self._key_most
        return not key.paused and (not most or key.in_work < most)

    def _look(self, key: Key) -> None:
        """As Turns.look."""
        if not self._fair:
            self._turns.look(key, self._core.mono_ns)
        elif not key.turned and key.count and self._may(key):
            key.turned = True
            self._ring.append(key)

    def _forget(self, key: Key) -> None:
        """As Turns.forget."""
        if not key.count and not key.in_work:
            self._turns.forget(key, self._core.mono_ns)

    def _first(self, key: Key) -> cython.Py_ssize_t:
        """As Turns._first."""
        c = self._c
        line: list[Any] = key.line
        entry: cython.Py_ssize_t
        sequence: cython.ulonglong
        while True:
            _, sequence, entry = line[0]
            if (c.e_state[entry] == _READY and c.e_sequence[entry] == sequence
                    and c.e_queue[entry] == self._number):
                return entry
            _POP(line)
