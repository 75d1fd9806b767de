"""The part of core.check.invariants that is about limits of work: where the READY entries of queues
with keys stand, how many of each key readers have, and that who may go is in the turn.
"""

from __future__ import annotations

from collections import Counter as Tally

import numpy as np

from omq.core.check.broken_rules import Report, Rule
from omq.core.engine.key_turns import Turns
from omq.core.engine.limit_key import NEVER, Key
from omq.core.engine.limits import QueueLimits
from omq.core.engine.state import Core
from omq.format.index import Counter, EntryState, QueueFlag

_READY, _ACTIVE = int(EntryState.READY), int(EntryState.ACTIVE)


def check_limits(core: Core, report: Report) -> list[int]:
    """READY entries that stand by their keys: in no chain and in no lane."""
    standing: list[int] = []
    keys = ready = 0
    for number, limits in core.limits.queues.items():
        flags = core.t.q_flags[number]
        if not flags & QueueFlag.LIMITED or bool(flags & QueueFlag.KEYED) != limits.rules.keyed:
            report.add(Rule.QUEUE, f"queue {number}", "has limits, its flags say something else")
        if limits.turns is not None:
            standing += _check_turns(core, limits, limits.turns, report)
            keys += len(limits.turns.keys)
            ready += limits.turns.ready
    said = core.t.counters[Counter.LIMIT_KEYS], core.t.counters[Counter.KEYED_READY]
    if said != (keys, ready):
        report.add(Rule.COUNTER, "keys", f"the counters say {said}, there are {keys} and {ready}")
    return standing


def _check_turns(core: Core, limits: QueueLimits, turns: Turns, report: Report) -> list[int]:
    t, high, name = core.t, core.t.entries.high, f"queue {limits.number}"
    state, of = t.v["e_state"][:high], t.v["e_queue"][:high] == limits.number
    there = [entry for entry in np.flatnonzero(of & (state == _READY)).tolist()
             if core.groups.has_turn(entry)]
    if len(there) != turns.ready:
        report.add(Rule.LANE, name, f"{turns.ready} ready by their keys, there are {len(there)}")
    lined = {(key.name, item[2]) for key in turns.keys.values() for item in key.line
             if t.e_sequence[item[2]] == item[1]}
    for entry in there:
        if (core.limits.keys[entry], entry) not in lined:
            report.add(Rule.LANE, f"entry {entry}", "not in the line of its key")
    counts = Tally(core.limits.keys[entry] for entry in there)
    active = Tally(core.limits.keys[entry]
                   for entry in np.flatnonzero(of & (state == _ACTIVE)).tolist())
    for key in turns.keys.values():
        if (key.count, key.in_work) != (counts[key.name], active[key.name]):
            report.add(Rule.LANE, f"{name} key {key.name:#x}",
                       f"counts {key.count} ready and {key.in_work} being processed, there are "
                       f"{counts[key.name]} and {active[key.name]}")
        if key.count and turns.may(key, core.mono_ns) and not _stands(turns, key):
            report.add(Rule.RUNNABLE, f"{name} key {key.name:#x}", "may go, and has no turn")
    if missing := (counts | active).keys() - turns.keys.keys():
        report.add(Rule.LANE, name, f"{len(missing)} keys have messages and are not known")
    return there


def _stands(turns: Turns, key: Key) -> bool:
    """In the ring or the heap, or its time has come, and the next tick puts it there."""
    return key.turned or key.at is not None or key.wakes < NEVER
