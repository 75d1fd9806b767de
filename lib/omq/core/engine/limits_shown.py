"""What people see of limits of work: of a queue, and why one READY message of it does not go now.

Looked up when somebody asks, never kept: of a queue one look at each of its keys.
"""

from __future__ import annotations

from collections import Counter as Tally

from omq.base.amounts import duration
from omq.base.clock import NS_PER_S
from omq.core.engine import buckets
from omq.core.engine.key_turns import Turns
from omq.core.engine.limit_key import Key
from omq.core.engine.limits import QueueLimits
from omq.core.engine.state import Core
from omq.format.index import EntryState

Facts = dict[str, int | str]
_READY = int(EntryState.READY)
BY_PLACES, BY_RATE, BY_PAUSE = "places", "rate", "paused"
"""What a key waits for: messages of it that are active, a token, or an operator."""


def queue_told(core: Core, queue: int) -> Facts:
    """Of a queue; nothing of one without limits."""
    limits = core.limited.get(queue)
    if limits is None:
        return {}
    told: Facts = {"limit": _of_queue(core, limits)}
    if (turns := limits.turns) is not None:
        waits = Tally(word for key in turns.keys.values() if key.count
                      and (word := _waits_for(core, turns, key)))
        told |= {"limit_keys": len(turns.keys), "limit_keys_full": waits[BY_PLACES],
                 "limit_keys_rated": waits[BY_RATE], "limit_keys_paused": waits[BY_PAUSE],
                 "limit_keys_forgotten": turns.forgotten,
                 "paused": ", ".join(core.limits.paused.get(queue, []))}
    return told


def message_told(core: Core, entry: int) -> str:
    """Why a READY message of a queue is not handed out, as far as limits go; "": they let it."""
    t = core.t
    limits = core.limited.get(t.e_queue[entry])
    if limits is None or t.e_state[entry] != _READY or not core.groups.has_turn(entry):
        return ""
    if said := _of_queue(core, limits):
        return said
    turns = limits.turns
    if turns is None:
        return ""
    key = turns.of(core.limits.keys[entry])
    waits = _waits_for(core, turns, key)
    if waits == BY_PLACES:
        return (f"key_in_work_max: {key.in_work} of {turns.rules.key_in_work_max} of its key are "
                "being processed")
    if waits == BY_RATE:
        return f"key_rate: the next token of its key comes in {_seconds(core, turns, key)}"
    return "its key is paused: omq queue resume" if waits else ""


def _of_queue(core: Core, limits: QueueLimits) -> str:
    rules, now = limits.rules, core.mono_ns
    active = core.t.q_active[limits.number]
    if rules.in_work_max and active >= rules.in_work_max:
        return f"in_work_max: {active} of {rules.in_work_max} are being processed"
    if rules.rate is not None and buckets.tokens(rules.rate, limits.full, now) <= 0:
        ns = buckets.next_at(rules.rate, limits.full) - now
        return f"rate: the next token comes in {duration(ns / NS_PER_S)}"
    return ""


def _waits_for(core: Core, turns: Turns, key: Key) -> str:
    if key.paused:
        return BY_PAUSE
    if turns.may(key, core.mono_ns):
        return ""
    limit = turns.rules.key_in_work_max
    return BY_PLACES if limit and key.in_work >= limit else BY_RATE


def _seconds(core: Core, turns: Turns, key: Key) -> str:
    assert turns.rules.key_rate is not None
    ns = buckets.next_at(turns.rules.key_rate, key.full) - core.mono_ns
    return duration(ns / NS_PER_S)
