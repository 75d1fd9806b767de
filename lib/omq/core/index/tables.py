"""The message, entry, queue and reader tables as structure of arrays over one buffer.

The buffer is the index segment (queue manager) or private memory (tests). Each column is present
twice over the same bytes: `x` for single loads and stores, `v_x` (numpy) for many at once.

Invariants (core/check/invariants.py checks them): 1. a slot is in use iff its `m_qpool` / `e_state`
is not 0; 2. every READY entry is in exactly one chain or in its queue's return lane; 3. links are
slot + 1; 4. `q_depth` counts the entries of a queue in every state, the state counters add up to
it; 5. slots at or above the high-water mark were never used. Only core.engine writes.
"""

from __future__ import annotations

import numpy as np

from omq.base import limits
from omq.base.arrays import Vector
from omq.base.siphash import SECRET_BYTES, new_secret
from omq.core.index.columns import Columns
from omq.core.index.keyed_buckets import KeyedBuckets
from omq.core.index.slots import Slots
from omq.format.index import (
    QUEUE_NAME_BYTES,
    READER_NAME_BYTES,
    READER_SELECTOR_BYTES,
    Counter,
    IndexLayout,
)

PRIORITIES = limits.PRIORITIES
_MESSAGES, _ENTRIES, _PEAK, _MESSAGES_HIGH, _ENTRIES_HIGH = map(int, (
    Counter.MESSAGES, Counter.ENTRIES, Counter.MESSAGES_PEAK, Counter.MESSAGES_HIGH,
    Counter.ENTRIES_HIGH))


