"""Bulk forms of put and done: the same checks and effects as core.engine.puts and
core.engine.settle, by numpy.

A batch costs some tens of vector operations whatever its size, a few microseconds each; one by one
costs some microseconds a message. So small batches, and batches with anything unusual in them
(several queues, given ids, containers, other settlements than DONE), go the common way. Tests run
the same workload both ways and compare the tables byte for byte.
"""

from __future__ import annotations

import numpy as np

from omq.base import limits
from omq.base.arrays import Vector, distinct
from omq.base.errors import BadPriority, BadRequest, MessageTooLong, SpoolFull
from omq.core.engine import limited, puts
from omq.core.engine.barriers import MEMBER
from omq.core.engine.duplicates import watching
from omq.core.engine.durations import worked_many
from omq.core.engine.engine import Engine
from omq.core.engine.failures import NOTED
from omq.core.engine.freeing import free_many
from omq.core.engine.groups import GROUPED
from omq.core.engine.puts import NewMessage, check_queue
from omq.core.engine.state import CONTAINER, IDEL, PERSISTENT, PRIORITIES, Core, Party
from omq.format.index import Counter, EntryState
from omq.format.journal import FRAME, FrameFlag, FrameType
from omq.format.wire import SETTLE, PutFlag, Settlement

MANY = 12
_PUT_FLAGS = int(sum(PutFlag))
_PUTS = int(Counter.PUTS)
_LAST = int(FrameFlag.LAST_PART)


def put_many(engine: Engine, party: Party, heads: memoryview, payloads: memoryview, count: int,
             queue: int, sequence: int) -> int:
    """`count` messages on one queue, all or none; the first QPoolId (they are consecutive)."""
    asked = FRAME.array(heads, count).copy()
    ends = np.cumsum(asked["length"].astype("<u8"))
    if int(ends[-1]) > len(payloads):
        raise BadRequest(reason="messages do not fit the request")
    # Whichever way they go below: nobody names a container here that is not his.
    if not party.owns and bool((asked["flags"] & CONTAINER).any()):
        raise BadRequest(reason="containers are only taken from the owner of the spool")
    if asked["lease"].any() and not asked["parts"].any():
        listed = _listed(asked, payloads, ends, queue)
        if any(message.key and watching(engine.core, message) for message in listed):
            return engine.units.put(party, listed, sequence)
    first = _put_many(engine.core, party, asked, payloads, ends, queue, sequence)
    engine.core.t.counters[_PUTS] += count
    return first


def _put_many(core: Core, party: Party, asked: Vector, payloads: memoryview, ends: Vector,
              queue: int, sequence: int) -> int:
    count = len(asked)
    if asked["parts"].any():
        raise BadRequest(reason="messages of a batch go on one queue")
    flags = asked["flags"] & _PUT_FLAGS
    check_queue(core, queue, 0, 0, count)
    if int(asked["priority"].max()) >= limits.PRIORITIES:
        raise BadPriority(priority=int(asked["priority"].max()))
    rules = core.rules[queue]
    if int(asked["size"].max()) > rules.max_length:
        raise MessageTooLong(size=int(asked["size"].max()), queue=rules.name,
                             limit=rules.max_length)
    puts.check_room(core, count, count, puts.rows_kept(core, party))
    if not core.space_left and bool((flags & PERSISTENT).any()):
        raise SpoolFull(path="the spool", detail=core.room.refusal)
    core.block.reserve(count, int(ends[-1]))
    if (count >= MANY and bool((flags == PERSISTENT).all()) and not asked["lease"].any()
            and not (core.limited and core.keyed(queue))):
        return _put_vector(core, party, asked, payloads[: int(ends[-1])],
                           ends - asked["length"], queue, sequence)
    return _put_each(core, party, asked, payloads, ends, queue, sequence)


