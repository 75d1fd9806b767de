"""The part of core.check.invariants that needs nothing but the bytes of an index.

Chains are checked without walking them: each link is answered by the other side, sequences ascend
along it (so there is no ring), and an entry with nobody before it is the head of its chain (so
there is no second piece). Then every entry that is linked is on exactly one chain.

Hash chains and the entries of a message are followed for all rows at once, one hop a pass; a row
that comes up a second time ends its pass, so rings end, too.

Invariants: nothing is written; no number of the tables is used before it is bounded; no view of the
buffer outlives the object.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from omq.base import limits
from omq.base.arrays import Vector
from omq.core.check.broken_rules import Report, Rule
from omq.core.engine.state import HAS_ID, IDEL, PERSISTENT, POISON
from omq.core.index.keyed_buckets import KeyedBuckets
from omq.format.index import (
    COUNTERS_AT,
    QUEUE_NAME_BYTES,
    Counter,
    EntryState,
    IndexLayout,
    QueueFlag,
    ReaderFlag,
)
from omq.format.location import LocationKind, location
from omq.format.pool import NO_RECORD

PRIORITIES: Final = limits.PRIORITIES
_STATES: Final = {"q_ready": EntryState.READY, "q_active": EntryState.ACTIVE,
                  "q_deferred": EntryState.DEFERRED, "q_held": EntryState.HELD}


class IndexChecks:
    """See the module. `run` once. `keyed`: of the hash chains, if this process knows the
    secret."""

    def __init__(self, buffer: memoryview, layout: IndexLayout, report: Report,
                 keyed: KeyedBuckets | None = None) -> None:
        self._v = {name: layout.vector(buffer, name) for name in layout.columns}
        self._buffer = buffer
        self._layout = layout
        self._report, self._keyed = report, keyed
        raw: list[int] = np.frombuffer(buffer, "<u8", max(Counter) + 1, COUNTERS_AT).tolist()
        self._counters = raw
        self._messages = self._high(Counter.MESSAGES_HIGH, layout.messages)
        self._entries = self._high(Counter.ENTRIES_HIGH, layout.entries)
        self._queues = self._high(Counter.QUEUES_HIGH, layout.queues)
        self._readers = self._high(Counter.READERS_HIGH, layout.readers)
        v = self._v
        self._live = v["m_qpool"][: self._messages] != 0
        self._state = v["e_state"][: self._entries]
        self._used = self._state != EntryState.FREE
        self._owner = v["e_message"][: self._entries].astype(np.int64)
        self._queue = v["e_queue"][: self._entries].astype(np.int64)
        self._priority = v["e_priority"][: self._entries].astype(np.int64)
        self._sequence = v["e_sequence"][: self._entries]

    def _high(self, counter: Counter, capacity: int) -> int:
        high = self._counters[counter]
        if high > capacity:
            self._report.add(Rule.COUNTER, counter.name, f"{high} of {capacity} rows")
        return min(high, capacity)

    def _entry(self, row: int) -> str:
        owner = int(self._owner[row])
        qpool = int(self._v["m_qpool"][owner]) if owner < self._layout.messages else 0
        return f"entry {row} (QPoolId {qpool}, queue {int(self._queue[row])})"

    def _message(self, row: int) -> str:
        return f"message {row} (QPoolId {int(self._v['m_qpool'][row])})"

    def _queue_name(self, row: int) -> str:
        at = self._layout.queue_names + row * QUEUE_NAME_BYTES
        raw = bytes(self._buffer[at : at + QUEUE_NAME_BYTES]).rstrip(b"\0")
        return f"queue {row} ({raw.decode('ascii', 'backslashreplace')})"

    def run(self) -> None:
        """All of it. Entries that cannot be are left out of what follows."""
        self._check_counters()
        self._check_entries()
        self._check_messages()
        self._check_durations()
        self._check_parts()
        self._check_siblings()
        self._check_queues()
        self._check_chains()
        self._check_hash(Rule.ID_INDEX, "b_id", "m_idnext", "m_idprev", "m_key", self._live)
        correlated = self._live & (self._v["m_corr"][: self._messages] != 0)
        self._check_hash(Rule.CORRELATION, "b_corr", "m_corrnext", "m_corrprev", "m_corr",
                         correlated)
        self._check_numbers()
        self._check_readers()

    # rows

    def _check_counters(self) -> None:
        counters, add = self._counters, self._report.add
        for counter, used in ((Counter.MESSAGES, self._live), (Counter.ENTRIES, self._used)):
            count = int(np.count_nonzero(used))
            if counters[counter] != count:
                add(Rule.COUNTER, counter.name, f"{counters[counter]}, in the table {count}")
        for name, high, what in (("m_qpool", self._messages, "message"),
                                 ("e_state", self._entries, "entry")):
            above = np.flatnonzero(self._v[name][high:])
            if len(above):
                add(Rule.COUNTER, f"{what} {high + int(above[0])}", "in use above the mark")
        if counters[Counter.DURABLE_LSN] > counters[Counter.LAST_LSN]:
            add(Rule.COUNTER, "DURABLE_LSN", "above LAST_LSN")

    def _check_durations(self) -> None:
        """More was not counted than there was; a queue that goes takes its counts with it."""
        counters, add = self._counters, self._report.add
        waits, works, blocks, syncs = (int(self._v[name].sum()) for name in (
            "q_waits", "q_works", "j_groups", "j_syncs"))
        for name, found, most in (("q_waits", waits, counters[Counter.GIVES]),
                                  ("q_works", works, waits),
                                  ("j_syncs", syncs, counters[Counter.SYNCS])):
            if found > most:
                add(Rule.COUNTER, name, f"counts {found} of {most}")
        if blocks != counters[Counter.GROUPS]:
            add(Rule.COUNTER, "j_groups", f"counts {blocks} of {counters[Counter.GROUPS]} blocks")

    def _check_entries(self) -> None:
        rows, name, used = self._report.rows, self._entry, self._used
        v, count = self._v, self._entries
        known = (self._state <= EntryState.HELD) | (self._state == EntryState.PREPARED)
        rows(Rule.ENTRY, used & ~known, "unknown state", name)
        inside = self._owner < self._messages
        owned = inside.copy()
        owned[inside] = self._live[self._owner[inside]]
        rows(Rule.ENTRY, used & ~owned, "of no message", name)
        flags = v["q_flags"]
        there = self._queue < self._queues
        there[there] = flags[self._queue[there]] & QueueFlag.IN_USE != 0
        rows(Rule.ENTRY, used & ~there, "on no queue", name)
        rows(Rule.ENTRY, used & (self._priority >= PRIORITIES), "unknown priority", name)
        until = v["e_until"][:count]
        rows(Rule.ENTRY, (self._state == EntryState.DEFERRED) & (until <= 0),
             "deferred without a time", name)
        rows(Rule.ENTRY, (self._state == EntryState.READY) & (until != 0),
             "ready with a time", name)
        self._used = used & known & owned & there & (self._priority < PRIORITIES)

    def _check_messages(self) -> None:
        v, count, live = self._v, self._messages, self._live
        rows, name = self._report.rows, self._message
        flags = v["m_flags"][:count]
        kept = flags & PERSISTENT != 0
        record = v["m_record"][:count]
        rows(Rule.MESSAGE, live & kept & (record == NO_RECORD), "no pool record", name)
        rows(Rule.MESSAGE, live & ~kept & (record != NO_RECORD), "a pool record of its own though"
             " not persistent", name)
        rows(Rule.MESSAGE, live & (v["m_file"][:count] >= limits.POOL_FILES_MAX), "no pool file",
             name)
        fleeting = v["m_location"][:count] >= location(LocationKind.VOLATILE, 0)
        rows(Rule.MESSAGE, live & (fleeting == kept), "its body lies in the wrong kind of file",
             name)
        rows(Rule.MESSAGE, live & (flags & HAS_ID == 0)
             & (v["m_key"][:count] != v["m_qpool"][:count]), "key of an id that nothing has", name)
        place = (v["m_file"][:count].astype(np.int64) << 32) | record
        self._report.twice(Rule.SLOT, place, live & kept & (record != NO_RECORD),
                           "another message has the same pool record", name)

    # messages and their entries

    def _check_parts(self) -> None:
        owners = self._owner[self._used]
        counted = np.bincount(owners, minlength=self._messages)[: self._messages]
        parts = self._v["m_parts"][: self._messages]
        rows, name = self._report.rows, self._message
        rows(Rule.PARTS, self._live & (counted != parts), "parts differ from its entries", name)
        rows(Rule.PARTS, self._live & (counted == 0) & (parts == 0), "on no queue, nor on IDEL",
             name)
        self._report.twice(Rule.TWICE, self._owner << 16 | self._queue, self._used,
                           "the message is on this queue before", self._entry)
        idle = self._used & (self._queue == IDEL)
        idle[idle] = counted[self._owner[idle]] != 1
        rows(Rule.IDEL, idle, "on IDEL, and on another queue", self._entry)

    def _check_siblings(self) -> None:
        owners = np.flatnonzero(self._live)
        first = self._v["m_first"][owners].astype(np.int64)
        met = self._report.follow(Rule.SIBLING, first, owners, self._v["e_sibling"], self._used,
                                  self._owner, self._entry)
        self._report.rows(Rule.SIBLING, self._used & (met < 0), "its message does not list it",
                          self._entry)

    # queues

    def _check_queues(self) -> None:
        v, size = self._v, self._layout.queues
        queue, state = self._queue[self._used], self._state[self._used]
        rows, name = self._report.rows, self._queue_name
        depth = np.bincount(queue, minlength=size)[:size]
        rows(Rule.QUEUE, v["q_depth"] != depth, "depth differs from its entries", name)
        for column, kind in _STATES.items():
            counted = np.bincount(queue[state == kind], minlength=size)[:size]
            rows(Rule.QUEUE, v[column] != counted, f"{column} differs from its entries", name)
        used = v["q_flags"] & QueueFlag.IN_USE != 0
        used[self._queues:] = False
        numbers = np.flatnonzero(used).tolist()
        names = [self._queue_name(number).partition("(")[2] for number in numbers]
        for number, text in zip(numbers, names, strict=True):
            if text == ")" or names.count(text) > 1:
                self._report.add(Rule.QUEUE, name(number), "no name, or another queue's")
        for number, wanted in ((IDEL, QueueFlag.SPECIAL | QueueFlag.PSEUDO),
                               (POISON, QueueFlag.SPECIAL)):
            if number < self._queues and int(v["q_flags"][number]) & wanted != wanted:
                self._report.add(Rule.IDEL, name(number), "is not flagged as special")
        for column in ("q_load1", "q_load5", "q_load15", "q_rate1", "q_rate5", "q_rate15"):
            good = np.isfinite(v[column]) & (v[column] >= 0)
            rows(Rule.QUEUE, ~good, f"{column} is not an average", name)

    def _check_chains(self) -> None:
        v, count = self._v, self._entries
        rows, name = self._report.rows, self._entry
        following = v["e_next"][:count].astype(np.int64)
        before = v["e_prev"][:count].astype(np.int64)
        ready = self._used & (self._state == EntryState.READY)
        rows(Rule.CHAIN, self._used & ~ready & ((following != 0) | (before != 0)),
             "linked though not ready", name)
        chain = np.where(ready, self._queue * PRIORITIES + self._priority, 0)
        head, tail = v["q_head"].astype(np.int64), v["q_tail"].astype(np.int64)
        number = np.arange(1, count + 1)
        linked = ready & ((following != 0) | (before != 0) | (head[chain] == number))
        for links, back, ends, what in ((following, before, tail, "after"),
                                        (before, following, head, "before")):
            at = np.flatnonzero(linked & (links != 0))
            other = links[at] - 1
            good = other < count
            inside = np.where(good, other, 0)
            good &= linked[inside] & (back[inside] == at + 1) & (chain[inside] == chain[at])
            ascends = self._sequence[inside] > self._sequence[at]
            good &= ascends if what == "after" else self._sequence[inside] < self._sequence[at]
            rows(Rule.CHAIN, ~good, f"the one {what} it is wrong or out of order", name, at)
            rows(Rule.CHAIN, linked & (links == 0) & (ends[chain] != number),
                 f"nobody {what} it, and not the end of its chain", name)
        for ends, what in ((head, "first"), (tail, "last")):
            at = np.flatnonzero(ends)
            row = ends[at] - 1
            good = row < count
            inside = np.where(good, row, 0)
            good &= ready[inside] & (chain[inside] == at) if count else False
            rows(Rule.CHAIN, ~good, f"its {what} entry is not one of its own",
                 lambda c: f"{self._queue_name(c // PRIORITIES)} priority {c % PRIORITIES}", at)
        odd = (head == 0) != (tail == 0)
        rows(Rule.CHAIN, odd, "has a first entry and no last one, or the other way",
             lambda c: f"{self._queue_name(c // PRIORITIES)} priority {c % PRIORITIES}")

    # hash chains, numbers, readers

    def _check_hash(self, rule: Rule, heads: str, links: str, back: str, keys: str,
                    members: Vector) -> None:
        v = self._v
        key, buckets = v[keys][: self._messages], self._layout.buckets
        first = v[heads].astype(np.int64)
        met = self._report.follow(rule, first, np.arange(len(first)), v[links], members, None,
                                  self._message)
        self._report.rows(rule, members & (met < 0), "is not found", self._message)
        after = v[links][: self._messages].astype(np.int64)
        linked = np.flatnonzero((met >= 0) & (after > 0) & (after <= len(met)))
        expected = np.zeros(len(met), dtype=np.int64)
        expected[after[linked] - 1] = linked + 1
        self._report.rows(rule, (met >= 0) & (v[back][: self._messages] != expected),
                          "the one before it in its chain is wrong", self._message)
        # By how much keys are moved is the manager's secret; those with the same upper bits by the
        # same (core.index.keyed_buckets).
        there = np.flatnonzero(met >= 0)
        upper, moved = key // np.uint64(buckets), met ^ (key % np.uint64(buckets)).astype(np.int64)
        there = there[np.argsort(upper[there], kind="stable")]
        alike = upper[there][1:] == upper[there][:-1]
        self._report.rows(rule, alike & (moved[there][1:] != moved[there][:-1]),
                          "is in another chain than its neighbours", self._message, there[1:])
        if self._keyed is not None:
            self._report.rows(rule, (met >= 0) & (met != self._keyed.of_each(key)),
                              "is in the chain of another hash", self._message)

    def _check_numbers(self) -> None:
        v, rows = self._v, self._report.rows
        qpool = v["m_qpool"][: self._messages]
        self._report.twice(Rule.NUMBER, qpool, self._live, "QPoolId is given twice", self._message)
        rows(Rule.NUMBER, self._live & (qpool >= self._counters[Counter.NEXT_QPOOL]),
             "QPoolId will be given again", self._message)
        last = self._counters[Counter.LAST_LSN]
        lsn = v["m_lsn"][: self._messages]
        rows(Rule.NUMBER, self._live & (lsn > last), "LSN will be given again", self._message)
        rows(Rule.NUMBER, self._used & (self._sequence == 0), "no place in the order", self._entry)
        late = self._used.copy()
        late[late] = self._sequence[late] > lsn[self._owner[late]]
        rows(Rule.NUMBER, late, "came to its queue after its message's last change", self._entry)

    def _check_readers(self) -> None:
        reader = self._v["e_reader"][: self._entries].astype(np.int64)
        active = self._used & (self._state == EntryState.ACTIVE)
        rows, name = self._report.rows, self._entry
        rows(Rule.READER, self._used & ~active & (reader != 0), "has a reader, and is not active",
             name)
        held = np.flatnonzero(active & (reader != 0))
        row = reader[held] - 1
        there = row < self._readers
        there[there] = self._v["r_flags"][row[there]] & ReaderFlag.IN_USE != 0
        rows(Rule.READER, ~there, "handed out to a reader that is not there", name, held)
