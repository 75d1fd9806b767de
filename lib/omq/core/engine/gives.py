"""Give: hand the next messages of a queue to a reader, each attempt journaled before it is known.

Order: priority, then sequence (the order of submission); entries that came back take their old
place through the return lane. The lease of a hand-out is the LSN of its GIVE frame: unique for
ever, and the settlement must name it. IDEL is a pseudo-queue: nothing is journaled for it but
the DELETE; its attempts count until the manager ends.

A suspect (core.engine.suspect_messages) is handed out alone, and so is a message that has failed,
so that the next death counts against no other message (ADR 0035; not on IDEL and POISON, where it
has no consequence). As messages that came back they are in the return lane, also after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappush

from omq.base import limits
from omq.core.engine import limited
from omq.core.engine.durations import waited
from omq.core.engine.groups import GROUPED
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import IDEL, PERSISTENT, POISON, PRIORITIES, Core, Party
from omq.format.frame_rules import GIVEN_OUT_OF_TURN
from omq.format.index import EntryState
from omq.format.journal import FrameType

_ACTIVE = int(EntryState.ACTIVE)


def next_ready(core: Core, queue: int) -> int:
    """The READY entry that goes first, -1 if there is none."""
    t = core.t
    if core.limited and (turns := core.keyed(queue)) is not None:
        return turns.next(core.mono_ns)
    head = -1
    base = queue * PRIORITIES
    for priority in range(PRIORITIES - 1, -1, -1):
        at = t.q_head[base + priority]
        if at:
            head = at - 1
            break
    if core.lanes.get(queue):
        top = core.lane_top(queue)
        if top is not None:
            entry = top[2]
            if head < 0:
                return entry
            mine = (-t.e_priority[head], t.e_sequence[head])
            return entry if (top[0], top[1]) < mine else head
    return int(head)


def take_ready(core: Core, entry: int) -> None:
    """Out of its chain or lane: it is being handed out."""
    t = core.t
    queue = t.e_queue[entry]
    if core.limited and core.keyed(queue) is not None:
        core.detach(entry)
    elif core.in_chain(entry):
        t.unlink(entry, queue * PRIORITIES + t.e_priority[entry])
        t.e_next[entry] = t.e_prev[entry] = 0
    else:
        item = core.lane_pop(queue)
        assert item[2] == entry, "only the top of a lane is given"


def give(core: Core, party: Party, queue: int, want: int, sequence: int) -> list[int]:
    """Hand up to `want` messages of a queue to a reader; their entries, in order."""
    want = min(want, core.ready(queue))
    if want <= 0:
        return []
    core.block.reserve(want, 0)
    rules = core.rules[queue]
    behind = core.times.behind
    entries = _nexts(core, queue, want, behind=behind)
    return _hand_each(core, party, rules, entries, take_ready, sequence)


def _nexts(core: Core, queue: int, want: int, *, behind: bool) -> Iterator[int]:
    """Those that go first, each when the one before has been taken; but for the first only those
    whose time is not over, while expiry is `behind`."""
    for turn in range(want):
        entry = next_ready(core, queue)
        if entry < 0 or (behind and turn and core.times.is_over(core.t.e_message[entry])):
            return
        yield entry


def give_these(core: Core, party: Party, queue: int, entries: list[int], sequence: int, *,
               whole: bool = False) -> list[int]:
    """Hand these READY messages of a queue (not IDEL) to a reader, wherever they stand: those of
    them that may go together, in order; all of a `whole` group. None: a suspect must wait.
    SpoolFull."""
    core.block.reserve(len(entries), 0)
    if whole and core.suspect_given and not core.suspects.isdisjoint(entries):
        return []
    return _hand_each(core, party, core.rules[queue], entries, Core.detach, sequence,
                      GIVEN_OUT_OF_TURN, whole=whole)


def _hand_each(core: Core, party: Party, rules: QueueRules, entries: Iterable[int],
               take: Callable[[Core, int], None], sequence: int, turn: int = 0, *,
               whole: bool = False) -> list[int]:
    """Hand these out, in order, those of them that may go together; `take` has each out of where
    it stands; `turn` as `_hand` has it."""
    given: list[int] = []
    for entry in entries:
        if (turn and not whole and core.limited and rules.queue in core.limited
                and not limited.admits(core, entry, len(given))):
            continue
        alone = not whole and _alone(core, rules.queue, entry)
        if alone and _waits(core, entry, given):
            break
        take(core, entry)
        _hand(core, party, rules, entry, sequence, turn)
        given.append(entry)
        if alone:
            break
    _count(core, party, rules.queue, len(given))
    return given


def _alone(core: Core, queue: int, entry: int) -> bool:
    """Nothing else is handed out with it."""
    return entry in core.suspects or (core.t.e_attempts[entry] > 0 and queue > POISON)


def _waits(core: Core, entry: int, given: list[int]) -> bool:
    """One that goes alone comes behind others, or is not the first suspect of this group."""
    return bool(given) or (core.suspect_given and entry in core.suspects)


def _hand(core: Core, party: Party, rules: QueueRules, entry: int, sequence: int, turn: int = 0
          ) -> None:
    """The frame and the effects of one hand-out, but for the counters. `turn`: GIVEN_OUT_OF_TURN
    where the reader chose the message; so are all of groups, and of queues with keys."""
    t, queue = core.t, rules.queue
    slot = t.e_message[entry]
    attempts = min(t.e_attempts[entry] + 1, limits.ATTEMPTS_MAX)
    if queue == IDEL:
        lease = core.volatile_lease = core.volatile_lease + 1
    else:
        lease = core.block.frame(
            FrameType.GIVE, t.m_flags[slot] & PERSISTENT, queue, t.m_qpool[slot],
            priority=t.e_priority[entry], attempt=attempts, size=t.m_size[slot],
            client=party.client, pid=party.pid, uid=party.uid, file=t.m_file[slot],
            record=t.m_record[slot], token=party.token, sequence=sequence,
            argument=turn or (GIVEN_OUT_OF_TURN if t.m_flags[slot] & GROUPED or (
                core.limited and core.keyed(queue) is not None) else 0))
        t.m_lsn[slot] = lease
    t.e_attempts[entry] = attempts
    t.e_lease[entry] = lease
    t.e_reader[entry] = party.slot + 1
    t.e_until[entry] = core.now_ns  # since when it is active, for the dumps
    t.e_state[entry] = _ACTIVE
    waited(t, entry, core.now_ns)
    if rules.lease_ns:
        heappush(core.leases, (core.mono_ns + rules.lease_ns, entry, lease))
    if core.limited and queue in core.limited:
        limited.taken(core, core.limited[queue], entry)
    if entry in core.suspects:
        core.suspects.remove(entry)
        core.suspect_given = True


def _count(core: Core, party: Party, queue: int, count: int) -> None:
    core.t.q_ready[queue] -= count
    core.t.q_active[queue] += count
    core.active += count
    party.active += count