def _put_each(core: Core, party: Party, asked: Vector, payloads: memoryview, ends: Vector,
              queue: int, sequence: int) -> int:
    first = core.next_qpool
    last = len(asked) - 1
    listed = _listed(asked, payloads, ends, queue)
    bodies = puts.place_bodies(core, listed)
    for i, (new, body) in enumerate(zip(listed, bodies, strict=True)):
        ends_flag = int(FrameFlag.RESULT) if i == 0 else 0
        if i == last:
            ends_flag |= FrameFlag.REQUEST_END
        puts.append(core, party, new, puts.parts_of(core, new), sequence, ends_flag, 0, body)
    return first


def _listed(asked: Vector, payloads: memoryview, ends: Vector, queue: int) -> list[NewMessage]:
    return [NewMessage(queue, int(row["priority"]), int(row["flags"]) & _PUT_FLAGS,
                       int(row["size"]), int(row["crc"]), int(row["correlation"]),
                       int(row["lease"]), int(row["argument"]), 0,
                       payloads[int(end) - int(row["length"]) : int(end)])
            for row, end in zip(asked, ends, strict=True)]


def _put_vector(core: Core, party: Party, asked: Vector, payloads: memoryview, offsets: Vector,
                queue: int, sequence: int) -> int:
    t, block, v = core.t, core.block, core.t.v
    count = len(asked)
    first = core.next_qpool
    core.next_qpool = block.next_qpool = first + count
    file = party.pool_file
    if file < 0:
        file = party.pool_file = core.slots.choose_file(party.pid)
    records = core.slots.alloc_many(file, count)
    qpools = np.arange(first, first + count, dtype="<u8")
    slots = t.messages.take_many(count)
    rows = block.rows(count, FrameType.PUT)
    lsns = rows["lsn"].copy()
    rows["priority"] = asked["priority"]
    rows["flags"] = PERSISTENT
    rows["queue"] = queue
    rows["qpool"] = qpools
    rows["offset"] = offsets + block.payload_bytes
    for name in ("size", "length", "crc", "correlation", "argument"):
        rows[name] = asked[name]
    if most := core.rules[queue].expiry_ns:
        latest = core.now_ns + most
        rows["argument"] = np.where(asked["argument"] == 0, latest,
                                    np.minimum(asked["argument"], latest))
    expiries = rows["argument"].copy()
    rows["client"], rows["pid"], rows["uid"] = party.client, party.pid, party.uid
    rows["file"], rows["record"] = file, records
    rows["token"], rows["sequence"] = party.token, sequence
    rows["flags"][0] |= int(FrameFlag.RESULT)
    rows["flags"][-1] |= int(FrameFlag.REQUEST_END)
    v["m_offset"][slots] = rows["offset"]
    block.close_rows(count, persistent=True, payloads=payloads, puts=slots)
    v["m_qpool"][slots] = qpools
    v["m_lsn"][slots] = lsns
    v["m_time"][slots] = core.now_ns
    v["m_key"][slots] = qpools
    v["m_corr"][slots] = asked["correlation"]
    v["m_expiry"][slots] = expiries
    if expiries.any():
        core.times.begin_many(slots, core.now_ns, core.mono_ns)
    v["m_location"][slots] = block.journal_word
    v["m_length"][slots] = asked["length"]
    v["m_crc"][slots] = asked["crc"]
    v["m_size"][slots] = asked["size"]
    v["m_pid"][slots] = party.pid
    v["m_uid"][slots] = party.uid
    v["m_file"][slots] = file
    v["m_record"][slots] = records
    v["m_flags"][slots] = PERSISTENT
    v["m_parts"][slots] = 1
    v["m_origin"][slots] = 0
    buckets = (qpools & np.uint64(t.mask)).astype(np.int64)
    v["m_idnext"][slots] = v["b_id"][buckets]  # consecutive ids: no bucket twice
    v["b_id"][buckets] = slots + 1
    if asked["correlation"].any():
        for slot, key in zip(slots.tolist(), asked["correlation"].tolist(), strict=True):
            if key:
                t.index_correlation(slot, key)
    _new_entries(core, slots, queue, asked["priority"], lsns)
    return first


