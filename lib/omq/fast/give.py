"""Hand-outs to waiting readers, where a queue has no suspect message, no rate of its keys, and no
message next in its return lane that must be handed out alone. As Engine.wait, Engine.dispatch and
core.engine.gives. The engine serves every other queue when its turn comes: the order of queues is
the order of frames.
"""

from __future__ import annotations

from heapq import heappush
from typing import Any

from omq.base import limits
from omq.base import shim as cython
from omq.core.engine.engine import TIMEOUT_MAX_NS, Engine
from omq.core.engine.groups import GROUPED
from omq.core.engine.state import FIRST_QUEUE
from omq.core.engine.waiting import FOREVER, Waiters
from omq.fast.attempts import Attempts
from omq.fast.client_state import ClientState
from omq.fast.columns import Columns
from omq.fast.find_by_id import Finds
from omq.fast.frames import Frames
from omq.fast.groups import Rings
from omq.fast.limited_keys import Keys
from omq.fast.party import Party
from omq.fast.request import Request
from omq.fast.waiter import Waiter
from omq.format.frame_rules import GIVEN_OUT_OF_TURN
from omq.format.index import Counter, QueueFlag
from omq.format.wire import GIVEN, REPLY

_FIRST, _PRIORITIES, _SUSPENDED = FIRST_QUEUE, limits.PRIORITIES, int(QueueFlag.SUSPENDED)
_LIMITED, _KEYED = int(QueueFlag.LIMITED), int(QueueFlag.KEYED)
_GIVES = int(Counter.GIVES)
_GROUPED, _OUT_OF_TURN = GROUPED, GIVEN_OUT_OF_TURN
_FOREVER, _TIMEOUT_MAX, _HEAD, _ROW = FOREVER, TIMEOUT_MAX_NS, REPLY.size, GIVEN.size
_PUSH = heappush
_MS, _S, _TIMEOUT_MS_MAX = 1_000_000, 1_000_000_000, 1_000_000_000


