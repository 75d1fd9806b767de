"""Messages of groups (core.engine.groups): whose turn it is, and the lanes of messages that came
back or take a late turn.

Rings, fronts, counts and lanes are the engine's own, so it and this module may alternate freely.
Where messages of a group are numbered the engine counts them. A group's key is the hash of its id;
the hashes of ids are remembered, those of recent ones where no object is made to find them.
"""

from __future__ import annotations

from typing import Any

from omq.base import limits
from omq.base import shim as cython
from omq.core.engine.group_fronts import QUEUE_BITS, SPREAD
from omq.core.engine.groups import GROUPED
from omq.core.engine.state import Core
from omq.fast.columns import Columns
from omq.fast.lane import Lane
from omq.fast.limited_keys import Keys
from omq.format.index import Counter, EntryState, QueueFlag
from omq.format.message import GROUP_AT, NO_ID, NUMBER_AT, id_hash

if cython.compiled:
    from cython.cimports.omq.fast.copied import copy as _copy
    from cython.cimports.omq.fast.copied import soon as _soon
    from cython.cimports.omq.fast.copied import soon_long as _soon_long
else:
    from omq.base.shim import copy as _copy
    from omq.base.shim import soon as _soon
    from omq.base.shim import soon_long as _soon_long

_AT, _ID, _NUMBER, _KNOWN_MAX = GROUP_AT, len(NO_ID), NUMBER_AT - GROUP_AT, 1 << 17
_SAID, _RECENT_BITS, _SPREAD, _BITS = _NUMBER + 4, 16, SPREAD, QUEUE_BITS
_ALL, _MIX = (1 << 64) - 1, 0x9E3779B97F4A7C15
_READY, _IN_GROUP, _PRIORITIES = int(EntryState.READY), GROUPED, limits.PRIORITIES
_KEYED = int(QueueFlag.KEYED)
_WAITING, _RETURNED = int(Counter.GROUP_WAITING), int(Counter.RETURNED)
assert _ID == 24 and _NUMBER == 52