class Tables(Columns):
    """All columns of an index over `buffer`, its counters and names, and its free slots. `secret`:
    of its hash chains (core.index.keyed_buckets), None: drawn now. Over what another process
    writes they cannot be followed from a key."""

    def __init__(self, buffer: memoryview, layout: IndexLayout, secret: bytes | None = None
                 ) -> None:
        self.buffer = buffer
        self.layout = layout
        self.v: dict[str, Vector] = {}
        for name in layout.columns:
            setattr(self, name, layout.column(buffer, name))
            self.v[name] = layout.vector(buffer, name)
        self.counters = buffer[2048:4096].cast("Q")
        self.buckets = KeyedBuckets(layout.buckets, new_secret() if secret is None else secret)
        self.mask, self.bucket = self.buckets.mask, self.buckets.of
        self.messages = Slots(layout.messages)
        self.entries = Slots(layout.entries)
        self.given = 0  # messages so far whose id was given: none means that no search is needed
        self._origin = self  # who counts them

    @staticmethod
    def private(messages: int, entries: int, queues: int = 64, readers: int = 64,
                secret: bytes = bytes(SECRET_BYTES)) -> Tables:
        """Tables in private memory, for tests and offline work: keys have the same chains in each
        process."""
        layout = IndexLayout.of(messages, entries, queues, readers)
        return Tables(memoryview(bytearray(layout.size)), layout, secret)

    def readonly(self) -> Tables:
        """The same tables to look at: TypeError or ValueError for whoever stores into them."""
        seen = Tables(self.buffer.toreadonly(), self.layout)
        seen.messages, seen.entries, seen._origin = self.messages, self.entries, self
        seen.buckets, seen.bucket = self.buckets, self.bucket
        return seen

    def release(self) -> None:
        """Drop every view of the buffer, so that its owner may detach it."""
        for name in self.layout.columns:
            getattr(self, name).release()
        self.v.clear()
        self.counters.release()
        self.buffer.release()

    # names

    def queue_name(self, queue: int) -> str:
        at = self.layout.queue_names + queue * QUEUE_NAME_BYTES
        raw = bytes(self.buffer[at : at + QUEUE_NAME_BYTES]).rstrip(b"\0")
        return raw.decode("ascii", "replace")

    def set_queue_name(self, queue: int, name: str) -> None:
        at = self.layout.queue_names + queue * QUEUE_NAME_BYTES
        self.buffer[at : at + QUEUE_NAME_BYTES] = name.encode().ljust(QUEUE_NAME_BYTES, b"\0")

    def reader_name(self, reader: int) -> str:
        at = self.layout.reader_names + reader * READER_NAME_BYTES
        raw = bytes(self.buffer[at : at + READER_NAME_BYTES]).rstrip(b"\0")
        return raw.decode("utf-8", "replace")

    def set_reader_name(self, reader: int, name: str) -> None:
        at = self.layout.reader_names + reader * READER_NAME_BYTES
        raw = name.encode()[:READER_NAME_BYTES]
        self.buffer[at : at + READER_NAME_BYTES] = raw.ljust(READER_NAME_BYTES, b"\0")

    def set_reader_selector(self, reader: int, where: str) -> None:
        at = self.layout.reader_selectors + reader * READER_SELECTOR_BYTES
        raw = where.encode("utf-8", "replace")[:READER_SELECTOR_BYTES]
        self.buffer[at : at + READER_SELECTOR_BYTES] = raw.ljust(READER_SELECTOR_BYTES, b"\0")

    # chains: READY entries of one queue and priority, in order of their sequence

    def link(self, entry: int, chain: int) -> None:
        """Append an entry to a chain (queue * 10 + priority)."""
        tail = self.q_tail[chain]
        self.e_prev[entry] = tail
        self.e_next[entry] = 0
        if tail:
            self.e_next[tail - 1] = entry + 1
        else:
            self.q_head[chain] = entry + 1
        self.q_tail[chain] = entry + 1

    def unlink(self, entry: int, chain: int) -> None:
        """Take an entry out of its chain, wherever it stands."""
        before, after = self.e_prev[entry], self.e_next[entry]
        if before:
            self.e_next[before - 1] = after
        else:
            self.q_head[chain] = after
        if after:
            self.e_prev[after - 1] = before
        else:
            self.q_tail[chain] = before

    # hash chains by message id (key = QPoolId when derived) and by correlation id: very many
    # messages may have the same, and each of them leaves its chain at the same cost

    def index_id(self, slot: int, key: int) -> None:
        self._enter(self.b_id, self.m_idnext, self.m_idprev, key, slot)

    def unindex_id(self, slot: int) -> None:
        self._leave(self.b_id, self.m_idnext, self.m_idprev, self.m_key[slot], slot)

    def index_correlation(self, slot: int, key: int) -> None:
        self._enter(self.b_corr, self.m_corrnext, self.m_corrprev, key, slot)

    def unindex_correlation(self, slot: int) -> None:
        self._leave(self.b_corr, self.m_corrnext, self.m_corrprev, self.m_corr[slot], slot)

    def _enter(self, heads: memoryview, following: memoryview, before: memoryview, key: int,
               slot: int) -> None:
        bucket = self.bucket(key)
        first = following[slot] = heads[bucket]
        before[slot], heads[bucket] = 0, slot + 1
        if first:
            before[first - 1] = slot + 1

    def _leave(self, heads: memoryview, following: memoryview, before: memoryview, key: int,
               slot: int) -> None:
        last, after = before[slot], following[slot]
        if last:
            following[last - 1] = after
        else:
            bucket = self.bucket(key)
            assert heads[bucket] == slot + 1, f"slot {slot} is not in its hash chain"
            heads[bucket] = after
        if after:
            before[after - 1] = last

    def find(self, key: int) -> int:
        """Slot of the message whose id has this key (a QPoolId, or the hash of a given id); -1."""
        at, hops = self.b_id[self.bucket(key)], 0
        while at and hops <= self.layout.messages:
            if self.m_key[at - 1] == key:
                return int(at - 1)
            at, hops = self.m_idnext[at - 1], hops + 1
        return -1

    def slot_of(self, qpool: int) -> int:
        """Slot of the message with this QPoolId, -1. O(1) unless its id was given by the submitter
        and is therefore hashed otherwise: then one pass by numpy."""
        slot = self.find(qpool) if 0 < qpool < 1 << 64 else -1
        if slot >= 0 and self.m_qpool[slot] == qpool:
            return slot
        if not self._origin.given or not 0 < qpool < 1 << 64:
            return -1
        found = np.flatnonzero(self.v["m_qpool"][: self.messages.high] == qpool)
        return int(found[0]) if len(found) else -1

    def entries_of(self, slot: int) -> list[int]:
        """Entries of a message, in the order in which it was put on its queues."""
        out: list[int] = []
        at = self.m_first[slot]
        while at and len(out) <= limits.QUEUES_MAX:
            out.append(at - 1)
            at = self.e_sibling[at - 1]
        return out

    def entry_on(self, slot: int, queue: int) -> int:
        """The entry of a message on one queue, -1 if it is not on it."""
        for entry in self.entries_of(slot):
            if self.e_queue[entry] == queue:
                return entry
        return -1

    def publish(self) -> None:
        """Counters that tools read."""
        c, messages, entries, used = self.counters, self.messages, self.entries, self.messages.used
        c[_MESSAGES], c[_MESSAGES_HIGH] = used, messages.high
        c[_ENTRIES], c[_ENTRIES_HIGH] = entries.high - entries.top, entries.high
        if used > c[_PEAK]:
            c[_PEAK] = used
