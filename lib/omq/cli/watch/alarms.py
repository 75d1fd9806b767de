"""When an alarm begins and ends: thresholds with hold time and hysteresis, as a pure function of
what was and what is measured.

A condition has four states:

    calm       nothing is known of it; not kept
    pending    at `raise` or above, not yet for hold_s
    raised     it has been so for hold_s
    clearing   raised, below `clear`, not yet for hold_s

Invariants: 1. the same facts at the same time change nothing; 2. a value between `clear` and
`raise` keeps a raised one raised and ends a pending one; 3. what is not measured (no index) keeps
what was; 4. a clock that goes back begins a hold time anew, and never a raise; 5. a queue that is
gone, and an alarm that is not configured any more, are over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from omq.base.clock import NS_PER_S
from omq.cli.watch.alarm_conf import Alarm
from omq.cli.watch.conditions import CONDITIONS_MAX, Condition, Key
from omq.cli.watch.facts import Facts
from omq.cli.watch.measures import OF_QUEUE, values
from omq.cli.watch.reasons import why


def step(alarms: Iterable[Alarm], facts: Facts, before: Mapping[Key, Condition]
         ) -> dict[Key, Condition]:
    """What is not calm now."""
    found: dict[Key, Condition] = {}
    for alarm in alarms:
        measured = values(alarm.measure, alarm.queue, facts)
        kept = {queue for name, queue in before if name == alarm.name}
        known = bool(facts.queues) if alarm.measure in OF_QUEUE else bool(measured)
        for queue in sorted({*measured, *kept}):
            old = before.get((alarm.name, queue))
            if queue in measured:
                new = _next(alarm, queue, measured[queue], facts.time_ns, old)
            else:
                new = None if known else old
            if new is not None and len(found) < CONDITIONS_MAX:
                found[new.key] = _explained(alarm, new, facts) if queue in measured else new
    return found


def _explained(alarm: Alarm, new: Condition, facts: Facts) -> Condition:
    """With what holds it up now. Below the threshold the last reason stays: it is nearly over."""
    if new.value < alarm.begin and new.why:
        return new
    text, hints = why(alarm.measure, new.queue, new.value, facts)
    return replace(new, why=text, hints=hints)


def _next(alarm: Alarm, queue: str, value: float, now_ns: int, old: Condition | None
          ) -> Condition | None:
    hold_ns = alarm.hold_s * NS_PER_S
    if old is None or not old.raised:
        if value < alarm.begin:
            return None
        since = min(old.since_ns, now_ns) if old is not None else now_ns
        ripe = now_ns - since >= hold_ns
        return Condition(alarm.name, queue, alarm.severity, value, now_ns if ripe else since,
                         raised=ripe)
    if value >= alarm.clear:
        return replace(old, severity=alarm.severity, value=value, clearing_ns=0)
    clearing = min(old.clearing_ns or now_ns, now_ns)
    if now_ns - clearing >= hold_ns:
        return None
    return replace(old, severity=alarm.severity, value=value, clearing_ns=clearing)