class Rings:
    """See the module."""

    def __init__(self, core: Core, columns: Columns, keys: Keys) -> None:
        self._core, self._c, self._groups = core, columns, core.groups
        self._limits = keys
        core.groups.begin()
        self._keys, self._numbers = core.groups.keys, core.groups.numbers
        self._after, self._before = core.groups.after, core.groups.before
        fronts = core.groups.fronts
        self._first, self._following, self._fronts = fronts.first, fronts.following, fronts.count
        self._behind = core.groups.waiting
        self._numbered, self._candidates = core.groups.numbered, core.groups.candidates
        self._known: dict[bytes, int] = {}  # keys of group ids
        # The same of recent ones, each in the only place where it may be: three words, and its
        # key. Half of a line of the processor's cache, where the C library puts areas of this size
        # 16 bytes after the beginning of a line.
        self._recent = memoryview(bytearray((32 << _RECENT_BITS) + 48))[48:].cast("Q")
        said = memoryview(bytearray(56))  # what the last payload said
        self._bytes, self._said, self._words = said, said, said.cast("Q")
        self._halves = said.cast("I")
        self.number = 0  # in its group, of the message whose key was asked for last
        self._settles = False  # between `begin` and `end` nobody looks at what is runnable
        self._stirred = 0  # the last queue that was runnable since then
        self._whole = -1  # the front of the group that a message left last, if it may be whole now

    def key(self, payload: Any, at: cython.Py_ssize_t) -> cython.ulonglong:
        """The key of the group that a payload's descriptor, from `at` on, names, and its `number`;
        0: it has no whole descriptor. They are copied first: a client may write there meanwhile."""
        if not self._read(payload, at):
            return 0
        place: cython.Py_ssize_t = 4 * self._place()
        a: cython.ulonglong = self._words[0]
        b: cython.ulonglong = self._words[1]
        c: cython.ulonglong = self._words[2]
        if (self._recent[place] != a or self._recent[place + 1] != b
                or self._recent[place + 2] != c):
            self._recent[place], self._recent[place + 1] = a, b
            self._recent[place + 2], self._recent[place + 3] = c, self._hash()
        return self._recent[place + 3]

    def soon(self, payload: Any, at: cython.Py_ssize_t) -> None:
        """`key` will be asked for the same: what that reads is on its way to the processor while
        other payloads are looked at. Nothing depends on what is read here."""
        if cython.compiled and self._read(payload, at):
            _soon_long(self._recent, 4 * self._place())

    def meets(self, queue: cython.uint, key: cython.ulonglong) -> None:
        """`join` or `leave` follows for one of this group: the same for the chain of its front."""
        if cython.compiled:
            _soon(self._first, self._chain(queue, key))

    def leaves(self, slot: cython.Py_ssize_t, queue: cython.uint) -> None:
        """The same, of a message of a group."""
        self.meets(queue, self._keys[slot])

    def _read(self, payload: Any, at: cython.Py_ssize_t) -> cython.bint:
        """Copy what the descriptor from `at` on says of a group. False: it is not whole."""
        if len(payload) < at + _AT + _SAID:
            return False
        _copy(self._said, 0, payload, at + _AT, _ID)
        _copy(self._said, _NUMBER, payload, at + _AT + _NUMBER, 4)
        self.number = self._halves[13]
        return True

    def _place(self) -> cython.Py_ssize_t:
        """Where the key of the id that was read last may be."""
        mixed: cython.ulonglong = (self._words[0] ^ self._words[1]) * _MIX & _ALL
        mixed = (mixed ^ mixed >> 32 ^ self._words[2]) * _MIX & _ALL
        place: cython.Py_ssize_t = mixed >> (64 - _RECENT_BITS)
        return place

    def _hash(self) -> cython.ulonglong:
        """The key of the id that was read last."""
        group = bytes(self._bytes[:_ID])
        found = self._known.get(group)
        if found is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            found = self._known[group] = id_hash(group)
        key: cython.ulonglong = found
        return key

    def join(self, slot: cython.Py_ssize_t, entry: cython.Py_ssize_t, queue: cython.uint,
             key: cython.ulonglong, number: cython.uint) -> cython.bint:
        """As Groups.born and arrive, and the count of what must wait. Has it the turn?"""
        self._keys[slot], self._numbers[slot] = key, number
        self._c.m_flags[slot] |= _IN_GROUP
        chain: cython.Py_ssize_t = self._chain(queue, key)
        first: cython.uint = self._first[chain]
        last: cython.uint
        turn: cython.bint
        while first and not self._is_of(first - 1, queue, key):
            first = self._following[first - 1]
        turn = first == 0
        if turn:
            self._enter(entry, chain)
            self._after[entry] = self._before[entry] = entry
        else:
            first -= 1
            last = self._before[first]
            self._after[last] = self._before[first] = entry
            self._before[entry], self._after[entry] = last, first
            self._count(queue, 1)
        if number or self._numbered:
            group = self._group(queue, key)
            if number or group in self._numbered:
                self._groups.count(entry, group, 1)
        return turn

    def leave(self, slot: cython.Py_ssize_t, entry: cython.Py_ssize_t, queue: cython.uint
              ) -> cython.Py_ssize_t:
        """As Groups.leave, of one that was handed out; the READY one after it that has the turn
        now, -1: there is none. `follow` must be told of it."""
        key: cython.ulonglong = self._keys[slot]
        following: cython.uint = self._after[entry]
        last: cython.uint = self._before[entry]
        chain: cython.Py_ssize_t = self._chain(queue, key)
        found: cython.Py_ssize_t = -1
        self._whole = -1
        if following == entry:
            self._drop(entry, chain)
        else:
            self._after[last], self._before[following] = following, last
            if self._drop(entry, chain):
                self._enter(following, chain)
                if self._c.e_state[following] == _READY:
                    found = following
        if self._numbered:
            group = self._group(queue, key)
            if group in self._numbered:
                self._groups.count(entry, group, -1)
                if group in self._candidates.get(queue, ()):
                    self._whole = self._groups.fronts[group]
        return found

    def _chain(self, queue: cython.uint, key: cython.ulonglong) -> cython.Py_ssize_t:
        """As Fronts has it."""
        spread: cython.ulonglong = queue
        bucket: cython.ulonglong = self._c.bucket(key)
        return (bucket ^ spread * _SPREAD) & self._c.mask

    def _is_of(self, entry: cython.Py_ssize_t, queue: cython.uint, key: cython.ulonglong
               ) -> cython.bint:
        """Is this front that of the group?"""
        return (self._keys[self._c.e_message[entry]] == key
                and self._c.e_queue[entry] == queue)

    def _is_front(self, entry: cython.Py_ssize_t, chain: cython.Py_ssize_t) -> cython.bint:
        at: cython.uint = self._first[chain]
        while at and at != entry + 1:
            at = self._following[at - 1]
        return at != 0

    def _enter(self, entry: cython.Py_ssize_t, chain: cython.Py_ssize_t) -> None:
        """It is a front."""
        self._following[entry] = self._first[chain]
        self._first[chain] = entry + 1
        self._fronts[0] += 1

    def _drop(self, entry: cython.Py_ssize_t, chain: cython.Py_ssize_t) -> cython.bint:
        """It is a front no more. False: it was none."""
        at: cython.uint = self._first[chain]
        before: cython.uint = 0
        while at and at != entry + 1:
            before, at = at, self._following[at - 1]
        if not at:
            return False
        if before:
            self._following[before - 1] = self._following[entry]
        else:
            self._first[chain] = self._following[entry]
        self._fronts[0] -= 1
        return True

    def begin(self) -> None:
        """Settlements follow, for `leave` and `follow`, up to `end`."""
        self._settles, self._stirred = True, 0

    def end(self) -> None:
        """There are no more."""
        self._settles, self._stirred = False, 0

    def follow(self, entry: cython.Py_ssize_t, queue: cython.uint) -> None:
        """What `leave` has found takes its turn, and who waits for a whole group looks if that is
        one now."""
        if entry >= 0:
            self._take_turn(entry, queue)
        if self._whole >= 0:
            self._ready(queue, self._whole)

    def _ready(self, queue: cython.Py_ssize_t, entry: cython.Py_ssize_t) -> None:
        """As Core.is_ready."""
        if queue != self._stirred:
            self._core.runnable.add(queue)
            self._stirred = queue if self._settles else 0
        watched = self._core.watched
        if watched and queue in watched:
            watched[queue].append(entry)

    def detach(self, entry: cython.Py_ssize_t, queue: cython.uint) -> cython.bint:
        """As Lanes.detach, of a member that has not the turn. False: it has."""
        if self._is_front(entry, self._chain(queue, self._keys[self._c.e_message[entry]])):
            return False
        self._count(queue, -1)
        return True

    def _take_turn(self, entry: cython.Py_ssize_t, queue: cython.uint) -> None:
        """As Core._take_turn."""
        c = self._c
        self._count(queue, -1)
        chain: cython.Py_ssize_t = queue * _PRIORITIES + c.e_priority[entry]
        tail: cython.uint = c.q_tail[chain]
        if c.q_flags[queue] & _KEYED:
            self._limits.enter(entry, queue)
        elif not c.e_attempts[entry] and (
                not tail or c.e_sequence[tail - 1] < c.e_sequence[entry]):
            c.link(entry, chain)
        else:
            self._push(entry, queue)
        self._ready(queue, entry)

    def _group(self, queue: cython.uint, key: cython.ulonglong) -> Any:
        """As Groups.of."""
        number: Any = queue
        return number << _BITS | key

    def _count(self, queue: cython.uint, change: cython.longlong) -> None:
        """As Groups.waits."""
        self._behind[queue] += change
        self._c.counters[_WAITING] += change

    def behind(self, queue: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """READY entries of a queue that wait for the one before them."""
        return self._behind[queue]

    def top(self, queue: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """As Lanes.lane_top, the entry; -1: there is none."""
        c = self._c
        lane: Lane | None = self._core.lanes.get(queue)
        entry: cython.Py_ssize_t
        while lane is not None and lane.count:
            entry = lane.entry()
            if (c.e_state[entry] == _READY and c.e_sequence[entry] == lane.sequence()
                    and c.e_queue[entry] == queue and not c.e_prev[entry] and not c.e_next[entry]
                    and c.q_head[queue * _PRIORITIES + c.e_priority[entry]] != entry + 1):
                return entry
            self.pop(queue)
        return -1

    def _push(self, entry: cython.Py_ssize_t, queue: cython.uint) -> None:
        """As Lanes.into_lane, of a queue without keys."""
        c, lanes = self._c, self._core.lanes
        lane: Lane | None = lanes.get(queue)
        if lane is None:
            lane = lanes[queue] = Lane()
        lane.push(c.e_priority[entry], c.e_sequence[entry], entry)
        c.counters[_RETURNED] += 1

    def pop(self, queue: cython.Py_ssize_t) -> None:
        """As Lanes.lane_pop."""
        lane: Lane = self._core.lanes[queue]
        lane.drop()
        self._c.counters[_RETURNED] -= 1
