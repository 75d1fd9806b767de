"""Rebuild: the pool's records become the tables of a fresh index, in bulk.

The records of all pool files are scanned once, their columns gathered, and every table, chain and
hash bucket is built by numpy; only what is rare is looked at one by one (given message ids,
correlation ids, messages on more than 16 queues). 1,000,000 messages take about two seconds on one
core.

Invariants: 1. order: READY entries of a queue and priority are chained by their sequence, which is
that of their submission; 2. attempts, retries, defer times and holds are those of the pool; 3. a
message that was handed out when the manager ended is ACTIVE without a reader ("limbo"): its reader
may come back and finish it, else it counts as dead; 4. of two records with one QPoolId the higher
LSN counts, the other is reported. Records that cannot be read are findings; all else is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify
from typing import Any

import numpy as np

from omq.base.errors import IndexFull
from omq.core.slots import Vector
from omq.core.state import HAS_ID, IDEL, PRIORITIES, REPLAYED, Core
from omq.format import message as message_format
from omq.format.findings import Finding, Kind
from omq.format.index import EntryState
from omq.format.pool import NO_RECORD, PART, PARTS_PER_RECORD, RECORD_BYTES, Message
from omq.storage.pool import PoolFiles
from omq.storage.pool_scan import DTYPE, PoolChunk
from omq.storage.slots import SlotAllocator

NS = 1_000_000_000
_COPIED = {"m_qpool": "qpool", "m_lsn": "lsn", "m_time": "time", "m_expiry": "expiry",
           "m_location": "location", "m_offset": "offset", "m_length": "length",
           "m_crc": "body_crc", "m_size": "size", "m_pid": "pid", "m_record": "record",
           "m_flags": "flags", "m_file": "file", "m_origin": "origin"}
_COLUMNS = [(name, DTYPE[name]) for name in (
    *sorted(set(_COPIED.values())), "next", "message_id", "correlation_id")]
_PART = ("queue", "grade", "attempts", "retries", "until", "submitted", "sequence")
_PARTS = [*((name, PART.dtype[name]) for name in _PART), ("row", np.dtype(np.int64))]
_ROOM_MAX = 1 << 22  # messages for which room is taken at once: a file may claim any size
_FLAGS_KEPT = 3 | HAS_ID | REPLAYED


@dataclass(slots=True)
class Loaded:
    """What a rebuild found."""

    messages: int = 0
    entries: int = 0
    limbo: dict[int, int] = field(default_factory=dict)  # active entry -> pool.lease_tag
    findings: list[Finding] = field(default_factory=list)
    duplicates: list[tuple[int, int]] = field(default_factory=list)  # (file, record) of the losers


class _Column:
    """A vector that grows at its end. Room that is not used takes no memory."""

    __slots__ = ("_array", "_count")

    def __init__(self, dtype: np.dtype[Any], room: int) -> None:
        self._array: Vector = np.empty(room, dtype)
        self._count = 0

    def extend(self, values: Vector) -> None:
        end = self._count + len(values)
        if end > len(self._array):
            more: Vector = np.empty(end - self._count + len(self._array) // 2, self._array.dtype)
            self._array = np.concatenate((self._array[: self._count], more))
        self._array[self._count : end] = values
        self._count = end

    @property
    def values(self) -> Vector:
        return self._array[: self._count]


@dataclass(slots=True)
class _Rows:
    """Columns gathered from the pool."""

    messages: dict[str, Vector]  # one row a message
    parts: dict[str, Vector]  # one row an entry; "row" is the index into `messages`


def load(core: Core, pool: PoolFiles, slots: SlotAllocator,
         progress: Callable[[str], None] = lambda _text: None) -> Loaded:
    """Fill the empty tables of `core` from the pool, telling of each file. IndexFull."""
    loaded = Loaded()
    rows = _without_duplicates(_gather(pool, slots, loaded, progress), slots, loaded)
    rows = _Rows(rows.messages, _idel_parts(rows))
    t = core.t
    count, entries = len(rows.messages["qpool"]), len(rows.parts["row"])
    if count > t.layout.messages or entries > t.layout.entries:
        raise IndexFull(limit=t.layout.messages)
    _messages(core, rows.messages)
    _entries(core, rows, loaded)
    for index in np.flatnonzero(rows.messages["next"] != NO_RECORD).tolist():
        parts = int(np.count_nonzero(rows.parts["row"] == index))
        core.runs[index] = -(-parts // PARTS_PER_RECORD)
    loaded.messages, loaded.entries = count, entries
    return loaded


def _gather(pool: PoolFiles, slots: SlotAllocator, loaded: Loaded,
            progress: Callable[[str], None]) -> _Rows:
    room = min(pool.record_slots(), _ROOM_MAX)
    kept = {name: _Column(dtype, room) for name, dtype in _COLUMNS}
    lists = {name: _Column(dtype, room) for name, dtype in _PARTS}
    base = 0
    files = pool.files()
    for number, file in enumerate(files):
        progress(f"loading the index: {100 * number // len(files)} %")
        used: list[Vector] = [np.zeros(0, dtype=np.int64)]
        foreign = False
        for chunk in pool.scan(file):
            loaded.findings += chunk.findings
            foreign |= any(f.kind in (Kind.FOREIGN, Kind.NEWER) and f.record < 0
                           for f in chunk.findings)
            used += [_in_use(chunk), _damaged(chunk)]
            rows = chunk.records if chunk.live.all() else chunk.records[chunk.live]
            for name, column in kept.items():
                column.extend(rows[name])
            _gather_parts(pool, rows, base, lists, loaded)
            base += len(rows)
        if foreign:
            slots.exclude(file)
        else:
            slots.load(file, np.concatenate(used))
    return _Rows({name: column.values for name, column in kept.items()},
                 {name: column.values for name, column in lists.items()})


def _in_use(chunk: PoolChunk) -> Vector:
    return chunk.records["record"][chunk.live | chunk.more].astype(np.int64)


def _damaged(chunk: PoolChunk) -> Vector:
    """Slots that cannot be read: never given to a new message, so that the evidence stays."""
    return np.array([f.record for f in chunk.findings if f.record >= 0], dtype=np.int64)


def reserve_slots(pool: PoolFiles, slots: SlotAllocator) -> None:
    """Only learn which slots are in use: the messages stay in the pool, unread
    (qm_dont_read_messages_at_start)."""
    for file in pool.files():
        used = [np.zeros(0, dtype=np.int64)]
        for chunk in pool.scan(file):
            used += [_in_use(chunk), _damaged(chunk)]
        slots.load(file, np.concatenate(used))


def _gather_parts(pool: PoolFiles, rows: Vector, base: int, lists: dict[str, _Column],
                  loaded: Loaded) -> None:
    counts = rows["parts"]
    long = rows["next"] != NO_RECORD
    for row in np.flatnonzero(long).tolist():
        found = pool.read_record(int(rows["file"][row]), int(rows["record"][row]))
        if not isinstance(found, Message):
            # A continuation is damaged: the message stays on the queues of its first record.
            long[row] = False
            if isinstance(found, Finding):
                loaded.findings.append(found)
    for i in range(min(int(counts.max(initial=0)), PARTS_PER_RECORD)):
        index = np.flatnonzero((counts > i) & ~long)
        part = rows["parts_list"][index, i]
        for name in _PART:
            lists[name].extend(part[name])
        lists["row"].extend(index + base)
    for row in np.flatnonzero(long).tolist():
        message = pool.read_record(int(rows["file"][row]), int(rows["record"][row]))
        if isinstance(message, Message):
            for p in message.parts:
                values = (p.queue, p.priority | p.state << 4, p.attempts, p.retries, p.until,
                          p.submitted, p.sequence)
                for name, value in zip(_PART, values, strict=True):
                    lists[name].extend(np.array([value]))
                lists["row"].extend(np.array([row + base]))


def _without_duplicates(rows: _Rows, slots: SlotAllocator, loaded: Loaded) -> _Rows:
    columns = rows.messages
    qpool = columns["qpool"]
    order = np.lexsort((columns["lsn"], qpool))
    same = qpool[order][:-1] == qpool[order][1:]
    if not same.any():
        return rows
    losers = order[:-1][same]
    for index in losers.tolist():
        file, record = int(columns["file"][index]), int(columns["record"][index])
        loaded.findings.append(Finding(
            Kind.DUPLICATE, f"QPoolId {int(qpool[index])} is there twice: the higher LSN counts",
            f"{file}QP", (record + 1) * RECORD_BYTES, RECORD_BYTES, record,
            int(columns["lsn"][index])))
        loaded.duplicates.append((file, record))
        slots.free(file, record)
    keep = np.ones(len(qpool), dtype=bool)
    keep[losers] = False
    number = np.cumsum(keep) - 1
    chosen = keep[rows.parts["row"]]
    parts = {name: vector[chosen] for name, vector in rows.parts.items()}
    parts["row"] = number[parts["row"]]
    return _Rows({name: vector[keep] for name, vector in columns.items()}, parts)


def _messages(core: Core, rows: dict[str, Vector]) -> None:
    t, v = core.t, core.t.v
    count = len(rows["qpool"])
    t.messages.high = count
    if not count:
        return
    for column, name in _COPIED.items():
        v[column][:count] = rows[name]
    v["m_flags"][:count] &= _FLAGS_KEPT
    keys = rows["qpool"]
    given = np.flatnonzero(rows["flags"] & HAS_ID)
    t.given = len(given)
    for index in given.tolist():
        keys[index] = message_format.id_hash(bytes(rows["message_id"][index]))
    v["m_key"][:count] = keys
    _hash(v["b_id"], v["m_idnext"], keys & np.uint64(t.mask), np.arange(count))
    raw = rows["correlation_id"].view("u1").reshape(count, -1)
    for index in np.flatnonzero(raw.any(axis=1)).tolist():
        key = message_format.id_hash(bytes(rows["correlation_id"][index]))
        t.m_corr[index] = key
        t.index_correlation(index, key)


def _hash(heads: Vector, links: Vector, buckets: Vector, slots: Vector) -> None:
    """Hash chains of many slots at once: neighbours in bucket order are linked."""
    order = np.argsort(buckets, kind="stable")
    sorted_slots, sorted_buckets = slots[order], buckets[order].astype(np.int64)
    same = sorted_buckets[:-1] == sorted_buckets[1:]
    links[sorted_slots] = 0
    links[sorted_slots[:-1][same]] = sorted_slots[1:][same] + 1
    first = np.concatenate(([True], ~same))
    heads[sorted_buckets[first]] = sorted_slots[first] + 1


def _idel_parts(rows: _Rows) -> dict[str, Vector]:
    """Messages on no queue wait on IDEL: one READY entry there for each."""
    on_queue = np.zeros(len(rows.messages["qpool"]), dtype=bool)
    on_queue[rows.parts["row"]] = True
    idle = np.flatnonzero(~on_queue)
    if not len(idle):
        return rows.parts
    extra: dict[str, Any] = {
        "queue": IDEL, "grade": int(EntryState.READY) << 4, "attempts": 0, "retries": 0,
        "until": 0, "submitted": rows.messages["time"][idle] // NS,
        "sequence": rows.messages["lsn"][idle].astype(np.int64), "row": idle}
    return {name: np.concatenate((vector, np.broadcast_to(
                np.asarray(extra[name], dtype=vector.dtype), idle.shape)))
            for name, vector in rows.parts.items()}


def _entries(core: Core, rows: _Rows, loaded: Loaded) -> None:
    t, v = core.t, core.t.v
    parts, count = rows.parts, len(rows.parts["row"])
    t.entries.high = count
    if not count:
        return
    priority, state = parts["grade"] & 15, parts["grade"] >> 4
    order = np.lexsort((parts["sequence"], PRIORITIES - priority, parts["queue"]))
    parts = {name: vector[order] for name, vector in parts.items()}
    priority, state = priority[order], state[order]
    until = parts["until"].astype(np.int64)
    due = (state == EntryState.DEFERRED) & (until * NS <= core.now_ns)
    state[due] = EntryState.READY
    deferred = state == EntryState.DEFERRED
    active = state == EntryState.ACTIVE
    v["e_message"][:count] = parts["row"]
    v["e_queue"][:count] = parts["queue"]
    v["e_priority"][:count] = priority
    v["e_state"][:count] = state
    v["e_attempts"][:count] = parts["attempts"]
    v["e_retries"][:count] = parts["retries"]
    v["e_sequence"][:count] = parts["sequence"]
    v["e_submitted"][:count] = parts["submitted"].astype(np.int64) * NS
    v["e_until"][:count] = np.where(deferred, until * NS, 0)
    v["e_lease"][:count] = np.where(active, until, 0)
    _chain(core, parts["queue"].astype(np.int64) * PRIORITIES + priority, state == EntryState.READY)
    _siblings(core, parts["row"])
    messages, high = len(rows.messages["qpool"]), t.layout.queues
    v["m_parts"][:messages] = np.bincount(parts["row"], minlength=messages)
    v["q_depth"][:high] = np.bincount(parts["queue"], minlength=high)[:high]
    for name, kind in (("q_ready", EntryState.READY), ("q_active", EntryState.ACTIVE),
                       ("q_deferred", EntryState.DEFERRED), ("q_held", EntryState.HELD)):
        v[name][:high] = np.bincount(parts["queue"][state == kind], minlength=high)[:high]
    core.runnable.update(np.unique(parts["queue"]).tolist())
    core.active = int(np.count_nonzero(active))
    loaded.limbo = {e: t.e_lease[e] for e in np.flatnonzero(active).tolist()}
    core.due = [(core.mono_ns + t.e_until[e] - core.now_ns, e, t.e_sequence[e], 0)
                for e in np.flatnonzero(deferred).tolist()]
    heapify(core.due)


def _chain(core: Core, chains: Vector, ready: Vector) -> None:
    """READY entries, sorted by queue, priority, sequence, become the chains."""
    v = core.t.v
    entries = np.flatnonzero(ready)
    if not len(entries):
        return
    chains = chains[entries]
    same = chains[:-1] == chains[1:]
    v["e_next"][entries[:-1][same]] = entries[1:][same] + 1
    v["e_prev"][entries[1:][same]] = entries[:-1][same] + 1
    first = np.concatenate(([True], ~same))
    last = np.concatenate((~same, [True]))
    v["q_head"][chains[first]] = entries[first] + 1
    v["q_tail"][chains[last]] = entries[last] + 1


def _siblings(core: Core, owners: Vector) -> None:
    """The entries of each message, linked."""
    v = core.t.v
    entries = np.argsort(owners, kind="stable")
    owners = owners[entries]
    same = owners[:-1] == owners[1:]
    v["e_sibling"][entries[:-1][same]] = entries[1:][same] + 1
    first = np.concatenate(([True], ~same))
    v["m_first"][owners[first]] = entries[first] + 1
