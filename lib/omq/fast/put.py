"""Put, when it is plain: on one queue, which remembers no ids if it has one of its own, not a
container. One message, or a batch of which all are persistent or none is. As core.engine.puts and
put_many. What another user than the spool's owner puts was copied and looked at before
(plain_requests).
"""

from __future__ import annotations

from typing import Any

from omq.base import limits
from omq.base import shim as cython
from omq.core.engine.state import PERSISTENT, Core
from omq.fast.births import Births
from omq.fast.client_state import ClientState
from omq.fast.columns import Columns
from omq.fast.frames import Frames
from omq.fast.groups import Rings
from omq.fast.limited_keys import Keys
from omq.fast.party import Party
from omq.fast.records import take_row
from omq.fast.request import Request
from omq.format.index import Counter, QueueFlag
from omq.format.journal import FrameFlag
from omq.format.message import DESCRIPTOR
from omq.format.wire import PutFlag

_PRIORITIES, _RESULT, _END = limits.PRIORITIES, int(FrameFlag.RESULT), int(FrameFlag.REQUEST_END)
_PREPARED, _KEYED = int(FrameFlag.PREPARED), int(QueueFlag.KEYED)
_PUTS, _COPIED_MAX = int(Counter.PUTS), 1 << 17
_GROUPED, _DESCRIPTOR = int(PutFlag.GROUPED), DESCRIPTOR.size
_SAID = int(PutFlag.GROUPED | PutFlag.GIVEN_ID)
assert PERSISTENT == 1