class Gives:
    """See the module."""

    def __init__(self, engine: Engine, columns: Columns, frames: Frames, rings: Rings, keys: Keys
                 ) -> None:
        self._engine, self._core, self._rings, self._limits = engine, engine.core, rings, keys
        self._c, self._frames = columns, frames
        self._attempts = Attempts(self._core, columns, frames)
        finds: Any = Finds(engine, columns, frames, self._attempts, rings)
        engine.wanted.serves = finds.give
        self._chain = 0
        self._soonest = _FOREVER  # time-out of the waits since somebody asked

    def plain(self, r: Request, session: ClientState, batch_max: cython.Py_ssize_t) -> cython.bint:
        """Can the wait of this NEXT, GET or TAKE be taken by `wait`?"""
        return bool(r.want and r.argument <= _TIMEOUT_MS_MAX and batch_max > 0
                    and session.waiter is None and session.cancelled != r.sequence
                    and len(session.reply) >= _HEAD + _ROW)

    def wait(self, r: Request, session: ClientState, party: Party, batch_max: cython.Py_ssize_t,
             queue: cython.uint, by: cython.uint, key: cython.ulonglong, put: cython.ulonglong
             ) -> None:
        """As Engine.wait, of a request that is `plain`; `by`: wire.Key, 0: for what comes next;
        `put`: Waiter.put."""
        engine, core = self._engine, self._core
        want: cython.Py_ssize_t = (len(session.reply) - _HEAD) // _ROW
        timeout: cython.longlong = r.argument * _MS if r.argument >= 0 else -1
        want = min(want, batch_max)
        wished: cython.ulonglong = want
        if r.want < wished:
            want = r.want
        session.sequence = r.sequence
        engine.parties[party.slot] = party
        deadline: cython.longlong = _FOREVER
        if timeout >= 0:
            deadline = core.mono_ns + timeout
        waiter: Waiter = Waiter(party, queue, want, r.sequence, deadline, session.auxiliary)
        if by:
            waiter.by, waiter.key = by, key
            engine.wanted.add(waiter)
        else:
            line = engine.waiters.get(queue)
            if line is None:
                line = engine.waiters.setdefault(queue, Waiters())
            (line.auxiliary if session.auxiliary else line.main).append(waiter)
        if timeout >= 0:
            self._end_at(deadline, waiter)
            self._soonest = min(self._soonest, deadline)
        if put:
            waiter.put = put
        self._c.r_timeout[party.slot] = max(0, min(timeout, _TIMEOUT_MAX)) // _S
        core.runnable.add(queue)
        session.waiter = waiter

    def soonest(self) -> cython.longlong:
        """The first time-out of the waits since this was asked."""
        found: cython.longlong = self._soonest
        self._soonest = _FOREVER
        return found

    def _end_at(self, deadline: cython.longlong, waiter: Waiter) -> None:
        """As Timeouts.add."""
        timeouts = self._engine.timeouts
        if len(timeouts.heap) >= timeouts.limit:
            timeouts.add(deadline, waiter)
        else:
            timeouts.turn += 1
            _PUSH(timeouts.heap, (deadline, timeouts.turn, waiter))

    def dispatch(self, given: list[Any]) -> cython.bint:
        """All hand-outs of a group: (waiter, entries) each. False: some are the engine's."""
        engine, core, c = self._engine, self._core, self._c
        again: set[int] = set()
        self._limits.forget()
        plain: cython.bint = True
        queue: cython.Py_ssize_t
        if core.watched:
            for queue in core.watched:
                if queue in core.runnable and not self._plain_queue(queue):
                    plain = False
            given += engine.wanted.serve()
            if engine.wanted.again:
                again |= engine.wanted.again
                plain = False
        runnable, core.runnable = core.runnable, set()
        for queue in sorted(runnable) if len(runnable) > 1 else runnable:
            if c.q_flags[queue] & _LIMITED:
                self._limits.await_token(queue)
            line = engine.waiters.get(queue)
            if not line or c.q_flags[queue] & _SUSPENDED:
                continue
            if not self._plain_queue(queue) or not self._hand_out(queue, line, given):
                plain = False
                core.runnable = {queue}
                given += engine.dispatch()
                again |= core.runnable
        core.runnable = again
        return plain

    def _plain_queue(self, queue: cython.Py_ssize_t) -> cython.bint:
        core = self._core
        return bool(queue >= _FIRST and not core.suspects and not core.suspect_given
                    and not core.times.behind
                    and (not self._c.q_flags[queue] & _LIMITED or self._limits.flat(queue)))

    def _hand_out(self, queue: cython.Py_ssize_t, line: Waiters, given: list[Any]) -> cython.bint:
        """Its messages to its readers, to each its share; False: the engine must go on."""
        c, main, auxiliary = self._c, line.main, line.auxiliary
        keyed: cython.bint = c.q_flags[queue] & _KEYED != 0
        ready: cython.Py_ssize_t = self._ready(queue)
        laned: cython.bint
        top: cython.Py_ssize_t
        waiting: cython.Py_ssize_t
        share: cython.Py_ssize_t
        want: cython.Py_ssize_t
        waiter: Waiter
        while ready and (main or auxiliary):
            first = main or auxiliary
            waiter = first[0]
            waiting = len(main)
            waiting += len(auxiliary)
            share = (ready + waiting - 1) // waiting
            want = waiter.want
            share = min(share, want)
            laned = not keyed and bool(self._core.lanes.get(queue))
            if not self._frames.fits(share, 0):
                return False
            if laned:
                self._chain = queue * _PRIORITIES + _PRIORITIES - 1
                top = self._returned(self._rings.top(queue), self._head(queue))
                if top >= 0 and c.e_attempts[top]:
                    return False  # it goes alone
            # from here on nothing can fail
            first.popleft()
            entries = self._give(waiter.party, queue, share, waiter.sequence, laned, keyed)
            share = len(entries)
            waiter.waiting = False
            given.append((waiter, entries))
            c.counters[_GIVES] += share
            if c.q_flags[queue] & _LIMITED:
                self._limits.spent(queue, share)
                self._limits.await_token(queue)
            ready = self._ready(queue)
        return True

    def _ready(self, queue: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """As Lanes.ready: entries of a queue that can be handed out."""
        there: cython.Py_ssize_t = self._c.q_ready[queue]
        there -= self._rings.behind(queue)
        return self._limits.ready(queue, there) if self._c.q_flags[queue] & _LIMITED else there

    def _head(self, queue: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The first of the chains of a queue from `_chain` on, which comes there; -1: none."""
        c = self._c
        lowest: cython.Py_ssize_t = queue * _PRIORITIES
        while self._chain > lowest and not c.q_head[self._chain]:
            self._chain -= 1
        entry: cython.Py_ssize_t = c.q_head[self._chain]
        return entry - 1

    def _returned(self, top: cython.Py_ssize_t, head: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The first of the return lane (-1: there is none), if it goes before `head` of the chains;
        else -1."""
        c = self._c
        if top < 0 or head < 0 or c.e_priority[top] > c.e_priority[head]:
            return top
        return top if c.e_priority[top] == c.e_priority[head] \
            and c.e_sequence[top] < c.e_sequence[head] else -1

    def _give(self, party: Party, queue: cython.Py_ssize_t, want: cython.Py_ssize_t,
              sequence: cython.ulonglong, laned: cython.bint, keyed: cython.bint) -> list[int]:
        """The first `want` entries of a queue, or as many as may go together: one that goes alone
        is not given behind others. `laned`: some came back; `keyed`: keys take turns."""
        c, core, frames, keys = self._c, self._core, self._frames, self._limits
        out: list[int] = []
        self._chain = queue * _PRIORITIES + _PRIORITIES - 1
        self._attempts.begin(queue)
        reader: cython.uint = party.slot + 1
        now: cython.longlong = core.now_ns
        entry: cython.Py_ssize_t
        top: cython.Py_ssize_t
        first: cython.Py_ssize_t = -2 if laned else -1  # of the lane; -2: it is asked for
        alone: cython.bint = False
        since: cython.longlong = 0
        alike: cython.ulonglong = 0  # entries so far that were put at `since`
        given: cython.Py_ssize_t = 0
        frames.open(party)
        while given < want and not alone:
            if keyed:
                entry = keys.next()
                if entry < 0:
                    break
                alone = c.e_attempts[entry] > 0
                if alone and given:
                    break
                keys.take(entry)
            else:
                entry = self._head(queue)
                if first < -1:
                    first = self._rings.top(queue)
                top = self._returned(first, entry) if laned else -1
                if top < 0:
                    c.unlink(entry, self._chain)
                elif c.e_attempts[top]:
                    break
                else:
                    entry = top
                    self._rings.pop(queue)
                    first = -2
            self._attempts.hand(
                entry, queue, reader, sequence, frames.payload_bytes,
                _OUT_OF_TURN if keyed or c.m_flags[c.e_message[entry]] & _GROUPED else 0, now)
            if keyed:
                keys.taken()
            if c.e_submitted[entry] != since:
                if alike:
                    c.waited(queue, now - since, alike)
                since, alike = c.e_submitted[entry], 0
            alike += 1
            given += 1
            out.append(entry)
        c.waited(queue, now - since, alike)
        frames.close()
        self._attempts.count(party, queue, given)
        return out
