"""What limits of work (core.engine.limits) do when entries change and are handed out. The functions
are called only for queues that have limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omq.base.limits import PRIORITIES
from omq.format.index import Counter, EntryState, QueueFlag

if TYPE_CHECKING:
    from omq.core.engine.lanes import Lanes
    from omq.core.engine.limit_rules import LimitRules
    from omq.core.engine.limits import QueueLimits
    from omq.core.engine.state import Core

TELL_MAX: Final = 1000
"""Entries that readers chose and were refused, which are announced at once when a place comes."""
_AT_LIMIT = int(QueueFlag.AT_LIMIT)
_READY, _ACTIVE = int(EntryState.READY), int(EntryState.ACTIVE)


def define(core: Core, queue: int, rules: LimitRules | None) -> int:
    """The limits of a queue are these from now on; what they are in the queue's flags."""
    old, new = core.keyed(queue), rules is not None and rules.keyed
    if new and old is None:
        _out_of_chains(core, queue)
    for entry in core.limits.define(queue, rules, core.mono_ns):
        core.into_lane(entry, queue)
    if rules is None:
        return 0
    return QueueFlag.LIMITED | (QueueFlag.KEYED if new else 0)


def _out_of_chains(core: Core, queue: int) -> None:
    """Nothing of a queue is in its chains or its lane."""
    t, v = core.t, core.t.v
    high = t.entries.high
    of_queue = (v["e_queue"][:high] == queue) & (v["e_state"][:high] == _READY)
    for links in ("e_next", "e_prev"):
        v[links][:high][of_queue] = 0
    for ends in ("q_head", "q_tail"):
        v[ends][queue * PRIORITIES : (queue + 1) * PRIORITIES] = 0
    t.counters[Counter.RETURNED] -= len(core.lanes.pop(queue, ()))


def ready(core: Lanes, limits: QueueLimits, there: int) -> int:
    """Messages that may be handed out now, of those that are `there`: about how many, and exactly
    whether there are any."""
    t, now = core.t, core.mono_ns
    may = min(limits.places(now), there)
    if may > 0 and limits.turns is not None:
        may = min(may, max(1, limits.turns.several())) if limits.turns.next(now) >= 0 else 0
    flags = t.q_flags[limits.number]
    if bool(flags & _AT_LIMIT) != (not may and t.q_ready[limits.number] > 0):
        t.q_flags[limits.number] = flags ^ _AT_LIMIT
    return max(0, may)


def taken(core: Core, limits: QueueLimits, entry: int) -> None:
    """It is active."""
    limits.spent(1, core.mono_ns)
    if limits.turns is not None:
        limits.turns.taken(core.limits.keys[entry], core.mono_ns)


def left(core: Core, entry: int, queue: int) -> None:
    """It was active, and is not."""
    limits = core.limits.queues[queue]
    if limits.turns is not None:
        limits.turns.left(core.limits.keys[entry], core.mono_ns)
    opened(core, limits)


def dropped(core: Core, entry: int, queue: int, state: int) -> None:
    """It has left its queue, where it was in this state."""
    if state == _ACTIVE:
        left(core, entry, queue)
    elif (turns := core.limits.queues[queue].turns) is not None:
        turns.gone(core.limits.keys[entry], core.mono_ns)


def opened(core: Core, limits: QueueLimits) -> None:
    """A place or a token has come: who waits looks."""
    queue = limits.number
    core.runnable.add(queue)
    if limits.refused and queue in core.watched:
        told = list(limits.refused)[:TELL_MAX]
        for entry in told:
            del limits.refused[entry]
        t = core.t
        core.watched[queue] += [entry for entry in told if t.e_state[entry] == _READY
                                and t.e_queue[entry] == queue]


def wake(core: Core) -> None:
    """What has a token by now."""
    now = core.mono_ns
    for limits in core.limits.queues.values():
        woken = limits.turns is not None and limits.turns.wake(now)
        if limits.has_again(now) or woken:
            opened(core, limits)


def admits(core: Core, entry: int, more: int = 0) -> bool:
    """May this READY entry, which a reader chose, go now? `more`: were handed out just before, and
    are not counted yet."""
    limits = core.limits.queues[core.t.e_queue[entry]]
    now, turns = core.mono_ns, limits.turns
    if limits.places(now, more) > 0 and (
            turns is None or turns.may(turns.of(core.limits.keys[entry]), now)):
        return True
    limits.refused[entry] = None
    return False


def admits_whole(core: Core, entries: list[int]) -> bool:
    """May these go together? A group that is larger than the limit goes when nothing else is in
    work; its tokens are owed."""
    if not entries or not admits(core, entries[0]):
        return False
    limits = core.limits.queues[core.t.e_queue[entries[0]]]
    most = limits.rules.in_work_max
    if not most or core.t.q_active[limits.number] + min(len(entries), most) <= most:
        return True
    limits.refused[entries[0]] = None
    return False