def _new_entries(core: Core, slots: Vector, queue: int, priorities: Vector, lsns: Vector) -> None:
    t, v = core.t, core.t.v
    count = len(slots)
    entries = t.entries.take_many(count)
    v["e_message"][entries] = slots
    v["e_queue"][entries] = queue
    v["e_priority"][entries] = priorities
    v["e_sequence"][entries] = lsns
    v["e_submitted"][entries] = core.now_ns
    for name in ("e_until", "e_lease", "e_attempts", "e_retries", "e_reader", "e_sibling"):
        v[name][entries] = 0
    v["m_first"][slots] = entries + 1
    v["e_state"][entries] = EntryState.READY
    t.q_ever[queue] += count
    t.q_depth[queue] += count
    t.q_ready[queue] += count
    levels = distinct(priorities)
    for priority in levels.tolist():
        chosen = entries if len(levels) == 1 else entries[priorities == priority]
        t.link_many(chosen, queue * PRIORITIES + priority)
    core.runnable.add(queue)
    if queue in core.watched:
        core.watched[queue] += entries.tolist()


def done_many(engine: Engine, party: Party, area: memoryview, count: int, sequence: int) -> bool:
    """All settlements are plain DONE of messages on one queue only: carried out. Else False, and
    nothing has changed (the common way then finds out what is unusual or wrong)."""
    if count < MANY:
        return False
    core, t, v = engine.core, engine.core.t, engine.core.t.v
    asked = SETTLE.array(area, count).copy()
    entries = asked["entry"]
    if (asked["kind"] != Settlement.DONE).any() or int(entries.max()) >= t.entries.high:
        return False
    slots = v["e_message"][entries]
    queue = int(v["e_queue"][entries[0]])
    plain = ((v["e_state"][entries] == EntryState.ACTIVE)
             & (v["e_reader"][entries] == party.slot + 1)
             & (v["m_qpool"][slots] == asked["qpool"]) & (v["e_lease"][entries] == asked["lease"])
             & (v["m_parts"][slots] == 1)
             & (v["m_flags"][slots] & (CONTAINER | GROUPED | NOTED | MEMBER) == 0)
             & (v["m_flags"][slots] & PERSISTENT != 0) & (v["e_queue"][entries] == queue))
    if (queue == IDEL or not plain.all() or len(distinct(entries)) != count or core.runs
            or (core.limited and core.keyed(queue))):
        return False
    core.block.reserve(count, 0)
    _done_frames(core, party, entries, slots, queue, sequence)
    _drop(core, entries, slots, queue)
    if core.limited and queue in core.limited:
        limited.opened(core, core.limited[queue])
    core.settled(party, count)
    return True


def _done_frames(core: Core, party: Party, entries: Vector, slots: Vector, queue: int,
                 sequence: int) -> None:
    v, block = core.t.v, core.block
    rows = block.rows(len(entries), FrameType.DONE)
    rows["priority"] = v["e_priority"][entries]
    rows["flags"] = PERSISTENT | _LAST
    rows["queue"] = queue
    rows["attempt"] = v["e_attempts"][entries]
    rows["qpool"] = v["m_qpool"][slots]
    rows["size"] = v["m_size"][slots]
    rows["client"], rows["pid"], rows["uid"] = party.client, party.pid, party.uid
    rows["file"] = v["m_file"][slots]
    rows["record"] = v["m_record"][slots]
    rows["parts"] = 1
    rows["lease"] = v["e_lease"][entries]
    rows["token"], rows["sequence"] = party.token, sequence
    rows["flags"][-1] |= int(FrameFlag.REQUEST_END)
    block.close_rows(len(entries), persistent=True)


def _drop(core: Core, entries: Vector, slots: Vector, queue: int) -> None:
    t = core.t
    count = len(entries)
    worked_many(t, queue, entries, core.now_ns)
    t.q_active[queue] -= count
    core.active -= count
    t.q_depth[queue] -= count
    for finished in (queue, IDEL):
        t.q_processed[finished] += count
        t.q_hour[finished] += count
    t.q_ever[IDEL] += count
    free_many(core, entries, slots)