class Puts:
    """See the module. `rights`: as Births has it; `most`: messages of a request, or of all requests
    of a unit of work."""

    def __init__(self, core: Core, columns: Columns, frames: Frames, rings: Rings, keys: Keys,
                 rights: Any, most: cython.Py_ssize_t) -> None:
        self._core, self._c, self._frames, self._rings = core, columns, frames, rings
        self._limits, self._most = keys, most
        self._births = Births(core, columns, frames, rings, keys, rights)
        self._messages, self._entries = core.t.messages, core.t.entries
        heads = memoryview(bytearray(most * 128))
        self._heads, self._h8, self._h16 = heads, heads, heads.cast("H")
        self._h32, self._h64, self._q64 = heads.cast("I"), heads.cast("Q"), heads.cast("q")
        self._keys = memoryview(bytearray(most * 8)).cast("Q")  # of groups, 0: of none
        self._numbers = memoryview(bytearray(most * 4)).cast("I")  # in their groups
        self._grouped = self._given = False  # one of the batch is of a group, or has its own id
        self._key = self._number = 0  # of the message that is put alone
        self._payload: Any = None

    def one(self, r: Request, session: ClientState, area: Any, party: Party) -> cython.bint:
        """A PUT; its QPoolId is the answer. `area`: the bytes of the request."""
        if not self.single(r, session, area, 0, party, 1) or (
                r.want and self._remembers(r.queue)):
            return False
        session.sequence = r.sequence
        self.place_single(r, area, 0, party)
        # from here on nothing can fail
        self._frames.open(party)
        self.put_single(r, party, r.want)
        self._frames.close()
        return True

    def _remembers(self, queue: cython.uint) -> cython.bint:
        """An id of the submitter's is put there, a queue that is, with a memory of it."""
        return bool(self._core.rules[queue].dedupe_ns)

    def single(self, r: Request, session: ClientState, area: Any, at: cython.Py_ssize_t,
               party: Party, frames: cython.Py_ssize_t) -> cython.bint:
        """May the one message of this request be put, whose payload lies there, as the last of so
        many frames? `place_single` and `put_single` do it."""
        length: cython.Py_ssize_t = r.length
        if (r.flags & ~_SAID > 1 or r.parts or r.priority >= _PRIORITIES or not length
                or not r.crc or at + length > len(area)
                or not self._births.takes(session, party, r.queue, 1, r.size)
                or not self._frames.fits(frames, length)):
            return False
        self._key = 0
        self._limits.mark(0, r.queue, area, at, length)
        if r.flags & _GROUPED:
            self._key = self._rings.key(area, at) if length > _DESCRIPTOR else 0
            self._number = self._rings.number
            return bool(self._key)
        return True

    def place_single(self, r: Request, area: Any, at: cython.Py_ssize_t, party: Party) -> None:
        """Where its body is to be. SpoolFull, DiskError: nothing has changed."""
        end: cython.Py_ssize_t = at
        end += r.length
        self._payload = area[at:end]
        self._births.place(party, r.flags & ~_SAID, [self._payload])

    def put_single(self, r: Request, party: Party, given: cython.ulonglong) -> None:
        """What `single` was asked of, between Frames.open and close; `given`: the hash of its own
        id."""
        core, c = self._core, self._c
        persistent: cython.uint = r.flags & ~_SAID
        slot: cython.Py_ssize_t = take_row(self._messages, c.free_messages)
        entry: cython.Py_ssize_t = take_row(self._entries, c.free_entries)
        qpool: cython.ulonglong = core.next_qpool
        self._births.born(slot, entry, qpool, r.queue, r.priority, _RESULT | _END | persistent,
                          r.size, r.length, r.crc, r.correlation, r.expiry, r.sequence, self._key,
                          self._number, 0, given, party)
        if persistent:
            core.block.payloads.append(self._payload)
        self._payload = None
        core.next_qpool = core.block.next_qpool = qpool + 1
        core.runnable.add(r.queue)
        c.counters[_PUTS] += 1

    def many(self, r: Request, session: ClientState, area: Any, party: Party,
             batch_max: cython.Py_ssize_t) -> cython.bint:
        """A PUT_MANY; its first QPoolId is the answer."""
        queue: cython.uint = r.queue
        count: cython.Py_ssize_t = r.count
        heads: cython.Py_ssize_t = 128 * count
        if (not count or count > batch_max or count > self._most
                or heads + r.length > len(area)):
            return False
        self._heads[:heads] = area[:heads]
        persistent: cython.uint = self._h16[1] & ~_SAID
        total: cython.Py_ssize_t = self._plain(count, persistent, area[heads : heads + r.length])
        if (total < 0 or not self._births.takes(
                    session, party, queue, count, self._longest(count))
                or (self._given and self._remembers(queue))
                or not self._frames.fits(count, total)):
            return False
        core = self._core
        payloads = area[heads : heads + total]
        if self._c.q_flags[queue] & _KEYED:
            self._mark_all(queue, count, bytes(payloads) if total <= _COPIED_MAX else payloads)
        session.sequence = r.sequence
        self._births.place(party, persistent, [] if persistent else self._split(count, payloads))
        # from here on nothing can fail
        self._frames.open(party)
        self._born_many(count, party, queue, persistent, _RESULT, r.sequence)
        self._frames.close()
        if persistent:
            core.block.payloads.append(payloads)
        core.runnable.add(queue)
        self._c.counters[_PUTS] += count
        return True

    def several(self, heads: Any, count: cython.Py_ssize_t, payloads: Any, session: ClientState,
                party: Party, kept: cython.Py_ssize_t, base: cython.Py_ssize_t) -> cython.bint:
        """May the messages of these FRAMEs be put, with other frames of their request? `place`
        and `put` do it. The first `kept` have their payloads in the first `base` bytes, those of
        the others lie behind, at places that count from there."""
        if count > self._most:
            return False
        self._heads[: 128 * count] = heads
        persistent: cython.uint = self._h16[1] & ~_SAID
        length: cython.Py_ssize_t = len(payloads)
        at: cython.Py_ssize_t = 0
        queue: cython.uint = 0  # of those that were looked at last
        longest: cython.ulonglong = 0
        i: cython.Py_ssize_t
        if self._plain(count, persistent, payloads) != length:
            return False
        for i in range(count):
            if self._h32[32 * i + 12] != (at if i < kept else at - base):
                return False
            if not i or self._h16[64 * i + 2] != queue or self._h64[16 * i + 4] > longest:
                queue, longest = self._h16[64 * i + 2], self._h64[16 * i + 4]
                if not self._births.takes(session, party, queue, count, longest):
                    return False
            if self._h64[16 * i + 9] and self._remembers(queue):  # it is one, as `takes` knows
                return False
            at += self._h32[32 * i + 10]
        self._mark_all(0, count, payloads)
        return bool(party.pool_file >= 0 if persistent else not self._core.volatile.is_full)

    def kept(self, heads: Any, count: cython.Py_ssize_t, payloads: Any, session: ClientState,
             base: cython.Py_ssize_t) -> Any:
        """The FRAMEs of a part of a unit, whose payloads will lie behind `base` bytes of others, at
        their places there; None: the engine must look at it. Whether they may be put is not asked
        before the end of the unit, but where they may."""
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        queue: cython.uint
        if count > self._most:
            return None
        self._heads[: 128 * count] = heads
        if self._plain(count, self._h16[1] & ~_SAID, payloads) != len(payloads):
            return None
        for i in range(count):
            queue = self._h16[64 * i + 2]
            if self._h32[32 * i + 12] != at or not self._births.knows(session, queue):
                return None
            self._h32[32 * i + 12] = base + at
            at += self._h32[32 * i + 10]
        return bytes(self._heads[: 128 * count])

    def last(self) -> cython.bint:
        """Are those that `several` was asked of persistent, and of no group?"""
        return bool(self._h16[1] & 1 and not self._grouped)

    def may(self, session: ClientState, action: str, queue: cython.uint) -> cython.bint:
        """As Births.may."""
        return self._births.may(session, action, queue)

    def room(self, count: cython.Py_ssize_t, party: Party) -> cython.bint:
        """As Births.room."""
        return self._births.room(count, party)

    def place(self, count: cython.Py_ssize_t, party: Party, payloads: Any) -> None:
        """Where their bodies are to be. SpoolFull, DiskError: nothing has changed."""
        persistent: cython.uint = self._h16[1] & ~_SAID
        self._births.place(party, persistent, [] if persistent else self._split(count, payloads))

    def put(self, count: cython.Py_ssize_t, party: Party, payloads: Any,
            sequence: cython.ulonglong) -> None:
        """What `several` was asked of, as the end of its request, between Frames.open and close;
        with a reason they are prepared."""
        core = self._core
        persistent: cython.uint = self._h16[1] & ~_SAID
        i: cython.Py_ssize_t
        if self._frames.reason:
            self._born_many(count, party, 0, persistent | _PREPARED, 0, sequence)
        else:
            self._born_many(count, party, 0, persistent, 0, sequence)
            self._c.counters[_PUTS] += count
            for i in range(count):
                if not i or self._h16[64 * i + 2] != self._h16[64 * i - 62]:
                    core.runnable.add(self._h16[64 * i + 2])
        if persistent:
            core.block.payloads.append(payloads)

    def _plain(self, count: cython.Py_ssize_t, persistent: cython.uint, payloads: Any
               ) -> cython.Py_ssize_t:
        """Bytes of the payloads of a batch; -1: one of it is not plain. Notes their groups, and
        whether one has an id of its own."""
        i: cython.Py_ssize_t
        total: cython.Py_ssize_t = 0
        length: cython.Py_ssize_t = len(payloads)
        self._grouped = self._given = False
        if persistent > 1:
            return -1
        for i in range(count):
            if (self._h16[64 * i + 1] & ~_SAID != persistent or self._h16[64 * i + 31]
                    or self._h8[128 * i + 1] >= _PRIORITIES or not self._h32[32 * i + 10]
                    or not self._h32[32 * i + 11]):
                return -1
            self._keys[i] = 0
            if self._h64[16 * i + 9]:
                self._given = True
            if self._h16[64 * i + 1] & _GROUPED:
                self._grouped = True
            total += self._h32[32 * i + 10]
        if total > length or (self._grouped and not self._grouped_by(count, payloads)):
            return -1
        return total

    def _grouped_by(self, count: cython.Py_ssize_t, payloads: Any) -> cython.bint:
        """Note the groups of those that have one. False: one of them does not say which."""
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        for i in range(count):
            if self._h16[64 * i + 1] & _GROUPED:
                self._rings.soon(payloads, at)
            at += self._h32[32 * i + 10]
        at = 0
        for i in range(count):
            if self._h16[64 * i + 1] & _GROUPED:
                if self._h32[32 * i + 10] > _DESCRIPTOR:
                    self._keys[i] = self._rings.key(payloads, at)
                    self._numbers[i] = self._rings.number
                if not self._keys[i]:
                    return False
                self._rings.meets(self._h16[64 * i + 2], self._keys[i])
            at += self._h32[32 * i + 10]
        return True

    def _longest(self, count: cython.Py_ssize_t) -> cython.ulonglong:
        i: cython.Py_ssize_t
        longest: cython.ulonglong = 0
        for i in range(count):
            longest = max(longest, self._h64[16 * i + 4])
        return longest

    def _mark_all(self, queue: cython.uint, count: cython.Py_ssize_t, payloads: Any) -> None:
        """Their keys, on this queue or (0) each on its own, where those are a property."""
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        for i in range(count):
            self._limits.mark(i, queue if queue else self._h16[64 * i + 2], payloads, at,
                              self._h32[32 * i + 10])
            at += self._h32[32 * i + 10]

    def _split(self, count: cython.Py_ssize_t, payloads: Any) -> list[Any]:
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        out = []
        for i in range(count):
            out.append(payloads[at : at + self._h32[32 * i + 10]])
            at += self._h32[32 * i + 10]
        return out

    def _born_many(self, count: cython.Py_ssize_t, party: Party, queue: cython.uint,
                   flags: cython.uint, opening: cython.uint, sequence: cython.ulonglong) -> None:
        """All that was checked, between Frames.open and close, as the end of their request: on
        `queue`, 0: each on its own. `opening`: further flags of the first frame."""
        messages, entries, c = self._messages, self._entries, self._c
        first: cython.ulonglong = self._core.next_qpool
        top: cython.Py_ssize_t = messages.top
        high: cython.Py_ssize_t = messages.high
        reused: cython.Py_ssize_t = min(count, top)
        entry_top: cython.Py_ssize_t = entries.top
        entry_high: cython.Py_ssize_t = entries.high
        entry_reused: cython.Py_ssize_t = min(count, entry_top)
        i: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        entry: cython.Py_ssize_t
        messages.top, messages.high = top - reused, high + count - reused
        entries.top, entries.high = entry_top - entry_reused, entry_high + count - entry_reused
        for i in range(count):
            slot = c.free_messages[top - 1 - i] if i < reused else high + i - reused
            entry = (c.free_entries[entry_top - 1 - i] if i < entry_reused
                     else entry_high + i - entry_reused)
            self._births.born(
                slot, entry, first + i, queue if queue else self._h16[64 * i + 2],
                self._h8[128 * i + 1],
                flags | (0 if i else opening) | (_END if i == count - 1 else 0),
                self._h64[16 * i + 4], self._h32[32 * i + 10], self._h32[32 * i + 11],
                self._h64[16 * i + 12], self._q64[16 * i + 13], sequence, self._keys[i],
                self._numbers[i], i, self._h64[16 * i + 9], party)
        self._core.next_qpool = self._core.block.next_qpool = first + count
