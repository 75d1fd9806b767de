"""Put: a message is born on one queue or on several. Check everything, append the frame, apply.

Errors (each leaves everything unchanged): UnknownQueue, PutInhibited, QueueFull, MessageTooLong,
BadPriority, IndexFull, SpoolFull, BadRequest. The frame of a persistent message carries its payload
into the journal. The body of a non-persistent one lies in a volatile file; with several queues or a
delay its frame carries the queue parts and says so (FrameFlag.QUEUES), for readers of history; redo
skips it.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence

from omq.base import limits
from omq.base.errors import (
    BadPriority,
    BadRequest,
    IndexFull,
    MessageTooLong,
    PutInhibited,
    QueueFull,
    SpoolFull,
    UnknownQueue,
)
from omq.core.engine.barriers import ASKED
from omq.core.engine.duplicates import MEMORY
from omq.core.engine.groups import GROUPED
from omq.core.engine.limits import NOTHING
from omq.core.engine.new_message import NewMessage as NewMessage
from omq.core.engine.state import CONTAINER, HAS_ID, IDEL, PERSISTENT, REMEMBERS, Core, Party
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.journal import FrameFlag, FrameType
from omq.format.location import LocationKind, location
from omq.format.message import Part, pack_parts
from omq.format.pool import NO_RECORD, PARTS_PER_RECORD
from omq.format.wire import PutFlag

END = int(FrameFlag.REQUEST_END | FrameFlag.RESULT)
_QUEUES, _PREPARED = int(FrameFlag.QUEUES), int(FrameFlag.PREPARED)
_BARRIER = int(FrameFlag.BARRIER)
_GROUPED = int(PutFlag.GROUPED)
NO_PLACE = (0, 0)
BARRIER_ALONE = "a barrier is put alone, or by a unit of work of one phase"


def check_queue(core: Core, queue: int, size: int, priority: int, count: int = 1) -> None:
    """May `count` messages of up to `size` bytes go on this queue now?"""
    rules = core.rules.get(queue)
    if rules is None or queue == IDEL:
        raise UnknownQueue(queue=queue if rules is None else rules.name)
    if not rules.put_allowed:
        raise PutInhibited(queue=rules.name)
    if priority >= limits.PRIORITIES:
        raise BadPriority(priority=priority)
    if size > rules.max_length:
        raise MessageTooLong(size=size, queue=rules.name, limit=rules.max_length)
    if core.t.q_depth[queue] + count > rules.max_depth:
        raise QueueFull(queue=rules.name, limit=rules.max_depth)


def parts_of(core: Core, new: NewMessage) -> list[Part]:
    """The queues of a new message; those of several queues are read from its payload."""
    if not new.parts:
        return [Part(new.queue, new.priority)]
    payload = message_format.decode(new.payload)
    if isinstance(payload, Finding):
        raise BadRequest(reason=str(payload))
    queues = {part.queue for part in payload.parts}
    if new.parts > limits.QUEUES_PER_MESSAGE_MAX:
        raise BadRequest(reason=f"a message goes on {limits.QUEUES_PER_MESSAGE_MAX} queues at most")
    if len(queues) != new.parts or len(payload.parts) != new.parts:
        raise BadRequest(reason="a queue is named twice, or the parts do not match the request")
    return list(payload.parts)


def rows_kept(core: Core, party: Party, *, moves: bool = False) -> int:
    """Rows of both tables that must stay free after a request: members leave the whole reserve,
    puts of the owner and root half of it, their moves nothing (SECURITY; ADR 0042)."""
    if not party.owns and party.uid:
        return core.index_reserve
    return 0 if moves else core.index_reserve // 2


def check(core: Core, new: NewMessage, kept: int) -> list[Part]:
    """Everything that can refuse a put; its queue parts. `kept`: see rows_kept."""
    if new.flags & ASKED and not new.members:
        raise BadRequest(reason=BARRIER_ALONE)
    if new.flags & MEMORY:
        parts = parts_of(core, new)
    elif not new.parts:
        check_queue(core, new.queue, new.size, new.priority)
        parts = [Part(new.queue, new.priority)]
    else:
        parts = parts_of(core, new)
        for part in parts:
            check_queue(core, part.queue, new.size, part.priority)
    check_room(core, 1, len(parts), kept)
    if not core.space_left and new.flags & PERSISTENT:
        raise SpoolFull(path="the spool", detail=core.room.refusal)
    return parts


def check_room(core: Core, messages: int, entries: int, kept: int) -> None:
    """Has the index rows for so many more, and keeps `kept`? What needs no row always goes."""
    t = core.t
    most = min(t.layout.messages, core.messages_total_max) - kept
    if ((messages and t.messages.used + messages > most)
            or (entries and t.entries.free < entries + kept)):
        raise IndexFull(limit=max(0, most))


def check_together(core: Core, slot: int, entry: int, parts: Sequence[Part],
                   listed: Sequence[Sequence[Part]], kept: int) -> None:
    """A disposition as a whole, of which each piece was checked: the message in `slot` leaves
    `entry` (-1: none) for the queues `parts`, and new messages come on the queues in `listed`."""
    t = core.t
    arriving = Tally(part.queue for one in listed for part in one)
    entries = arriving.total()
    stays = {t.e_queue[e] for e in t.entries_of(slot) if e != entry}
    fresh = [part.queue for part in parts if part.queue not in stays]
    arriving.update(fresh)
    if entry >= 0:
        arriving[t.e_queue[entry]] -= 1
    for queue, count in arriving.items():
        rules = core.rules[queue]
        if count > 0 and queue != IDEL and t.q_depth[queue] + count > rules.max_depth:
            raise QueueFull(queue=rules.name, limit=rules.max_depth)
    check_room(core, len(listed), entries + max(0, len(fresh) - (entry >= 0)), kept)


def put(core: Core, party: Party, new: NewMessage, sequence: int, unit: int = 0) -> int:
    """Check, append, apply; the QPoolId. `unit`: LSN of the disposition that it belongs to."""
    if new.flags & ASKED:
        core.barriers.judged(core, party, (new,))
    parts = check(core, new, rows_kept(core, party))
    core.block.reserve(1, len(new.payload))
    body = NO_PLACE if new.flags & PERSISTENT else place_bodies(core, [new])[0]
    return append(core, party, new, parts, sequence, END if not unit else 0, unit, body)


def place_bodies(core: Core, new: Sequence[NewMessage]) -> list[tuple[int, int]]:
    """Write the bodies of those that are not persistent: location word and offset of each,
    NO_PLACE for the others. With one call and before the request changes anything, for a full disk
    refuses it here (SpoolFull); nothing after it may fail."""
    loose = [message.payload for message in new if not message.flags & PERSISTENT]
    if not loose:
        return [NO_PLACE] * len(new)
    number, offsets = core.volatile.append(loose)
    word, following = location(LocationKind.VOLATILE, number), iter(offsets)
    return [NO_PLACE if message.flags & PERSISTENT else (word, next(following)) for message in new]


def _expiry(core: Core, new: NewMessage, parts: Sequence[Part]) -> int:
    """The least of what it says and what its queues allow, wall clock ns; 0: for ever."""
    expiry = new.expiry
    for part in parts:
        if most := core.rules[part.queue].expiry_ns:
            expiry = min(expiry or most + core.now_ns, most + core.now_ns)
    return expiry


def append(core: Core, party: Party, new: NewMessage, parts: list[Part], sequence: int, ends: int,
           unit: int, body: tuple[int, int], prepared: int = 0) -> int:
    """The frame and its effects; the caller has checked, reserved, and placed its `body`.
    `prepared`: the number of the unit of work in doubt that it belongs to."""
    t, block = core.t, core.block
    qpool = core.next_qpool + new.skips
    core.next_qpool = block.next_qpool = qpool + 1
    slot = t.messages.take()
    flags = persistent = new.flags & PERSISTENT
    crc = new.crc
    if persistent:
        file = party.pool_file
        if file < 0:
            file = party.pool_file = core.slots.choose_file(party.pid)
        run = -(-len(parts) // PARTS_PER_RECORD)
        record = core.slots.alloc(file, run)
        if run > 1:
            core.runs[slot] = run
        t.m_location[slot] = block.journal_word
        t.m_offset[slot] = block.payload_bytes
        block.puts.append(slot)
        payload = new.payload
    else:
        file, record = 0, NO_RECORD
        t.m_location[slot], t.m_offset[slot] = body
        payload = b""
        if new.parts:
            flags, payload, crc = _QUEUES, pack_parts(parts), 0
    flags |= (_PREPARED if prepared else 0) | (_BARRIER if new.members else 0)
    expiry = _expiry(core, new, parts)
    lsn = block.frame(
        FrameType.PUT, ends | flags | new.flags & (CONTAINER | MEMORY), new.queue, qpool,
        priority=new.priority, size=new.size, crc=crc, client=party.client, pid=party.pid,
        uid=party.uid, file=file, record=record, parts=new.parts, lease=new.key,
        token=party.token, sequence=sequence, correlation=new.correlation, argument=expiry,
        unit=unit, reason=prepared, payload=payload)
    t.m_qpool[slot] = qpool
    t.m_lsn[slot], t.m_time[slot] = lsn, core.now_ns
    key = t.m_key[slot] = new.key or qpool
    t.given += bool(new.key)
    t.index_id(slot, key)
    t.m_corr[slot] = new.correlation
    if new.correlation:
        t.index_correlation(slot, new.correlation)
    t.m_expiry[slot] = expiry
    if expiry:
        core.times.begin(slot, core.now_ns, core.mono_ns)
    t.m_length[slot] = len(new.payload)
    t.m_crc[slot] = new.crc
    t.m_size[slot] = new.size
    t.m_pid[slot], t.m_uid[slot], t.m_file[slot], t.m_record[slot] = (
        party.pid, party.uid, file, record)
    t.m_flags[slot] = persistent | (new.flags & CONTAINER) | (HAS_ID if new.key else 0)
    if new.flags & _GROUPED:
        core.groups.born(slot, *message_format.group_of(new.payload))
        t.m_flags[slot] |= GROUPED
    if new.flags & MEMORY:
        core.duplicates.born(core, new.payload, parts[0].until_ns)
        t.m_flags[slot] |= REMEMBERS
    t.m_parts[slot] = len(parts)
    t.m_first[slot] = t.m_origin[slot] = 0
    if core.limited:
        core.limits.arriving = slot, new.payload
    for part in parts:
        core.new_entry(slot, part.queue, part.priority, lsn, part.until_ns, prepared,
                       moment=part.is_moment)
    core.limits.arriving = NOTHING
    if new.members:
        core.barriers.born(core, slot, new.members)
    return qpool
