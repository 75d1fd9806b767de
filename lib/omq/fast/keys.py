"""Queues with limits of work (core.engine.limits) that time alone does not open: places of the
queue and of its keys, pauses, turns. As core.engine.limited and core.engine.turns.

Keys, their lines and the ring are the engine's own, so it and this may take turns as they like.
What has a rate is the engine's: a token that comes is a deadline. Without fair turns the order of
keys is a heap of the engine's, asked one by one.

`flat` says whether a queue is of these; what it is asked of last is what `next` and `take` are
about. Rules are looked at with each question, for they are changed while it runs.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from omq.base import limits as base_limits
from omq.base import shim as cython
from omq.core.engine import limited
from omq.core.engine.limits import MANY
from omq.core.engine.state import Core
from omq.core.engine.turns import SLACK
from omq.fast.columns import Columns
from omq.format.index import Counter, EntryState, QueueFlag
from omq.format.message import DESCRIPTOR, MAGIC, PART, VERSION
from omq.format.property_key import key_of_value

assert tuple(map(DESCRIPTOR.offset, ("magic", "version", "parts", "properties"))) == (0, 2, 4, 8)
_MAGIC_1, _MAGIC_2, _VERSION = MAGIC[0], MAGIC[1], VERSION
_HEAD, _PART, _PARTS_MAX = DESCRIPTOR.size, PART.size, base_limits.QUEUES_MAX
_READY, _AT_LIMIT, _KEYED = (int(EntryState.READY), int(QueueFlag.AT_LIMIT),
                             int(QueueFlag.KEYED))
_KEYED_READY, _PLACES, _SLACK = int(Counter.KEYED_READY), MANY, SLACK
_SAID = 512  # bytes of a payload that are looked at first: most have all their properties there
_PUSH, _POP, _KEY_OF, _OPENED = heappush, heappop, key_of_value, limited.opened


class Keys:
    """See the module."""

    def __init__(self, core: Core, columns: Columns) -> None:
        self._core, self._c, self._queues = core, columns, core.limited
        self._limits: Any = None  # of the queue that was asked of last, and what they say
        self._rules: Any = None
        self._turns: Any = None
        self._ring: Any = None
        self._known: dict[int, Any] = {}
        self._names = memoryview(bytearray(8)).cast("Q")  # keys by entry, from when there are some
        self._property = b""
        self._key: Any = None  # whose turn it is
        self._most = self._key_most = self._number = 0
        self._asked = -1
        self._flat = self._fair = self._made = self._by_group = False

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
        """Rules may have changed since: behind this `flat` looks again."""
        self._asked = -1

    def _open(self, limits: Any, rules: Any) -> None:
        self._asked = -1
        self._limits, self._rules, self._turns = limits, rules, limits.turns
        self._number = limits.number
        self._flat = rules.rate is None and rules.key_rate is None
        self._most, self._key_most = rules.in_work_max, rules.key_in_work_max
        self._fair, self._by_group = rules.fair, rules.by_group
        self._property = rules.property_name.encode()
        if self._turns is not None:
            self._known, self._ring = self._turns.keys, self._turns.ring
            if not self._made:
                self._names, self._made = self._core.limits.keys, True

    # messages that come

    def mark(self, queue: cython.Py_ssize_t, payload: Any, at: cython.Py_ssize_t,
             length: cython.Py_ssize_t) -> cython.ulonglong:
        """As format.property_key, of a payload that begins at `at`: the key of its message on this
        queue; 0 too where keys are no property. It is read once: a client may write there
        meanwhile."""
        if (not self._c.q_flags[queue] & _KEYED or not self.flat(queue) or self._by_group):
            return 0
        wanted: cython.Py_ssize_t = min(length, _SAID)
        said: bytes = bytes(payload[at : at + wanted])
        if wanted < _HEAD or said[0] != _MAGIC_1 or said[1] != _MAGIC_2 or said[2] > _VERSION:
            return 0
        parts: cython.Py_ssize_t = said[4] | said[5] << 8
        size: cython.Py_ssize_t = said[8] | said[9] << 8 | said[10] << 16
        size += cython.cast(cython.ulonglong, said[11]) << 24
        place: cython.Py_ssize_t = _HEAD + parts * _PART
        end: cython.Py_ssize_t = place + size
        if parts > _PARTS_MAX or end > length:
            return 0
        if end > wanted:
            said = bytes(payload[at : at + end])
        return self._value(said, place, end)

    def _value(self, said: bytes, place: cython.Py_ssize_t, end: cython.Py_ssize_t
               ) -> cython.ulonglong:
        """The key, of the properties that begin and end there."""
        named: cython.Py_ssize_t = len(self._property)
        count: cython.Py_ssize_t = 0
        begin: cython.Py_ssize_t
        length: cython.Py_ssize_t
        size: cython.Py_ssize_t
        found: cython.ulonglong
        if end - place >= 8:
            count = said[place] | said[place + 1] << 8
        place += 2
        for _ in range(count):
            begin = place + 6
            if begin > end:
                return 0
            length = said[place] | said[place + 1] << 8
            size = said[place + 2] | said[place + 3] << 8 | said[place + 4] << 16
            size += cython.cast(cython.ulonglong, said[place + 5]) << 24
            place = begin + length + size
            if length == named and begin + length <= end \
                    and said[begin : begin + length] == self._property:
                if place > end:
                    return 0
                found = _KEY_OF(said[begin + length : place])
                return found
        return 0

    def came(self, entry: cython.Py_ssize_t, queue: cython.Py_ssize_t, group: cython.ulonglong,
             mark: cython.ulonglong) -> None:
        """As Limits.came: an entry of a queue with keys; `group`: the hash of its group id."""
        self.flat(queue)
        self._names[entry] = group if self._by_group else mark

    def enter(self, entry: cython.Py_ssize_t, queue: cython.Py_ssize_t) -> None:
        """As Lanes.into_lane: a READY entry of a queue with keys, which has the turn in its
        group."""
        self.flat(queue)
        c = self._c
        name: Any = self._names[entry]
        key = self._known.get(name)
        if key is None:
            key = self._turns.of(name)
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
        if self._most:
            may = self._most
            may -= c.q_active[queue]
        may = min(may, there)
        if may > 0 and self._turns is not None:
            if self.next() < 0:
                may = 0
            elif not self._fair:
                several = self._turns.several()
                may = min(may, max(1, several))
            else:
                several = self._turns.ready
                if self._key_most:
                    keys = len(self._ring)
                    several = min(several, keys * self._key_most)
                may = min(may, max(1, several))
        held: cython.bint = may <= 0 and c.q_ready[queue] > 0
        if held != (c.q_flags[queue] & _AT_LIMIT != 0):
            c.q_flags[queue] ^= _AT_LIMIT
        return max(0, may)

    def next(self) -> cython.Py_ssize_t:
        """As Turns.next: the entry that goes next; -1: none may."""
        if not self._fair:
            found: cython.Py_ssize_t = self._turns.next(self._core.mono_ns)
            return found
        ring = self._ring
        while ring:
            key = ring[0]
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
        name: Any = self._names[entry]
        key = self._key
        if not self._fair:
            key = self._key = self._known[name]
        count: cython.Py_ssize_t = key.count
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
        key = self._key
        key.in_work += 1
        if self._fair:
            self._ring.popleft()
            key.turned = False
        self._look(key)

    # ends

    def left(self, entry: cython.Py_ssize_t, queue: cython.Py_ssize_t) -> None:
        """As limited.left but for its queue, which is runnable: it was in work, and is not."""
        self.flat(queue)
        if self._turns is not None:
            name: Any = self._names[entry]
            key = self._known[name]
            key.in_work -= 1
            self._look(key)
            self._forget(key)
        if self._limits.refused:
            _OPENED(self._core, self._limits)

    def gone(self, entry: cython.Py_ssize_t, queue: cython.Py_ssize_t) -> None:
        """As Turns.gone: it was PREPARED there, and has left the queue."""
        self.flat(queue)
        if self._turns is not None:
            self._turns.gone(self._names[entry], self._core.mono_ns)

    def opened(self, queue: cython.Py_ssize_t) -> None:
        """As limited.opened: places have come, of a queue without keys."""
        self.flat(queue)
        _OPENED(self._core, self._limits)

    # keys

    def _may(self, key: Any) -> cython.bint:
        """As Turns.may."""
        most: cython.Py_ssize_t = self._key_most
        return not key.paused and (not most or key.in_work < most)

    def _look(self, key: Any) -> None:
        """As Turns.look."""
        if not self._fair:
            self._turns.look(key, self._core.mono_ns)
        elif not key.turned and key.count and self._may(key):
            key.turned = True
            self._ring.append(key)

    def _forget(self, key: Any) -> None:
        """As Turns.forget."""
        if not key.count and not key.in_work:
            self._turns.forget(key, self._core.mono_ns)

    def _first(self, key: Any) -> cython.Py_ssize_t:
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
