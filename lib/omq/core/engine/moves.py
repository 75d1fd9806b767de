"""Moves: a message leaves a queue for others, by its reader with any new messages, or by an order.

Frames: MOVE with the new queue parts, or DONE where there are none; messages that a move makes
carry its LSN as their unit of work and are in the same block, so all of it counts or nothing.

Errors: as core.engine.settle and core.engine.puts, before anything is changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from omq.base.errors import BadRequest, NoMessage
from omq.core.engine.durations import worked
from omq.core.engine.puts import (
    NewMessage,
    append,
    check,
    check_queue,
    check_together,
    place_bodies,
    rows_kept,
)
from omq.core.engine.settle import END, Verdict, done, frame_for, held, leave
from omq.core.engine.state import IDEL, PERSISTENT, Core, Party
from omq.core.engine.transitions import Event, after
from omq.format.index import EntryState
from omq.format.journal import FrameType
from omq.format.message import Part, pack_parts
from omq.format.pool import PARTS_PER_RECORD


def move(core: Core, party: Party, verdict: Verdict, queues: Sequence[Part],
         new: Sequence[NewMessage], sequence: int) -> tuple[int, int]:
    """Off this queue, onto others, with new messages: one atomic disposition. First new QPoolId, 0:
    there is none, and how many were put."""
    t, block = core.t, core.block
    entry = verdict.entry = held(core, party, verdict.entry, verdict.qpool,
                                 verdict.lease)
    slot = t.e_message[entry]
    if t.e_queue[entry] == IDEL:
        raise NoMessage(queue="IDEL")
    if len({part.queue for part in queues}) != len(queues):
        raise BadRequest(reason="a queue is named twice")
    for part in queues:
        check_queue(core, part.queue, t.m_size[slot], part.priority, 0)
    kept = rows_kept(core, party, moves=True)
    first, asked = core.next_qpool if new else 0, len(new)
    new, absorbed = core.duplicates.judged(core, new, 1)
    listed = [check(core, message, kept) for message in new]
    check_together(core, slot, entry, queues, listed, kept)
    raw = pack_parts(queues)
    block.reserve(1 + len(new), len(raw) + sum(len(message.payload) for message in new))
    bodies = place_bodies(core, new)
    ends = 0 if new else END
    if not queues:
        unit = done(core, entry, party, sequence, ends, unit=block.lsn if new else 0)
    else:
        unit = move_entry(core, entry, party, sequence, ends, queues, raw,
                          unit=block.lsn if new else 0)
    for i, (message, parts, body) in enumerate(zip(new, listed, bodies, strict=True)):
        final = END if i == len(new) - 1 else 0
        append(core, party, message, parts, sequence, final, unit, body)
    return first, asked - absorbed


def move_entry(core: Core, entry: int, party: Party | None, sequence: int, flags: int,
               queues: Sequence[Part], raw: bytes, *, unit: int = 0) -> int:
    """The MOVE frame and its effect on the tables."""
    t = core.t
    slot = t.e_message[entry]
    assert after(Event.MOVE, t.e_state[entry]) is EntryState.FREE
    old_record = t.m_record[slot]
    grow_records(core, slot, t.m_parts[slot] - 1 + len(queues))
    lsn = frame_for(core, FrameType.MOVE, flags, entry, party, sequence, reason=old_record,
                    unit=unit, parts=len(queues), payload=raw)
    core.processed(t.e_queue[entry])
    worked(t, entry, core.now_ns)
    leave(core, entry)
    present = {t.e_queue[e] for e in t.entries_of(slot) if e != entry}
    core.drop_entry(entry)
    for part in queues:
        if part.queue not in present:
            t.m_parts[slot] += 1
            core.new_entry(slot, part.queue, part.priority, lsn, part.until_ns,
                           moment=part.is_moment)
    return lsn


def grow_records(core: Core, slot: int, parts: int) -> None:
    """A message that needs more pool records than it has gets a new run of them."""
    t = core.t
    run = -(-parts // PARTS_PER_RECORD)
    had = core.runs.get(slot, 1)
    if run <= had or not t.m_flags[slot] & PERSISTENT:
        return
    core.slots.free(t.m_file[slot], t.m_record[slot], had)
    t.m_record[slot] = core.slots.alloc(t.m_file[slot], run)
    core.runs[slot] = run
