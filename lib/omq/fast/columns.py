"""The tables of the index as C sees them: the columns that plain requests touch.

A column is the memoryview of core.index.tables; compiled, a typed view over the same bytes, which
must be gone before the tables can let go of the segment: its owner drops the object.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.index.tables import Tables
from omq.format.durations import BINS, SUM_MASK, TIME_SHIFT

if cython.compiled:
    from cython.cimports.omq.fast.siphash import keyed as _keyed
else:
    from omq.base.shim import keyed as _keyed

_BINS, _SHIFT, _MASK, _US = BINS, TIME_SHIFT, SUM_MASK, 1000
_HASHES = 48  # a QPoolId has fewer bits


class Columns:
    """See the module."""

    def __init__(self, t: Tables) -> None:
        self.m_qpool, self.m_lsn, self.m_time, self.m_key = t.m_qpool, t.m_lsn, t.m_time, t.m_key
        self.m_corr, self.m_expiry = t.m_corr, t.m_expiry
        self.m_location, self.m_offset = t.m_location, t.m_offset
        self.m_length, self.m_crc, self.m_size = t.m_length, t.m_crc, t.m_size
        self.m_pid, self.m_uid = t.m_pid, t.m_uid
        self.m_record, self.m_first = t.m_record, t.m_first
        self.m_idnext, self.m_corrnext = t.m_idnext, t.m_corrnext
        self.m_idprev, self.m_corrprev = t.m_idprev, t.m_corrprev
        self.m_flags, self.m_parts = t.m_flags, t.m_parts
        self.m_origin, self.m_file = t.m_origin, t.m_file
        self.e_sequence, self.e_submitted = t.e_sequence, t.e_submitted
        self.e_until, self.e_lease, self.e_message = t.e_until, t.e_lease, t.e_message
        self.e_next, self.e_prev, self.e_sibling = t.e_next, t.e_prev, t.e_sibling
        self.e_reader, self.e_queue = t.e_reader, t.e_queue
        self.e_attempts, self.e_retries = t.e_attempts, t.e_retries
        self.e_priority, self.e_state = t.e_priority, t.e_state
        self.q_ever, self.q_processed, self.q_hour = t.q_ever, t.q_processed, t.q_hour
        self.q_flags, self.q_depth, self.q_ready = t.q_flags, t.q_depth, t.q_ready
        self.q_active, self.q_head, self.q_tail = t.q_active, t.q_head, t.q_tail
        self.q_max_depth, self.q_max_length = t.q_max_depth, t.q_max_length
        self.r_request, self.r_response = t.r_request, t.r_response
        self.r_processed, self.r_timeout = t.r_processed, t.r_timeout
        self.b_id, self.b_corr = t.b_id, t.b_corr
        self.q_waits, self.q_works = t.q_waits, t.q_works
        self.q_waited_us, self.q_worked_us = t.q_waited_us, t.q_worked_us
        self.j_syncs, self.j_groups = t.j_syncs, t.j_groups
        self.counters = t.counters
        self.free_messages, self.free_entries = t.messages.stack, t.entries.stack
        self.mask, self._bits = t.mask, t.buckets.bits
        self._buckets = t.buckets
        self._one, self._other = t.buckets.halves
        self._upper, self._moved = 0, _keyed(self._one, self._other, 0)  # of the last key
        self.queues = t.layout.queues

    def link(self, entry: cython.Py_ssize_t, chain: cython.Py_ssize_t) -> None:
        """As Tables.link: the last one of its chain."""
        tail: cython.uint = self.q_tail[chain]
        self.e_prev[entry], self.e_next[entry] = tail, 0
        if tail:
            self.e_next[tail - 1] = entry + 1
        else:
            self.q_head[chain] = entry + 1
        self.q_tail[chain] = entry + 1

    def unlink(self, entry: cython.Py_ssize_t, chain: cython.Py_ssize_t) -> None:
        """As Tables.unlink, and it is on no chain then."""
        before: cython.uint = self.e_prev[entry]
        after: cython.uint = self.e_next[entry]
        if before:
            self.e_next[before - 1] = after
        else:
            self.q_head[chain] = after
        if after:
            self.e_prev[after - 1] = before
        else:
            self.q_tail[chain] = before
        self.e_next[entry] = self.e_prev[entry] = 0

    def bucket(self, key: cython.ulonglong) -> cython.Py_ssize_t:
        """As KeyedBuckets.of: the hash chain of a key."""
        if not cython.compiled:
            return self._buckets.of(key)
        upper: cython.ulonglong = key >> self._bits
        if upper != self._upper:
            moved: cython.ulonglong = _keyed(self._one, self._other, upper)
            if key >> _HASHES:
                return (key ^ moved) & self.mask  # a hash: the next key has other upper bits
            self._upper, self._moved = upper, moved
        found: cython.Py_ssize_t = (key ^ self._moved) & self.mask
        return found

    def enchain(self, heads: Any, following: Any, before: Any, key: cython.ulonglong,
                slot: cython.Py_ssize_t) -> None:
        """The first one of the hash chain of its key."""
        bucket: cython.Py_ssize_t = self.bucket(key)
        first: cython.uint = heads[bucket]
        following[slot], before[slot] = first, 0
        heads[bucket] = slot + 1
        if first:
            before[first - 1] = slot + 1

    def unchain(self, heads: Any, following: Any, before: Any, key: cython.ulonglong,
                slot: cython.Py_ssize_t) -> None:
        """Out of the hash chain of its key, which it is on."""
        last: cython.uint = before[slot]
        after: cython.uint = following[slot]
        if last:
            following[last - 1] = after
        else:
            heads[self.bucket(key)] = after
        if after:
            before[after - 1] = last

    # As core.engine.durations. Messages that are put, or handed out, by one group have one time:
    # a run of them costs one count.

    def waited(self, queue: cython.Py_ssize_t, ns: cython.longlong, count: cython.ulonglong
               ) -> None:
        """So many of a queue are being handed out, each after `ns`."""
        spent: cython.ulonglong = ns if ns > 0 else 0
        self.q_waits[queue * _BINS + bits(spent >> _SHIFT)] += count
        self.q_waited_us[queue] = (self.q_waited_us[queue] + spent // _US * count) & _MASK

    def worked(self, queue: cython.Py_ssize_t, ns: cython.longlong, count: cython.ulonglong
               ) -> None:
        """The work on so many of a queue ends, each after `ns`."""
        spent: cython.ulonglong = ns if ns > 0 else 0
        self.q_works[queue * _BINS + bits(spent >> _SHIFT)] += count
        self.q_worked_us[queue] = (self.q_worked_us[queue] + spent // _US * count) & _MASK


def bits(number: cython.ulonglong) -> cython.Py_ssize_t:
    """How many bits it has, at most as many as the last place of a histogram."""
    found: cython.Py_ssize_t = 0
    if not cython.compiled:
        return min(number.bit_length(), _BINS - 1)
    while number and found < _BINS - 1:
        number >>= 1
        found += 1
    return found
