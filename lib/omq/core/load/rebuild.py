"""Rebuild: the pool's records become the tables of a fresh index, in bulk.

The records of all pool files are scanned once, their columns gathered (core.load.pool_columns), and
every table, chain and hash bucket is built by numpy; only what is rare is looked at one by one
(given message ids, correlation ids, messages on more than 16 queues). 1,000,000 messages take about
a second on one core.

Invariants: 1. order: READY entries of a queue and priority are chained by their sequence, which is
that of their submission; those that have failed are in the return lane; 2. attempts, retries,
defer times and holds are those of the pool; 3. a message that was handed out when the manager ended
is ACTIVE without a reader ("limbo"): its reader may come back and finish it, else it counts as
dead; 4. what belongs to a unit of work in doubt is PREPARED, with the number of its unit in
`e_until` (core.engine.in_doubt). What can be read of the pool is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify
from typing import Any

import numpy as np

from omq.base.arrays import Vector, distinct
from omq.base.clock import NS_PER_S as NS
from omq.base.errors import IndexFull
from omq.core.engine.barriers import BARRIER
from omq.core.engine.state import HAS_ID, IDEL, POISON, PRIORITIES, REMEMBERS, REPLAYED, Core
from omq.core.load.pool_columns import COPIED, Loaded, PlainRows, Rows, gather, without_duplicates
from omq.format import message as message_format
from omq.format.index import EntryState
from omq.format.pool import NO_RECORD, PARTS_PER_RECORD
from omq.storage.pool import PoolFiles
from omq.storage.slots import SlotAllocator

_FLAGS_KEPT = 3 | HAS_ID | REPLAYED | REMEMBERS | BARRIER


def load(core: Core, pool: PoolFiles, slots: SlotAllocator,
         progress: Callable[[str], None] = lambda _text: None, plain: PlainRows | None = None
         ) -> Loaded:
    """Fill the empty tables of `core` from the pool, telling of each file. IndexFull."""
    loaded = Loaded()
    rows = without_duplicates(gather(pool, slots, loaded, progress, plain), slots, loaded)
    rows = Rows(rows.messages, _idel_parts(rows), rows.notes)
    t = core.t
    count, entries = len(rows.messages["qpool"]), len(rows.parts["row"])
    if count > t.layout.messages or entries > t.layout.entries:
        raise IndexFull(limit=t.layout.messages)
    _messages(core, rows.messages)
    _entries(core, rows, loaded)
    core.times.load(np.arange(count), core.now_ns)
    core.failures.load(t, rows.notes.items())
    for index in np.flatnonzero(rows.messages["next"] != NO_RECORD).tolist():
        parts = int(np.count_nonzero(rows.parts["row"] == index))
        core.runs[index] = -(-parts // PARTS_PER_RECORD)
    loaded.messages, loaded.entries = count, entries
    return loaded


def _messages(core: Core, rows: dict[str, Vector]) -> None:
    t, v = core.t, core.t.v
    count = len(rows["qpool"])
    t.messages.high = count
    if not count:
        return
    for column, name in COPIED.items():
        v[column][:count] = rows[name]
    v["m_flags"][:count] &= _FLAGS_KEPT
    keys = rows["qpool"]
    given = np.flatnonzero(rows["flags"] & HAS_ID)
    t.given = len(given)
    for index in given.tolist():
        keys[index] = message_format.id_hash(bytes(rows["message_id"][index]))
    v["m_key"][:count] = keys
    _hash(v["b_id"], v["m_idnext"], v["m_idprev"], t.buckets.of_each(keys), np.arange(count))
    raw = rows["correlation_id"].view("u1").reshape(count, -1)
    correlated = np.flatnonzero(raw.any(axis=1))
    for index in correlated.tolist():
        t.m_corr[index] = message_format.id_hash(bytes(rows["correlation_id"][index]))
    if len(correlated):
        _hash(v["b_corr"], v["m_corrnext"], v["m_corrprev"],
              t.buckets.of_each(v["m_corr"][correlated]), correlated)


def _hash(heads: Vector, links: Vector, back: Vector, buckets: Vector, slots: Vector) -> None:
    """Hash chains of many slots at once: neighbours in bucket order are linked."""
    order = np.argsort(buckets, kind="stable")
    sorted_slots, sorted_buckets = slots[order], buckets[order]
    same = sorted_buckets[:-1] == sorted_buckets[1:]
    links[sorted_slots] = back[sorted_slots] = 0
    links[sorted_slots[:-1][same]] = sorted_slots[1:][same] + 1
    back[sorted_slots[1:][same]] = sorted_slots[:-1][same] + 1
    first = np.concatenate(([True], ~same))
    heads[sorted_buckets[first]] = sorted_slots[first] + 1


def _idel_parts(rows: Rows) -> dict[str, Vector]:
    """Messages on no queue wait on IDEL: one READY entry there for each, in the order of their last
    frames. Bodies are moved by one frame for many, so these may be the same: then by QPoolId."""
    on_queue = np.zeros(len(rows.messages["qpool"]), dtype=bool)
    on_queue[rows.parts["row"]] = True
    idle = np.flatnonzero(~on_queue)
    if not len(idle):
        return rows.parts
    extra: dict[str, Any] = {
        "queue": IDEL, "grade": int(EntryState.READY) << 4, "attempts": 0, "retries": 0,
        "until": 0, "submitted": rows.messages["time"][idle] // NS,
        "sequence": _ascending(rows.messages["lsn"][idle].astype(np.int64)), "row": idle}
    return {name: np.concatenate((vector, np.broadcast_to(
                np.asarray(extra[name], dtype=vector.dtype), idle.shape)))
            for name, vector in rows.parts.items()}


def _ascending(lsns: Vector) -> Vector:
    """The same, each lower than the next higher one; none gets higher. A message has frames of its
    own before the one that it shares, so none comes to 0."""
    order = np.argsort(lsns, kind="stable")
    steps = np.arange(len(lsns))
    out = np.empty_like(lsns)
    out[order] = np.minimum.accumulate((lsns[order] - steps)[::-1])[::-1] + steps
    return out


def _entries(core: Core, rows: Rows, loaded: Loaded) -> None:
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
    # As the put of a barrier has left it, and no reader's deferral.
    barrier = ((state == EntryState.DEFERRED) & (parts["attempts"] == 0) & (parts["retries"] == 0)
               & (rows.messages["flags"][parts["row"]] & BARRIER != 0))
    due = (state == EntryState.DEFERRED) & (until * NS <= core.now_ns) & ~barrier
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
    prepared = state == EntryState.PREPARED
    v["e_until"][:count] = np.where(deferred, until * NS, np.where(prepared, until, 0))
    v["e_lease"][:count] = np.where(active, until, 0)
    waits = core.groups.load(rows.messages["group"], rows.messages["group_sequence"])
    ready = (state == EntryState.READY) & ~waits
    failed = ready & (parts["attempts"] > 0) & (parts["queue"] > POISON)
    _chain(core, parts["queue"].astype(np.int64) * PRIORITIES + priority, ready & ~failed)
    for e in np.flatnonzero(failed).tolist():  # handed out alone: core.engine.gives
        core.lane_push(e, t.e_queue[e])
    _siblings(core, parts["row"])
    _remember(core, rows.messages, parts["row"][deferred], until[deferred])
    messages, high = len(rows.messages["qpool"]), t.layout.queues
    v["m_parts"][:messages] = np.bincount(parts["row"], minlength=messages)
    v["q_depth"][:high] = np.bincount(parts["queue"], minlength=high)[:high]
    for name, kind in (("q_ready", EntryState.READY), ("q_active", EntryState.ACTIVE),
                       ("q_deferred", EntryState.DEFERRED), ("q_held", EntryState.HELD)):
        v[name][:high] = np.bincount(parts["queue"][state == kind], minlength=high)[:high]
    core.runnable.update(distinct(parts["queue"]).tolist())
    core.active = int(np.count_nonzero(active))
    loaded.prepared = np.flatnonzero(prepared).tolist()
    v["m_flags"][:messages] &= 0xFFFF ^ BARRIER
    v["m_flags"][parts["row"][barrier]] |= BARRIER
    loaded.barriers = np.flatnonzero(barrier).tolist()
    loaded.limbo = {e: t.e_lease[e] for e in np.flatnonzero(active).tolist()}
    core.moments = [(t.e_until[e], e, t.e_sequence[e], 0)
                    for e in np.flatnonzero(deferred).tolist()]
    heapify(core.moments)


def _remember(core: Core, messages: dict[str, Vector], rows: Vector, until: Vector) -> None:
    """The ids that queues have had, of the messages (`rows`) that wait for their time."""
    memories = np.flatnonzero(messages["flags"][rows] & REMEMBERS)
    core.duplicates.load(core, (
        (int(until[i]) * NS, int(messages["trace"][rows[i]]),
         bytes(messages["message_id"][rows[i]])) for i in memories.tolist()))


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
