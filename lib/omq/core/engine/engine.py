"""The engine: the only writer of the index. Requests of one group are checked, appended, applied;
one sync makes the group durable; then, and only then, the replies go out.

    begin -> put / settle / move / wait ... -> tick -> dispatch -> commit -> (caller replies)

Invariants: 1. a request is checked whole before it changes anything; 2. its frames are in one
block; 3. commit returns only when every persistent frame of the group is durable; the first disk
error leaves by DiskError and the process must end (storage.durable latches); 4. the index is ahead
of the disk only between begin and commit; `version` is odd then.

Crash argument: the tables are discarded at the next start and rebuilt from the pool and the
journal, so only the blocks count, and a block is whole or absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from omq.base.clock import NS_PER_S as NS
from omq.base.errors import SpoolFull
from omq.base.fault import point
from omq.core.engine import moves, puts, settle
from omq.core.engine.barrier_ends import fire
from omq.core.engine.block import Block
from omq.core.engine.cancelling import ById
from omq.core.engine.clients import Clients
from omq.core.engine.deadlines import ended, renew, soonest, wake
from omq.core.engine.duplicates import watching
from omq.core.engine.durations import wrote
from omq.core.engine.expiry import Expiry, none_left
from omq.core.engine.gives import give
from omq.core.engine.in_doubt import InDoubt
from omq.core.engine.leases_resumed import adopt, given_up
from omq.core.engine.manager_notes import Books
from omq.core.engine.operate import Order, Outcome, operate
from omq.core.engine.queues import Queues
from omq.core.engine.reader_notes import OldNotes, ReaderNote, left
from omq.core.engine.recall import Recall
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.settle import Verdict
from omq.core.engine.state import Core, Party, Poisoned
from omq.core.engine.statistics import Statistics
from omq.core.engine.suspect_messages import must_wait
from omq.core.engine.taking_back import Returning, TakingBack
from omq.core.engine.units import Units
from omq.core.engine.waiters_by_id import WaitersById
from omq.core.engine.waiting import FOREVER, Timeouts, Waiter, Waiters
from omq.format.frame_rules import Reason
from omq.format.index import Counter, QueueFlag
from omq.format.message import Part
from omq.storage import durable

# Plain integers: enum members cost more than the work around them.
_VERSION, _NEXT, _LAST = int(Counter.VERSION), int(Counter.NEXT_QPOOL), int(Counter.LAST_LSN)
_DURABLE, _BEAT, _BOOT_BEAT, _PUTS, _GIVES, _SYNCS = (int(counter) for counter in (
    Counter.DURABLE_LSN, Counter.HEARTBEAT, Counter.BOOT_BEAT, Counter.PUTS, Counter.GIVES,
    Counter.SYNCS))
_ACTIVE_PEAK, _SUSPENDED = int(Counter.ACTIVE_PEAK), int(QueueFlag.SUSPENDED)
TIMEOUT_MAX_NS = 0xFFFFFFFF * NS  # that the reader table can show; 0 = for ever


class Engine:
    """See the module. `core` holds the state that its parts share."""

    def __init__(self, core: Core, statistics: Statistics) -> None:
        self.core, self.statistics = core, statistics
        self.room = core.room  # what pool.writer says of the disk
        self.waiters, self.wanted = dict[int, Waiters](), WaitersById(core)
        self.parties: dict[int, Party] = {}  # readers by their row, to whom a lease is lost
        self.timeouts, self.old_notes = Timeouts(), OldNotes()
        self.limbo: dict[int, int] = {}  # active entry without a reader -> lease
        self.limbo_until, self.limbo_delay_ns = FOREVER, 0
        self.poisoned: list[Poisoned] = []
        self.back = TakingBack(core, self.poisoned.append)
        self.units = Units(core, self.back.take)
        self.in_doubt = InDoubt(core, self.poisoned.append)
        self.clients, self.books, self.recall = Clients(core), Books(core), Recall(core)
        self.queues = Queues(core, self.books, statistics.forget)
        self.expiry, self.by_id, self.failures = Expiry(core), ById(core), core.failures
        self.index = core.t.readonly()  # for those who serve clients: to look at
        core.barriers.told = self.poisoned.append
        core.block.on_flush = self._flushed
        core.block.on_rotate = self.books.name_everything

    @property
    def rules(self) -> Mapping[int, QueueRules]:
        """The rules of each queue, by its number."""
        return self.core.rules

    @property
    def now_ns(self) -> int:
        return self.core.now_ns

    @property
    def mono_ns(self) -> int:
        return self.core.mono_ns

    @property
    def space_left(self) -> bool:
        """New messages are taken."""
        return self.core.space_left

    @property
    def last_lsn(self) -> int:
        return self.core.block.first_lsn - 1

    @property
    def durable_lsn(self) -> int:
        """The last one that is on the disk."""
        return self.core.block.writer.durable_lsn

    def release(self) -> None:
        self.index.release()
        self.core.t.release()

    def begin(self, wall_ns: int, mono_ns: int) -> None:
        """Start a group at this time."""
        core = self.core
        core.now_ns, core.mono_ns = wall_ns, mono_ns
        core.suspect_given, core.block.time_ns = False, wall_ns
        core.t.counters[_VERSION] |= 1

    def commit(self, *, sync: bool = False) -> None:
        """Make the group durable and visible. DiskError: nobody may be answered."""
        core = self.core
        durable.check_latch()  # a request may have met it and have been refused: nobody is answered
        point("engine.before_append")
        core.block.flush(sync=sync)
        point("engine.after_append")
        core.t.publish()
        counters, writer = core.t.counters, core.block.writer
        counters[_NEXT], counters[_LAST] = core.next_qpool, core.block.first_lsn - 1
        counters[_DURABLE], counters[_SYNCS] = writer.durable_lsn, writer.syncs
        counters[_ACTIVE_PEAK] = max(counters[_ACTIVE_PEAK], core.active)
        counters[_BEAT], counters[_BOOT_BEAT] = core.now_ns, core.mono_ns
        counters[_VERSION] += 1

    def sync(self) -> None:
        """What was appended so far is on the disk, before the group ends."""
        self.core.block.flush(sync=True)

    def tell_written(self, told: Callable[[int], None]) -> None:
        """`told` hears, before each sync, up to which LSN blocks lie in their file."""
        self.core.block.writer.written = told

    def _flushed(self, block: Block, base: int) -> None:
        """Payload offsets of the block's puts become offsets in the file."""
        offsets = self.core.t.m_offset
        for slot in block.puts:
            offsets[slot] += base
        wrote(self.core.t, block)

    # requests

    def put(self, party: Party, new: puts.NewMessage, sequence: int) -> int:
        """One message; its QPoolId."""
        if new.key and watching(self.core, new):
            return self.units.put(party, (new,), sequence)
        qpool = puts.put(self.core, party, new, sequence)
        self.core.t.counters[_PUTS] += 1
        return qpool

    def settle(self, party: Party, verdicts: Sequence[Verdict], sequence: int) -> int:
        """All settlements of one request. How many did not hold: their leases were lost."""
        return settle.settle(self.core, party, verdicts, sequence, self.poisoned.append)

    def renew(self, party: Party, verdicts: Sequence[Verdict]) -> int:
        return renew(self.core, party, verdicts)

    def move(self, party: Party, verdict: Verdict, queues: Sequence[Part],
             new: Sequence[puts.NewMessage], sequence: int) -> int:
        """One atomic disposition; the first new QPoolId, 0 when it made none."""
        first, count = moves.move(self.core, party, verdict, queues, new, sequence)
        self.core.settled(party, 1)
        self.core.t.counters[_PUTS] += count
        return first

    def operate(self, party: Party, order: Order) -> Outcome:
        return operate(self.core, party, order, self.forget_reader)

    def waits_for(self, entry: int) -> int:
        """How many messages a barrier still waits for; 0: it is none, or does not wait."""
        return len(self.core.barriers.waiting.get(entry, ()))

    def forget_reader(self, entry: int) -> None:
        """An operator takes a message out of its reader's hands."""
        self.limbo.pop(entry, None)
        self.by_id.take(entry)
        if (holder := self.parties.get(self.core.t.e_reader[entry] - 1)) is not None:
            holder.active -= 1

    def wait(self, party: Party, queue: int, want: int, sequence: int, timeout_ns: int, *,
             auxiliary: bool, by: int = 0, key: int = 0) -> Waiter:
        """Register a wish for messages (`by`, `key`: with this id, core.engine.waiters_by_id);
        `dispatch` or `expire` answers it. timeout_ns < 0: for ever."""
        self.parties[party.slot] = party
        deadline = self.core.mono_ns + timeout_ns if timeout_ns >= 0 else FOREVER
        waiter = Waiter(party, queue, want, sequence, deadline, auxiliary, by=by, key=key)
        (self.wanted if by else self.waiters.setdefault(queue, Waiters())).add(waiter)
        if deadline != FOREVER:
            self.timeouts.add(deadline, waiter)
        self.core.t.r_timeout[party.slot] = max(0, min(timeout_ns, TIMEOUT_MAX_NS)) // NS
        self.core.runnable.add(queue)
        return waiter

    # time

    def tick(self) -> None:
        """Everything whose time has come: due messages, leases, limbo, samples. There is nothing to
        do before `next_deadline`, but for messages with a time of their own: omq.fast.group_commit
        leaves it out till then."""
        core = self.core
        now = core.mono_ns
        wake(core)
        core.duplicates.drop_loaded(core.now_ns)
        for entry, lease in ended(core):
            holder = self.parties.get(core.t.e_reader[entry] - 1)
            self.back.take([Returning(entry, lease, Reason.LEASE, holder)])
        if self.limbo_until <= now:
            limbo, self.limbo, self.limbo_until = self.limbo, {}, FOREVER
            self.back.take(self.old_notes.judge(core, limbo, self.limbo_delay_ns,
                                                self.poisoned.append))
        self.back.retry()
        if core.times.used:
            self.expiry.tick()
        if core.barriers.due:
            fire(core)
        self.statistics.sample(now, core.now_ns)

    def expire(self) -> list[Waiter]:
        """The waiters whose time is over; after `dispatch`: nobody leaves empty-handed in vain."""
        for waiter in (expired := self.timeouts.over(self.core.mono_ns)):
            self.drop(waiter)
        return expired

    def drop(self, waiter: Waiter) -> None:
        """It does not wait any more."""
        (self.wanted if waiter.by else self.waiters[waiter.queue]).drop(waiter)

    def next_deadline(self) -> int:
        """Monotonic ns of the next thing that time alone brings."""
        core = self.core
        if core.suspect_given and core.runnable:
            return core.mono_ns  # the next suspect
        best = min(self.statistics.due, self.timeouts.next(), soonest(core))
        if core.barriers.due:
            best = min(best, core.barriers.paused_until)
        if core.times.used:
            best = min(best, self.expiry.due)
        return min(best, self.back.due, self.limbo_until)

    # scheduling

    def dispatch(self) -> list[tuple[Waiter, list[int]]]:
        """Hand messages to waiting readers: main first, and its share of a backlog to each."""
        core, t = self.core, self.core.t
        out = self.wanted.serve() if core.watched else []
        runnable, core.runnable = core.runnable, set(self.wanted.again)
        for queue in sorted(runnable):
            line = self.waiters.get(queue)
            if not line or t.q_flags[queue] & _SUSPENDED:
                continue
            while ready := core.ready(queue):
                if line and (must_wait(core, queue)
                             or (core.times.behind and none_left(core, queue))):
                    core.runnable.add(queue)
                    break
                waiter = line.take()
                if waiter is None:
                    break
                share = max(1, -(-ready // (len(line) + 1)))
                try:
                    entries = give(core, waiter.party, queue, min(waiter.want, share),
                                   waiter.sequence)
                except SpoolFull:  # no journal file for it: tried again with the next group
                    line.add(waiter)
                    core.runnable.add(queue)
                    core.space_left = False
                    break
                waiter.waiting = False
                out.append((waiter, entries))
                t.counters[_GIVES] += len(entries)
        return out

    # death

    def cancel(self, waiter: Waiter) -> None:
        """Answer a wait at the end of this group."""
        if waiter.waiting:
            self.timeouts.add(0, waiter)

    def forget(self, party: Party, waiters: Iterable[Waiter], evidence: dict[str, object], *,
               orderly: bool, freed: bool = False, noted: ReaderNote | None = None) -> int:
        """A client is gone; how many of its messages came back: to their old place if it left in
        order, was `freed`, or by its note had not begun with them; else a failed attempt."""
        for waiter in [each for each in waiters if each.waiting]:
            self.drop(waiter)
        self.parties.pop(party.slot, None)
        if not party.active:
            return 0
        reason = Reason.OPERATOR if freed else Reason.RETURNED if orderly else Reason.DIED
        self.back.take(back := left(self.core, party, evidence, None if orderly else noted,
                                    self.poisoned.append, reason))
        party.active = 0
        return len(back)

    def adopt(self, party: Party, queue: int, held: Sequence[tuple[int, int]],
              given: tuple[int, int], *, unit: bool = False,
              took: Sequence[tuple[int, int]] = ()) -> int:
        """A client has outlived its manager; see core.engine.leases_resumed. How many messages it
        keeps."""
        self.parties[party.slot] = party
        self.old_notes.drop(party.token)
        kept = adopt(self.core, self.limbo, party, queue, held, given, self.poisoned.append)
        self.back.take(given_up(self.core, self.limbo, party, took) if unit else ())
        return kept
