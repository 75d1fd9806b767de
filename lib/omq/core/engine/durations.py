"""How long messages wait, readers work and syncs take, and how large blocks are: the counts of the
index (format.durations).

A hand-out counts the time since its message was put on the queue, whether it comes for the first
time or again, a delay that was asked for included; so there are as many as hand-outs. The end of a
reader's work by done or move counts the time since its hand-out; deferred, failed and returned ones
do not, nor do those that were handed out by a manager before this one, which nobody has noted.
Both by the wall clock of the group. The tables are made anew at each start, so all begin at 0.

omq.fast.columns does the same.
"""

from __future__ import annotations

from omq.core.engine.block import Block
from omq.core.index.tables import Tables
from omq.format.durations import BINS, SUM_MASK, size_bin, time_bin
from omq.format.index import Counter, EntryState
from omq.format.journal import FRAME

_ACTIVE = int(EntryState.ACTIVE)
_SYNC_US, _FRAMES = int(Counter.SYNC_US), int(Counter.FRAMES)
_GROUPS, _FILE, _BYTES = int(Counter.GROUPS), int(Counter.JOURNAL_FILE), int(Counter.JOURNAL_BYTES)
_US = 1000


def waited(t: Tables, entry: int, now_ns: int) -> None:
    """It is being handed out."""
    queue, ns = t.e_queue[entry], max(0, now_ns - t.e_submitted[entry])
    t.q_waits[queue * BINS + time_bin(ns)] += 1
    t.q_waited_us[queue] = (t.q_waited_us[queue] + ns // _US) & SUM_MASK


def worked(t: Tables, entry: int, now_ns: int) -> None:
    """Its reader's work ends, if it is in the hands of one."""
    since = t.e_until[entry]
    if t.e_state[entry] != _ACTIVE or not since:
        return
    queue, ns = t.e_queue[entry], max(0, now_ns - since)
    t.q_works[queue * BINS + time_bin(ns)] += 1
    t.q_worked_us[queue] = (t.q_worked_us[queue] + ns // _US) & SUM_MASK


def forget(t: Tables, queue: int) -> None:
    """Its row is as new."""
    for name in ("q_waits", "q_works"):
        t.v[name][queue * BINS : (queue + 1) * BINS] = 0
    t.q_waited_us[queue] = t.q_worked_us[queue] = t.q_failed[queue] = t.q_dead[queue] = 0


def wrote(t: Tables, block: Block) -> None:
    """The block was written, with the frames that it has, and maybe synced; one sync in
    SYNCS_TIMED was timed."""
    counters, frames, sync_ns = t.counters, block.count, block.writer.sync_ns
    counters[_GROUPS], counters[_FILE] = counters[_GROUPS] + 1, block.writer.file_number
    counters[_BYTES] += FRAME.size * frames + block.payload_bytes
    counters[_FRAMES] += frames
    t.j_groups[size_bin(frames)] += 1
    if sync_ns >= 0:
        t.j_syncs[time_bin(sync_ns)] += 1
        counters[_SYNC_US] = (counters[_SYNC_US] + sync_ns // _US) & SUM_MASK
