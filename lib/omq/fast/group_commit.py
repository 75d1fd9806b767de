"""A turn of the manager's loop with the fast path in it: RequestServer.group, in one function.

Deadlines (of deferred messages, leases, time-outs, looks at notes) are checked when this group or
the one before had anything but plain requests, or when `due` has come: the earliest of all
deadlines, or earlier. A plain request adds only the time-out of its wait, the end of a lease, the
next look at its reader's note and the expiry of a message, which lower `due`; messages that have
expired (core.engine.expiry) are handled in the same group. Plain requests of members, which come
over their connections, are such as well.

The order is that of RequestServer.group: requests, control connections, hand-outs, one commit, then
the replies, all written before the first client is woken.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.base.errors import OmqError
from omq.core.engine.engine import Engine
from omq.core.engine.expiry import LAG_NS
from omq.core.engine.waiting import FOREVER
from omq.fast.client_state import ClientState
from omq.fast.columns import Columns
from omq.fast.journal import Journal
from omq.fast.look_line import LookLine
from omq.fast.plain_requests import Path
from omq.fast.waiter import Waiter
from omq.format.index import Counter
from omq.storage import durable

_VERSION, _NEXT, _LAST = (int(Counter.VERSION), int(Counter.NEXT_QPOOL), int(Counter.LAST_LSN))
_BEAT, _BOOT_BEAT = int(Counter.HEARTBEAT), int(Counter.BOOT_BEAT)
_DURABLE, _SYNCS, _ACTIVE_PEAK = (int(Counter.DURABLE_LSN), int(Counter.SYNCS),
                                  int(Counter.ACTIVE_PEAK))
_MESSAGES, _MESSAGES_HIGH, _PEAK = (int(Counter.MESSAGES), int(Counter.MESSAGES_HIGH),
                                    int(Counter.MESSAGES_PEAK))
_ENTRIES, _ENTRIES_HIGH, _FOREVER = int(Counter.ENTRIES), int(Counter.ENTRIES_HIGH), FOREVER
_LAG = LAG_NS


class Turn:
    """See the module. `done`: as Path has it; `given`: hand-outs of this group, (waiter, entries)
    each; `rows_max`: a reply with more of them is the engine's."""

    def __init__(self, server: Any, epoch: int, batch_max: int, done: list[Any], given: list[Any],
                 rows_max: int) -> None:
        engine: Engine = server.engine
        core = engine.core
        self._server, self._engine, self._core = server, engine, core
        columns = Columns(core.t)
        self.path = Path(engine, columns, server.sessions, server.looks, server.foreign, done,
                         server.begun, epoch, batch_max, server.units)
        self._journal = Journal(engine, columns)
        self._c = columns
        core.block.write = self._journal.write
        self._given, self._rows_max = given, rows_max
        looks: LookLine = server.looks
        self._recent, self._looks = server.recent, looks
        self._by_id, self._sessions = server.sessions.by_id, server.sessions
        self._stirred, self._due, self._moment = True, 0, 0

    def close(self) -> None:
        """The engine goes on alone."""
        self._core.block.write = self._core.block.write_in_steps
        self._engine.wanted.serves = self._engine.wanted.give

    def stir(self) -> None:
        """Something was done to the engine behind our back."""
        self._stirred = True

    def is_plain(self) -> cython.bint:
        """The last group had plain requests and nothing else."""
        return not self._stirred

    def due(self) -> cython.longlong:
        """When a turn is wanted though nobody asks for anything (monotonic ns)."""
        if self._stirred:
            self._stirred = False
            self._due = min(self._engine.next_deadline(), self._looks.due)
            moments, times = self._core.moments, self._core.times
            self._moment = min(moments[0][0] if moments else _FOREVER, times.loaded.next())
            times.next_ns = self._engine.expiry.next_ns
        return self._due

    def columns(self) -> Columns:
        """The tables as it sees them."""
        return self._c

    def writer(self) -> Any:
        """Of the journal."""
        return self._core.block.writer

    def run(self, batch: list[Any], wall_ns: cython.longlong, mono_ns: cython.longlong,
            drain: Any) -> None:
        """See the module. DiskError: nobody is answered."""
        asks: cython.bint = True
        self.group(batch, wall_ns, mono_ns, drain, asks)

    def group(self, batch: list[Any], wall_ns: cython.longlong, mono_ns: cython.longlong,
              drain: Any, asks: cython.bint) -> None:
        """The same; `asks`: `drain` may have something to do besides telling of refusals."""
        core, server, c = self._core, self._server, self._c
        block = core.block
        core.now_ns, core.mono_ns = wall_ns, mono_ns
        core.suspect_given, block.time_ns = False, wall_ns
        c.counters[_VERSION] |= 1
        if batch:
            self._recent.groups.append((wall_ns, batch))  # as RecentRequests.group
        self._take(batch)
        if (asks or server.refused) and drain():
            self._stirred = True
        self._due = min(self._due, self.path.soonest(), core.times.next_ns + _LAG)
        self._recent.under_way = b""
        if (self._stirred or mono_ns >= self._due or wall_ns >= self._moment
                or mono_ns >= core.times.next_ns or server.stopping):
            self._stirred = True
            server.dispatch()
        elif not self.path.dispatch(self._given):
            self._stirred = True
        leases = core.leases  # they begin with hand-outs, of which some are the engine's
        if leases:
            self._due = min(self._due, leases[0][0])
        self._due = min(self._due, self.path.next_token())
        if block.count:  # behind an error inside a request, as of a new journal file, it writes not
            self._journal.write(0)
        else:
            durable.check_latch()
        self._commit()
        self.release()

    def _take(self, batch: list[Any]) -> None:
        """The requests of a group."""
        server, recent = self._server, self._recent
        fast: cython.bint = not server.stopping
        plain: cython.bint
        for raw in batch:
            recent.under_way = raw
            plain = False
            if fast:
                try:
                    plain = self.path.handle(raw)
                except OmqError as error:
                    server.refuse(raw, error)
                    continue
            if not plain and not server.hears(raw):
                self._stirred = True
                server.handle_unplain(raw)

    def _commit(self) -> None:
        """As Engine.commit, after the write."""
        core, c = self._core, self._c
        block, messages, entries = core.block, core.t.messages, core.t.entries
        writer = block.writer
        high: cython.ulonglong = messages.high
        top: cython.ulonglong = messages.top
        active: cython.ulonglong = core.active
        c.counters[_MESSAGES], c.counters[_MESSAGES_HIGH] = high - top, high
        if high - top > c.counters[_PEAK]:
            c.counters[_PEAK] = high - top
        high, top = entries.high, entries.top
        c.counters[_ENTRIES], c.counters[_ENTRIES_HIGH] = high - top, high
        c.counters[_NEXT], c.counters[_LAST] = core.next_qpool, block.first_lsn - 1
        c.counters[_DURABLE], c.counters[_SYNCS] = writer.durable_lsn, writer.syncs
        if active > c.counters[_ACTIVE_PEAK]:
            c.counters[_ACTIVE_PEAK] = active
        c.counters[_BEAT], c.counters[_BOOT_BEAT] = core.now_ns, core.mono_ns
        c.counters[_VERSION] += 1

    def release(self) -> None:
        """As RequestServer.release: write all replies, then wake the clients."""
        server, path, sessions = self._server, self.path, self._sessions
        lsn: cython.ulonglong = self._core.block.first_lsn - 1
        answered: list[Any] = []
        mono_ns: cython.longlong = self._core.mono_ns
        session: ClientState
        waiter: Waiter
        if server.begun:
            server.remember(lsn)
        path.answer(answered, lsn)
        if server.refused:
            server.answer_refused(answered)
        for waiter, entries in self._given:
            known = self._by_id.get(waiter.party.client)
            if known is None:
                continue
            session = known
            session.waiter = None
            self._looks.answered(session, mono_ns)
            if session.trusted and len(entries) <= self._rows_max:
                path.give(session, waiter, entries, lsn)
            else:
                server.give_unplain(session, waiter, entries, lsn)
            answered.append(session)
        self._given.clear()
        line = self._looks.line
        if line:
            self._due = min(self._due, line[0][0])
        if server.held is None:
            path.announce(answered)
        else:
            server.held.add(answered)  # they wait for standbys
        if sessions.gone:
            sessions.close_gone()
